"""The cells of a run: every method in every condition, and what `partial` needs to choose its prior."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from covshift.bench.methods import PRIORS, Method
from covshift.corruptions import names
from covshift.data.condition import CLEAN, MIXED, Condition


class Cell(NamedTuple):
    """One method in one condition, which is run, stored and skipped as a whole."""

    condition: Condition
    method: Method

    @property
    def name(self) -> str:
        """The name that the cell is stored under: the same in every run.

        >>> from covshift.bench.methods import batch
        >>> Cell(Condition("fog", 3), batch(8, 16)).name
        'fog/3/batch:n=8,N=16'
        """
        return f"{self.condition}/{self.method}"


@dataclass(frozen=True)
class Plan:
    """The conditions and methods of a run; holdout corruptions come first, as `partial` waits for them."""

    conditions: tuple[Condition, ...]
    methods: tuple[Method, ...]

    @property
    def holdout(self) -> tuple[Condition, ...]:
        """The conditions that N may be chosen on."""
        return tuple(condition for condition in self.conditions if condition.corruption in names("holdout"))

    @property
    def chosen(self) -> tuple[Method, ...]:
        """The methods whose N is chosen."""
        return tuple(method for method in self.methods if method.needs_choice)

    def cells(self, condition: Condition) -> list[Cell]:
        """Return the cells of a condition, without those whose N is still to be chosen."""
        methods = [method for method in self.methods if not method.needs_choice]
        if condition.corruption in names("holdout"):
            methods += [candidate for method in self.chosen for candidate in method.candidates(PRIORS)]
        return [Cell(condition, method) for method in dict.fromkeys(methods)]

    def all_names(self) -> list[str]:
        """Return the names of all cells of the run."""
        return self.names_of(self.conditions)

    def names_of(self, conditions: Iterable[Condition]) -> list[str]:
        """Return the names of all cells of these conditions."""
        conditions = list(conditions)
        late = (Cell(condition, method).name for condition in conditions for method in self.chosen)
        return [*(cell.name for condition in conditions for cell in self.cells(condition)), *late]


def plan(
    corruptions: Iterable[str], severities: Iterable[int], methods: Iterable[Method], *, clean: bool, mixed: bool
) -> Plan:
    """Return the cells for these corruptions at these severities.

    >>> plan(["fog", "spatter"], [1, 5], [], clean=True, mixed=False).conditions[:3]
    (Condition(corruption='spatter', severity=1), Condition(corruption='spatter', severity=5), \
Condition(corruption='clean', severity=0))
    """
    severities = list(severities)
    corrupted = [Condition(name, severity) for name in corruptions for severity in severities]
    first = [condition for condition in corrupted if condition.corruption in names("holdout")]
    then = [condition for condition in corrupted if condition not in first]
    controls = [CLEAN] * clean + [MIXED] * mixed
    return Plan(tuple(dict.fromkeys([*first, *controls, *then])), tuple(dict.fromkeys(methods)))
