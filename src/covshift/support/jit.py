"""Loops that NumPy cannot express, compiled by numba and cached on disk."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pickle import UnpicklingError
from types import CodeType
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

F = TypeVar("F", bound=Callable[..., Any])

_DAMAGED = (OSError, EOFError, UnpicklingError, ValueError, TypeError, LookupError, AttributeError, ImportError)
"""What reading a file that was cut off, or written by something else, may raise."""


def kernel(function: F) -> F:
    """Compile a function for this machine at its first call; it then runs without the interpreter lock."""
    return _compiled(function)


def summing_kernel(function: F) -> F:
    """Compile a function as `kernel` does, and let its sums be taken in another order, several terms at once."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"})


def _compiled(function: F, **options: Any) -> F:
    compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    # Where neither the package's folder nor the user's can be written to, each process compiles anew.
    with suppress(RuntimeError):
        compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]
    return cast(F, compiled)


class _Cache(FunctionCache):
    """numba's cache, which is never more than a way to save time.

    numba itself fails where the disk is full or a file is damaged, and does not notice that a function in another file
    has changed whose code is a part of this one's.
    """

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled function from disk; None if it has to be compiled."""
        try:
            return super().load_overload(signature, context)  # type: ignore[no-untyped-call]
        except _DAMAGED:
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write a compiled function to disk, if that is possible."""
        with suppress(*_DAMAGED):
            super().save_overload(signature, compiled)  # type: ignore[no-untyped-call]

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        parts = sorted(set(_parts(self._py_func.__code__, self._py_func.__globals__, set())))
        own = super()._index_key(signature, codegen)  # type: ignore[no-untyped-call]
        return (*own, tuple(parts))


def _parts(code: CodeType, names: dict[str, Any], met: set[CodeType]) -> Iterator[str]:
    """Yield what numba compiles into a function: its code, that of the kernels that it calls, and their constants."""
    if code in met:
        return
    met.add(code)
    yield f"{code.co_name} {code.co_code.hex()}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant, names, met)
        else:
            yield f"{code.co_name} {constant!r}"
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, Dispatcher):
            yield from _parts(value.py_func.__code__, value.py_func.__globals__, met)
        elif isinstance(value, int | float | str):
            yield f"{name} {value!r}"
