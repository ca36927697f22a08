"""`examine`: runs all checks, one after the other, on a run or on a model and its images."""

import os
from collections.abc import Callable
from typing import NamedTuple

from covshift.bench.results.store import Store
from covshift.bench.run import make_evaluator, open_model_of
from covshift.bench.screen import Screen
from covshift.bench.settings import Settings
from covshift.data import CLEAN, Data, open_data
from covshift.doctor import amounts, inputs, labels, runs
from covshift.doctor.case import Case, cleanest, stored_sizes
from covshift.doctor.finding import Finding
from covshift.models import Model
from covshift.support.checks import check_flags, check_kind, check_number
from covshift.support.errors import CovshiftError
from covshift.support.progress import progress_bar

Check = Callable[[Case], Finding | None]

CHECKS: dict[str, Check] = {
    "changed": runs.changed,
    "normalisation": inputs.normalisation,
    "channels": inputs.channels,
    "size": inputs.size,
    "outputs": labels.outputs,
    "labels": labels.labels,
    "classes": amounts.classes,
    "images": amounts.images,
    "broken": amounts.broken,
    "statistics": amounts.statistics,
    "adaptation": amounts.adaptation,
    "order": runs.order,
    "unfinished": runs.unfinished,
}
"""Every check by its name: a function that returns None where it does not apply."""

_SMALL, _MANY, _FEW = 64, 512, 128  # pixels, and the numbers of images to examine up to and beyond that size


class Examination(NamedTuple):
    """The model and data that were examined, and the finding of each check."""

    model: str
    data: str
    images: int
    condition: str
    findings: dict[str, Finding]

    @property
    def problems(self) -> list[str]:
        """The names of the checks that found a problem."""
        return [name for name, finding in self.findings.items() if finding.level == "problem"]


def examine(
    model: str | Model,
    data: str | Data,
    *,
    limit: int | None = None,
    device: str = "auto",
    progress: bool = False,
) -> Examination:
    """Look for common mistakes in a model, its images and how they are combined.

    Args:
        model: a URI as for `open_model`, or the `Model` that it returned, which is moved to the device.
        data: a URI as for `open_data`, or the `Data` that it returned.
        limit: the number of images to examine; by default 512, and 128 where they are larger than 64 px.
        device: the device to compute on: auto, cpu, cuda or mps.
        progress: whether to show a progress bar on a terminal.
    """
    if not isinstance(model, str | Model):
        raise CovshiftError(
            f"expected a model's URI or what open_model returns, got {type(model).__name__}; for a module of your own, "
            "give covshift.models.Model(name, module, preprocess)"
        )
    check_kind(data, str | Data, "data", "a data set's URI or what open_data returns")
    names = [given if isinstance(given, str) else given.uri for given in (model, data)]
    settings = Settings.read({"model": names[0], "data": names[1], "device": device})
    opened = model if isinstance(model, Model) else open_model_of(settings)
    return _examine(settings, opened, data if isinstance(data, Data) else open_data(data), None, limit, progress)


def examine_run(
    folder: str | os.PathLike[str], *, limit: int | None = None, device: str | None = None, progress: bool = False
) -> Examination:
    """Look for common mistakes in a run: in its model and images as `examine` does, and in how it was made."""
    store = Store(folder)
    settings = store.run.settings
    if device is not None:
        check_kind(device, str, "device", "a name such as auto, cpu, cuda, cuda:1 or mps")
        settings = settings.model_copy(update={"device": device})
    return _examine(settings, open_model_of(settings), open_data(settings.data), store, limit, progress)


def _examine(
    settings: Settings, model: Model, data: Data, store: Store | None, limit: int | None, progress: bool
) -> Examination:
    check_flags(progress=progress)
    if limit is not None:
        check_number(limit, "limit", 1, whole=True, of="images")
    limit = min(limit or _enough(model, data), settings.limit or len(data))
    # A fixed order, whatever the run's: checks compare formats of the same images, not batches of them.
    subset = settings.model_copy(update={"limit": limit, "order": "shuffled", "skip_broken": True})
    with progress_bar("examining", None, enabled=progress) as advance:
        case = Case(make_evaluator(subset, model, data, Screen(False)), settings, store, advance)
        found = {name: check(case) for name, check in CHECKS.items()}
    findings = {name: finding for name, finding in found.items() if finding is not None}
    condition = CLEAN.corruption if case.condition == CLEAN else str(case.condition)
    return Examination(settings.model, settings.data, len(case.selection), condition, findings)


def _enough(model: Model, data: Data) -> int:
    """Return the number of images to examine: fewer where they are large."""
    stored = stored_sizes(data, cleanest(data), range(1))
    side = model.preprocess.size or max(stored, default=(0, 0))[0]
    return _MANY if side <= _SMALL else _FEW
