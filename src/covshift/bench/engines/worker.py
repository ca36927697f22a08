"""A process of a Ray cluster that computes cells: it opens model and data once, and keeps a condition's images."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from covshift.bench.engines.where import Where
from covshift.bench.plan import Cell
from covshift.bench.results.store import Finished
from covshift.bench.settings import Settings
from covshift.core.source import Source
from covshift.support.errors import CovshiftError


@dataclass(frozen=True)
class WorkerSetup:
    """Everything that a worker has to know.

    Attributes:
        settings: the settings of the run.
        model_digest, data_digest: the digests of model and data in the command; workers must open the same.
        folder: the folder that relative paths in the settings start from.
        environment: the environment variables that name the folders of covshift's files.
        where: the resources of a worker.
        source: what clean images look like inside of the model, for anchored methods.
    """

    settings: Settings
    model_digest: str
    data_digest: str
    folder: str
    environment: dict[str, str]
    where: Where
    source: Source | None = None

    @property
    def own_settings(self) -> Settings:
        """The settings with the threads of a worker and, where it takes no GPU, with the CPU as device."""
        threads = self.settings.threads or max(1, int(self.where.cpus))
        # Ray hides no GPU from a worker that takes none.
        on_cpu = self.where.gpus == 0 and self.settings.device == "auto"
        device = "cpu" if on_cpu else self.settings.device
        return self.settings.model_copy(update={"threads": threads, "device": device})


class Failure(NamedTuple):
    """A cell that could not be computed, and why."""

    error: str


class Worker:
    """Runs in a process of its own, which Ray starts; an ordinary class otherwise."""

    def __init__(self, job: WorkerSetup) -> None:
        self._job = job

    def open(self, share: float) -> None:
        """Open the model and the data, and check that they are those of the run.

        Args:
            share: the share of this machine's memory that the worker may use.
        """
        from covshift.bench.cells import Work
        from covshift.bench.run import make_evaluator, open_model_of
        from covshift.bench.screen import Screen
        from covshift.data import open_data
        from covshift.support.allocator import keep_freed_memory

        job = self._job
        os.environ.update(job.environment)
        if Path(job.folder).is_dir():
            os.chdir(job.folder)
            sys.path.insert(0, job.folder)
        keep_freed_memory()
        model, data = open_model_of(job.settings), open_data(job.settings.data)
        for what, theirs, ours in (
            ("weights", model.digest, job.model_digest),
            ("images", data.digest, job.data_digest),
        ):
            if theirs != ours:
                raise CovshiftError(
                    f"a worker on {os.uname().nodename} opens other {what} than the command; "
                    "they must be the same on every machine"
                )
        settings = job.own_settings
        self._work = Work(make_evaluator(settings, model, data, Screen(False), share, job.source), settings)

    def greet(self) -> None:
        """Do nothing: the call returns when the worker is alive."""

    def run(self, cell: Cell) -> Finished | Failure:
        """Compute a cell; an error is returned, not raised, since the worker is as good as before."""
        try:
            return self._work.run(cell)
        except CovshiftError as error:
            return Failure(str(error))
        except Exception as error:
            return Failure(f"{type(error).__name__}: {error}")
