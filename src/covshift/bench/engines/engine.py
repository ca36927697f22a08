"""`Engine`: runs the conditions that N is chosen by, then the rest, and puts the rows into the one store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from covshift.bench.engines.where import Shard
from covshift.bench.methods import PARTIAL_PRIOR, Method, Prior, value_text
from covshift.bench.plan import Cell
from covshift.bench.results.metrics import choose_prior
from covshift.bench.results.store import Finished, Row, Store
from covshift.bench.screen import Screen
from covshift.data.condition import Condition
from covshift.support.errors import CovshiftError


class Engine(ABC):
    """Runs the cells of a run that are not in its store yet; a subclass decides where.

    Args:
        store: the store of the run.
        screen: the screen to show progress on.
        images: the number of images in a condition.
        shard: the part of the conditions to run; None for all.
        elsewhere: a function that returns the rows that other parts have by now, to choose N by.
    """

    def __init__(
        self,
        store: Store,
        screen: Screen,
        images: int,
        shard: Shard | None = None,
        elsewhere: Callable[[], list[Row]] = list,
    ) -> None:
        self._store = store
        self._plan = store.run.settings.plan
        self._screen = screen
        self._images = images
        self._elsewhere = elsewhere
        self._conditions = shard.part(self._plan.conditions) if shard else self._plan.conditions
        self._names = set(self._plan.names_of(self._conditions))
        self._place = {condition: place for place, condition in enumerate(self._plan.conditions)}
        self._chosen: list[Method] = []

    def run(self) -> None:
        """Run everything that can be run."""
        self._screen.begin(len(self._names), self._done(), self._images)
        if self._plan.chosen:
            self._run_conditions([each for each in self._conditions if each in self._plan.holdout])
            self._choose()
        self._run_conditions(self._conditions)
        if self._plan.chosen:
            self._choose()  # where another part was late
            self._run_conditions(self._conditions)
            self._file_chosen()
            if not self._chosen:
                names = ", ".join(method.name for method in self._plan.chosen)
                self._screen.say(f"{names} waits for results on all holdout corruptions; run the same command again")

    @abstractmethod
    def _run_conditions(self, conditions: Sequence[Condition]) -> None:
        """Run what is left of these conditions."""

    def _left(self, condition: Condition) -> list[Cell]:
        """Return the cells of a condition that can be run and are not done yet."""
        if not self._chosen:
            self._choose()
        done = self._store.done()
        cells = [*self._plan.cells(condition), *(Cell(condition, method) for method in self._late(condition))]
        return [cell for cell in cells if cell.name not in done]

    def _late(self, condition: Condition) -> list[Method]:
        """Return the methods with a chosen N; on the holdout corruptions, the best N has been run already."""
        return [] if condition in self._plan.holdout else self._chosen

    def _done(self) -> int:
        return len(self._store.done() & self._names)

    def _add(self, done: Finished) -> None:
        self._store.append([done.row], {done.cell: done.answers} if done.answers else {})
        self._screen.cells_done(self._done())

    def _choose(self) -> None:
        """Choose N for the methods that leave it open, if all results that decide it are there."""
        if self._chosen or not self._plan.chosen:
            return
        if not self._plan.holdout:
            self._chosen = [method.with_prior(PARTIAL_PRIOR) for method in self._plan.chosen]
            return
        wanted = {cell.name for condition in self._plan.holdout for cell in self._plan.cells(condition)}
        rows = {row.cell: row for row in [*self._elsewhere(), *self._store.rows()]}
        if wanted <= rows.keys():
            tried = [rows[name] for name in wanted]
            for method in self._plan.chosen:
                prior = choose_prior(tried, weighted=self._store.run.imagenet, anchored=method.anchored)
                check_chosen(list(rows.values()), {method.name}, prior)
                self._chosen.append(method.with_prior(prior))
            self._file_chosen()

    def _file_chosen(self) -> None:
        """Add the results on the holdout corruptions: there, they are those of the best N that was tried."""
        done = self._store.done()
        rows = {row.cell: row for row in self._store.rows()}
        for condition in self._conditions:
            for method in self._chosen if condition in self._plan.holdout else []:
                cell = Cell(condition, method)
                tried = [Cell(condition, each).name for each in method.candidates([method.prior])]  # type: ignore[list-item]
                if cell.name not in done and tried[0] in rows:
                    copied = {"cell": cell.name, "method": method.name, "seconds": 0.0}
                    row = rows[tried[0]]
                    self._add(Finished(row.model_copy(update=copied), self._store.kept(row)))


def check_chosen(rows: Sequence[Row], methods: set[str], prior: Prior) -> None:
    """Raise a `CovshiftError` where one of the methods was run with another N than the one to be chosen."""
    for row in rows:
        if row.method in methods and row.prior != prior:
            raise CovshiftError(
                f"{row.method} was run with N = {value_text(row.prior)} here, and the holdout corruptions now favour "
                f"{value_text(prior)}; use another folder"
            )
