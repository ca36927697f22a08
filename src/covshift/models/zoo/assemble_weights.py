"""The weights of Assemble-ResNet-50: published for TensorFlow, converted here.

Its checkpoint numbers layers in the order in which each scope makes them. Our modules are made in that order, too, so
that one walk over a scope tells which tensor is whose.
"""

import re
from pathlib import Path

from covshift.models.checkpoint import StateDict, read_state
from covshift.models.preprocess import Preprocess
from covshift.models.untrained import untrained
from covshift.models.zoo.assemble import AssembleResNet, ConvNorm, Select
from covshift.models.zoo.entry import Entry
from covshift.models.zoo.tensorflow import is_tensorflow, read_tensors

_ROOT = "resnet_model"
_NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def scopes(network: AssembleResNet) -> dict[str, str]:
    """Return TensorFlow's scopes, by the names of our modules."""
    found = {"pool": "stage0/pool", "last": "stage4"}
    for i in range(len(network.stages)):
        found |= {f"stages.{i}.{part}": f"stage{i + 1}/{part}{i + 1}" for part in ("big", "little", "merge")}
    return found


def names(network: AssembleResNet) -> dict[str, str]:
    """Return TensorFlow's name for each of our tensors.

    >>> names(AssembleResNet(width=8))["stages.0.big.1.expand.conv.weight"]
    'resnet_model/stage1/big1/conv2d_6/kernel'
    """
    found = {"stem.conv.weight": f"{_ROOT}/stage0/conv2d/kernel"}
    found |= _norm("stem.norm", f"{_ROOT}/stage0_1/batch_normalization")
    for own, scope in scopes(network).items():
        inside = list(network.get_submodule(own).named_modules(prefix=own))
        for k, name in enumerate(name for name, module in inside if isinstance(module, ConvNorm)):
            number = f"_{k}" if k else ""
            found[f"{name}.conv.weight"] = f"{_ROOT}/{scope}/conv2d{number}/kernel"
            found |= _norm(f"{name}.norm", f"{_ROOT}/{scope}/batch_normalization{number}")
        for k, name in enumerate(name for name, module in inside if isinstance(module, Select)):
            at = f"{_ROOT}/{scope}/sk_block" + (f"_{k}" if k else "")
            found[f"{name}.squeeze.weight"] = f"{at}/sk_fc_1/kernel"
            found |= _norm(f"{name}.norm", f"{at}/batch_normalization")
            found[f"{name}.excite.weight"] = f"{at}/sk_fc_2/kernel"
    return found | {"fc.weight": f"{_ROOT}/dense/kernel", "fc.bias": f"{_ROOT}/dense/bias"}


def _norm(own: str, scope: str) -> dict[str, str]:
    return {f"{own}.{ours}": f"{scope}/{theirs}" for ours, theirs in _NORM.items()}


def read_assemble(path: Path) -> StateDict:
    """Return the weights from TensorFlow's checkpoint, or from a file of torch with our names."""
    if not is_tensorflow(path):
        return read_state(path)
    network = untrained(AssembleResNet, shapes_only=True)
    assert isinstance(network, AssembleResNet)
    ours = {theirs: own for own, theirs in names(network).items()}
    # Momenta and step counters end in other words; whatever else there is should be seen not to fit.
    wanted = re.compile(rf"{_ROOT}/.*/(kernel|bias|{'|'.join(_NORM.values())})")
    state = {}
    for name, tensor in read_tensors(path, lambda name: bool(wanted.fullmatch(name))).items():
        if tensor.ndim == 4:
            tensor = tensor.permute(3, 2, 0, 1).contiguous()
        elif "/dense/" in name:
            tensor = tensor.t()[1:].contiguous()  # its first class stands for none
        state[ours.get(name, name)] = tensor
    return state


ENTRY = Entry(
    "assemble-resnet50",
    "assemble-resnet",
    AssembleResNet,
    licence="Apache-2.0",
    citation="Lee et al. 2020",
    page="https://drive.google.com/drive/folders/1o8vj8_ZOPByjRKZzRPZMbuoKyxIwd_IZ",
    preprocess=Preprocess(
        292, 256, "bilinear", (123.68 / 255, 116.78 / 255, 103.94 / 255), (1 / 255, 1 / 255, 1 / 255)
    ),
    read=read_assemble,
    note="a TensorFlow checkpoint in a folder on Google Drive, to be fetched by hand; evaluated at 256 px, with "
    "?size=224&resize=256 on the published 224-px files",
)
