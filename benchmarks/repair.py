"""Verdicts of `covshift.repair` without a source, beside the errors that they are about, on built-in images.

python benchmarks/repair.py --model builtin:resnet20
"""

import argparse

import numpy as np
import torch

import covshift
from covshift.repairs.make import look_at
from covshift.repairs.verdict import effective_classes, judge
from covshift.shift.forecast.observe import Batches

CONDITIONS = ("clean/0", "fog/4", "contrast/5", "gaussian_noise/5", "pixelate/5", "jpeg_compression/3")
MIXES = (10, 5, 2, 1)
"""Numbers of classes that the images are of."""


def main(uri: str, images: int, seed: int) -> None:
    """Print one row for each condition and mix of classes."""
    model = covshift.open_model(uri)
    pixels, labels = covshift.open_data("builtin:cifar10").pixels(model)
    assert labels is not None
    rng = np.random.default_rng(seed)
    print("| images | classes | as it is | first half | all layers | verdict |\n|---|--:|--:|--:|--:|---|")
    for condition in CONDITIONS:
        name, severity = condition.split("/")
        for classes in MIXES:
            among = rng.permutation(10)[:classes]
            taken = rng.permutation(np.flatnonzero(np.isin(labels, among)))[:images]
            shown = pixels[taken]
            if name != "clean":
                shown = covshift.corrupt(shown, name, int(severity), seed=seed)
            seen, half = look_at(model, Batches(shown, model.preprocess, 64), None)
            truth = torch.as_tensor(labels[taken])
            cells = [
                f"{effective_classes(logits):.1f} ({(logits.argmax(1) != truth).double().mean():.0%})"
                for logits in (seen.plain, half, seen.adapted)
            ]
            verdict = judge(seen, half)
            word = verdict.word + (", first half" if verdict.good and verdict.uneven else "")
            print("|", " | ".join([condition, str(classes), *cells, word]), "|", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="builtin:resnet20")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.model, options.images, options.seed)
