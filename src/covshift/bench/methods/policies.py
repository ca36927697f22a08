"""A policy of `covshift.adapt` as a method: the model sees n images at a time, one batch after the other."""

from abc import abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from covshift.bench.evaluation import Evaluation
from covshift.bench.methods.base import REGISTERED, Method, as_number
from covshift.bench.methods.names import PARTIAL_PRIOR
from covshift.core.adapter import adapt
from covshift.core.live.policy import Live
from covshift.core.policies import Stream, check_policy
from covshift.core.statistics import Prior
from covshift.data.selection import ConditionImages
from covshift.support.errors import CovshiftError, is_number


class FollowingMethod(Method):
    """Statistics that follow the images, n at a time; a subclass says by which policy."""

    can_be_anchored: ClassVar[bool] = True

    @abstractmethod
    def policy(self) -> Any:
        """Return a new policy for `covshift.adapt`."""

    def in_step(self, images: ConditionImages) -> bool:
        """Return whether every rank gets some of every n images."""
        return images.spread(self.n or 1)

    def run(self, on: Evaluation) -> None:
        """Show n images after the other to the model, with the policy's adapter on it."""
        n, policy = self.n or 1, copy(self.policy())
        # Where n images do not go round, one rank has all of them, and the others have no statistics to wait for.
        object.__setattr__(policy, "sync", on.images.spread(n))
        with adapt(on.model.module, policy, source=on.source if self.anchored else None):
            on.run(on.images.in_turn(n))


@dataclass(frozen=True)
class StreamMethod(FollowingMethod):
    """Statistics that follow the images, as `covshift.Stream` does.

    >>> StreamMethod(prior=4.0)
    StreamMethod(n=1, prior=4.0, decay=None)
    """

    n: int | None = 1
    prior: Prior | None = PARTIAL_PRIOR
    decay: float | None = None

    def __post_init__(self) -> None:
        self.policy()  # complains about values that it cannot work with

    def policy(self) -> Stream:
        """Return the stream."""
        return Stream(self.prior, self.decay)  # type: ignore[arg-type]


@dataclass(frozen=True)
class LiveMethod(FollowingMethod):
    """A stream that is followed as `covshift.Live` does it.

    >>> LiveMethod(n=4, anchored=True).name
    'live:n=4,memory=200,anchored'
    """

    n: int | None = 1
    memory: float = 200

    def __post_init__(self) -> None:
        self.policy()  # complains about values that it cannot work with

    def policy(self) -> Live:
        """Return the policy."""
        return Live(self.memory)


@dataclass(frozen=True)
class PolicyMethod(FollowingMethod):
    """A policy that was registered under a name, with the values that a user has written behind it."""

    n: int | None = 1
    registered: str = ""
    values: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The registered name, n and the values."""
        return self.with_values(self.registered, dict([("n", self.n), *self.values]))

    def policy(self) -> Any:
        """Return what the registered function makes of the values."""
        return REGISTERED[self.registered](**dict(self.values))

    @classmethod
    def read(cls, word: str, text: str, given: dict[str, str]) -> Self:
        """Return the method that a user has written: n, and what the registered function takes.

        Args:
            word: the name that the policy is registered under.
            text: all that was written, for errors.
            given: the values behind the name, by key.
        """
        rest = {key: _plain(value) for key, value in given.items() if key != "n"}
        n = as_number(text, "n", given.get("n", "1"), whole=True)
        method = cls(int(n), None, word, tuple(rest.items()))
        try:
            policy = method.policy()
        except (TypeError, ValueError) as error:
            raise CovshiftError(f"cannot make the policy of method {text!r}: {error}") from error
        check_policy(policy)
        prior = getattr(policy, "prior", None)
        return replace(method, prior=prior if prior == "auto" or is_number(prior) else None)


def _plain(written: str) -> float | int | str:
    """Return a number where one is written, else the text."""
    for kind in (int, float):
        try:
            return kind(written)
        except ValueError:
            continue
    return written
