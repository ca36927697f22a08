"""Verdicts of `covshift.repair`, beside the errors that they are about, on built-in images.

python benchmarks/repair.py --model builtin:resnet20
python benchmarks/repair.py --model builtin:vit --source 1000
python benchmarks/repair.py --model builtin:resnet20 --random 60 --seed 1
"""

import argparse
import copy
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import covshift
from covshift.corruptions import names
from covshift.repairs.make import judge_answers, look_at
from covshift.repairs.verdict import Verdict, believed_gain
from covshift.shift.forecast.observe import Batches

CONDITIONS = ("clean/0", "fog/5", "contrast/5", "gaussian_noise/5", "pixelate/5", "jpeg_compression/3")

Mix = Literal["all alike", "few classes", "skewed"]
"""All classes alike; from one to eight classes alike; or all, some much more than others."""

MIXES: tuple[Mix, ...] = ("all alike", "few classes", "skewed")

SIZES = (48, 100, 200, 300)
"""Numbers of images of a random target."""

CLEAN = 0.15
"""Share of the random targets that are not corrupted."""


class Target(NamedTuple):
    """What images are made of, and how many."""

    condition: str
    mix: str
    shares: NDArray[np.float64]
    images: int


class Seen(NamedTuple):
    """Errors of the model as it is, half adapted, adapted and as the verdict leaves it; beliefs; and the verdict."""

    plain: float
    half: float
    adapted: float
    after: float
    gains: str
    verdict: Verdict

    @property
    def fall(self) -> float:
        """By how much following the verdict lowers the error."""
        return self.plain - self.after

    @property
    def possible(self) -> float:
        """By how much the best of the models lowers the error."""
        return self.plain - min(self.plain, self.half, self.adapted, self.after)


class Subject:
    """A model, with the images that targets are made of; with a source, others of these are learned from."""

    def __init__(self, uri: str, source: int, seed: int) -> None:
        self.model = covshift.open_model(uri)
        pixels, labels = covshift.open_data("builtin:cifar10").pixels(self.model)
        assert labels is not None
        order = np.random.default_rng(seed).permutation(len(pixels))
        clean, rest = order[:source], order[source:]
        self.pixels, self.labels = pixels[rest], np.asarray(labels)[rest]
        self.learned = None
        if source:
            # Of the severities only two, which takes a third of the time that `covshift repair` takes to learn.
            self.learned = covshift.shift.Predictor.fit(
                self.model, pixels[clean], labels[clean], severities=(2, 5), batch_size=64, progress=False
            )

    def look(self, target: Target, seed: int) -> Seen:
        """Return what the model answers to a target, and the verdict on it."""
        chances = target.shares[self.labels]
        images = min(target.images, int(np.count_nonzero(chances)))
        taken = np.random.default_rng(seed).choice(len(chances), images, replace=False, p=chances / chances.sum())
        shown, (name, severity) = self.pixels[taken], target.condition.split("/")
        if name != "clean":
            shown = covshift.corrupt(shown, name, int(severity), seed=seed)
        truth = torch.as_tensor(self.labels[taken])
        answers = look_at(self.model, Batches(shown, self.model.preprocess, 64), self.learned)
        verdict, _ = judge_answers(answers, self.learned)
        half, adapted = (_error(logits, truth) for logits in (answers.half, answers.seen.adapted))
        gains = (believed_gain(answers.seen.plain, logits) for logits in (answers.half, answers.seen.adapted))
        believed = " | ".join(f"{100 * gain.fall:+.1f} ± {100 * gain.uncertainty:.1f}" for gain in gains)
        plain = after = _error(answers.seen.plain, truth)
        if verdict.good:
            repaired = copy.deepcopy(self.model)
            covshift.repair(self.model, shown, source=self.learned, progress=False).apply(repaired)
            with torch.inference_mode():
                after = _error(torch.cat([repaired(shown[part]) for part in np.array_split(range(images), 5)]), truth)
        return Seen(plain, half, adapted, after, believed, verdict)


def _error(logits: Tensor, truth: Tensor) -> float:
    return (logits.argmax(1) != truth).double().mean().item()


def table(subject: Subject, images: int, seed: int) -> None:
    """Print one row for each condition and mix of classes."""
    rng = np.random.default_rng(seed)
    print("| images | classes | as it is | first half | all layers | half: gain | all: gain | verdict | repaired |")
    print("|---|--:|--:|--:|--:|--:|--:|---|--:|")
    for condition in CONDITIONS:
        for classes in (10, 5, 2, 1):
            shares = np.isin(np.arange(10), rng.permutation(10)[:classes]).astype(float)
            seen = subject.look(Target(condition, str(classes), shares, images), seed)
            word = seen.verdict.word + (", first half" if seen.verdict.good and seen.verdict.half else "")
            errors = " | ".join(f"{error:.0%}" for error in (seen.plain, seen.half, seen.adapted))
            after = f"{seen.after:.0%}" if seen.verdict.good else ""
            print(f"| {condition} | {classes} | {errors} | {seen.gains} | {word} | {after} |", flush=True)


def drawn(rng: np.random.Generator) -> Target:
    """Return a target of a random corruption and severity, mix of classes and size."""
    condition = "clean/0" if rng.random() < CLEAN else f"{rng.choice(names())}/{rng.integers(1, 6)}"
    mix: Mix = rng.choice(MIXES)
    shares = np.ones(10)
    if mix == "few classes":
        shares = np.isin(np.arange(10), rng.permutation(10)[: rng.choice([1, 1, 2, 2, 3, 5, 8])]).astype(float)
    elif mix == "skewed":
        shares = rng.dirichlet(np.full(10, rng.choice([0.1, 0.3, 1.0]))) + 1e-9
    return Target(condition, mix, shares, int(rng.choice(SIZES)))


def summary(subject: Subject, targets: int, seed: int) -> None:
    """Print how many random targets are repaired, what that gains, and each that it harms."""
    made: dict[str, list[Seen]] = {mix: [] for mix in MIXES}
    for number in range(targets):
        target = drawn(np.random.default_rng([seed, number]))
        seen = subject.look(target, 1000 * seed + number)
        made[target.mix].append(seen)
        if seen.fall < -0.01:
            errors = ", ".join(f"{error:.1%}" for error in (seen.plain, seen.half, seen.adapted, seen.after))
            shares = " ".join(f"{share:.2f}" for share in target.shares / target.shares.sum())
            print(f"worse: {target.condition}, shares {shares}, {target.images} images: {errors}", flush=True)
    print("| classes | targets | repaired | their error falls by | of what could be gained | worse by over a point |")
    print("|---|--:|--:|--:|--:|--:|")
    for mix, group in (*made.items(), ("all", list(chain.from_iterable(made.values())))):
        print(f"| {mix} | {_row(group)} |")


def _row(group: Sequence[Seen]) -> str:
    """Return the figures of some targets; a fall and what could be gained in points, summed over them."""
    falls = [seen.fall for seen in group if seen.verdict.good]
    gained, possible = 100 * sum(falls), 100 * sum(seen.possible for seen in group)
    worse = sum(fall < -0.01 for fall in falls)
    mean = 100 * float(np.mean(falls or [0.0]))
    return f"{len(group)} | {len(falls)} | {mean:.1f} | {gained:.0f} of {possible:.0f} | {worse}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="builtin:resnet20")
    parser.add_argument("--source", type=int, default=0, metavar="IMAGES", help="learn from as many other clean images")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--random", type=int, metavar="TARGETS", help="draw targets, and print a summary")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    subject = Subject(options.model, options.source, options.seed)
    if options.random is None:
        table(subject, options.images, options.seed)
    else:
        summary(subject, options.random, options.seed)
