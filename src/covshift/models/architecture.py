"""The family of a network and its kind of normalisation, recognised by its layers, and kinds of pre-training."""

import re
from collections import Counter
from typing import Literal, get_args

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from covshift.core.places import holds_statistics

NormKind = Literal["batch", "group", "layer", "instance", "fixup", "none"]

Pretraining = Literal["", "simclr", "large-scale"]
"""Pre-training that reports show apart: on far more than ImageNet, or by SimCLR; "" for none of these."""

PRETRAININGS: tuple[Pretraining, ...] = get_args(Pretraining)

_LARGE = r"(?<![a-z])(wsl|ig\d|ig-|instagram|swsl|ssl_yfcc|in2[12]k|laion|clip(?![a-z])|jft|noisy_?student)"

FAMILIES = {
    "wideresnet": "Wide ResNet",
    "resnext": "ResNeXt",
    "resnest": "ResNet, attention",
    "resnet": "ResNet",
    "densenet": "DenseNet",
    "mnasnet": "MNASNet",
    "mobilenet": "MobileNet",
    "shufflenet": "ShuffleNet",
    "googlenet": "GoogLeNet",
    "inception": "Inception",
    "vgg": "VGG",
    "efficientnet": "EfficientNet",
    "regnet": "RegNet",
    "convnext": "ConvNeXt",
    "alexnet": "AlexNet",
    "squeezenet": "SqueezeNet",
    "swintransformer": "Swin Transformer",
    "visiontransformer": "Vision Transformer",
}
"""Families by the class of a network, in small letters."""

_KINDS: dict[NormKind, type[nn.Module] | tuple[type[nn.Module], ...]] = {
    "instance": _InstanceNorm,
    "batch": _BatchNorm,
    "group": nn.GroupNorm,
    "layer": nn.LayerNorm,
}
_EXPANSION = 4  # of a residual bottleneck: its output channels as a multiple of its middle channels


def pretraining_in(name: str) -> Pretraining:
    """Return the pre-training that the words of a name stand for, as timm writes the tags of its weights.

    >>> pretraining_in("resnext101_32x8d.fb_wsl_ig1b_ft_in1k")
    'large-scale'
    """
    words = name.lower()
    return "simclr" if "simclr" in words else "large-scale" if re.search(_LARGE, words) else ""


def norm_kind(module: nn.Module) -> NormKind:
    """Return how a network normalises: the kind that most of its normalisation layers are of.

    `fixup` is a network without normalisation that is initialised in Fixup's way, `none` any other without.

    >>> norm_kind(nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)))
    'group'
    """
    found = Counter(kind for layer in module.modules() if (kind := _kind(layer)))
    if found:
        return found.most_common(1)[0][0]
    return "fixup" if any("fixup" in type(layer).__name__.lower() for layer in module.modules()) else "none"


def _kind(layer: nn.Module) -> NormKind | None:
    if holds_statistics(layer) and not isinstance(layer, _InstanceNorm):
        return "batch"  # also layers of other libraries
    return next((kind for kind, classes in _KINDS.items() if isinstance(layer, classes)), None)


def family(module: nn.Module) -> str:
    """Return the family of a network, by its class and its blocks; else the name of its class.

    >>> from covshift.models.cifar import ResNet
    >>> family(nn.Sequential(nn.Identity(), ResNet(20)))
    'ResNet'
    """
    for part in module.modules():  # a wrapper comes before what it wraps
        name = type(part).__name__.lower().replace("_", "")
        found = next((word for pattern, word in FAMILIES.items() if pattern in name), None)
        if found is not None:
            return _kind_of_resnet(part) if found == "ResNet" else found
    return type(module).__name__


def _kind_of_resnet(network: nn.Module) -> str:
    """Return which kind of ResNet this is; one class makes several of them."""
    for block in network.modules():
        middle, last = getattr(block, "conv2", None), getattr(block, "conv3", None)
        if not (isinstance(middle, nn.Conv2d) and isinstance(last, nn.Conv2d)):
            continue
        if middle.groups > 1:
            return "ResNeXt"
        if isinstance(getattr(block, "se", None), nn.Module):
            return "ResNet, attention"
        return "ResNet" if last.out_channels >= _EXPANSION * middle.out_channels else "Wide ResNet"
    return "ResNet"
