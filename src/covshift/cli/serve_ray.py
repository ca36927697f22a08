"""What `covshift serve --engine ray` does."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from covshift.cli.serve_watch import Watching
from covshift.support.errors import CovshiftError


def serve_on_ray(
    recipe: Mapping[str, Any],
    watching: Watching,
    host: str,
    port: int,
    address: str | None,
    announce: Callable[[str], object],
) -> None:
    """Serve by replicas on a Ray cluster, or on one that is started here, until Ctrl-C or SIGTERM.

    Args:
        recipe: what the server is made of: the fields of `Recipe`.
        watching: the options about watching.
        host: the address to listen on.
        port: the port to listen on; 0 for any that is free.
        address: the address of a running Ray cluster; None to start one here.
        announce: called with the address of the server when it answers.
    """
    from covshift.bench.engines.ray import cluster
    from covshift.bench.engines.where import Where
    from covshift.support.device import cores

    where = Where("ray", address)
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
    try:
        import ray.serve  # noqa: F401
    except ImportError as error:
        raise CovshiftError("serving on Ray needs Ray Serve; install it: pip install 'covshift[serve,ray]'") from error
    from covshift.serve.replicas.deploy import run
    from covshift.serve.replicas.replica import Recipe

    made = Recipe(**recipe, **watching.for_replicas(predicts=recipe["predictor"] is not None))
    made = replace(made, state=_absolute(made.state), predictor=made.predictor and _absolute(made.predictor))
    with cluster(where):
        run(made, host, port, cpus=min(1.0, cores() / made.replicas) if address is None else 1.0, announce=announce)


def _absolute(name: str) -> str:
    """Return the path of a file from the root, as replicas may start in another folder; a URL stays as it is."""
    return name if "://" in name else str(Path(name).absolute())
