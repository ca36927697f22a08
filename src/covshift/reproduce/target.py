"""`Target`: a table or figure of the paper as runs, and as numbers that are computed from their rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from covshift.bench.results import metrics
from covshift.bench.results.store import Row
from covshift.corruptions import names
from covshift.data.condition import CLEAN, MIXED, SEVERITIES, Condition

Kind = Literal["mce", "top1", "top5", "accuracy"]


class Metric(NamedTuple):
    """A rule that computes a number from the rows of a run.

    Attributes:
        kind: mCE, error or accuracy, all in per cent.
        method: the name of a method of the run.
        where: "test" for the mean over the test corruptions, "clean", "mixed", or a corruption.
        severities: the severities of these corruptions.
    """

    kind: Kind
    method: str
    where: str = "test"
    severities: tuple[int, ...] = SEVERITIES

    def of(self, rows: Sequence[Row]) -> float | None:
        """Return the number, or None where rows are missing."""
        mine = {Condition(row.corruption, row.severity): row for row in rows if row.method == self.method}
        errors = {
            condition: (row.top5_errors if self.kind == "top5" else row.top1_errors) / row.images
            for condition, row in mine.items()
        }
        if self.kind == "mce":
            share = metrics.mce(errors)
            return None if share is None else 100 * share
        wanted = self.conditions
        if not set(wanted) <= errors.keys():
            return None
        mean = 100 * math.fsum(errors[condition] for condition in wanted) / len(wanted)
        return 100 - mean if self.kind == "accuracy" else mean

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that the number is a mean over."""
        if self.where in ("clean", "mixed"):
            return (CLEAN if self.where == "clean" else MIXED,)
        corruptions = names("test") if self.where == "test" else (self.where,)
        return tuple(Condition(name, severity) for name in corruptions for severity in self.severities)


class Number(NamedTuple):
    """A number of a table: its row and column, how ours is computed, and the paper's, where it is printed."""

    row: str
    column: str
    run: str
    metric: Metric
    paper: float | None = None


@dataclass(frozen=True)
class Job:
    """A run, before it is known where data and weights are.

    Attributes:
        model: a name of the zoo, or of a built-in network.
        data: the name of a data set, e.g. "imagenet-c".
        settings: the other settings of the run.
    """

    model: str
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the run's folder; tables that need the same model on the same conditions share it.

        A run has all its methods in all its conditions, so others would have more to do than any table needs.
        """
        holdout = set(self.settings.get("corruptions", ())) & set(names("holdout"))
        severities = "".join(f"-{severity}" for severity in self.settings.get("severities", ()))
        mixed = "-mixed" * bool(self.settings.get("mixed"))
        return f"{self.model}-{self.data}" + mixed + "-holdout" * bool(holdout) + severities

    def joined(self, other: "Job") -> "Job":
        """Return one run with the methods of both."""
        methods = dict.fromkeys([*self.settings["methods"], *other.settings["methods"]])
        return Job(self.model, self.data, {**self.settings, "methods": tuple(methods)})


@dataclass(frozen=True)
class Target:
    """A table or figure.

    Attributes:
        name: e.g. "table1".
        title: the title of the table or figure.
        jobs: the runs that it needs.
        numbers: what is computed from their rows.
        note: a remark for the reader.
    """

    name: str
    title: str
    jobs: tuple[Job, ...]
    numbers: tuple[Number, ...]
    note: str = ""

    def only(self, rows: Sequence[str]) -> "Target":
        """Return the target with the rows whose labels have one of these parts, and only the methods that they need."""
        if not rows:
            return self
        numbers = tuple(n for n in self.numbers if any(part.lower() in n.row.lower() for part in rows))
        wanted = {(number.run, number.metric.method) for number in numbers}
        jobs = []
        for job in self.jobs:
            methods = tuple(method for method in job.settings["methods"] if (job.name, method) in wanted)
            if methods:
                jobs.append(replace(job, settings={**job.settings, "methods": methods}))
        return replace(self, jobs=tuple(jobs), numbers=numbers)


def join(jobs: Sequence[Job]) -> dict[str, Job]:
    """Return one run for each model on each data set, by name."""
    joined: dict[str, Job] = {}
    for job in jobs:
        joined[job.name] = joined[job.name].joined(job) if job.name in joined else job
    return joined
