"""Where the cells of a run are computed: on this machine, on a Ray cluster, or a part of them in each of many jobs."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar, get_args

from covshift.support.checks import check_choice, check_kind, check_number
from covshift.support.errors import CovshiftError

EngineName = Literal["local", "ray"]

Thing = TypeVar("Thing")


class Shard(NamedTuple):
    """A part of a run: its number, from 0, and the number of parts."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Return the part that a user has written.

        >>> Shard.parse("1/4")
        Shard(number=1, of=4)
        """
        first, slash, count = text.partition("/")
        if not (slash and first.isdecimal() and count.isdecimal() and int(first) < int(count)):
            raise CovshiftError(f"expected a shard as I/K with I from 0 to K - 1, e.g. 0/4, got {text!r}")
        return cls(int(first), int(count))

    def part(self, things: Sequence[Thing]) -> tuple[Thing, ...]:
        """Return the things of this part; they are dealt out in turn, so that the parts are about as much work.

        >>> Shard(1, 3).part("abcdefg")
        ('b', 'e')
        """
        return tuple(things[self.number :: self.of])

    def folder(self, out: Path) -> Path:
        """Return the folder for the results of this part, inside of the run's: no job writes to a file of another."""
        return out / f"shard-{self.number}-of-{self.of}"

    @classmethod
    def named(cls, folder: Path) -> "Shard | None":
        """Return the part whose results are in a folder of this name.

        >>> Shard.named(Path("runs/r18/shard-3-of-16"))
        Shard(number=3, of=16)
        """
        found = re.fullmatch(r"shard-(\d+)-of-(\d+)", folder.name)
        return cls(int(found[1]), int(found[2])) if found else None

    def others(self, out: Path) -> list[Path]:
        """Return the folders of the other parts."""
        return [Shard(number, self.of).folder(out) for number in range(self.of) if number != self.number]


@dataclass(frozen=True)
class Where:
    """The place where cells are computed, which changes no result.

    Attributes:
        engine: "local", in this process, or "ray".
        address: the address of a running Ray cluster, e.g. "auto" or "10.0.0.1:6379"; None to start Ray here.
        workers: the number of Ray workers; None for as many as the cluster has room for.
        cpus: the number of CPUs of each worker, which is also its number of threads.
        gpus: the number of GPUs of each worker, which may be a fraction, or 0; None for one if the cluster has any.
        shard: the part of the conditions to compute; None for all.

    >>> Where("ray", address="auto", gpus=0.5).engine
    'ray'
    """

    engine: EngineName = "local"
    address: str | None = None
    workers: int | None = None
    cpus: float = 1
    gpus: float | None = None
    shard: Shard | None = None

    def __post_init__(self) -> None:
        check_choice(self.engine, "engine", get_args(EngineName))
        if self.address is not None:
            check_kind(self.address, str, "address", "a text such as 'auto'")
        if self.shard is not None:
            check_kind(self.shard, Shard, "shard", "a Shard")
        if self.workers is not None:
            check_number(self.workers, "workers", 1, whole=True, of="workers")
        check_number(self.cpus, "cpus")
        if self.gpus is not None:
            check_number(self.gpus, "gpus")
        if self.engine != "ray" and (self.address, self.workers, self.cpus, self.gpus) != (None, None, 1, None):
            raise CovshiftError(
                "an address, workers and what each of them takes are for Ray; choose `engine=ray`, or leave them out"
            )
        gpus = self.gpus or 0
        if not 0 < self.cpus < math.inf or not (0 <= gpus <= 1 or float(gpus).is_integer()) or gpus < 0:
            raise CovshiftError(
                "expected CPUs above 0 for a worker, and as GPUs a part of one or a whole number, got "
                f"{self.cpus:g} and {gpus:g}"
            )

    def folder(self, out: Path) -> Path:
        """Return the folder that results are written to, of a run in `out`."""
        return self.shard.folder(out) if self.shard else out

    def part(self, things: Sequence[Thing]) -> tuple[Thing, ...]:
        """Return those of the things that are computed here."""
        return self.shard.part(things) if self.shard else tuple(things)


HERE = Where()
"""The local engine, in this process."""
