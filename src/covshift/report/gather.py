"""`Result`: a run folder as the report sees it, and `gather`, which reads the folders."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from covshift.bench.methods import ANCHORED, NONE, PARTIAL, SCENARIOS, BatchMethod, Prior, foremost, stored_method
from covshift.bench.results.book import AnswerBook
from covshift.bench.results.changes import Change, Side, change_of
from covshift.bench.results.difference import Difference
from covshift.bench.results.metrics import AS_PUBLISHED, Baseline, Rate, mce, mean_rate, rate
from covshift.bench.results.paired import ImageErrors, Weights, evenly, mce_weights
from covshift.bench.results.store import Row, Run, Store
from covshift.bench.results.table import CorruptionGroups, grouped
from covshift.bench.suite import run_folders
from covshift.data.condition import CLEAN, MIXED, SEQUENCE, SEVERITIES, Condition
from covshift.support.errors import CovshiftError

SIDE_BY_SIDE = tuple(each for name in SCENARIOS for each in (name, f"{name}:{ANCHORED}"))
"""The paper's scenarios, each followed by itself anchored: the order in which methods are shown."""

_NOT_CORRUPTIONS = tuple(condition.corruption for condition in (CLEAN, MIXED, SEQUENCE))


@dataclass(frozen=True)
class Result:
    """The results of a run so far.

    Attributes:
        name: a short name that no other result of the report has.
        folder: the folder of the run.
        run: the settings of the run, and what else its rows depend on.
        rows: the finished cells.
        yardstick: the baseline of mCE; None where mCE means nothing.
        book: the answers to each image, as far as they were kept; None where there are none, or damaged ones.
    """

    name: str
    folder: Path
    run: Run
    rows: tuple[Row, ...]
    yardstick: Baseline | None = None
    book: AnswerBook | None = None

    @cached_property
    def errors(self) -> ImageErrors | None:
        """The errors image by image; None where no answers were kept."""
        return ImageErrors(self.book, self.rows) if self.book and self.book.images else None

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, as far as the run kept them with its answers."""
        images = self.book.images if self.book else None
        return images.class_names if images else ()

    @cached_property
    def table(self) -> dict[str, dict[Condition, Row]]:
        """Rows by method and condition."""
        table: dict[str, dict[Condition, Row]] = {}
        for row in self.rows:
            table.setdefault(row.method, {})[Condition(row.corruption, row.severity)] = row
        return table

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods that have rows, in the order of the settings; those that only served to choose N come last."""
        asked = [name for name in self.run.settings.methods if name in self.table]
        return tuple(dict.fromkeys([*asked, *self.table]))

    @cached_property
    def corruptions(self) -> CorruptionGroups:
        """The corruptions of the run by their part in the benchmark, users' own among them."""
        in_rows = [row.corruption for row in self.rows if row.corruption not in _NOT_CORRUPTIONS]
        return grouped([*self.run.settings.corruptions, *in_rows])

    @cached_property
    def planned(self) -> tuple[Condition, ...]:
        """The corrupted conditions that means are taken over: those of the test corruptions, else of all there are."""
        settings = self.run.settings
        chosen = grouped(settings.corruptions).test or settings.corruptions
        return tuple(Condition(name, severity) for name in chosen for severity in settings.severities)

    @cached_property
    def scenarios(self) -> tuple[str, ...]:
        """The methods that sum up a run, as far as it has them: the scenarios, those anchored, and the foremost."""
        asked = [name for name in self.run.settings.methods if name in self.table]
        return tuple(name for name in dict.fromkeys([*SIDE_BY_SIDE, foremost(asked)]) if name in self.table)

    @cached_property
    def shared(self) -> tuple[Condition, ...]:
        """The planned conditions that are done by every scenario of the run that has begun with them."""
        done = [set(self.table[name]) & set(self.planned) for name in self.scenarios]
        begun = [each for each in done if each]
        return tuple(c for c in self.planned if begun and all(c in each for each in begun))

    @property
    def judged(self) -> tuple[Condition, ...]:
        """The conditions that the model is judged by: `shared`, or the images as they are, or the whole sequence."""
        if self.run.settings.sequence:
            return (SEQUENCE,)
        return (CLEAN,) if self.natural else self.shared

    @cached_property
    def left(self) -> int:
        """The number of cells that are not done yet."""
        return len(set(self.run.settings.plan.all_names()) - {row.cell for row in self.rows})

    @property
    def natural(self) -> bool:
        """Whether the run is on images as they are only."""
        return not self.run.settings.corruptions

    @property
    def image_count(self) -> int:
        """The number of images in a condition."""
        return self.run.image_count

    @property
    def subset_seed(self) -> int | None:
        """The seed that the images were drawn with; None where the run has all images of its data."""
        return self.run.settings.seed if self.image_count < self.run.data_images else None

    @property
    def images(self) -> tuple[object, ...]:
        """The key that identifies the images of the run: two runs with the same key have the same images."""
        return (self.run.data_digest, self.image_count, self.subset_seed)

    @cached_property
    def adapted(self) -> str | None:
        """The method that stands for adaptation in the conditions that the model is judged by."""
        return self.adapted_in(self.judged)

    def adapted_in(self, conditions: Sequence[Condition]) -> str | None:
        """Return the method that stands for adaptation among those that were run in all of these conditions."""
        return foremost(name for name in self.methods if self.mean(name, conditions))

    @property
    def to_be_adapted(self) -> bool:
        """Whether the run has a method that adapts, be it only in its plan."""
        return any(stored_method(name).repairs for name in self.run.settings.methods)

    @property
    def adaptable(self) -> bool:
        """Whether the model is known to hold statistics: other methods than `none` take them."""
        return any(method.adapts and not method.anchored for method in self.run.settings.all_methods)

    @cached_property
    def prior(self) -> Prior | None:
        """The prior N of partial adaptation, anchored where no other was run."""
        return next((self.prior_of(name) for name in self.scenarios if name.partition(":")[0] == PARTIAL), None)

    def prior_of(self, method: str) -> Prior | None:
        """Return the prior N that a method was run with."""
        return next((row.prior for row in self.rows if row.method == method), None)

    def rate(self, method: str, condition: Condition = CLEAN, *, top5: bool = False) -> Rate | None:
        """Return the error of a method in a condition."""
        row = self.table.get(method, {}).get(condition)
        return _rate(row.top5_errors if top5 else row.top1_errors, row.images) if row else None

    def mean(self, method: str, conditions: Sequence[Condition] | None = None) -> Rate | None:
        """Return the mean error of a method over conditions, by default `shared`; None where it lacks one of them."""
        wanted = self.shared if conditions is None else conditions
        rates = [self.rate(method, condition) for condition in wanted]
        known = [rate for rate in rates if rate is not None]
        return mean_rate(known) if known and len(known) == len(wanted) else None

    def over(self, method: str, corruption: str) -> Rate | None:
        """Return the mean error of a method over the severities of a corruption."""
        return self.mean(method, [Condition(corruption, severity) for severity in self.run.settings.severities])

    def gain(
        self, method: str, conditions: Sequence[Condition] | None = None, *, against: str = NONE
    ) -> Difference | None:
        """Return by how much a method changes the mean error over conditions, by default `shared`.

        On the same images, by a paired interval where the answers were kept; see `paired`.
        """
        wanted = self.shared if conditions is None else conditions
        changed = self._changed((against, method), evenly(wanted))
        return changed.difference if changed else None

    def _changed(self, methods: tuple[str, str], weights: Weights) -> Change | None:
        before, after = map(self.side, methods)
        return change_of(before, after, weights)

    def side(self, method: str) -> Side:
        """Return a method of the run as one side of a comparison."""
        return Side(method, self.rate, self.errors)

    @cached_property
    def paired(self) -> bool:
        """Whether the answers of none and of the method that stands for adaptation were kept where it is judged."""
        changed = self._changed((NONE, self.adapted), evenly(self.judged)) if self.adapted else None
        return changed is not None and changed.paired

    def mce_gain(self, method: str) -> Difference | None:
        """Return by how much a method changes mCE."""
        if self.mce(NONE) is None or self.mce(method) is None or self.yardstick is None:
            return None
        changed = self._changed((NONE, method), mce_weights(self.yardstick))
        return changed.difference if changed else None

    def mce(self, method: str) -> float | None:
        """Return the mean corruption error of a method, which is 1 for the yardstick."""
        if self.yardstick is None or self.run.settings.severities != SEVERITIES:
            return None
        rows = self.table.get(method, {})
        return mce({c: row.top1_errors / row.images for c, row in rows.items()}, self.yardstick)

    def on_holdout(self, method: str) -> float | None:
        """Return the error on the holdout corruptions, which N is chosen by, relative to the yardstick if any."""
        weights = self.yardstick.errors if self.yardstick else {}
        rates = [(self.rate(method, c), weights.get(c.corruption, 1.0)) for c in self.run.settings.plan.holdout]
        shares = [rate.value / weight for rate, weight in rates if rate is not None]
        return math.fsum(shares) if shares and len(shares) == len(rates) else None

    @cached_property
    def batches(self) -> dict[tuple[int, float], str]:
        """The methods with statistical batches of n images and a finite prior N, by (n, N)."""
        methods: dict[tuple[int, float], str] = {}
        for name in self.methods:
            method = stored_method(name)
            if isinstance(method, BatchMethod) and method.n and isinstance(method.prior, int | float):
                methods[method.n, float(method.prior)] = name
        return {(n, prior): name for (n, prior), name in methods.items() if math.isfinite(prior)}


class Gathered(NamedTuple):
    """The results, and notes on folders that could not be read."""

    results: tuple[Result, ...]
    notes: tuple[str, ...]


def gather(paths: Iterable[Path], baseline: Baseline | None = None) -> Gathered:
    """Read the results of run folders.

    Args:
        paths: run folders, or folders that hold some.
        baseline: the baseline of mCE; by default AlexNet on ImageNet, and none on other data.
    """
    folders: dict[Path, Path] = {}  # each once, however it is spelled
    for path in paths:
        if not path.is_dir():
            raise CovshiftError(f"there is no run in {path}: expected the folder of a run, or a folder of these")
        for folder in run_folders(path):
            folders.setdefault(folder.resolve(), folder)
    notes, stores = [], []
    for folder in folders.values():
        try:
            store = Store(folder)
            _check_methods(store)
            if store.rows():
                stores.append(store)
            else:
                notes.append(f"{folder} has no finished cell yet")
        except CovshiftError as error:
            notes.append(f"left out: {error}")
    if not stores:
        raise CovshiftError(f"expected at least one run with a finished cell; {'; '.join(notes)}")
    labels = _labels([store.folder for store in stores])
    results = []
    for store, label in zip(stores, labels, strict=True):
        rows, yardstick = tuple(store.rows()), baseline or (AS_PUBLISHED if store.run.imagenet else None)
        if problem := store.book.problem(rows):
            notes.append(f"{label} is shown without its answers: {problem}")
        usable = any(row.answers for row in rows) and problem is None
        results.append(Result(label, store.folder, store.run, rows, yardstick, store.book if usable else None))
    return Gathered(tuple(results), tuple(notes))


def _check_methods(store: Store) -> None:
    for name in dict.fromkeys(row.method for row in store.rows()):
        try:
            stored_method(name)
        except CovshiftError as error:
            raise CovshiftError(
                f"{store.folder} has rows of a method that this covshift cannot read: {error}"
            ) from error


@lru_cache(maxsize=1 << 16)
def _rate(errors: int, images: int) -> Rate:
    """Return a rate; every table and figure needs the same ones, so they are kept."""
    return rate(errors, images)


def _labels(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, with as much of the path as it takes to distinguish them."""
    whole = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, whole)) + 1):
        labels = [Path(*parts[-depth:]).as_posix() for parts in whole]
        if len(set(labels)) == len(labels):
            break
    return labels
