"""The engine on this machine: one condition after the other, its images made once for all methods."""

from collections.abc import Callable, Sequence

from covshift.bench.cells import Work, in_order
from covshift.bench.engines.engine import Engine
from covshift.bench.engines.where import Shard
from covshift.bench.results.store import Row, Store
from covshift.bench.screen import Screen
from covshift.data.condition import Condition


class LocalEngine(Engine):
    """An engine that runs cells in this process, and shares the conditions with other processes in the same folder."""

    def __init__(
        self,
        store: Store,
        screen: Screen,
        work: Work,
        shard: Shard | None = None,
        elsewhere: Callable[[], list[Row]] = list,
    ) -> None:
        images = work.evaluator.selection.size(store.run.settings.plan.conditions[0])
        super().__init__(store, screen, images, shard, elsewhere)
        self._work = work

    def _run_conditions(self, conditions: Sequence[Condition]) -> None:
        left = [condition for condition in conditions if self._left(condition)]
        while left:
            taken = []
            for condition in left:
                # Conditions of other processes are left to them, and waited for only when nothing else is left.
                with self._store.claim(self._place[condition]) as mine:
                    if mine:
                        taken.append(condition)
                        self._run_condition(condition)
            if not taken:
                with self._store.claim(self._place[left[0]], wait=True):
                    pass
            left = [condition for condition in left if self._left(condition)]

    def _run_condition(self, condition: Condition) -> None:
        cells = in_order(self._left(condition))
        for cell in cells:
            self._screen.at(cell.name)
            self._add(self._work.run(cell))
        if cells:
            self._screen.condition_done(str(condition))
