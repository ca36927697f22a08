"""The model as a graph of `torch.export`, for any number of images."""

import re

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram

from covshift.export.deployed import Deployed
from covshift.export.extra import quiet
from covshift.support.errors import CovshiftError


def capture(deployed: Deployed, images: Tensor) -> ExportedProgram:
    """Return the graph of a model, whose first dimension is free.

    Args:
        deployed: a model in eval mode.
        images: two of the model's inputs at least.
    """
    try:
        with quiet(), torch.no_grad():
            return torch.export.export(deployed, (images,), dynamic_shapes=({0: Dim.DYNAMIC},), strict=False)
    except CovshiftError:
        raise
    except Exception as error:  # of torch's tracer, of the model's own code: each with types of its own
        raise CovshiftError(
            f"torch.export cannot make a graph of {type(deployed.model).__name__} for any number of images: "
            f"{reason(error)}; save its weights to a .safetensors file instead"
        ) from error


def reason(error: BaseException) -> str:
    r"""Return the sentence of an exporter's error that says what is wrong, without the advice for its developers.

    >>> reason(ValueError("\x1b[31mCould not do it\x1b[0m\n\nRead the docs."))
    'Could not do it'
    """
    text = re.sub(r"\x1b\[[\d;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
