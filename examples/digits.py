"""What adaptation buys: a small network trained on scikit-learn's digits meets bad scans of them.

The network never sees a corrupted image in training, and no label is used to repair it.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import covshift


def scans() -> tuple[Tensor, Tensor]:
    """1,797 handwritten digits of 8×8 pixels in [0, 1], in a fixed random order."""
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return torch.tensor(digits.images[order] / 16).float().unsqueeze(1), torch.tensor(digits.target[order])


def train(images: Tensor, labels: Tensor) -> nn.Module:
    """A small convolutional network with batch normalisation."""
    torch.manual_seed(0)

    def block(before: int, after: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())

    model = nn.Sequential(
        block(1, 32), block(32, 32), nn.MaxPool2d(2), block(32, 64), block(64, 64),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(15):
        for batch in torch.randperm(len(images)).split(64):
            optimiser.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimiser.step()
    return model.eval()


def conditions(images: Tensor) -> dict[str, Tensor]:
    """The same digits under bad conditions."""
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    blurred = F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, stride=1)
    return {
        "clean": images,
        "washed out": 0.5 + 0.5 * images,
        "faint ink": 0.25 * images,
        "grainy": (images + 0.3 * noise).clamp(0, 1),
        "out of focus": blurred,
        "negative": 1 - images,
    }


@torch.inference_mode()
def error(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of digits that the model gets wrong, in percent."""
    wrong: int = (model(images).argmax(1) != labels).sum().item()
    return 100 * wrong / len(labels)


def main() -> None:
    """Train, corrupt, repair, print the table and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("demo/digits.png"), help="where to draw the picture")
    picture = parser.parse_args().picture
    images, labels = scans()
    model = train(images[:1000], labels[:1000])
    source = covshift.Statistics.of(model)
    table = Table("top-1 error, 797 digits", title="A network trained on clean digits, repaired without labels")
    for column in ("as it is", "partial (n=8, N=16)", "full (n=797)"):
        table.add_column(column, justify="right")
    rows = {}
    shifts = conditions(images[1000:])
    for name, shifted in shifts.items():
        as_it_is = error(model, shifted, labels[1000:])
        with covshift.adapt(model, covshift.Batch(prior=16, size=8)):
            partial = error(model, shifted, labels[1000:])
        covshift.estimate(model, shifted).apply(model)
        full = error(model, shifted, labels[1000:])
        source.apply(model)
        rows[name] = (as_it_is, partial, full)
        table.add_row(name, *(f"{value:.1f} %" for value in rows[name]))
    Console().print(table)
    draw(shifts, rows, picture)
    Console().print(f"picture: {picture}")


def draw(shifts: dict[str, Tensor], rows: Mapping[str, tuple[float, ...]], path: Path) -> None:
    """Samples of each condition above its errors before and after."""
    figure, axes = plt.subplots(
        2, len(rows), figsize=(10, 3.8), height_ratios=[1, 3.2], sharey="row", layout="constrained"
    )
    for (name, errors), image, bars in zip(rows.items(), axes[0], axes[1], strict=True):
        image.imshow(torch.cat(list(shifts[name][:3].squeeze(1)), dim=1), cmap="gray", vmin=0, vmax=1)
        image.set(xticks=[], yticks=[], title=name)
        drawn = bars.bar(["as it is", "partial", "full"], errors, color=["#999999", "#56b4e9", "#0072b2"])
        bars.bar_label(drawn, fmt="%.1f", fontsize=8)
        bars.tick_params(axis="x", labelsize=8)
        bars.spines[["top", "right"]].set_visible(False)
    axes[1][0].set(ylabel="top-1 error (%)", ylim=(0, 100))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
