"""How near to a model's errors any forecast could be: what counting on some images alone puts it off by.

    python benchmarks/counting.py --model builtin:resnet20 --data builtin:cifar10

Draws the images of calibration and of the targets anew, with replacement, fits the line from beliefs to errors again,
and compares how far it is off with how far it was: the difference is by chance alone. A model that is understood
perfectly, all conditions alike, would still be forecast no better.
"""

import argparse
from typing import NamedTuple

import numpy as np
import torch
from forecasts import FIT, TESTED
from numpy.typing import NDArray

import covshift
from covshift.corruptions import names
from covshift.data import open_data
from covshift.models import open_model
from covshift.shift import Predictor
from covshift.shift.forecast.beliefs import wrong_answers
from covshift.shift.forecast.observe import Batches, observe

Doubles = NDArray[np.float64]
SEVERITIES = (1, 2, 3, 4, 5)
IMAGES, DRAWS = 1000, 300


class Answers(NamedTuple):
    """Of each condition and image, the chance of a wrong answer, and whether it was wrong: [conditions, images]."""

    chances: Doubles
    wrong: Doubles

    def drawn(self, rows: NDArray[np.intp]) -> tuple[Doubles, Doubles]:
        """The mean of both over some of the images, [conditions]."""
        return self.chances[:, rows].mean(1), self.wrong[:, rows].mean(1)


def off(calibration: Answers, target: Answers, rows: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Doubles:
    """How far a line through calibration is off on each condition of the target, [conditions]."""
    slope, intercept = np.polyfit(*calibration.drawn(rows[0]), 1)
    beliefs, errors = target.drawn(rows[1])
    return np.asarray(np.clip(slope * beliefs + intercept, 0, 1) - errors)


def report(name: str, calibration: Answers, target: Answers) -> None:
    """Print one line of the table."""
    rng, every = np.random.default_rng(0), np.arange(IMAGES)
    found = off(calibration, target, (every, every))
    cells = [f"{100 * np.abs(found).mean():.2f}", f"{100 * found.mean():+.2f}"]
    for drawn in ((True, True), (False, True)):
        moved = np.array([
            off(calibration, target, (draw(rng, drawn[0]), draw(rng, drawn[1]))) - found for _ in range(DRAWS)
        ])  # fmt: skip
        each = 100 * np.abs(moved).mean(1)
        cells += [f"{each.mean():.2f} ({np.quantile(each, 0.05):.2f} to {np.quantile(each, 0.95):.2f})"]
    print(f"| {name} | " + " | ".join(cells) + " |")


def draw(rng: np.random.Generator, anew: bool) -> NDArray[np.intp]:
    """The positions of some images: of all, or drawn anew."""
    return rng.integers(0, IMAGES, IMAGES) if anew else np.arange(IMAGES)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="as in covshift bench run")
    parser.add_argument("--data", required=True, help="as in covshift bench run; at least 4,000 images")
    arguments = parser.parse_args()
    model = open_model(arguments.model)
    pixels = open_data(arguments.data).pixels(model)
    order = np.random.default_rng(1).permutation(len(pixels.images))
    images, labels = pixels.images[order], torch.as_tensor(pixels.labels)[torch.from_numpy(order)]
    predictor = Predictor.fit(model, images[FIT], labels[FIT])
    assert predictor.knowledge is not None
    beliefs, temperature = predictor.knowledge.beliefs, predictor._scale.temperature
    answers: dict[str, list[Answers]] = {"plain": [], "adapted": []}
    for part, tested, seed in ((FIT, names("holdout"), 0), (TESTED, names("test"), 7)):
        some, truth = images[part][:IMAGES], labels[part][:IMAGES]
        seen = [
            observe(model.module, Batches(covshift.corrupt(some, name, severity, seed=seed), model.preprocess, 100))
            for name in tested
            for severity in SEVERITIES
        ]
        for which in ("plain", "adapted"):
            chances = [wrong_answers(one, which, beliefs, temperature).numpy() for one in seen]
            wrong = [(one.logits(which).argmax(1) != truth).double().numpy() for one in seen]
            answers[which].append(Answers(np.array(chances), np.array(wrong)))
    print("| | off by | on average | by chance alone | by chance in the target alone |\n|---|--:|--:|--:|--:|")
    for which, (calibration, target) in answers.items():
        report(which, calibration, target)


if __name__ == "__main__":
    main()
