"""A small network that really classifies: handwritten digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn

FIT, TEST = slice(900, 1350), slice(1350, None)
"""The digits that a predictor learns from, and those that it is tested on; none of these is trained on."""


def digits():
    """Digits as RGB images of 24 px, and their labels."""
    data = load_digits()
    small = torch.tensor(data.images, dtype=torch.float32)[:, None] * 15.9375
    large = nn.functional.interpolate(small, size=24, mode="bilinear")
    return large.round().to(torch.uint8).expand(-1, 3, -1, -1).contiguous(), torch.tensor(data.target)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [(3, 16, 1), (16, 32, 2), (32, 32, 2)]
        blocks = [[nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()] for i, o, s in sizes]
        self.body = nn.Sequential(*(layer for block in blocks for layer in block))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.body(x).amax((2, 3)))


def prepare(batch):
    return batch.float() / 255


def train():
    """A classifier of digits that has seen the first 900."""
    torch.manual_seed(0)
    images, labels = digits()
    model = Classifier()
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(6):
        for part in torch.randperm(900).split(50):
            loss = nn.functional.cross_entropy(model(prepare(images[part])), labels[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.eval()
