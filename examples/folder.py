"""Repair a torchvision model for a folder of pictures, which needs no labels, and keep the repair as a file of some kB.

python examples/folder.py night/ --model torchvision:resnet50 --out night.safetensors
"""

import argparse
from pathlib import Path

import torch

import covshift


def main() -> None:
    """Open the model and the pictures, estimate their statistics, and save these."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="folder of pictures, with or without folders of classes in it")
    parser.add_argument("--model", default="torchvision:resnet50", help="any model that covshift opens")
    parser.add_argument("--out", type=Path, default=Path("patch.safetensors"), help="where to save the statistics")
    arguments = parser.parse_args()

    model = covshift.open_model(arguments.model)
    data = covshift.open_data(f"folder:{arguments.folder}")
    loader = data.loader(model, batch_size=64)

    target = covshift.estimate(model, loader)
    moved = covshift.shift.wasserstein(covshift.Statistics.of(model), target, normalized=True)
    target.save(arguments.out)
    target.apply(model)
    print(f"{len(data)} pictures, {moved.average:.2f} from the training data; statistics are in {arguments.out}")
    first = next(iter(loader))
    images = first[0] if data.labelled else first
    with torch.inference_mode():
        print("classes of the first pictures:", model(images[:5]).argmax(1).tolist())


if __name__ == "__main__":
    main()
