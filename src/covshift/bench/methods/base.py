"""`Method`: what is run on the images of a condition, and how it is written in settings and in results."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import get_annotations
from typing import Any, ClassVar, Self, get_args, get_type_hints

from covshift.bench.evaluation import Evaluation
from covshift.core.statistics import Prior
from covshift.data.selection import ConditionImages
from covshift.support.errors import CovshiftError

EXAMPLE = "batch:n=8,N=16"
ANCHORED = "anchored"
"""The word behind a method's name by which it corrects to a measured source."""

REGISTERED: dict[str, Any] = {}
"""All methods by name: a subclass of `Method`, a rival, or the function that makes the policy of a `PolicyMethod`."""

_FLAGS = {"yes": True, "no": False}
_LEAST = {"n": 1, "N": 0}
_KEYS = {"prior": "N"}  # fields that are written by the paper's letter


@dataclass(frozen=True)
class Method(ABC):
    """One way to evaluate a model in a condition.

    A subclass is a frozen dataclass. Its own fields are what a user may write behind its name, and `run` is what it
    does; see `covshift.bench.register`.

    Attributes:
        n: number of images in a statistical batch; None for all.
        prior: N of the source statistics; None where it has none, or where N is still to be chosen.
        anchored: whether it corrects to a source that was measured on clean images, which any network can have.
        word: the name that it is registered under; `register` sets it.
        can_be_anchored: whether a user may write `anchored` behind its name.
        adapts: whether it changes statistics, so that the model has to have some.
        needs_clean: whether it is evaluated on the clean images, whatever the condition; then its error does not
            compare with those of other methods.
        runs_late: whether it runs after the others of its condition, since it uses what they estimated.
    """

    word: ClassVar[str] = ""
    adapts: ClassVar[bool] = True
    can_be_anchored: ClassVar[bool] = False
    needs_clean: ClassVar[bool] = False
    runs_late: ClassVar[bool] = False

    n: int | None = None
    prior: Prior | None = None
    anchored: bool = field(default=False, kw_only=True, repr=False)

    @abstractmethod
    def run(self, on: Evaluation) -> None:
        """Show the images of a condition to the model; `on` counts the errors."""

    @property
    def name(self) -> str:
        """The text that a user writes for the method, and that results are stored under."""
        values = {key: getattr(self, name) for key, name in self.takes().items()}
        return self.with_values(self.word, {key: value for key, value in values.items() if value is not None})

    def with_values(self, word: str, values: Mapping[str, object]) -> str:
        """Return a name with the values behind it and, where it is anchored, that word."""
        parts = [f"{key}={value_text(value)}" for key, value in values.items()] + [ANCHORED] * self.anchored
        return f"{word}:{','.join(parts)}" if parts else word

    @property
    def repairs(self) -> bool:
        """Whether it adapts to the images that it is evaluated on, so that its error compares with that of `none`."""
        return self.adapts and not self.needs_clean

    @property
    def needs_choice(self) -> bool:
        """Whether N is still to be chosen on holdout corruptions."""
        return False

    def with_prior(self, prior: Prior) -> "Method":
        """Return the same method with this N, where N is still to be chosen."""
        return self

    def candidates(self, priors: Sequence[float]) -> "list[Method]":
        """Return a method for each N to choose from; none where N is not to be chosen."""
        return []

    def in_step(self, images: ConditionImages) -> bool:
        """Return whether ranks wait for each other's statistics at every batch, so that none can fail alone."""
        return False

    def check(self, batch_size: int) -> None:
        """Raise a `CovshiftError` where it cannot be run with compute batches of this size."""
        del batch_size  # most methods take any

    def row_n(self, images: int) -> int | None:
        """Return n for the row of a result with this number of images."""
        return min(self.n or images, images) if self.adapts else None

    @classmethod
    def takes(cls) -> dict[str, str]:
        """Return what may be written behind the name: keys, and the fields that they set."""
        own = {name for base in cls.__mro__ if base not in Method.__mro__ for name in get_annotations(base)}
        return {_KEYS.get(field.name, field.name): field.name for field in fields(cls) if field.name in own}

    @classmethod
    def parse(cls, text: str, given: dict[str, str]) -> Self:
        """Return the method that a user has written.

        Args:
            text: all of it, for errors.
            given: the values behind the name, by key.
        """
        takes, types = cls.takes(), get_type_hints(cls)
        if odd := [key for key in given if key not in takes]:
            raise CovshiftError(f"method {cls.word!r} takes no {', '.join(odd)}; write e.g. {EXAMPLE}")
        values = {takes[key]: read_value(text, key, value, types[takes[key]]) for key, value in given.items()}
        return cls(**values)

    def __str__(self) -> str:
        return self.name


def value_text(value: object) -> str:
    """Return a value as it is written in the name of a method, or in a sentence.

    >>> value_text(16.0), value_text("auto"), value_text(8)
    ('16', 'auto', '8')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def read_value(text: str, key: str, written: str, kind: Any) -> Any:
    """Return what is written behind a key of a method, as a value of a kind: a number, yes or no, or a word.

    Args:
        text: all that was written, for errors.
        key: the key.
        written: the text behind it.
        kind: the type of the field that the key sets.
    """
    kinds = [each for part in get_args(kind) or (kind,) for each in (get_args(part) or (part,))]
    if str in kinds or written in kinds:
        return written
    if bool in kinds and written in _FLAGS:
        return _FLAGS[written]
    whole = int in kinds and float not in kinds
    number = as_number(text, key, written, whole=whole)
    return int(number) if whole else number


def as_number(text: str, key: str, written: str, *, whole: bool = False) -> float:
    """Return what is written behind a key of a method as a number; n and N have a least one."""
    try:
        number = float(written)
    except ValueError:
        raise CovshiftError(f"expected a method such as {EXAMPLE}, got {text!r}") from None
    least = _LEAST.get(key)
    if math.isnan(number) or (whole and not number.is_integer()) or (least is not None and number < least):
        kind, limit = "whole number" if whole else "number", "" if least is None else f" from {least}"
        raise CovshiftError(f"expected {key} in {text!r} to be a {kind}{limit}")
    return number
