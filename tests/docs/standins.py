"""What stands in for what the pages name and a test cannot fetch: small pictures, a small network, some of CIFAR-10."""

import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from covshift.models import builtin

CLASSES = ("n01440764", "n01443537", "n01484850", "n01491361", "n01494475")
"""Some folders of ImageNet, so that a network with its 1000 classes knows them."""


class SmallNet(nn.Module):
    """An untrained network in the place of torchvision's, with names of layers as its ResNets have them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 4, stride=4, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        block = nn.ModuleDict({"conv1": nn.Conv2d(8, 16, 3, stride=2, bias=False), "bn1": nn.BatchNorm2d(16)})
        self.layer1 = nn.ModuleList([block])
        self.fc = nn.Linear(16, 1000)
        nn.init.normal_(self.fc.weight, std=3)  # so that it is sure of some answers, and of others not

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        x = self.bn1(self.conv1(x)).relu()
        x = self.layer1[0]["bn1"](self.layer1[0]["conv1"](x)).relu()
        return self.fc(x.mean((2, 3)))


def small_net(name: str, weights: object) -> nn.Module:
    """Return the same small network whatever model is asked for."""
    del name, weights
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return SmallNet().eval()


def some_pixels(number: int, side: int = 32) -> np.ndarray:
    """Return images of different brightness with noise, uint8 NHWC."""
    random = np.random.default_rng(0)
    shades = 20 * (np.arange(number) % 10)[:, None, None, None]
    return (shades + random.integers(0, 70, (number, side, side, 3))).astype(np.uint8)


def fill(folder: Path, cache: Path) -> None:
    """Write the pictures, the data and the weights that the pages take for granted."""
    for number, pixels in enumerate(some_pixels(40)):
        label = CLASSES[number % len(CLASSES)]
        paths = [folder / "val" / label / f"{number}.png"] if number < 20 else []
        for path in (*paths, folder / "night" / f"{number}.png"):
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    Image.fromarray(some_pixels(1, 64)[0]).save(folder / "cat.jpg")
    (cache / "cifar10").mkdir(parents=True)
    np.save(cache / "cifar10" / "test-images.npy", some_pixels(40))
    np.save(cache / "cifar10" / "test-labels.npy", np.arange(40) % 10)
    trained = folder / "runs" / "resnet20"
    trained.mkdir(parents=True)
    for file in (Path(builtin.__file__).parent / "weights").glob("resnet20.*"):
        shutil.copy(file, trained)
