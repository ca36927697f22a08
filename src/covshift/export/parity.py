"""Whether a file answers as the model that it was made of: no file is kept that does not."""

import io
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor, nn

from covshift.core.adapter import adapt
from covshift.core.policies import Batch
from covshift.export.deployed import Deployed
from covshift.export.extra import need, quiet
from covshift.export.program import reason
from covshift.support.errors import CovshiftError

_ALLOWED = 1e-4
"""Largest difference, relative to the largest answer, with float32; ordinary rounding is below 1e-5."""

_ALLOWED_HALF = 3e-2
"""Largest difference with 16 bits, relative to the largest answer; ordinary rounding is about 1e-2."""


def some_images(number: int, shape: tuple[int, int, int], dtype: torch.dtype) -> Tensor:
    """Return random images, the same every time: as pixels if the type is uint8, else about as a model's input."""
    random = torch.Generator().manual_seed(0)
    if dtype == torch.uint8:
        return torch.randint(0, 256, (number, *shape), generator=random, dtype=dtype)
    return torch.randn(number, *shape, generator=random).to(dtype)


def check_onnx(content: bytes, deployed: Deployed, images: Tensor, prior: float | None) -> float:
    """Return how far an ONNX graph is off, or raise a `CovshiftError` if that is too far.

    Args:
        content: the content of the file.
        deployed: the model that it was made of.
        images: two images to compare the answers to.
        prior: N, if the graph adapts.
    """
    onnxruntime = need("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of inputs with defaults, which are meant to be there
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return _compare(lambda x: session.run(None, {"images": x.numpy()})[0], deployed, images, prior)
    except CovshiftError:
        raise
    except Exception as error:  # onnxruntime has an exception for each of its codes, without a common parent
        raise CovshiftError(f"onnxruntime cannot run the exported graph ({reason(error)}); export it to pt2") from error


def check_pt2(content: bytes, deployed: Deployed, images: Tensor) -> float:
    """Return how far a graph of `torch.export` is off, or raise a `CovshiftError` if that is too far."""
    with quiet():
        module = torch.export.load(io.BytesIO(content)).module()
        return _compare(module, deployed, images, None)


def check_state(content: bytes, module: nn.Module) -> float:
    """Return 0, or raise a `CovshiftError` if a state dict cannot be read back as it was."""
    read, own = load(content), module.state_dict()
    if read.keys() != own.keys() or not all(torch.equal(read[name], own[name]) for name in own):
        raise CovshiftError("the weights cannot be read back as they were written; are some of them NaN?")
    return 0.0


def _compare(run: Callable[[Tensor], Any], deployed: Deployed, images: Tensor, prior: float | None) -> float:
    """Return the largest difference over one image and over all, or raise a `CovshiftError` if that is too large."""
    half = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in deployed.parameters())
    allowed = _ALLOWED_HALF if half else _ALLOWED
    off = 0.0
    with torch.no_grad(), nullcontext() if prior is None else adapt(deployed.model, Batch(prior=prior)):
        for some in (images[:1], images):
            expected, answers = deployed(some), torch.as_tensor(run(some))
            if answers.shape != expected.shape:
                raise CovshiftError(
                    f"the exported graph answers in shape {tuple(answers.shape)}, and the model in "
                    f"{tuple(expected.shape)}; nothing was written"
                )
            off = max(off, _relative(answers.double(), expected.double()))
    if off > allowed:
        raise CovshiftError(
            f"the exported graph answers otherwise than the model: the largest difference is {off:.2g} of the largest "
            f"answer, and {allowed:.0e} is allowed; nothing was written"
        )
    return off


def _relative(answers: Tensor, expected: Tensor) -> float:
    """Return the largest difference over the largest expected answer; infinity where it is not a number."""
    off = (answers - expected).abs().max().item() / (expected.abs().max().item() or 1.0)
    return math.inf if math.isnan(off) else off
