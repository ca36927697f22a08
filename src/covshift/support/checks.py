"""Checks of arguments that public functions share: each raises a `CovshiftError` that names the argument."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any

import numpy as np

from covshift.support.errors import CovshiftError, is_number, unknown


def check_number(value: object, name: str, least: float | None = None, *, whole: bool = False, of: str = "") -> None:
    """Raise unless this is a number, of things that `of` may name, from `least` on, and not NaN.

    >>> check_number(0, "batch", 1, whole=True)
    Traceback (most recent call last):
    covshift.support.errors.CovshiftError: expected batch to be a whole number from 1, got 0
    """
    number: Any = value
    right = is_number(value, whole=whole) and not isinstance(value, bool) and number == number
    if not right or (least is not None and number < least):
        kind = f"number of {of}" if of else "whole number" if whole else "number"
        limit = "" if least is None else f" from {least:g}"
        raise CovshiftError(f"expected {name} to be a {kind}{limit}, got {brief(value)}")


def check_seed(value: object) -> None:
    """Raise unless this can seed a random generator."""
    check_number(value, "seed", 0, whole=True)


def check_flags(**flags: object) -> None:
    """Raise unless each of these is True or False."""
    for name, value in flags.items():
        if not isinstance(value, int | np.bool_):
            raise CovshiftError(f"expected {name} to be True or False, got {brief(value)}")


def check_path(value: object, name: str) -> Path:
    """Return the path of a file or a folder, or raise unless it is a text or a path."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise CovshiftError(f"expected {name} to be the path of a file or a folder, got {brief(value)}")
    return Path(text)


def check_choice(value: object, name: str, known: Iterable[str]) -> None:
    """Raise unless this is one of the known words."""
    known = list(known)
    if not isinstance(value, str) or value not in known:
        raise unknown(name, value if isinstance(value, str) else brief(value), known)


def check_kind(value: object, kind: type | UnionType | tuple[type, ...], name: str, wanted: str) -> None:
    """Raise unless this is of a kind, which `wanted` describes."""
    if not isinstance(value, kind):
        raise CovshiftError(f"expected {name} to be {wanted}, got {brief(value)}")


def check_function(value: object, name: str) -> None:
    """Raise unless this is None or can be called."""
    if value is not None and not callable(value):
        raise CovshiftError(f"expected {name} to be a function, got {brief(value)}")


def check_list(value: object, name: str, of: str) -> list[Any]:
    """Return the things as a list, or raise unless there are several: not a text, a mapping or a single thing."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value.tolist())
    if isinstance(value, str | bytes | Mapping | np.ndarray) or hasattr(value, "layout"):  # the last is a tensor
        raise CovshiftError(f"expected {name} to be a list of {of}, got {brief(value)}")
    if not isinstance(value, Iterable):
        raise CovshiftError(f"expected {name} to be a list of {of}, got {brief(value)}")
    return list(value)


def check_dense(tensor: Any, name: str) -> None:
    """Raise unless a tensor holds its values: not sparse, quantised or on the meta device."""
    layout = str(tensor.layout).removeprefix("torch.")
    if tensor.is_meta or layout != "strided" or tensor.is_quantized:
        kind = "meta" if tensor.is_meta else "quantised" if tensor.is_quantized else layout
        raise CovshiftError(f"expected {name} to be a dense tensor with values, got a {kind} one; use to_dense()")


def brief(value: object) -> str:
    """Return what a value is, for an error: a short one in full, and the type of a long one."""
    if value is None or isinstance(value, str | bytes | int | float | type):
        text = repr(value)
        return text if len(text) <= 80 else text[:77] + "..."
    return f"a {type(value).__name__}"
