"""Verdicts of `covshift.repair` without a source, beside the errors that they are about, on built-in images.

python benchmarks/repair.py --model builtin:resnet20
python benchmarks/repair.py --model builtin:resnet20 --random 60 --seed 1
"""

import argparse
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import covshift
from covshift.corruptions import names
from covshift.repairs.make import look_at
from covshift.repairs.verdict import Verdict, believed_gain, judge
from covshift.shift.forecast.observe import Batches

CONDITIONS = ("clean/0", "fog/5", "contrast/5", "gaussian_noise/5", "pixelate/5", "jpeg_compression/3")
MIXES = (10, 5, 2, 1)
"""Numbers of classes that the images are of."""

SIZES = (48, 100, 200, 300)
"""Numbers of images of a random target."""

CLEAN = 0.15
"""Share of the random targets that are not corrupted."""


class Target(NamedTuple):
    """What images are made of, and how many."""

    condition: str
    shares: NDArray[np.float64]
    images: int


class Seen(NamedTuple):
    """Errors of the model as it is, half adapted and adapted; what is believed of the gain in each; and the verdict."""

    errors: list[float]
    gains: str
    verdict: Verdict

    @property
    def fall(self) -> float:
        """By how much following the verdict lowers the error."""
        return self.errors[0] - self.errors[1 if self.verdict.half else 2] if self.verdict.good else 0.0


class Subject:
    """A model, with the images that targets are made of."""

    def __init__(self, uri: str) -> None:
        self.model = covshift.open_model(uri)
        pixels, labels = covshift.open_data("builtin:cifar10").pixels(self.model)
        assert labels is not None
        self.pixels, self.labels = pixels, np.asarray(labels)

    def look(self, target: Target, seed: int) -> Seen:
        """Return what the model answers to a target, and the verdict on it."""
        chances = target.shares[self.labels]
        images = min(target.images, int(np.count_nonzero(chances)))
        taken = np.random.default_rng(seed).choice(len(chances), images, replace=False, p=chances / chances.sum())
        shown, (name, severity) = self.pixels[taken], target.condition.split("/")
        if name != "clean":
            shown = covshift.corrupt(shown, name, int(severity), seed=seed)
        seen, half = look_at(self.model, Batches(shown, self.model.preprocess, 64), None)
        truth = torch.as_tensor(self.labels[taken])
        errors = [(each.argmax(1) != truth).double().mean().item() for each in (seen.plain, half, seen.adapted)]
        gains = (believed_gain(seen.plain, each) for each in (half, seen.adapted))
        believed = " | ".join(f"{100 * gain.fall:+.1f} ± {100 * gain.uncertainty:.1f}" for gain in gains)
        return Seen(errors, believed, judge(seen, half))


def table(subject: Subject, images: int, seed: int) -> None:
    """Print one row for each condition and mix of classes."""
    rng = np.random.default_rng(seed)
    print("| images | classes | as it is | first half | all layers | half: gain | all: gain | verdict |")
    print("|---|--:|--:|--:|--:|--:|--:|---|")
    for condition in CONDITIONS:
        for classes in MIXES:
            target = Target(condition, np.isin(np.arange(10), rng.permutation(10)[:classes]).astype(float), images)
            seen = subject.look(target, seed)
            word = seen.verdict.word + (", first half" if seen.verdict.good and seen.verdict.half else "")
            errors = " | ".join(f"{error:.0%}" for error in seen.errors)
            print(f"| {condition} | {classes} | {errors} | {seen.gains} | {word} |", flush=True)


def drawn(rng: np.random.Generator) -> Target:
    """Return a target of a random corruption and severity, mix of classes and size."""
    condition = "clean/0" if rng.random() < CLEAN else f"{rng.choice(names())}/{rng.integers(1, 6)}"
    classes = int(rng.choice([10, 10, 10, 8, 5, 3, 2, 1]))
    shares = rng.dirichlet(np.ones(10)) if rng.random() < 0.2 else np.ones(10)
    kept = np.isin(np.arange(10), rng.permutation(10)[:classes])
    return Target(condition, shares * kept, int(rng.choice(SIZES)))


def summary(subject: Subject, targets: int, seed: int) -> None:
    """Print how many random targets are repaired, what that gains, and each that it harms."""
    falls, possible = [], 0.0
    for number in range(targets):
        target = drawn(np.random.default_rng([seed, number]))
        seen = subject.look(target, 1000 * seed + number)
        possible += seen.errors[0] - min(seen.errors)
        if not seen.verdict.good:
            continue
        falls.append(seen.fall)
        if seen.fall < -0.01:
            errors = ", ".join(f"{error:.1%}" for error in seen.errors)
            classes = np.count_nonzero(target.shares)
            print(f"worse: {target.condition}, {classes} classes, {target.images} images: {errors}")
    whole, mean = 100 * sum(falls), 100 * np.mean(falls or [0.0])
    print(
        f"{targets} targets, {len(falls)} repaired, whose error falls by {mean:.1f} points; {whole:.0f} of the "
        f"{100 * possible:.0f} points that the best of the three models gains; "
        f"{sum(fall < -0.01 for fall in falls)} worse by more than a point"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="builtin:resnet20")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--random", type=int, metavar="TARGETS", help="draw targets, and print a summary")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.random is None:
        table(Subject(options.model), options.images, options.seed)
    else:
        summary(Subject(options.model), options.random, options.seed)
