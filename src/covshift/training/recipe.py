"""The recipes: what is trained, on what views of the images, and how."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from covshift.models.builtin import Architecture, new_network, open_network
from covshift.models.cifar import Norm, ResNet, deepen
from covshift.support.errors import CovshiftError, is_number, unknown
from covshift.training.augment import Augment

Precision = Literal["float32", "bfloat16"]

WARMUP = 0.15
"""Share of the steps of a cycle in which the learning rate rises."""


@dataclass(frozen=True)
class Recipe:
    """A network and how it is trained."""

    name: str
    data: Literal["cifar10", "imagenet"] = "cifar10"
    depth: int = 20
    width: int = 16
    norm: Norm | Literal["layer"] = "batch"
    architecture: Architecture = "resnet"
    augment: Augment = "crop"
    start: str | None = None
    """The built-in network that training begins from, with more blocks where this one is deeper; otherwise drawn."""
    epochs: int = 24
    batch: int = 128
    rate: float = 0.2
    """The highest learning rate."""
    decay: float = 5e-4
    descent: Literal["sgd", "adamw"] = "sgd"
    momentum: float = 0.9
    nesterov: bool = True
    smoothing: float = 0.0
    """Share of each label that is spread over all classes."""
    precision: Precision = "float32"
    """Format of convolutions and products in training; weights, their updates and the evaluation stay in float32."""
    schedule: Literal["cycle", "steps"] = "cycle"
    """A linear rise and half a cosine down to zero, or a tenth of the rate after 30, 60 and 90 % of the steps."""
    cycles: int = 1
    """Number of equal cycles that the epochs are divided into; each rises to half the rate of the one before."""

    def __post_init__(self) -> None:
        if not is_number(self.epochs, whole=True) or self.epochs < 1:
            raise CovshiftError(f"expected at least one epoch, got {self.epochs!r}")
        if not is_number(self.cycles, whole=True) or self.cycles < 1:
            raise CovshiftError(f"expected at least one cycle, got {self.cycles!r}")
        if not is_number(self.rate) or not 0 < self.rate < math.inf:
            raise CovshiftError(f"expected a learning rate above 0, got {self.rate!r}")
        if self.precision not in get_args(Precision):
            raise unknown("precision", self.precision, get_args(Precision))
        if self.data == "imagenet" and self.augment not in ("crop", "mixup"):
            raise CovshiftError(f"expected crop or mixup for pictures in folders, got {self.augment!r}")

    def network(self, classes: int = 10) -> nn.Module:
        """Return the network before training."""
        if self.start is not None:
            network = open_network(self.start).network
            return deepen(network, self.depth) if isinstance(network, ResNet) else network
        return new_network(asdict(self), classes)

    def optimiser(self, network: nn.Module) -> Optimizer:
        """Return SGD with momentum, or AdamW that decays matrices only.

        Fixup's scalars learn at a tenth of the rate, as its authors do.
        """
        parameters = list(network.parameters())
        groups: list[dict[str, Any]] = [{"params": parameters, "share": 1.0}]
        if self.descent == "adamw":
            groups[0]["params"] = [p for p in parameters if p.ndim > 1]
            groups.append({"params": [p for p in parameters if p.ndim < 2], "share": 1.0, "weight_decay": 0.0})
            return AdamW(groups, lr=self.rate, weight_decay=self.decay)
        if self.norm == "fixup":
            groups[0]["params"] = [p for p in parameters if p.numel() > 1]
            groups.append({"params": [p for p in parameters if p.numel() == 1], "share": 0.1})
        return SGD(groups, lr=self.rate, momentum=self.momentum, weight_decay=self.decay, nesterov=self.nesterov)

    def rate_at(self, progress: float) -> float:
        """Return the learning rate when this share of all steps is done.

        >>> [round(Recipe("net", rate=1.0).rate_at(progress), 3) for progress in (0.075, 0.15, 0.575, 1.0)]
        [0.5, 1.0, 0.5, 0.0]
        >>> [round(Recipe("net", rate=1.0, cycles=2).rate_at(progress), 3) for progress in (0.075, 0.5, 0.575, 1.0)]
        [1.0, 0.0, 0.5, 0.0]
        """
        if self.schedule == "steps":
            return self.rate * 0.1 ** sum(progress > part for part in (0.3, 0.6, 0.9))
        cycle, progress = divmod(progress * self.cycles, 1)
        highest = self.rate / 2**cycle
        if progress < WARMUP:
            return highest * progress / WARMUP
        return highest * (1 + math.cos(math.pi * (progress - WARMUP) / (1 - WARMUP))) / 2


_WITHOUT_BATCHES: dict[str, tuple[Norm, Augment]] = {"gn": ("group", "crop"), "fixup": ("fixup", "mixup")}
_MODERN: Any = {"descent": "adamw", "decay": 0.05, "smoothing": 0.1, "rate": 1.5e-3, "precision": "bfloat16"}
_PAPER: Any = {"epochs": 100, "batch": 256, "rate": 0.1, "decay": 1e-4, "nesterov": False, "schedule": "steps"}

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("resnet20", epochs=48, cycles=2),
        Recipe("resnet20-seed1", epochs=48, cycles=2),  # the same again, to tell networks from seeds: --seed 1
        Recipe("resnet32", depth=32, start="resnet20", epochs=24, rate=0.1),
        Recipe("resnet20-augmix", augment="augmix", start="resnet20", epochs=4, rate=0.1),
        Recipe("resnet20-noise", augment="noise", start="resnet20", epochs=4, rate=0.1),
        Recipe("resnet20-gn", norm="group", epochs=48, rate=0.1, precision="bfloat16"),
        Recipe("resnet20-fixup", norm="fixup", epochs=48, rate=0.1, precision="bfloat16"),
        Recipe("vit", architecture="vit", depth=6, width=96, norm="layer", epochs=24, cycles=2, **_MODERN),
        Recipe("convnext", architecture="convnext", depth=8, width=32, norm="layer", epochs=24, cycles=2, **_MODERN),
        # As in the paper: SGD at 0.1 with momentum 0.9, weight decay 1e-4, 100 epochs in batches of 256; and what else
        # the authors of the normalisation do, which is mixup for Fixup.
        *(
            Recipe(f"resnet{depth}-{short}", "imagenet", depth, norm=norm, augment=augment, **_PAPER)
            for depth in (50, 101, 152)
            for short, (norm, augment) in _WITHOUT_BATCHES.items()
        ),
    )
}


def find_recipe(name: str) -> Recipe:
    """Return the recipe of this name."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]
