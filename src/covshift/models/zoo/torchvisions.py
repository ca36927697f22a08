"""The models of torchvision that the paper evaluates, with the weights of its time.

The paper's list has 26 lines: AlexNet, densenet201 twice, and 23 more.
"""

import re
from functools import partial

from torch import nn

from covshift.models.checkpoint import StateDict
from covshift.models.preprocess import IMAGENET
from covshift.models.zoo.entry import Entry, published

FILES = {
    "alexnet": "alexnet-owt-7be5be79",
    "densenet121": "densenet121-a639ec97",
    "densenet161": "densenet161-8d451a50",
    "densenet169": "densenet169-b2777c0a",
    "densenet201": "densenet201-c1103571",
    "googlenet": "googlenet-1378be20",
    "inception_v3": "inception_v3_google-0cc3c7bd",
    "mnasnet0_5": "mnasnet0.5_top1_67.823-3ffadce67e",
    "mnasnet1_0": "mnasnet1.0_top1_73.512-f206786ef8",
    "mobilenet_v2": "mobilenet_v2-b0353104",
    "resnet18": "resnet18-f37072fd",
    "resnet34": "resnet34-b627a593",
    "resnet50": "resnet50-0676ba61",
    "resnet101": "resnet101-63fe2227",
    "resnet152": "resnet152-394f9c45",
    "resnext50_32x4d": "resnext50_32x4d-7cdf4587",
    "resnext101_32x8d": "resnext101_32x8d-8ba56ff5",
    "shufflenet_v2_x0_5": "shufflenetv2_x0.5-f707e7126e",
    "shufflenet_v2_x1_0": "shufflenetv2_x1-5666bf0f80",
    "vgg11_bn": "vgg11_bn-6002323d",
    "vgg13_bn": "vgg13_bn-abd245e5",
    "vgg16_bn": "vgg16_bn-6c64b313",
    "vgg19_bn": "vgg19_bn-c79401a0",
    "wide_resnet50_2": "wide_resnet50_2-95faca4d",
    "wide_resnet101_2": "wide_resnet101_2-32ee1156",
}
"""Files of the weights `IMAGENET1K_V1`; the digits after the last dash begin the file's SHA-256."""

CITATIONS = {
    "alexnet": "Krizhevsky 2014",
    "densenet": "Huang et al. 2017",
    "googlenet": "Szegedy et al. 2015",
    "inception": "Szegedy et al. 2016",
    "mnasnet": "Tan et al. 2019",
    "mobilenet": "Sandler et al. 2018",
    "resnet": "He et al. 2016",
    "resnext": "Xie et al. 2017",
    "shufflenet": "Ma et al. 2018",
    "vgg": "Simonyan & Zisserman 2015",
    "wide": "Zagoruyko & Komodakis 2016",
}

HOST = "https://download.pytorch.org/models"


def build(name: str) -> nn.Module:
    """Return a model as torchvision makes it for its weights; torchvision is imported when it is needed."""
    from covshift.models.from_torchvision import build as make

    return make(name)


def _undotted(state: StateDict) -> StateDict:
    """Return the names of DenseNet's layers since module names may have no dots: norm.1 has become norm1."""
    return {re.sub(r"(denselayer\d+\.(?:norm|conv))\.(\d)\.", r"\1\2.", key): value for key, value in state.items()}


def _entry(name: str, file: str) -> Entry:
    family = re.split(r"[\d_]", name)[0]
    return Entry(
        name,
        family,
        partial(build, name),
        licence="BSD-3-Clause",
        citation=CITATIONS[family],
        files=(published(f"{HOST}/{file}.pth", file.rpartition("-")[2]),),
        preprocess=IMAGENET.with_(size=299) if name == "inception_v3" else IMAGENET,
        rename=_undotted if family == "densenet" else lambda state: state,
    )


ENTRIES = tuple(_entry(name, file) for name, file in FILES.items())
