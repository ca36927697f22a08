"""How near to a model's errors any forecast from its confidence could be: what counting on some images puts it off by.

    python benchmarks/counting.py results/resnet20-anchored results/resnet20-augmix-anchored results/resnet20-fixup

Takes the answers that these runs have kept, on corruptions. In each condition, the chance of an answer to be wrong is
learned from the model's confidence on these very images; what is left of each image, wrong or not, no confidence knows.
Some of it is the same in all conditions: the image is harder than it looks. So one set of images is harder than another
in all conditions at once, and the images of calibration put all forecasts off by as much.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from covshift.bench.results.store import Store

IMAGES, FITTED = 1000, (1000, 3000)
METHODS = {"none": "as it is", "full": "adapted", "full:anchored": "anchored"}
TO_DEVIATION = np.sqrt(2 / np.pi)  # mean deviation of a Gaussian, in standard deviations


def unexplained(wrong: NDArray[np.float64], doubt: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a condition's wrong answers differ by from their chances, given the model's doubt of each, [images]."""
    inputs = np.stack([np.ones_like(doubt), doubt, np.sqrt(doubt)], 1)
    return np.asarray(wrong - inputs @ np.linalg.lstsq(inputs, wrong, rcond=None)[0])


def report(folder: Path) -> None:
    """Print a line of the table for each method of a run."""
    answers = Store(folder).answers()
    for method, name in METHODS.items():
        some = answers[(answers["method"] == method) & (answers["severity"] > 0)]
        if some.empty:
            continue
        tables = [some.pivot_table(index=["corruption", "severity"], columns="index", values=each).to_numpy(float)
                  for each in ("right", "confidence")]  # fmt: skip
        left = np.array([unexplained(1 - right, 1 - sure) for right, sure in zip(*tables, strict=True)])
        each, conditions = float((left**2).mean()), len(left)
        # The mean over conditions holds the shared part, and the rest divided by the number of conditions.
        shared = (float((left.mean(0) ** 2).mean()) * conditions - each) / (conditions - 1)
        off = [TO_DEVIATION * np.sqrt(each / IMAGES + shared / fitted) for fitted in (np.inf, *FITTED)]
        cells = [f"{100 * value:.2f}" for value in off]
        print(f"| {folder.name} | {name} | {shared / each:.0%} | " + " | ".join(cells) + " |")


def main() -> None:
    """Read the arguments and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs that have kept their answers")
    heads = ["by the target's 1,000 images", *(f"and by {fitted:,} of calibration" for fitted in FITTED)]
    print("| run | model | the same in all conditions | " + " | ".join(heads) + " |")
    print("|---|---|" + "--:|" * (1 + len(heads)))
    for folder in parser.parse_args().runs:
        report(folder)


if __name__ == "__main__":
    main()
