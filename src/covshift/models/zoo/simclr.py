"""SimCLRv2's ResNets, fine-tuned on all labels: published for TensorFlow, converted here."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from covshift.models.checkpoint import StateDict, read_state
from covshift.models.imagenet import BLOCKS, imagenet_resnet
from covshift.models.preprocess import Preprocess
from covshift.models.zoo.entry import Entry, File
from covshift.models.zoo.tensorflow import is_tensorflow, read_tensors
from covshift.support.errors import CovshiftError

_BUCKET = "https://storage.googleapis.com/simclr-checkpoints/simclrv2/finetuned_100pct"
_STEPS = 37535
_NORM = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
_DENSE = "head_supervised/linear_layer/dense"
_WANTED = re.compile(rf"base_model/(conv2d|batch_normalization)(_\d+)?/\w+|{_DENSE}/\w+")


class SamePool(nn.Module):
    """TensorFlow's 3 x 3 max-pool of stride 2: an even side is padded behind only, where PyTorch pads before, too."""

    def forward(self, x: Tensor) -> Tensor:
        """Halve the sides, rounding up."""
        down, right = (side % 2 for side in x.shape[2:])
        # After a ReLU, a border of zeros changes no maximum.
        return F.max_pool2d(F.pad(x, (right, 1, down, 1)), 3, 2)


def simclr_resnet(depth: int) -> nn.Module:
    """Return torchvision's ResNet with TensorFlow's pooling."""
    network = imagenet_resnet(depth, "batch")
    network.maxpool = SamePool()
    return network


def layers(depth: int) -> Iterator[tuple[str, str]]:
    """Yield the convolutions and their norms, by torchvision's names, in the order in which SimCLR makes them.

    >>> list(layers(50))[:3]
    [('conv1', 'bn1'), ('layer1.0.downsample.0', 'layer1.0.downsample.1'), ('layer1.0.conv1', 'layer1.0.bn1')]
    """
    yield "conv1", "bn1"
    for stage, count in enumerate(BLOCKS[depth], 1):
        for block in range(count):
            at = f"layer{stage}.{block}"
            if block == 0:  # the shortcut comes first
                yield f"{at}.downsample.0", f"{at}.downsample.1"
            for number in (1, 2, 3):
                yield f"{at}.conv{number}", f"{at}.bn{number}"


def convert(tensors: StateDict, depth: int, path: Path) -> StateDict:
    """Return TensorFlow's tensors under torchvision's names, and in its layout.

    Momenta, averages and the head of the pre-training, which checkpoints hold as well, are left out.
    """
    pairs = list(layers(depth))
    state = {}
    for name, tensor in tensors.items():
        if not _WANTED.fullmatch(name):
            continue
        scope, what = name.rsplit("/", 1)
        number = int(found[1]) if (found := re.search(r"_(\d+)$", scope)) else 0
        if scope == _DENSE:
            state["fc.weight" if what == "kernel" else "fc.bias"] = tensor.t().contiguous()
            continue
        if number >= len(pairs):
            raise CovshiftError(
                f"expected {len(pairs)} convolutions in {path}, as ResNet-{depth} has, got {name}; "
                "is it that of another depth?"
            )
        conv, norm = pairs[number]
        if what == "kernel":
            state[f"{conv}.weight"] = tensor.permute(3, 2, 0, 1).contiguous()
        elif what in _NORM:
            state[f"{norm}.{_NORM[what]}"] = tensor
    if not state:
        raise CovshiftError(f"expected tensors such as base_model/conv2d/kernel in {path}, found none")
    return state


def read_simclr(depth: int, path: Path) -> StateDict:
    """Return the weights from TensorFlow's checkpoint, or from a file of torch that somebody has converted."""
    if not is_tensorflow(path):
        return read_state(path)
    return convert(read_tensors(path, lambda name: bool(_WANTED.fullmatch(name))), depth, path)


def _entry(depth: int) -> Entry:
    names = [f"model.ckpt-{_STEPS}.{part}" for part in ("index", "data-00000-of-00001")]
    folder = f"{_BUCKET}/r{depth}_1x_sk0"
    return Entry(
        f"simclrv2-resnet{depth}",
        "resnet",
        partial(simclr_resnet, depth),
        licence="Apache-2.0",
        citation="Chen et al. 2020",
        files=tuple(File(f"{folder}/{name}", f"simclrv2-r{depth}-{name}") for name in names),
        preprocess=Preprocess(256, 224, "bicubic", (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        read=partial(read_simclr, depth),
        note="pooled as in TensorFlow, padded behind only; the converter that the paper used pools as PyTorch does",
        pretraining="simclr",
    )


ENTRIES = tuple(_entry(depth) for depth in BLOCKS)
