"""The paper's ResNets without batch statistics: group normalisation and Fixup, in the layouts of their authors."""

import re
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from covshift.models.checkpoint import StateDict, read_state
from covshift.models.imagenet import BLOCKS, imagenet_resnet
from covshift.models.zoo.entry import Entry, File, published
from covshift.support.errors import CovshiftError

_NOBODY = "nobody has published weights"


def read_tensorpack(path: Path) -> StateDict:
    """Return a group-normalised ResNet from tensorpack's npz file, or from a checkpoint of torch.

    There, weights are stored as TensorFlow has them, and images are BGR; here the stem is turned round instead.
    """
    if path.suffix != ".npz":
        return read_state(path)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = {name.removesuffix(":0"): torch.from_numpy(arrays[name]) for name in arrays}
    except (OSError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise CovshiftError(f"{path} is not a whole npz file ({error}); fetch it again") from error
    state = {}
    for name, tensor in found.items():
        if tensor.ndim == 4:
            tensor = tensor.permute(3, 2, 0, 1).contiguous()
        elif tensor.ndim == 2:
            tensor = tensor.T.contiguous()
        state[_from_tensorpack(name)] = tensor.flip(1) if name == "conv0/W" else tensor
    return state


def _from_tensorpack(name: str) -> str:
    """Return the name that torchvision has for a tensor.

    >>> _from_tensorpack("group0/block2/conv3/gn/gamma"), _from_tensorpack("group3/block0/convshortcut/W")
    ('layer1.2.bn3.weight', 'layer4.0.downsample.0.weight')
    """
    *scopes, what = name.split("/")
    kind = {"W": "weight", "b": "bias", "gamma": "weight", "beta": "bias"}.get(what, what)
    norm = scopes[-1:] == ["gn"]
    scopes = scopes[:-1] if norm else scopes
    if scopes == ["linear"]:
        return f"fc.{kind}"
    if scopes == ["conv0"]:
        return f"{'bn1' if norm else 'conv1'}.{kind}"
    if len(scopes) == 3 and (place := re.fullmatch(r"group(\d)/block(\d+)", "/".join(scopes[:2]))):
        block = f"layer{int(place[1]) + 1}.{place[2]}"
        if scopes[2] == "convshortcut":
            return f"{block}.downsample.{int(norm)}.{kind}"
        return f"{block}.{scopes[2].replace('conv', 'bn') if norm else scopes[2]}.{kind}"
    return name


def from_fixup(state: StateDict) -> StateDict:
    """Return the names of our module for those of the authors': layer1.0.conv1.weight, bias1."""

    def ours(name: str) -> str:
        name = re.sub(r"^layer(\d)\.", lambda found: f"stages.{int(found[1]) - 1}.", name.removeprefix("module."))
        return f"{name}.bias" if name in ("bias1", "bias2") else name

    return {ours(name): tensor for name, tensor in state.items()}


def _group(depth: int, file: File | None) -> Entry:
    return Entry(
        f"groupnorm-resnet{depth}",
        "resnet-groupnorm",
        partial(imagenet_resnet, depth, "group"),
        licence="Apache-2.0",
        citation="Wu & He 2018; weights by Y. Wu",
        files=(file,) if file else (),
        read=read_tensorpack,
        note="" if file else _NOBODY,
        recipe="" if file else f"resnet{depth}-gn",
    )


def _fixup(depth: int) -> Entry:
    return Entry(
        f"fixup-resnet{depth}",
        "resnet-fixup",
        partial(imagenet_resnet, depth, "fixup"),
        licence="BSD-3-Clause (code)",
        citation="Zhang et al. 2019",
        rename=from_fixup,
        note=_NOBODY,
        recipe=f"resnet{depth}-fixup",
    )


_GROUP = {
    50: published("https://github.com/ppwwyyxx/GroupNorm-reproduce/releases/download/v0.1/ImageNet-ResNet50-GN.pth"),
    101: published("http://models.tensorpack.com/FasterRCNN/ImageNet-R101-GroupNorm32-AlignPadding.npz"),
}

ENTRIES = (*(_group(depth, _GROUP.get(depth)) for depth in BLOCKS), *(_fixup(depth) for depth in BLOCKS))
