"""Images of a new domain as batches of a model's input, which can be gone through several times."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, Subset

from covshift.core.wrappers import AnyModel
from covshift.data import Data
from covshift.data.orders import Order
from covshift.data.video import Video
from covshift.models.base import Model
from covshift.repairs.verdict import check_enough
from covshift.shift.forecast.judgement import FEWEST
from covshift.shift.forecast.observe import Batches
from covshift.support.checks import check_dense, check_number
from covshift.support.errors import CovshiftError
from covshift.support.pixels import is_pixels

BATCH = 64
"""Number of images in a batch."""


def as_batches(model: AnyModel, target: Any, limit: int | None, skip_broken: bool) -> Iterable[Any]:
    """Return images as batches that can be gone through several times."""
    if isinstance(target, Data):
        if limit is not None:
            check_number(limit, "limit", FEWEST, whole=True, of="images")
        check_enough(len(target))
        # A folder is sorted by class, and a batch of one class has the statistics of that class; a video is read as it
        # runs.
        order: Order = "source" if isinstance(target, Video) else "shuffled"
        return spread(target.loader(model, batch_size=BATCH, order=order, skip_broken=skip_broken), limit)
    if limit is not None or skip_broken:
        raise CovshiftError("expected limit= and skip_broken= with data that open_data returns, got other images")
    if isinstance(target, Tensor):
        check_dense(target, "the images")
    if is_pixels(target) or isinstance(target, Tensor):
        return Batches(target, model.preprocess if isinstance(model, Model) else None, BATCH)
    if isinstance(target, str | bytes | Mapping) or not isinstance(target, Iterable) or iter(target) is target:
        raise CovshiftError("expected images, or a loader that can be gone through several times")
    return target


def spread(batches: Iterable[Any], most: int | None) -> Iterable[Any]:
    """Return batches of at most so many of the images of a loader, spread evenly; others as they are.

    This is not the `limit` of `Data.loader`, which takes as many images of each class, by their labels: of data that
    are mostly of one class it would make an even mix.
    """
    if most is None or not isinstance(batches, DataLoader) or not _in_order(batches):
        return batches
    images = len(batches.dataset)  # type: ignore[arg-type]
    if images <= most:
        return batches
    part = Subset(batches.dataset, [place * images // most for place in range(most)])
    return DataLoader(part, batches.batch_size, num_workers=batches.num_workers, collate_fn=batches.collate_fn)


def _in_order(loader: DataLoader[Any]) -> bool:
    """Return whether a loader goes through all of its images, one after the other, in batches of one size."""
    whole = type(loader.batch_sampler) is BatchSampler and not loader.drop_last
    return whole and type(loader.sampler) is SequentialSampler
