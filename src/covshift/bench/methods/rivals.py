"""A rule of `covshift.rivals` as a method: it answers n images at a time, in the order in which they come."""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, get_type_hints

from covshift.bench.evaluation import Evaluation
from covshift.bench.methods.base import Method, as_number, read_value, value_text
from covshift.core.ranks import has_ranks
from covshift.rivals import RIVALS, AlphaNorm, Rival
from covshift.support.errors import CovshiftError


@dataclass(frozen=True)
class RivalMethod(Method):
    """A rival with the options that a user has written behind its name.

    >>> RivalMethod.read("tent", "tent:n=16,lr=0.01", {"n": "16", "lr": "0.01"}).name
    'tent:n=16,lr=0.01'
    """

    n: int | None = 64
    registered: str = "alpha-bn"
    rival: Rival = field(default_factory=AlphaNorm)

    @property
    def name(self) -> str:
        """The registered name, n, and the options that differ from what was published."""
        usual = type(self.rival)()
        options = {each.name: getattr(self.rival, each.name) for each in fields(self.rival)}
        pairs = {"n": self.n} | {key: value for key, value in options.items() if value != getattr(usual, key)}
        return f"{self.registered}:" + ",".join(f"{key}={value_text(value)}" for key, value in pairs.items())

    @property
    def repairs(self) -> bool:
        """Whether its error compares with that of `none`, which holds also where it changes only the answers."""
        return True

    def row_n(self, images: int) -> int | None:
        """Return n for the row of a result with this number of images."""
        return min(self.n or images, images)

    def check(self, batch_size: int) -> None:
        """Raise a `CovshiftError` on ranks: a rule sees its whole stream, in order."""
        if has_ranks():
            raise CovshiftError(f"{self.registered} follows its stream in one process; run it without torchrun")

    def run(self, on: Evaluation) -> None:
        """Show n images after the other, from a fresh start; the model is as before when all were shown."""
        with self.rival.answering(on.model.module) as answer:
            on.run(on.images.in_turn(self.n or 1), answer)

    @classmethod
    def read(cls, word: str, text: str, given: dict[str, str]) -> Self:
        """Return the method that a user has written: n, and the options of the rival.

        Args:
            word: the name of the rival.
            text: all that was written, for errors.
            given: the values behind the name, by key.
        """
        rival = RIVALS[word]
        kinds = {each.name: get_type_hints(rival)[each.name] for each in fields(rival)}
        if odd := [key for key in given if key not in ("n", *kinds)]:
            raise CovshiftError(f"method {word!r} takes no {', '.join(odd)}; it takes {', '.join(('n', *kinds))}")
        options: dict[str, Any] = {
            key: read_value(text, key, value, kinds[key]) for key, value in given.items() if key != "n"
        }
        n = int(as_number(text, "n", given.get("n", str(rival.usual_n)), whole=True))
        kind = cls if rival.needs_statistics else AnswerMethod
        return kind(n, None, word, rival(**options))  # type: ignore[return-value]


@dataclass(frozen=True)
class AnswerMethod(RivalMethod):
    """A rival that corrects answers and leaves the model as it is, so that it takes any model."""

    adapts: ClassVar[bool] = False
