"""Coloured stripes in twelve classes, and a small network that has learned them: colour, scale and order matter."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from covshift.models import IMAGENET

SIDE, CLASSES, EPOCHS = 24, 12, 6
PREPROCESS = IMAGENET.with_(size=SIDE, resize=0)
_TINTS = np.array([[0.12, 0.0, -0.08], [-0.04, 0.08, -0.02], [-0.09, -0.02, 0.1]])  # reddish, greenish, bluish


def stripes(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels: a tint, a direction and a width for each class, under noise."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(number) % CLASSES)
    tint, direction, width = labels // 4, labels % 2, labels // 2 % 2
    place = np.arange(SIDE)[None, :] / np.where(width == 0, 3.0, 6.0)[:, None] + rng.random((number, 1))
    waves = 0.15 * np.sin(2 * np.pi * place)
    grey = np.where(direction[:, None, None] == 0, waves[:, :, None], waves[:, None, :])
    light = rng.normal(0.45, 0.08, (number, 1, 1, 1))
    pixels = light + grey[..., None] + _TINTS[tint][:, None, None] + rng.normal(0, 0.2, (number, SIDE, SIDE, 3))
    return (255 * pixels.clip(0, 1)).round().astype(np.uint8), labels


def _net() -> nn.Sequential:
    def block(before: int, after: int) -> list[nn.Module]:
        return [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]

    return nn.Sequential(
        *block(3, 12), *block(12, 24), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, CLASSES)
    ).eval()


def net():
    """For `arch=py:stripes:net`."""
    return _net(), PREPROCESS


def fused():
    """The same without its normalisation layers, for `arch=py:stripes:fused`."""
    return fuse(_net()), PREPROCESS


def fuse(model: nn.Sequential) -> nn.Sequential:
    first, second = (fuse_conv_bn_eval(model[i], model[i + 1]) for i in (0, 3))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), *list(model)[6:]).eval()


def train(folder: Path) -> None:
    """Write the weights, net.pt and fused.pt."""
    torch.manual_seed(0)
    model = _net().train()
    images, labels = stripes(1152, seed=1)
    inputs, targets = PREPROCESS.tensor(images), torch.from_numpy(labels)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-2)
    # Down to zero, so that the statistics have time to follow the weights.
    decay = torch.optim.lr_scheduler.LinearLR(optimiser, 1, 0, total_iters=EPOCHS)
    for _ in range(EPOCHS + 1):
        for batch in torch.randperm(len(inputs)).split(64):
            optimiser.zero_grad()
            loss: Tensor = F.cross_entropy(model(inputs[batch]), targets[batch])
            loss.backward()
            optimiser.step()
        decay.step()
    torch.save(model.state_dict(), folder / "net.pt")
    torch.save(fuse(model.eval()).state_dict(), folder / "fused.pt")
