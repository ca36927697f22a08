"""The engine on a Ray cluster: workers hold the model and the images of a condition; rows come back to the one writer.

A cell is one call of a worker. When a worker dies, with its node or alone, the cell that it was at is given to another
one; nothing was written of it, since only this process writes. So rows are neither lost nor there twice.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from covshift.bench.cells import in_order
from covshift.bench.engines.engine import Engine
from covshift.bench.engines.fate import sharing_fate
from covshift.bench.engines.pool import WorkerPool
from covshift.bench.engines.where import Where
from covshift.bench.engines.worker import Failure, WorkerSetup
from covshift.bench.plan import Cell
from covshift.bench.results.store import Row, Store
from covshift.bench.screen import Screen
from covshift.bench.settings import Settings
from covshift.core.source import Source
from covshift.data.condition import Condition
from covshift.support.errors import CovshiftError, plural

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is reported to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # what Ray will do anyway, without a warning
    "RAY_worker_niceness": "0",  # as the local engine, and not behind all else that runs on this machine
    "SPT_NOENV": "1",  # a process that renames itself keeps its environment, by which `sharing_fate` finds it
}
"""The environment variables that Ray reads when it is imported and when it is started on this machine."""


@contextmanager
def cluster(where: Where) -> Iterator[None]:
    """Connect to the Ray cluster, or to one that is started on this machine, for the length of a block."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise CovshiftError("the engine ray needs Ray; install it with: pip install 'covshift[ray]'") from None

    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    if where.address is None:
        from covshift.support.device import cores

        quiet |= {"include_dashboard": False, "num_cpus": cores(), "object_store_memory": 128 * 2**20}
    with _sigterm_as_ctrl_c() as handle, sharing_fate() if where.address is None else nullcontext():
        try:
            ray.init(address=where.address or "local", **quiet)
        except SystemExit as error:
            if error.code != signal.SIGTERM:
                raise
            raise KeyboardInterrupt from None  # by the handler that Ray puts in the place of ours
        except Exception as error:  # Ray raises that, too
            reason = str(error).splitlines()[0]
            if where.address is None:
                raise CovshiftError(f"Ray could not be started here: {reason}") from error
            raise CovshiftError(
                f"expected a Ray cluster at {where.address}, got: {reason}; is it running, with the same versions of "
                "Ray and Python as here?"
            ) from error
        handle()
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[Callable[[], None]]:
    """Let SIGTERM raise a `KeyboardInterrupt` for the length of a block; Ray's own handler aborts inside of a call.

    Yields a function that makes it so once more, for when something else has taken the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = signal.getsignal(signal.SIGTERM)

    def handle() -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    handle()
    try:
        yield handle
    finally:
        signal.signal(signal.SIGTERM, before)


class RayEngine(Engine):
    """An engine that hands cells to workers; use it inside `cluster`.

    Args:
        store: the store of the run, which only this process writes to.
        screen: the screen to show progress on.
        settings: the settings of the run, as given on this machine.
        images: the number of images in a condition.
        where: the number of workers, the resources of each, and the shard.
        elsewhere: a function that returns the rows that other shards have by now.
        source: what clean images look like inside of the model, for anchored methods.
    """

    def __init__(
        self,
        store: Store,
        screen: Screen,
        settings: Settings,
        images: int,
        where: Where,
        elsewhere: Callable[[], list[Row]] = list,
        source: Source | None = None,
    ) -> None:
        super().__init__(store, screen, images, where.shard, elsewhere)
        run = store.run
        environment = {name: value for name, value in os.environ.items() if name.startswith("COVSHIFT_")}
        self._job = WorkerSetup(
            settings, run.model_digest, run.data_digest, str(Path.cwd()), environment, where, source
        )
        self._failed: dict[str, Failure] = {}
        self._pool: WorkerPool | None = None

    def run(self) -> None:
        """Run everything; what failed every time is reported at the end."""
        with WorkerPool(self._job, self._screen.say) as self._pool:
            super().run()
        if self._failed:
            first = [f"{name}: {failure.error}" for name, failure in list(self._failed.items())[:5]]
            more = [f"and {len(self._failed) - 5} more"] if len(self._failed) > 5 else []
            raise CovshiftError(
                f"{plural(len(self._failed), 'cell')} failed, each time that it was tried; all others that do not wait "
                "for one are done, and the same command tries again:\n" + "\n".join([*first, *more])
            )

    def _left(self, condition: Condition) -> list[Cell]:
        return [cell for cell in super()._left(condition) if cell.name not in self._failed]

    def _run_conditions(self, conditions: Sequence[Condition]) -> None:
        while left := [condition for condition in conditions if self._left(condition)]:
            with ExitStack() as claims:
                mine = [each for each in left if claims.enter_context(self._store.claim(self._place[each]))]
                self._hand_out([in_order(self._left(condition)) for condition in mine])
            if not mine:  # another process is at them
                with self._store.claim(self._place[left[0]], wait=True):
                    pass

    def _hand_out(self, groups: list[list[Cell]]) -> None:
        assert self._pool is not None
        for cell, result in self._pool.run([group for group in groups if group]):
            if isinstance(result, Failure):
                self._failed[cell.name] = result
                self._screen.say(f"{cell.name} failed: {result.error}")
                continue
            self._screen.images(result.row.images)
            self._add(result)
            if not self._left(cell.condition):
                self._screen.condition_done(str(cell.condition))
