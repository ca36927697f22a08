r"""What forecasts of CIFAR-10 networks are worth on photographs of another data set: ImageNet's, at 32 pixels.

    python benchmarks/photographs.py --folders imagenet/val imagenet/source \
        --models builtin:resnet20=results/shift/forecasts-resnet20.predictor

Nobody made these shifts: other photographers, other framing, other kinds of each class. The folders hold a folder for
each of ImageNet's 1,000 classes. One target has at most 21 images of each of the ten classes, the others are of few.
"""

import argparse
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from covshift.models import open_model
from covshift.shift import Predictor
from covshift.shift.forecast.observe import Batches

CLASSES = {
    0: [404, 895],
    1: [436, 468, 511, 609, 627, 656, 661, 751, 817],
    2: [*range(7, 25), *range(80, 101), *range(127, 147)],
    3: [*range(281, 286)],
    4: [351, 352, 353],
    5: [*range(151, 269)],
    6: [30, 31, 32],
    7: [339],
    8: [403, 472, 484, 510, 554, 625, 628, 724, 780, 814, 833, 871, 914],
    9: [407, 555, 569, 675, 717, 864, 867],
}
"""ImageNet's classes that are of each of CIFAR-10's: aeroplane, car, bird, cat, deer, dog, frog, horse, ship, truck."""

OF_EACH, SIDE = 21, 32
TARGETS = {"dogs": (5,), "vehicles": (0, 1, 8, 9), "animals": (2, 3, 4, 5, 6, 7), "all": tuple(CLASSES)}


def photographs(folders: list[Path]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The photographs of all ten classes at 32 pixels, and their classes."""
    images, labels = [], []
    for label, members in CLASSES.items():
        for folder in folders:
            places = sorted(each for each in folder.iterdir() if each.is_dir())
            for file in (file for member in members for file in sorted(places[member].iterdir())):
                picture = cv2.imread(str(file))
                assert picture is not None, f"{file} cannot be read"
                small = cv2.resize(picture, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
                images.append(cv2.cvtColor(small, cv2.COLOR_BGR2RGB))
                labels.append(label)
    return np.stack(images).astype(np.uint8), np.array(labels)


def main() -> None:
    """Read the arguments and print a line of the table for each model and target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", nargs="+", required=True, type=Path, help="with a folder for each ImageNet class")
    parser.add_argument("--models", nargs="+", required=True, help="MODEL=PREDICTOR, as benchmarks/natural.py makes it")
    arguments = parser.parse_args()
    images, labels = photographs(arguments.folders)
    rng = np.random.default_rng(0)
    even = np.concatenate([rng.permutation(np.flatnonzero(labels == each))[:OF_EACH] for each in CLASSES])
    targets = {"even": even} | {name: np.flatnonzero(np.isin(labels, few)) for name, few in TARGETS.items()}
    print("| model | images | number | plain | expected | adapted | expected | advice |")
    print("|---|---|--:|--:|---|--:|---|---|")
    for name, _, file in (each.partition("=") for each in arguments.models):
        model = open_model(name)
        predictor = Predictor.load(file, model)
        for target, rows in targets.items():
            rows = rng.permutation(rows)
            seen = predictor.observe(Batches(images[rows], model.preprocess, 100))
            truth, forecast = torch.as_tensor(labels[rows]), predictor.predict_observed(seen)
            cells = [name, target, str(len(rows))]
            for logits, told in ((seen.plain, forecast.plain), (seen.adapted, forecast.adapted)):
                expected = "{:.1f} ({:.1f} to {:.1f})".format(*(100 * value for value in told))
                wrong = 100 * (logits.argmax(1) != truth).double().mean().item()
                cells += [f"{wrong:.1f}", expected if forecast.sure else "cannot tell"]
            print("| " + " | ".join([*cells, forecast.advice.action]) + " |", flush=True)


if __name__ == "__main__":
    main()
