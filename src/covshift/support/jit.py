"""Loops that NumPy cannot express, compiled by numba and cached on disk."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


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
        compiled.enable_caching()
    return cast(F, compiled)
