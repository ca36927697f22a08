"""Several runs in one block, which share the ranks of torchrun or one connection to Ray."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from covshift.bench.engines.where import Where
from covshift.support.errors import Stopped


@contextmanager
def together(where: Where, out: Path) -> Iterator[None]:
    """Hold the ranks of torchrun, or one connection to Ray, for a block of runs in `out`."""
    from covshift.bench.engines.torchrun import joined
    from covshift.support.allocator import keep_freed_memory

    keep_freed_memory()
    try:
        with ExitStack() as stack:
            stack.enter_context(joined())
            if where.engine == "ray":
                from covshift.bench.engines.ray import cluster

                stack.enter_context(cluster(where))
            yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped; what is done is in {out}, and the same command resumes from there") from None
