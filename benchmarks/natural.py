r"""What forecasts are worth on shifts that are no corruptions and that no predictor was calibrated on.

    python benchmarks/natural.py --model builtin:resnet20 --data builtin:cifar10 --predictor runs/forecasts.predictor \
        --rows runs/natural.jsonl

44 shifts, made of clean images: 21 that the rule for "cannot tell" was chosen with in view, 15 that were written to
check it, and 8 that were written after the last change of the rule for intervals and tried once. Every target is a row
in the file, so a run that was stopped goes on.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from forecasts import FIT, TESTED, Target, costs_of_advice, drawn, held, measure, summary
from numpy.typing import NDArray
from shift import Row, Rows

from covshift.data import open_data
from covshift.models import open_model
from covshift.shift import Predictor

Picture = NDArray[np.uint8]
NUMBER = 400  # images of each shift


def grey(image: Picture) -> Picture:
    """The brightness of an image."""
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY))


def rgb(image: Any) -> Picture:
    """A picture of one channel as one of three."""
    return np.repeat(levels(image)[..., None], 3, -1)


def levels(values: Any) -> Picture:
    """Values as levels from 0 to 255."""
    return np.asarray(np.clip(values, 0, 255), np.uint8)


def grid(image: Picture) -> tuple[Any, Any]:
    """The rows and the columns of an image."""
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]].astype(np.float32)
    return rows, columns


def remap(image: Picture, rows: Any, columns: Any) -> Picture:
    """An image read at other positions."""
    return np.asarray(
        cv2.remap(
            image, columns.astype(np.float32), rows.astype(np.float32), cv2.INTER_LINEAR, None, cv2.BORDER_REFLECT
        )
    )


def edges(image: Picture) -> Picture:
    """The strong edges of an image by Canny's method."""
    big = np.asarray(cv2.resize(image, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC), np.uint8)
    drawn = cv2.Canny(cv2.GaussianBlur(grey(big), (0, 0), 3), 30, 80)
    return np.asarray(cv2.resize(drawn, image.shape[1::-1], interpolation=cv2.INTER_AREA))


def halftone(image: Picture, rng: Any) -> Picture:
    """Dots of ink."""
    rows, columns = grid(image)
    return rgb(np.where(grey(image) > 128 + 60 * (np.sin(rows * 1.6) + np.sin(columns * 1.6)), 255, 0))


def hatching(image: Picture, rng: Any) -> Picture:
    """Slanted strokes, the more the darker."""
    rows, columns = grid(image)
    value = grey(image)
    first, second = (rows + columns) % 4 < 1, (rows - columns) % 4 < 1
    return rgb(255 - 200 * ((first & (value < 150)) | (second & (value < 90))))


def thermal(image: Picture, rng: Any) -> Picture:
    """The colours of a thermal camera."""
    return np.asarray(cv2.cvtColor(cv2.applyColorMap(grey(image), cv2.COLORMAP_JET), cv2.COLOR_BGR2RGB))


def swirl(image: Picture, rng: Any) -> Picture:
    """Turned by an angle that falls from the middle."""
    rows, columns = grid(image)
    height, width = image.shape[:2]
    y, x = rows - height / 2, columns - width / 2
    angle = 1.6 * np.exp(-np.hypot(y, x) / (0.35 * height))
    cos, sin = np.cos(angle), np.sin(angle)
    return remap(image, height / 2 + y * cos - x * sin, width / 2 + y * sin + x * cos)


def frame(image: Picture, rng: Any) -> Picture:
    """In a thick frame of some colour."""
    made, edge = image.copy(), image.shape[0] // 7
    colour = rng.integers(0, 256, 3)
    made[:edge] = made[-edge:] = made[:, :edge] = made[:, -edge:] = colour
    return made


def scanlines(image: Picture, rng: Any) -> Picture:
    """Every third line dark."""
    made = image.copy()
    made[::3] //= 4
    return made


def salt_and_pepper(image: Picture, rng: Any) -> Picture:
    """One pixel in eight white or black."""
    chance = rng.random(image.shape[:2])[..., None]
    return np.where(chance < 0.06, 0, np.where(chance > 0.94, 255, image)).astype(np.uint8)


def swapped(image: Picture, rng: Any) -> Picture:
    """Red for green for blue."""
    return np.ascontiguousarray(image[..., [2, 0, 1]])


def pencil(image: Picture, rng: Any) -> Picture:
    """A pencil drawing: an image divided by its blurred self."""
    value = grey(image).astype(np.float32)
    return rgb(256 * value / (cv2.GaussianBlur(value, (0, 0), 2) + 1))


def canny(image: Picture, rng: Any) -> Picture:
    """Edges, black on white."""
    return rgb(255 - edges(image))


def dithered(image: Picture, rng: Any) -> Picture:
    """Black and white by a threshold that differs from pixel to pixel."""
    order = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]]) * 16 + 8
    rows, columns = (each.astype(int) % 4 for each in grid(image))
    return rgb(np.where(grey(image) > order[rows, columns], 255, 0))


def embossed(image: Picture, rng: Any) -> Picture:
    """A relief."""
    return rgb(cv2.filter2D(grey(image).astype(np.float32), -1, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])))


def other_hues(image: Picture, rng: Any) -> Picture:
    """All hues turned by a quarter of the circle."""
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    hsv[..., 0] = (hsv[..., 0].astype(int) + 45) % 180
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB))


def night(image: Picture, rng: Any) -> Picture:
    """Dark, blue and noisy."""
    return levels(image * np.array([0.2, 0.25, 0.4]) + rng.normal(0, 8, image.shape))


def mosaic(image: Picture, rng: Any) -> Picture:
    """Sixteen patches, shuffled."""
    size = image.shape[0] // 4
    parts = [image[r * size : (r + 1) * size, c * size : (c + 1) * size] for r in range(4) for c in range(4)]
    chosen = [parts[each] for each in rng.permutation(16)]
    return np.concatenate([np.concatenate(chosen[4 * row : 4 * row + 4], 1) for row in range(4)], 0)


def waves(image: Picture, rng: Any) -> Picture:
    """Rows and columns moved to and fro."""
    rows, columns = grid(image)
    return remap(image, rows + 1.5 * np.sin(columns / 2.5), columns + 1.5 * np.sin(rows / 2.5))


def occluded(image: Picture, rng: Any) -> Picture:
    """A grey square over a quarter of the image."""
    made, size = image.copy(), image.shape[0] // 2
    top, left = rng.integers(0, size + 1, 2)
    made[top : top + size, left : left + size] = 128
    return made


def upside_down(image: Picture, rng: Any) -> Picture:
    """Upside down."""
    return np.ascontiguousarray(image[::-1])


def stencil(image: Picture, rng: Any) -> Picture:
    """Black and white by the image's own middle."""
    return rgb(np.where(grey(image) > np.median(grey(image)), 255, 0))


def palette(image: Picture, rng: Any) -> Picture:
    """Eight colours."""
    return np.where(image > 127, 224, 32).astype(np.uint8)


def tiled(image: Picture, rng: Any) -> Picture:
    """Four small copies."""
    small = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    return np.tile(small, (2, 2, 1))


def watercolour(image: Picture, rng: Any) -> Picture:
    """Flat, pale colours on rough paper."""
    flat = cv2.medianBlur(image, 5).astype(np.float32)
    paper = cv2.GaussianBlur(rng.normal(0, 25, image.shape[:2]).astype(np.float32), (0, 0), 0.8)[..., None]
    return levels(0.65 * flat + 85 + paper)


def fisheye(image: Picture, rng: Any) -> Picture:
    """The middle swollen."""
    rows, columns = grid(image)
    half = image.shape[0] / 2
    y, x = rows / half - 1, columns / half - 1
    far = 0.5 + 0.5 * np.hypot(y, x)
    return remap(image, half * (1 + y * far), half * (1 + x * far))


def underwater(image: Picture, rng: Any) -> Picture:
    """Blue and green haze, denser towards the ground."""
    depth = np.linspace(0.3, 0.7, image.shape[0])[:, None, None]
    return levels((1 - depth) * image * [0.6, 1.0, 1.0] + depth * np.array([10, 110, 130]))


def old_photograph(image: Picture, rng: Any) -> Picture:
    """Brown, grainy, dark in the corners and scratched."""
    rows, columns = grid(image)
    half = image.shape[0] / 2
    dark = 1 - 0.35 * ((rows / half - 1) ** 2 + (columns / half - 1) ** 2)
    made = grey(image)[..., None] * np.array([1.0, 0.85, 0.65]) * dark[..., None] + rng.normal(0, 10, image.shape)
    for column in rng.integers(0, image.shape[1], 2):
        made[:, column] += 70
    return levels(made)


def mirrored(image: Picture, rng: Any) -> Picture:
    """The right half is the mirror image of the left one."""
    left = image[:, : image.shape[1] // 2]
    return np.concatenate([left, left[:, ::-1]], 1)


def tilted(image: Picture, rng: Any) -> Picture:
    """Seen aslant."""
    side = image.shape[0] - 1
    corners = np.array([[0, 0], [side, 0], [side, side], [0, side]], np.float32)
    moved = corners + rng.uniform(-0.22, 0.22, (4, 2)).astype(np.float32) * side
    turn = cv2.getPerspectiveTransform(corners, moved)
    return np.asarray(cv2.warpPerspective(image, turn, image.shape[1::-1], borderMode=cv2.BORDER_REFLECT))


def rain(image: Picture, rng: Any) -> Picture:
    """Slanted bright streaks, and less contrast."""
    drops = np.zeros(image.shape[:2], np.float32)
    for top, left in rng.integers(0, image.shape[0], (18, 2)).tolist():
        cv2.line(drops, (left, top), (left + 2, top + 7), 110.0, 1, cv2.LINE_AA)
    return levels(0.7 * image + 30 + drops[..., None])


def stitched(image: Picture, rng: Any) -> Picture:
    """Coarse crosses of thread."""
    height, width = image.shape[:2]
    small = cv2.resize(image, (width * 5 // 8, height * 5 // 8), interpolation=cv2.INTER_AREA)
    flat = cv2.resize(small, (width, height), interpolation=cv2.INTER_NEAREST)
    rows, columns = grid(image)
    thread = np.where(((rows + columns) % 3 < 1) | ((rows - columns) % 3 < 1), 1.0, 0.55)
    return (flat * thread[..., None]).astype(np.uint8)


def glare(image: Picture, rng: Any) -> Picture:
    """The sun somewhere in the picture."""
    rows, columns = grid(image)
    y, x = rng.uniform(0, image.shape[0], 2)
    light = 330 * np.exp(-np.hypot(rows - y, columns - x) / (0.3 * image.shape[0]))
    return levels(image + light[..., None])


def shadow(image: Picture, rng: Any) -> Picture:
    """Half of the picture in the dark."""
    rows, columns = grid(image)
    angle, half = rng.uniform(0, 2 * np.pi), image.shape[0] / 2
    dark = (rows - half) * np.cos(angle) + (columns - half) * np.sin(angle) > 0
    return (image * np.where(dark, 0.25, 1.0)[..., None]).astype(np.uint8)


def fringes(image: Picture, rng: Any) -> Picture:
    """The colours beside each other."""
    return np.stack([np.roll(image[..., 0], 2, 1), image[..., 1], np.roll(image[..., 2], -2, 1)], -1)


def x_ray(image: Picture, rng: Any) -> Picture:
    """A pale blue negative."""
    value = 255 - cv2.GaussianBlur(grey(image), (0, 0), 0.7).astype(np.float32)
    return levels((value[..., None] - 60) * np.array([0.9, 1.1, 1.4]))


def captioned(image: Picture, rng: Any) -> Picture:
    """With large letters on it."""
    made = np.ascontiguousarray(image.copy())
    text = "".join(rng.choice(list("ABCDEFGHKMNPRSTUWXZ"), 3))
    place = (0, int(rng.integers(image.shape[0] // 3, image.shape[0])))
    cv2.putText(made, text, place, cv2.FONT_HERSHEY_SIMPLEX, image.shape[0] / 64, (255, 255, 0), 2)
    return made


def fenced(image: Picture, rng: Any) -> Picture:
    """Behind a fence of wire."""
    rows, columns = grid(image)
    wire = ((rows + columns) % 9 < 1.5) | ((rows - columns) % 9 < 1.5)
    return np.where(wire[..., None], np.array([90, 90, 95]), image).astype(np.uint8)


def pop_art(image: Picture, rng: Any) -> Picture:
    """Three loud colours by brightness."""
    colours = rng.integers(0, 256, (3, 3))
    return levels(colours[np.digitize(grey(image), np.quantile(grey(image), [0.33, 0.67]))])


def charcoal(image: Picture, rng: Any) -> Picture:
    """Broad, dark, grainy strokes on grey paper."""
    strokes = cv2.GaussianBlur(edges(image), (0, 0), 0.8).astype(np.float32)
    return rgb(200 - 1.4 * strokes - 0.3 * (255 - grey(image)) + rng.normal(0, 14, strokes.shape))


def infrared(image: Picture, rng: Any) -> Picture:
    """What is green is bright, what is blue dark."""
    mixed = image @ np.array([[-0.2, 0.3, 0.1], [1.3, 0.5, 0.3], [-0.3, 0.0, 0.4]])
    return levels(mixed)


def crumpled(image: Picture, rng: Any) -> Picture:
    """On paper that was crumpled: smooth random moves, and shade along them."""
    moves = [cv2.GaussianBlur(rng.normal(0, 14, image.shape[:2]), (0, 0), 2.5) for _ in range(2)]
    rows, columns = grid(image)
    return levels(remap(image, rows + moves[0], columns + moves[1]) * (1 + 0.12 * moves[0])[..., None])


def woodcut(image: Picture, rng: Any) -> Picture:
    """Black lines, the broader the darker."""
    rows, _ = grid(image)
    return rgb(np.where((rows % 4) * 64 + 32 > 255 - grey(image).astype(int), 235, 20))


def double_exposure(image: Picture, rng: Any) -> Picture:
    """An image, and its mirror image through it."""
    return levels(0.65 * image + 0.35 * image[:, ::-1])


def projected(image: Picture, rng: Any) -> Picture:
    """Thrown onto a wall in a bright room."""
    light = np.linspace(0.35, 0.65, image.shape[1])[None, :, None]
    return levels(image * light + np.array([95, 92, 84]))


def dusty(image: Picture, rng: Any) -> Picture:
    """Blurred dark spots on the lens."""
    spots = np.zeros(image.shape[:2], np.float32)
    for row, column in rng.integers(0, image.shape[0], (6, 2)).tolist():
        cv2.circle(spots, (column, row), int(rng.integers(1, 4)), 1.0, -1)
    return levels(image * (1 - 0.7 * cv2.GaussianBlur(spots, (0, 0), 1.2))[..., None])


def stained_glass(image: Picture, rng: Any) -> Picture:
    """Panes of one colour each, with lead between them."""
    rows, columns = grid(image)
    seeds = rng.uniform(0, image.shape[0], (60, 2))
    far = np.hypot(rows[..., None] - seeds[:, 0], columns[..., None] - seeds[:, 1])
    pane, two = far.argmin(-1), np.sort(far, -1)[..., :2]
    made = image.astype(np.float32)
    for number in np.unique(pane):
        made[pane == number] = made[pane == number].mean(0)
    made[two[..., 1] - two[..., 0] < 0.5] = 15
    return levels(made)


SHIFTS: dict[str, tuple[Callable[[Picture, Any], Picture], ...]] = {
    "in view": (halftone, hatching, thermal, swirl, frame, scanlines, salt_and_pepper, swapped, pencil, canny, dithered,
                embossed, other_hues, night, mosaic, waves, occluded, upside_down, stencil, palette, tiled),
    "new": (watercolour, fisheye, underwater, old_photograph, mirrored, tilted, rain, stitched, glare, shadow, fringes,
            x_ray, captioned, fenced, pop_art),
    "newest": (charcoal, infrared, crumpled, woodcut, double_exposure, projected, dusty, stained_glass),
}  # fmt: skip


def shifted(images: Picture, shift: Callable[[Picture, Any], Picture]) -> Picture:
    """Every image, shifted."""
    rng = np.random.default_rng(5)
    return np.stack([shift(image, rng) for image in images])


def report(rows: list[Row]) -> None:
    """Print the table, the shifts whose error is outside its interval, and what advice did to the error."""
    print("| | got a number | plain: off by | held | half width | adapted: off by | held | half width |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for group in SHIFTS:
        summary([row for row in rows if row["group"] == group], group)
    for which, name in enumerate(("plain", "adapted")):
        missed = [row["name"] for row in rows if row["sure"] and not held(row, which)]
        print(f"\nthe error of the {name} model is outside its interval for {', '.join(missed) or 'none'}")
    print(f"\n{costs_of_advice(rows)}")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="as in covshift bench run")
    parser.add_argument("--data", required=True, help="as in covshift bench run; at least 4,000 images")
    parser.add_argument("--predictor", required=True, type=Path, help="kept by benchmarks/forecasts.py, or made")
    parser.add_argument("--rows", required=True, type=Path, help="where measurements are kept")
    arguments = parser.parse_args()
    model = open_model(arguments.model)
    pixels = open_data(arguments.data).pixels(model)
    order = np.random.default_rng(1).permutation(len(pixels.images))
    images, labels = pixels.images[order], torch.as_tensor(pixels.labels)[torch.from_numpy(order)]
    if arguments.predictor.exists():
        predictor = Predictor.load(arguments.predictor, model)
    else:
        predictor = Predictor.fit(model, images[FIT], labels[FIT])
        predictor.save(arguments.predictor)
    rows = Rows(arguments.rows, model.digest[:16])
    for group, shifts in SHIFTS.items():
        for shift in shifts:
            key = {"group": group, "name": shift.__name__, "images": NUMBER}
            some, truth = drawn(images[TESTED], labels[TESTED], NUMBER, [NUMBER, *shift.__name__.encode()])
            target = Target(key, partial(shifted, some, shift), truth)
            rows.measure(key, partial(measure, predictor, target))
    report(rows.rows)


if __name__ == "__main__":
    main()
