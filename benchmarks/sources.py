"""How few clean images suffice as a source: errors of built-in networks, adapted by sources of 8 to 2,000 images.

Clean images and 15 corruptions at one severity, `estimate(..., prior="auto")`; the images of the sources are others.
Prints a row of the table in docs/explanation/anchors.md for each network.
"""

import argparse

import numpy as np
import torch
from torch import Tensor

import covshift
from covshift.corruptions import names
from covshift.models import Model


def error(model: Model, images: Tensor, labels: Tensor, source: covshift.Source | None) -> float:
    """The error in per cent of the model, adapted to the images by a source, or as it is."""
    batches, answers = images.split(100), dict[int, Tensor]()
    if source is None:
        with torch.inference_mode():
            answers = {position: model.module(batch) for position, batch in enumerate(batches)}
    else:
        covshift.estimate(model, batches, source=source, prior="auto", collect=answers.__setitem__, progress=False)
    logits = torch.cat([answers[position] for position in range(len(batches))])
    return 100 * float((logits.argmax(1) != labels).double().mean())


def main() -> None:
    """Print the curve of each network: clean / mean of the corruptions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=["resnet20", "resnet20-fixup", "resnet20-gn", "vit", "convnext"])
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 32, 128, 512, 2000])
    parser.add_argument("--severity", type=int, default=3)
    options = parser.parse_args()
    data = covshift.open_data("builtin:cifar10")
    print(f"| network | as it is | {' | '.join(f'{size:,}' for size in options.sizes)} |")
    for name in options.networks:
        model = covshift.open_model(f"builtin:{name}")
        pixels, known = data.pixels(model)
        order = np.random.default_rng(0).permutation(len(pixels))
        tested, rest = order[: options.images], order[options.images :]
        labels = torch.as_tensor(known)[tested]
        conditions = (covshift.corrupt(pixels[tested], each, severity=options.severity, seed=0) for each in names())
        shown = [model.preprocess(images) for images in (pixels[tested], *conditions)]
        row = []
        for size in (0, *options.sizes):
            clean = model.preprocess(pixels[rest[:size]]) if size else None
            source = None if clean is None else covshift.Source.measure(model, clean, progress=False)
            first, *others = (error(model, images, labels, source) for images in shown)
            row.append(f"{first:.1f} / {np.mean(others):.1f}")
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
