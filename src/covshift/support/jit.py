"""Loops that NumPy cannot express, compiled by numba and cached on disk."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function for this machine at its first call; it then runs without the interpreter lock."""
    compiled = numba.njit(nogil=True, error_model="numpy")(function)
    # Where neither the package's folder nor the user's can be written to, each process compiles anew.
    with suppress(RuntimeError):
        compiled.enable_caching()
    return cast(F, compiled)
