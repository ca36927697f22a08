"""From cells to rows, wherever they are computed."""

from covshift.bench.evaluate import ErrorCounts, Evaluator
from covshift.bench.plan import Cell
from covshift.bench.results.store import Finished, Row
from covshift.bench.settings import Settings
from covshift.core.statistics import Statistics
from covshift.data.selection import ConditionImages


class Work:
    """Compute cells, one after the other; what the cells of a condition can share is kept until the next condition."""

    def __init__(self, evaluator: Evaluator, settings: Settings) -> None:
        self.evaluator = evaluator
        self._source = evaluator.source
        self._settings = settings
        self._images: ConditionImages | None = None
        self._target: Statistics | None = None

    def run(self, cell: Cell) -> Finished:
        """Compute a cell."""
        if self._images is None or self._images.condition != cell.condition:
            self._images, self._target = self.evaluator.images_in(cell.condition), None
        errors, self._target = self.evaluator.run(self._images, cell.method, self._target)
        row = self._row(cell, errors, len(self._images) - errors.images)
        return Finished(row, errors.answers)

    def _row(self, cell: Cell, errors: ErrorCounts, broken: int) -> Row:
        method, settings, evaluator = cell.method, self._settings, self.evaluator
        return Row(
            cell=cell.name,
            model=settings.model,
            data=settings.data,
            corruption=cell.condition.corruption,
            severity=cell.condition.severity,
            method=method.name,
            n=method.row_n(errors.images),
            prior=method.prior,
            images=errors.images,
            top1_errors=errors.top1,
            top5_errors=errors.top5,
            seconds=round(errors.seconds, 3),
            broken=broken,
            limit=settings.limit,
            order=settings.order,
            seed=settings.seed,
            batch_size=evaluator.batch_size,
            device=evaluator.device.type,
            over_time=errors.over_time,
            source=(settings.source or settings.data) if method.anchored else None,
            source_images=round(self._source.statistics.images) if method.anchored and self._source else None,
        )


def in_order(cells: list[Cell]) -> list[Cell]:
    """Return the cells of a condition in the order that saves work: what uses others' statistics comes last."""
    return sorted(cells, key=lambda cell: cell.method.runs_late)
