"""The device to compute on, by its name, and the cores of this machine."""

import os

import torch

from covshift.support.checks import check_kind
from covshift.support.errors import CovshiftError


def choose_device(name: str) -> torch.device:
    """Return the device of this name; `auto` is the fastest one available.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    check_kind(name, str, "device", "a name such as auto, cpu, cuda, cuda:1 or mps")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:  # which lists every kind of device that torch was ever built for
        raise CovshiftError(f"expected a device such as auto, cpu, cuda, cuda:1 or mps, got {name!r}") from None
    try:
        torch.zeros(1, device=device).item()  # a device may be present and still be unable to compute
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise CovshiftError(
            f"expected an available device, such as auto, cpu, cuda or mps, got {name!r} ({reason})"
        ) from error
    return device


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
