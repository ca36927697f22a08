"""The packages of the extra `onnx`, imported when they are needed; and the noise that exporters make."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from covshift.support.errors import CovshiftError


def need(name: str) -> Any:
    """Import a module of the extra `onnx`, or raise a `CovshiftError` that tells how to install it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise CovshiftError(f"{error.name} is not installed; run: pip install 'covshift[onnx]'") from error


def need_all() -> None:
    """Raise a `CovshiftError` unless all that writes and checks ONNX files is installed."""
    for name in ("onnx", "onnxscript", "onnxruntime"):
        need(name)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep exporters from warning of what is deprecated inside of torch, and of what is meant to be as it is."""
    loggers = [logging.getLogger(name) for name in ("onnx_ir", "onnxscript", "torch.onnx", "torch.export")]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
