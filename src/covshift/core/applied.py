"""`Applied`: statistics that were written into a model, and the way back."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from torch import nn

from covshift.core.moments import Moments
from covshift.core.outputs import Output
from covshift.core.places import Place
from covshift.support.errors import CovshiftError, plural


class Applied:
    """What `Statistics.apply` has changed in a model, and how to undo it; leaving a `with` block undoes it.

    >>> from covshift.core.statistics import Statistics
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    >>> applied = Statistics.of(net).apply(net)
    >>> applied
    Applied(1 layer)
    >>> applied.restore()
    """

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = list(places)

    @classmethod
    def keep(cls, places: Sequence[Place], seen: Mapping[str, Moments]) -> Self:
        """Correct places for good by what they have seen, by path; all of them, or none where that is interrupted."""
        applied = cls(places)
        with ExitStack() as undo:
            undo.callback(applied.restore)
            for place in places:
                place.keep(seen[place.path].mean, seen[place.path].var)
            undo.pop_all()
        return applied

    def restore(self) -> None:
        """Bring the model back to what it was before, bit for bit."""
        for place in self._places:
            place.restore()
        self._places = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"Applied({plural(len(self._places), 'layer')})"


def check_not_shared(model: nn.Module, places: Iterable[Place]) -> None:
    """Raise a `CovshiftError` if a weight that is to be changed is also that of another layer."""
    owners = Counter(id(each) for module in model.modules() for each in module._parameters.values() if each is not None)
    for place in places:
        parts = place.module._parameters.values() if isinstance(place, Output) else ()
        if any(each is not None and owners[id(each)] > 1 for each in parts):
            raise CovshiftError(
                f"layer {place.path!r} shares its weight with another layer, which would be changed with it; leave it "
                "out with layers="
            )
