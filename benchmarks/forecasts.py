"""What forecasts are worth on shifts that they were not calibrated on: the tables of docs/explanation/forecasts.md.

    python benchmarks/forecasts.py --model builtin:resnet20 --data builtin:cifar10 --rows runs/forecasts.jsonl

A predictor is fitted on 3,000 images, and judged on others: on the 15 test corruptions (100 to 2,000 images), on 100
targets of few classes, half of them corrupted, and on imitations of shifts, each family of which is left out of
calibration while it is tried. Each target is of images of its own, drawn from 7,000: what a set of images is harder by
than it looks is much the same in all conditions, so that one set for all would show its own luck in every row. Every
target is a row in the file, so a run that was stopped goes on; the order of the targets is random, so that its tables
are fair ones.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from shift import Row, Rows

import covshift
from covshift.corruptions import names
from covshift.data import open_data
from covshift.models import open_model
from covshift.shift import Forecast, Predictor
from covshift.shift.forecast.imitations import imitate
from covshift.shift.forecast.judgement import judge_images
from covshift.shift.forecast.observe import Batches, Observation

FAMILIES = {
    "drawings": ("edges", "lines"),
    "silhouettes": ("silhouette",),
    "cartoons": ("cartoon",),
    "colours": ("grey", "inverted"),
    "views": ("turned", "cropped", "distant"),
    "resolution": ("coarse",),
    "styles": ("restyled",),
}
FIT, TESTED = slice(0, 3000), slice(3000, None)  # of the images in random order
PARTS = ("skewed", "natural", "corruptions")
SKEWED, OF_EACH = 100, 200  # targets of few classes, and their images
MOST = 0.05  # deviation of a number that is named on images of few classes


class Target(NamedTuple):
    """Something to forecast: its key in the rows, how to make its images, their labels, what calibration leaves out."""

    key: Row
    make: Callable[[], Any]
    labels: torch.Tensor
    left_out: tuple[str, ...] = ()


def drawn(images: Any, labels: torch.Tensor, number: int, seed: list[int]) -> tuple[Any, torch.Tensor]:
    """Some of the images with their labels, in random order."""
    rows = np.random.default_rng(seed).permutation(len(labels))[:number]
    return images[rows], labels[rows]


def corrupted(images: Any, labels: torch.Tensor) -> Iterator[Target]:
    """The test corruptions at all severities, on 1,000 images and, of some conditions, on other numbers."""
    cells = [(name, severity) for severity in (1, 2, 3, 4, 5) for name in names("test")]
    for position, cell in enumerate(np.random.default_rng(0).permutation(len(cells))):
        name, severity = cells[cell]
        numbers = [1000, *([100, 400] if position % 3 == 0 else []), *([2000] if position % 12 == 0 else [])]
        for number in numbers:
            key = {"part": "corruptions", "name": name, "severity": severity, "images": number}
            some, truth = drawn(images, labels, number, [position, number])
            yield Target(key, partial(covshift.corrupt, some, name, severity, seed=7), truth)


def skewed(images: Any, labels: torch.Tensor) -> Iterator[Target]:
    """Images of one class, of two, and of a Dirichlet(0.1) mix; every other one corrupted."""
    for number in range(SKEWED):
        rng = np.random.default_rng([number, 22])
        kind = ("one class", "two classes", "dirichlet")[number % 3]
        shares = rng.dirichlet(np.full(10, 0.1))
        if kind != "dirichlet":
            chosen = rng.choice(10, 1 + (kind == "two classes"), replace=False)
            shares = np.isin(np.arange(10), chosen).astype(float)
        weights = shares[labels.numpy()]
        rows = rng.choice(len(labels), OF_EACH, p=weights / weights.sum())
        name, severity = (str(rng.choice(names("test"))), int(rng.integers(1, 6))) if number % 2 else ("clean", 0)
        some: Any = images[rows]
        make = partial(covshift.corrupt, some, name, severity, seed=number) if severity else partial(np.array, some)
        key = {"part": "skewed", "kind": kind, "number": number, "name": name, "severity": severity}
        yield Target(key, make, labels[rows])


def natural(images: Any, labels: torch.Tensor) -> Iterator[Target]:
    """Imitations of shifts, whose whole family is left out of calibration."""
    for family, members in FAMILIES.items():
        for name in members:
            for severity in (3, 5):
                key = {"part": "natural", "family": family, "name": name, "severity": severity, "images": 400}
                some, truth = drawn(images, labels, 400, [severity, *name.encode()])
                yield Target(key, partial(imitate, some, name, severity, seed=3), truth, members)


def measure(predictor: Predictor, target: Target) -> Row:
    """The true errors of a target and its forecast, as a row."""
    seen = predictor.observe(Batches(target.make(), predictor._preprocess, 100))
    plain, adapted = ((seen.logits(which).argmax(1) != target.labels).double().mean().item()
                      for which in ("plain", "adapted"))  # fmt: skip
    forecast = forecast_without(predictor, seen, target.left_out)
    return {
        "plain": plain,
        "adapted": adapted,
        "predicted": [list(forecast.plain), list(forecast.adapted)],
        "sure": forecast.sure,
        "why": forecast.why,
        "advice": forecast.advice.action,
    }


def forecast_without(predictor: Predictor, seen: Observation, left_out: tuple[str, ...]) -> Forecast:
    """The forecast by a predictor that was not calibrated on some imitations."""
    if not left_out or predictor.knowledge is None:
        return predictor.predict_observed(seen)
    cases = tuple(case for case in predictor.knowledge.cases if case.name not in left_out)
    known = replace(predictor.knowledge, cases=cases)
    judgement = judge_images(seen, known, known.doubt(), predictor._scale.temperature)
    assert judgement.plain is not None
    assert judgement.adapted is not None
    return judgement.forecast(judgement.plain, judgement.adapted, seen)


def held(row: Row, which: int) -> bool:
    """Whether an interval holds the error: 0 for that of the plain model, 1 for that of the adapted one."""
    _, low, high = row["predicted"][which]
    return bool(low <= row[("plain", "adapted")[which]] <= high)


def summary(rows: list[Row], title: str) -> None:
    """Print one line of a table about some rows."""
    if not rows:
        return
    sure = [row for row in rows if row["sure"]]
    cells = [title, f"{len(sure)} of {len(rows)}"]
    for which, model in enumerate(("plain", "adapted")):
        off = [abs(row["predicted"][which][0] - row[model]) for row in sure]
        wide = [(row["predicted"][which][2] - row["predicted"][which][1]) / 2 for row in sure]
        share = f"{np.mean([held(row, which) for row in sure]):.0%}" if sure else "none"
        cells += [f"{100 * np.mean(off):.2f}", share, f"{100 * np.mean(wide):.1f}"] if sure else [""] * 3
    print("| " + " | ".join(cells) + " |")


def report(rows: list[Row]) -> None:
    """Print the tables: of those that got a number, deviation in points, share of intervals that hold, half width."""
    print("| | got a number | plain: off by | held | half width | adapted: off by | held | half width |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for number in (100, 400, 1000, 2000):
        chosen = [row for row in rows if row["part"] == "corruptions" and row["images"] == number]
        summary(chosen, f"corruptions, {number} images")
    for kind in ("one class", "two classes", "dirichlet"):
        summary([row for row in rows if row.get("kind") == kind], kind)
    for family in FAMILIES:
        summary([row for row in rows if row.get("family") == family], family)
    few = [row for row in rows if row["part"] == "skewed" and row["sure"]]
    wrong = [row for row in few if abs(row["predicted"][0][0] - row["plain"]) > MOST]
    print(f"few classes: {len(wrong)} of {len(few)} numbers off by more than {MOST:.0%}")
    missed = [f"{row['name']}/{row['severity']}" for row in rows if row["part"] == "natural" and not held(row, 0)]
    print(f"natural: the error of the plain model is outside its interval for {', '.join(missed) or 'none'}")
    print(costs_of_advice(rows))
    for which, model in enumerate(("plain", "adapted")):
        print(what_is_left(rows, which, model))


def what_is_left(rows: list[Row], which: int, model: str) -> str:
    """What a better line could mend of the deviation on corruptions, and which of these are off by most, in words."""
    chosen = [row for row in rows if row["part"] == "corruptions" and row["images"] == 1000 and row["sure"]]
    if not chosen:
        return f"{model}: no corruption on 1,000 images got a number"
    found, true = (100 * np.array(each) for each in zip(*((r["predicted"][which][0], r[model]) for r in chosen),
                   strict=True))  # fmt: skip
    best = np.abs(np.polyval(np.polyfit(found, true, 1), found) - true).mean()
    of = {name: np.mean([off for off, row in zip(found - true, chosen, strict=True) if row["name"] == name])
          for name in sorted({row["name"] for row in chosen})}  # fmt: skip
    high, low = max(of, key=lambda name: of[name]), min(of, key=lambda name: of[name])
    return (
        f"{model}, corruptions at 1,000 images: {np.mean(found - true):+.2f} points on average, most for {high} "
        f"({of[high]:+.1f}) and {low} ({of[low]:+.1f}); the line that fits them best would be off by {best:.2f}"
    )


def costs_of_advice(rows: list[Row]) -> str:
    """What following the advice to adapt did to the error, in words."""
    rises = [100 * (row["adapted"] - row["plain"]) for row in rows if row["advice"] == "adapt"]
    return f"advice to adapt: {len(rises)} times, worst change of the error {max(rises, default=0.0):+.1f} points"


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="as in covshift bench run")
    parser.add_argument("--data", required=True, help="as in covshift bench run; at least 6,000 images of 10 classes")
    parser.add_argument("--rows", required=True, type=Path, help="where measurements are kept")
    parser.add_argument(
        "--parts", nargs="*", choices=PARTS, default=PARTS, help="what to measure; nothing: tables only"
    )
    arguments = parser.parse_args()
    model = open_model(arguments.model)
    pixels = open_data(arguments.data).pixels(model)
    order = np.random.default_rng(1).permutation(len(pixels.images))
    images, labels = pixels.images[order], torch.as_tensor(pixels.labels)[torch.from_numpy(order)]
    rows, saved = Rows(arguments.rows, model.digest[:16]), arguments.rows.with_suffix(".predictor")
    if saved.exists():
        predictor = Predictor.load(saved, model)
    else:
        predictor = Predictor.fit(model, images[FIT], labels[FIT])
        predictor.save(saved)
    makers = {
        "corruptions": partial(corrupted, images[TESTED], labels[TESTED]),
        "skewed": partial(skewed, images[TESTED], labels[TESTED]),
        "natural": partial(natural, images[TESTED], labels[TESTED]),
    }
    for part in arguments.parts:
        for target in makers[part]():
            rows.measure(target.key, partial(measure, predictor, target))
    report(rows.rows)


if __name__ == "__main__":
    main()
