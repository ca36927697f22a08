"""Pictures of the conditions, as the model sees them."""

import base64
import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covshift.data import CLEAN, Condition, cifar10, open_data
from covshift.data.selection import Selection, choose
from covshift.models.preprocess import Preprocess
from covshift.report.gather import Result
from covshift.support.errors import CovshiftError

_IMAGES = 3
_SMALL = 64  # px; larger pictures are photographs, and JPEG does for them
_SIDE = 160  # px of a large picture on the page


class Picture(NamedTuple):
    """Some images in one condition, side by side, as a data URI."""

    condition: str
    source: str
    small: bool


class Samples(NamedTuple):
    """Pictures with a note on the data that they are of, or on why there are none."""

    pictures: tuple[Picture, ...]
    note: str


def samples(results: Sequence[Result]) -> Samples:
    """Return pictures of the first run whose images can be opened."""
    reasons = []
    for result in results:
        try:
            return _draw(result)
        except CovshiftError as error:
            reasons.append(f"{result.name}: {error}")
    return Samples((), "; ".join(dict.fromkeys(reasons)))


def open_selection(result: Result) -> Selection:
    """Return the images of a run in a random order, as the model gets them."""
    run = result.run
    _check_here(run.settings.data)
    data = open_data(run.settings.data)
    prepare = Preprocess.from_dict(run.preprocess).picture
    indices = choose(data.labels, limit=run.settings.limit, order="shuffled", seed=run.settings.seed)
    settings = run.settings.corruption_settings
    return Selection(data, indices, prepare, corruption_settings=settings, skip_broken=True)


def _draw(result: Result) -> Samples:
    run = result.run
    whole = open_selection(result)
    selection, data = whole.part(range(min(_IMAGES, len(whole)))), whole.data
    severities = run.settings.severities
    middle = severities[len(severities) // 2]
    conditions = [CLEAN, *(Condition(name, middle) for name in run.settings.corruptions)]
    pictures, missing = [], []
    for condition in conditions:
        if not data.has(condition):
            continue
        try:
            batches = list(selection.images_in(condition).batches(_IMAGES))
        except CovshiftError:
            if condition == CLEAN:
                raise
            missing.append(condition.corruption)  # a user's own, whose code is not here
            continue
        if batches:
            pictures.append(_picture(condition, batches[0].images))
    if not pictures:
        raise CovshiftError("no image could be read")
    note = f"Images of {run.settings.data}; corruptions at severity {middle}."
    if missing:
        note += f" Not shown, since their code is not here: {', '.join(missing)}; name its module as a plugin."
    return Samples(tuple(pictures), note)


def _check_here(uri: str) -> None:
    """Raise a `CovshiftError` where data would have to be fetched, which takes too long for a few pictures."""
    if uri.startswith("builtin:cifar10") and not cifar10.is_cached("test"):
        raise CovshiftError(f"{uri} is not in the cache folder; a run on {uri} fetches it")


def _picture(condition: Condition, images: NDArray[np.uint8]) -> Picture:
    return Picture(condition.corruption.replace("_", " "), *encode(np.concatenate(list(images), axis=1)))


def is_small(result: Result) -> bool:
    """Return whether the images of a run are small, so that every pixel of them is shown."""
    side = Preprocess.from_dict(result.run.preprocess).size
    return side is not None and side <= _SMALL


def encode(pixels: NDArray[np.uint8]) -> tuple[str, bool]:
    """Return an image, or several side by side, as a data URI, and whether it is small."""
    small = pixels.shape[0] <= _SMALL
    picture = Image.fromarray(pixels)
    if not small:
        picture.thumbnail((_SIDE * pixels.shape[1] // pixels.shape[0] + 1, _SIDE))
    file = io.BytesIO()
    picture.save(file, "PNG") if small else picture.save(file, "JPEG", quality=75)
    text = base64.b64encode(file.getvalue()).decode()
    return f"data:image/{'png' if small else 'jpeg'};base64,{text}", small
