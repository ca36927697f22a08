"""The engine on this machine: one condition after the other, its images made once for all methods."""

from collections.abc import Sequence

from covshift.bench.evaluate import Evaluator
from covshift.bench.methods import PARTIAL_PRIOR, Method, batch
from covshift.bench.metrics import choose_prior
from covshift.bench.plan import Cell, Plan
from covshift.bench.screen import Screen
from covshift.bench.store import Row, Store
from covshift.data.condition import Condition
from covshift.errors import CovshiftError
from covshift.statistics import Statistics


class LocalEngine:
    """Runs the cells of a plan that are not in the store yet, and shares them with whoever runs in the same folder."""

    def __init__(self, store: Store, plan: Plan, evaluator: Evaluator, screen: Screen) -> None:
        self._store = store
        self._plan = plan
        self._evaluator = evaluator
        self._screen = screen
        self._names = set(plan.all_names())
        self._place = {condition: place for place, condition in enumerate(plan.conditions)}

    def run(self) -> None:
        """Run everything: first what N is chosen by, then the rest."""
        self._screen.begin(len(self._names), self._done(), len(self._evaluator.selection))
        chosen: list[Method] = []
        if self._plan.chosen:
            self._run_conditions(self._plan.holdout, [])
            chosen = self._choose()
            self._file_chosen(chosen)
        self._run_conditions(self._plan.conditions, chosen)

    def _done(self) -> int:
        return len(self._store.done() & self._names)

    def _run_conditions(self, conditions: Sequence[Condition], chosen: list[Method]) -> None:
        left = [condition for condition in conditions if self._left(condition, chosen)]
        while left:
            taken = []
            for condition in left:
                # What others are at is left to them; only when nothing else is left is it waited for.
                with self._store.claim(self._place[condition]) as mine:
                    if mine:
                        taken.append(condition)
                        self._run_condition(condition, self._left(condition, chosen))
            if not taken:
                with self._store.claim(self._place[left[0]], wait=True):
                    pass
            left = [condition for condition in left if self._left(condition, chosen)]

    def _left(self, condition: Condition, chosen: list[Method]) -> list[Cell]:
        cells = [*self._plan.cells(condition), *(Cell(condition, method) for method in chosen)]
        done = self._store.done()
        return [cell for cell in cells if cell.name not in done]

    def _run_condition(self, condition: Condition, cells: list[Cell]) -> None:
        if not cells:
            return
        shown = self._evaluator.selection.show(condition)
        target: Statistics | None = None
        # `full` before `reverse`, which then need not estimate the same statistics again.
        for cell in sorted(cells, key=lambda cell: cell.method.kind == "reverse"):
            self._screen.at(cell.name)
            errors, target = self._evaluator.run(shown, cell.method, target)
            method, settings = cell.method, self._store.run.settings
            row = Row(
                cell=cell.name,
                model=settings.model,
                data=settings.data,
                corruption=condition.corruption,
                severity=condition.severity,
                method=method.name,
                n=None if method.kind == "none" else min(method.n or errors.images, errors.images),
                prior=None if method.kind == "none" else method.prior,
                images=errors.images,
                top1_errors=errors.top1,
                top5_errors=errors.top5,
                seconds=round(errors.seconds, 3),
                broken=len(self._evaluator.selection) - errors.images,
                limit=settings.limit,
                order=settings.order,
                seed=settings.seed,
                batch_size=self._evaluator.batch_size,
                device=self._evaluator.device.type,
            )
            self._store.append([row])
            self._screen.cells_done(self._done())
        self._screen.condition_done(str(condition))

    def _choose(self) -> list[Method]:
        """The methods whose N is chosen, with it."""
        if not self._plan.holdout:
            return [method.with_prior(PARTIAL_PRIOR) for method in self._plan.chosen]
        wanted = {cell.name for condition in self._plan.holdout for cell in self._plan.cells(condition)}
        rows = [row for row in self._store.rows() if row.cell in wanted]
        prior = choose_prior(rows, weighted=self._store.run.imagenet)
        for row in self._store.rows():
            if row.method in {method.name for method in self._plan.chosen} and row.prior != prior:
                raise CovshiftError(
                    f"{row.method} was run with N = {row.prior:g} here, and the holdout corruptions now say "
                    f"{prior:g}; use another --out"
                )
        return [method.with_prior(prior) for method in self._plan.chosen]

    def _file_chosen(self, chosen: list[Method]) -> None:
        """On the holdout corruptions, the best of the N that were tried is the result."""
        done = self._store.done()
        rows = {row.cell: row for row in self._store.rows()}
        for condition in self._plan.holdout:
            for method in chosen:
                cell = Cell(condition, method)
                if cell.name not in done:
                    tried = Cell(condition, batch(method.n or 1, method.prior or 0))
                    self._store.append([rows[tried.name].model_copy(update={"cell": cell.name, "method": method.name})])
                    self._screen.cells_done(self._done())
