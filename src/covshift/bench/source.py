"""The source of a run: clean images that are never tested on, measured once for all anchored methods."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from covshift.bench.engines.torchrun import from_first, is_first
from covshift.bench.settings import Settings
from covshift.core.calling import device_of
from covshift.core.source import FEWEST, Source
from covshift.data import CLEAN, Data, open_unlabelled
from covshift.data.selection import Selection, choose
from covshift.models import Model
from covshift.support.errors import CovshiftError

_BATCH = 50


class RunSource(NamedTuple):
    """The source of a run, and the digest of the images that it was measured on."""

    source: Source
    digest: str

    @property
    def images(self) -> int:
        """The number of images that it was measured on."""
        return round(self.source.statistics.images)


def source_of(settings: Settings, model: Model, data: Data, folder: Path) -> RunSource | None:
    """Return the source of a run; None where no method is anchored.

    The first rank measures it, unless the folder has it already, and the others get it from there.

    Args:
        settings: the settings of the run.
        model: its model, on its device.
        data: its images.
        folder: the run folder.
    """
    if not any(method.anchored for method in settings.all_methods):
        return None
    return from_first(_measured(settings, model, data, folder) if is_first() else None)  # type: ignore[no-any-return]


def _measured(settings: Settings, model: Model, data: Data, folder: Path) -> RunSource:
    clean = data if settings.source in (None, settings.data) else open_unlabelled(str(settings.source))
    if not clean.has(CLEAN):
        raise CovshiftError(
            f"{clean.uri} has no clean images to measure the source of anchored methods on; name others"
        )
    tested = choose(data.labels, limit=settings.limit, seed=settings.seed) if clean is data else []
    indices = _choose(len(clean), tested, settings)
    depends_on = (model.digest, clean.digest, indices, model.preprocess.as_dict())
    key = hashlib.sha256(repr(depends_on).encode()).hexdigest()[:12]
    kept = folder / "statistics" / f"source-{key}.safetensors"
    if kept.exists():
        return RunSource(Source.load(kept), clean.digest)
    selection = Selection(clean, indices, model.preprocess.picture, skip_broken=settings.skip_broken)

    def batches() -> Iterator[Tensor]:
        for batch in selection.images_in(CLEAN).batches(_BATCH):
            yield model.preprocess.tensor(batch.images, device_of(model.module))

    source = Source.measure(model, batches(), sync=False, progress=False)
    source.save(kept)
    return RunSource(source, clean.digest)


def _choose(images: int, tested: list[int], settings: Settings) -> list[int]:
    """Return the indices of clean images to measure on, in random order, none of them tested."""
    free = np.setdiff1d(np.arange(images), tested)
    if len(free) < FEWEST:
        fewer = max(1, images - settings.source_limit)
        raise CovshiftError(
            f"expected clean images that are not tested on, to measure the source of anchored methods, got {len(free)} "
            f"of {images}; set `limit={fewer}` or less, or name others, e.g. `source=folder:train`"
        )
    return [int(index) for index in np.random.default_rng(settings.seed).permutation(free)[: settings.source_limit]]
