"""What a batch adds to the order of its stream, in one compiled call: see `orders`.

At batch 1 the arithmetic is on a few hundred numbers, and thirty operations of NumPy would take longer than it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.support.jit import kernel

Array = NDArray[Any]


@kernel
def locate_batches(logits: Array, number: Array, apart: Array, located: Array) -> None:
    """Write the mean embedding of the images of each of some streams, by the model's answers to them.

    Args:
        logits: the answers to the images of one stream after another, [images, classes].
        number: the number of images of each stream.
        apart: the embedding of each class, from the source's mean, [classes, directions].
        located: the mean embedding, from the source's, [streams, directions], to write to.
    """
    classes, directions = apart.shape
    shares, likely = np.empty(classes), np.empty(classes)
    row = 0
    for s in range(len(number)):
        shares[:] = 0
        for _ in range(number[s]):
            most, total = np.float64(logits[row].max()), 0.0
            for k in range(classes):
                likely[k] = np.exp(logits[row, k] - most)
                total += likely[k]
            for k in range(classes):
                shares[k] += likely[k] / total
            row += 1
        located[s] = 0
        for k in range(classes):
            for d in range(directions):
                located[s, d] += shares[k] / number[s] * apart[k, d]


@kernel
def add_batches(
    vectors: Array, numbers: Array, recent: Array, located: Array, number: Array, share: Array, images: Array,
    start: Array, means: Array, slopes: Array, precision: Array, fades: float, each: float, surprise: Array,
) -> None:  # fmt: skip
    """Bring the orders of streams up to date, in place.

    Args:
        vectors: `mix` and `last` of each order, [streams, 2, directions].
        numbers: images, along, across and batches of each order, [streams, 4].
        recent: the chance and the means of each `Recent`, [streams, 1 + channels]; a chance of 0 for one that is empty.
        located: the mean embedding of the images of each batch, from the source's, [streams, directions].
        number: the number of these images.
        share: their share in what is remembered after it.
        images: the number of images that are remembered then.
        start: the means at the first places before this batch, [streams, channels].
        means: those after it.
        slopes: the change of the means with the embedding, [directions, channels].
        precision: what squared differences from the means of one image count for, [channels].
        fades: how much of what is known of the order is kept from batch to batch.
        each: how much of the means of the last images is kept from image to image.
        surprise: how far the last images lie from those remembered, [streams], to write to; 1 is what chance explains.
    """
    directions, channels = slopes.shape
    ours, theirs = np.empty(channels), np.empty(channels)
    for s in range(len(vectors)):
        mix, last = vectors[s]
        numbers[s, 1] *= fades
        numbers[s, 2] *= fades
        if numbers[s, 3] > 0:
            for d in range(directions):
                numbers[s, 1] += last[d] * located[s, d]
                numbers[s, 2] += last[d] * last[d]
        numbers[s, 0] = images[s]
        numbers[s, 3] += 1
        ours[:], theirs[:] = 0, 0  # what classes do to the means: of this batch, and of all that is remembered
        for d in range(directions):
            mix[d] += (located[s, d] - mix[d]) * share[s]
            last[d] = located[s, d]
            for c in range(channels):
                ours[c] += last[d] * slopes[d, c]
                theirs[c] += mix[d] * slopes[d, c]
        rate = 1.0 if recent[s, 0] == 0 else 1 - each ** number[s]
        recent[s, 0] = (1 - rate) ** 2 * recent[s, 0] + rate**2 / number[s]
        apart = 0.0
        for c in range(channels):
            batch = start[s, c] + (means[s, c] - start[s, c]) / share[s] - ours[c]
            recent[s, 1 + c] += (batch - recent[s, 1 + c]) * rate
            apart += (recent[s, 1 + c] - (means[s, c] - theirs[c])) ** 2 * precision[c]
        surprise[s] = apart / (recent[s, 0] + 1 / images[s])
