"""Several runs in one block, which share the ranks of torchrun or one connection to Ray."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from covshift.bench.engines.where import Where
from covshift.bench.results.store import holds_a_run
from covshift.support.errors import Stopped


@contextmanager
def together(where: Where, out: Path) -> Iterator[None]:
    """Hold the ranks of torchrun, or one connection to Ray, for a block of runs in `out`."""
    from covshift.bench.engines.torchrun import joined

    try:
        with ExitStack() as stack:
            stack.enter_context(joined())
            if where.engine == "ray":
                from covshift.bench.engines.ray import cluster

                stack.enter_context(cluster(where))
            yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped; {_what_is_left(out)}") from None


def _what_is_left(out: Path) -> str:
    """Return what a user finds of runs in `out` that were stopped."""
    # Runs of a suite have a folder each, and the shards of a run have one each in that.
    if any(holds_a_run(folder) for folder in (out, *out.glob("*/"), *out.glob("*/*/"))):
        return f"what is done is in {out}, and the same command resumes from there"
    return f"there is no run in {out}: nothing was stored yet, or the folder was deleted; the same command begins anew"
