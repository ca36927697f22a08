"""Repair a torchvision model for a folder of pictures, which needs no labels, and keep the repair as a file of some kB.

python examples/folder.py night/ --model torchvision:resnet50 --out night.safetensors
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import covshift


def main() -> None:
    """Open the model and the pictures, estimate their statistics, and save these."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of pictures")
    parser.add_argument("--model", default="torchvision:resnet50", help="any model that covshift opens")
    parser.add_argument("--out", type=Path, default=Path("patch.safetensors"), help="where to save the statistics")
    arguments = parser.parse_args()

    model = covshift.open_model(arguments.model)
    files = sorted(file for file in arguments.folder.rglob("*") if file.suffix.lower() in {".jpg", ".jpeg", ".png"})
    pictures = np.stack([model.preprocess.picture(Image.open(file).convert("RGB")) for file in files])
    batches = [model.preprocess.tensor(part) for part in np.array_split(pictures, -(-len(pictures) // 64))]

    target = covshift.estimate(model.module, batches)
    moved = covshift.shift.wasserstein(covshift.Statistics.of(model.module), target, normalized=True)
    target.save(arguments.out)
    target.apply(model.module)
    with torch.inference_mode():
        answers = torch.cat([model.module(batch).argmax(1) for batch in batches])
    print(f"{len(files)} pictures, {moved.average:.2f} from the training data; statistics are in {arguments.out}")
    for file, answer in zip(files[:5], answers.tolist(), strict=False):
        print(f"{file.name}: class {answer}")


if __name__ == "__main__":
    main()
