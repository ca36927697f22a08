"""The methods of the benchmark by name: those that come with covshift, and `register`, which adds a user's own."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, overload

from covshift.bench.evaluation import Evaluation
from covshift.bench.methods.base import ANCHORED, EXAMPLE, REGISTERED, Method
from covshift.bench.methods.batches import BatchMethod, Full, Partial
from covshift.bench.methods.names import FULL, NONE, PARTIAL, REVERSE
from covshift.bench.methods.plain import NoAdaptation
from covshift.bench.methods.policies import LiveMethod, PolicyMethod, StreamMethod
from covshift.bench.methods.reverse import Reverse
from covshift.bench.methods.rivals import RivalMethod
from covshift.rivals import RIVALS
from covshift.support.errors import CovshiftError
from covshift.support.plugins import is_same_code, unregistered

Maker = TypeVar("Maker", bound=Callable[..., Any])

_BUILTIN: dict[str, type[Method]] = {
    NONE: NoAdaptation,
    PARTIAL: Partial,
    FULL: Full,
    REVERSE: Reverse,
    "batch": BatchMethod,
    "stream": StreamMethod,
    "live": LiveMethod,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@overload
def register(name: str) -> Callable[[Maker], Maker]: ...
@overload
def register(name: str, what: Maker) -> Maker: ...
def register(name: str, what: Any = None) -> Any:
    """Add a method of the benchmark, to be named in `methods` like those that come with covshift.

    Args:
        name: letters, digits, `_` and `-`; what a user writes, and what results are filed under.
        what: a subclass of `Method`, or a function that returns a policy for `covshift.adapt`. The arguments of the
            function are what may be written behind the name: `mine:n=8,strength=2` calls it with `strength=2`, and
            shows the model 8 images at a time. Without it, `register` is a decorator.

    Returns:
        What was registered.

    >>> from covshift import Stream
    >>> @register("fading")
    ... def fading(half_life: float = 50) -> Stream:
    ...     return Stream(prior=16, decay=0.5 ** (1 / half_life))
    >>> parse_method("fading:half_life=20").name
    'fading:n=1,half_life=20'
    """
    if what is None:
        return partial(_register, name)
    return _register(name, what)


def _register(name: str, what: Any) -> Any:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise CovshiftError(f"expected a name of letters, digits, _ and - for a method, got {name!r}")
    if not callable(what):
        raise CovshiftError(
            f"expected a subclass of covshift.bench.Method, or a function that returns a policy, as {name!r}, "
            f"got {what!r}"
        )
    if name in REGISTERED and (name in (*_BUILTIN, *RIVALS) or not is_same_code(REGISTERED[name], what)):
        raise CovshiftError(f"there is a method {name!r} already; register yours under another name")
    if _is_method(what):
        if what.word not in ("", name) and "word" in vars(what):
            raise CovshiftError(f"{what.__name__} is registered as {what.word!r} already; derive a class for {name!r}")
        what.word = name
    REGISTERED[name] = what
    return what


def _is_method(what: object) -> bool:
    return isinstance(what, type) and issubclass(what, Method)


def methods() -> tuple[str, ...]:
    """Return the names of all methods: those that come with covshift, and those that were registered."""
    return tuple(REGISTERED)


def parse_methods(text: str) -> list[Method]:
    """Return methods as a user writes them, one after the other.

    >>> [method.name for method in parse_methods("none,batch:n=8,N=16,full")]
    ['none', 'batch:n=8,N=16', 'full']
    """
    return [parse_method(part) for part in split_methods(text)]


def split_methods(text: str) -> list[str]:
    """Return the texts of single methods, as a user writes them one after the other.

    >>> split_methods("none,batch:n=8,N=16,anchored,full")
    ['none', 'batch:n=8,N=16,anchored', 'full']
    """
    # A comma also separates what belongs to one method; only before a word without "=" does the next one begin.
    return re.split(rf",(?!\s*(?:\w+\s*=|{ANCHORED}\b))", text)


def parse_method(text: str) -> Method:
    """Return one method.

    >>> parse_method("stream:N=4")
    StreamMethod(n=1, prior=4.0, decay=None)
    >>> parse_method("stream:N=4,anchored").name
    'stream:n=1,N=4,anchored'
    """
    name, _, rest = text.strip().partition(":")
    if name not in REGISTERED:
        raise unregistered("method", name, REGISTERED)
    words = [word.strip() for word in rest.split(",")]
    what, given = REGISTERED[name], _given(text, [word for word in words if word != ANCHORED])
    method: Method = (
        what.parse(text, given)
        if _is_method(what)
        else (RivalMethod if name in RIVALS else PolicyMethod).read(name, text, given)
    )
    if ANCHORED not in words:
        return method
    if not method.can_be_anchored:
        able = ", ".join(each for each, kind in _BUILTIN.items() if kind.can_be_anchored)
        raise CovshiftError(f"method {name!r} cannot be anchored; {able} and registered policies can")
    return replace(method, anchored=True)


@dataclass(frozen=True)
class Unregistered(Method):
    """A method in the results of a run whose code is not here: it can be shown, but not be run."""

    written: str = ""

    @property
    def name(self) -> str:
        """The name that results are stored under."""
        return self.written

    def run(self, on: Evaluation) -> None:
        """Raise a `CovshiftError`."""
        raise CovshiftError(
            f"method {self.written!r} is not registered here; name the module that registers it as a plugin"
        )


def stored_method(text: str) -> Method:
    """Return a method that the results of a run name, also where it is not registered here."""
    return parse_method(text) if text.partition(":")[0] in REGISTERED else Unregistered(written=text)


def foremost(names: Iterable[str]) -> str | None:
    """Return the method that stands for adaptation: full, else partial, else the last that adapts; None without any.

    An anchored one stands for it where there is no other of its kind.

    >>> foremost(["none", "partial", "full:anchored"]), foremost(["none"])
    ('full:anchored', None)
    """
    usable = [name for name in names if stored_method(name).repairs]
    first = (FULL, f"{FULL}:{ANCHORED}", PARTIAL, f"{PARTIAL}:{ANCHORED}")
    return next((name for name in first if name in usable), usable[-1] if usable else None)


def _given(text: str, parts: list[str]) -> dict[str, str]:
    given = {}
    for part in filter(None, parts):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise CovshiftError(f"expected a method such as {EXAMPLE}, got {text!r}")
        given[key] = value
    return given


for _name, _class in _BUILTIN.items():
    _register(_name, _class)
REGISTERED.update(RIVALS)
