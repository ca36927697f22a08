"""Digests by which a model is recognised: of its architecture, and of all that it holds."""

import hashlib
import json

import torch
from torch import Tensor

from covshift.core.wrappers import AnyModel, peel, unwrap


def fingerprint(model: AnyModel) -> str:
    """Return a digest of the architecture: the names and shapes of all that the model holds."""
    held = unwrap(model).state_dict().items()  # a quantised module also keeps types
    layout = [(name, tuple(tensor.shape)) for name, tensor in held if isinstance(tensor, Tensor)]
    return hashlib.sha256(json.dumps(layout).encode()).hexdigest()[:16]


def digest(model: AnyModel) -> str:
    """Return the SHA-256 of all that a model holds: names, shapes, types and values of weights and statistics."""
    total = hashlib.sha256()
    for name, tensor in sorted(peel(model).state_dict().items()):
        if isinstance(tensor, Tensor):  # a module may keep anything as its "extra state"
            total.update(json.dumps([name, list(tensor.shape), str(tensor.dtype)]).encode())
            values = tensor.detach().cpu().contiguous().reshape(-1)
            total.update(values.view(torch.uint8).numpy().data if len(values) else b"")
    return total.hexdigest()
