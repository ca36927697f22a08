"""Calibration: what a model does on clean images, on their corruptions and on imitations of other shifts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from covshift.core.places import holds_statistics
from covshift.core.source import FEWEST as FEWEST_IMAGES
from covshift.core.source import Source
from covshift.corruptions import corrupt
from covshift.shift.forecast.beliefs import fit_beliefs
from covshift.shift.forecast.cases import (
    FEATURES,
    Case,
    Look,
    case_of,
    error,
    features_of_distance,
    look,
    split_classes,
)
from covshift.shift.forecast.imitations import IMITATIONS, imitate
from covshift.shift.forecast.knowledge import Knowledge, chance_of, shares_of
from covshift.shift.forecast.observe import Batches, Observation, WhichModel, observe
from covshift.shift.forecast.regression import Calibration
from covshift.shift.forecast.signals import SIGNALS, Scale, fit_scale, signal
from covshift.shift.forecast.skew import FEWEST, Skews, look_skewed, skewed_case
from covshift.shift.forecast.stored import as_stored
from covshift.support.errors import CovshiftError
from covshift.support.pixels import Images, MakeInput
from covshift.support.progress import progress_bar

EACH = 1000
"""Number of images that a condition is measured on.

Of more, each condition is shown others: by what an image is harder than it looks is then not the same in all
conditions, and more images hardly cost more time.
"""

_OWN = 0.1  # share of the squared distance by chance below which a source is of the very images

_GROUPS = (10, 5)  # of classes, that images of few classes are shown from

Cell = tuple[str, int]
"""The name and the severity of a corruption or an imitation."""


class Setting(NamedTuple):
    """What a calibration runs on.

    Attributes:
        model: the module.
        images: clean images in the size of its input.
        labels: their classes.
        preprocess: makes the module's input of them.
        batch_size: the number of images to run at a time.
        source: what clean images look like inside of the module, to adapt it by; None for what it holds.
        anchor: a source that knows what classes do; None where none could be measured.
        seed: the seed of what is drawn at random.
    """

    model: nn.Module
    images: Images
    labels: Tensor
    preprocess: MakeInput | None
    batch_size: int
    source: Source | None
    anchor: Source | None
    seed: int

    def rows(self, condition: int) -> Tensor:
        """Return the positions of the images that a condition is measured on, by its position among the conditions."""
        images = len(self.labels)
        if images <= EACH:
            return torch.arange(images)
        order = np.random.default_rng(self.seed).permutation(images)
        chosen = np.arange(condition * EACH, (condition + 1) * EACH) % images
        return torch.from_numpy(np.sort(order[chosen]))

    def some(self, rows: Tensor) -> Images:
        """Return the clean images at these positions."""
        return self.images[rows] if isinstance(self.images, Tensor) else self.images[rows.numpy()]

    def observe(self, images: Images, *, classes: bool = False) -> Observation:
        """Return what is seen of some images."""
        batches = Batches(images, self.preprocess, self.batch_size)
        return observe(self.model, batches, self.source, self.anchor if classes else None)


class Learned(NamedTuple):
    """What a calibration has found."""

    conditions: list[Calibration]
    scale: Scale
    knowledge: Knowledge


def measure_anchor(model: nn.Module, batches: Batches, images: int) -> Source | None:
    """Return a source of clean images; None where too few images are given or the model has no place to measure at."""
    if images < FEWEST_IMAGES:
        return None
    try:
        return as_stored(Source.measure(model, batches, progress=False))
    except CovshiftError:
        if any(map(holds_statistics, model.modules())):
            raise
        return None  # a network of linear layers, say: its logits are all there is


def calibrate(setting: Setting, corruptions: Sequence[Cell], imitations: Sequence[Cell], *, progress: bool) -> Learned:
    """Run the model on all conditions, and learn from its errors there.

    Takes two passes over up to 1,000 images for each condition, and three more over all clean ones.
    """
    cells = [("clean", 0), *corruptions, *imitations]
    whole = setting.observe(setting.images, classes=True)
    if (highest := int(setting.labels.max())) >= (classes := whole.plain.shape[1]):
        raise CovshiftError(f"expected labels below {classes}, the model's classes, got {highest}")
    seen, truths = [], []
    with progress_bar("calibrating", len(cells), enabled=progress) as advance:
        for position, (name, level) in enumerate(cells):
            rows = setting.rows(position)
            every = name == "clean" and len(rows) == len(setting.labels)
            seen.append(whole if every else setting.observe(_make(setting, name, level, rows)))
            truths.append(setting.labels[rows])
            advance(1)
    corrupted = seen[: 1 + len(corruptions)]
    labels = truths[: len(corrupted)]
    scale = fit_scale(corrupted, labels)
    beliefs = fit_beliefs(corrupted, labels, scale.temperature)
    measured = list(zip(cells, seen, truths, strict=True))
    cases = [case_of(*cell, each, truth, beliefs, scale.temperature) for cell, each, truth in measured]
    conditions = [_condition(*cell, each, scale, truth) for cell, each, truth in measured[: len(corrupted)]]
    usual = shares_of(setting.labels, classes)
    skews = _few_classes(setting, whole, scale.temperature)
    chance = chance_of(setting.anchor)
    if _is_own(whole, chance, len(setting.labels)):
        half = _observe_half(setting)
        chance = {path: value**2 * len(setting.labels) for path, value in half.distance.layers.items()}
        cases = _as_fresh(cases, look(half, beliefs, scale.temperature))
    known = Knowledge(beliefs, tuple(cases), skews, usual, seen[0].different, whole.different, chance)
    return Learned(conditions, scale, known)


def _is_own(clean: Observation, chance: Mapping[str, float], images: int) -> bool:
    """Return whether the source is of the clean images themselves: they are nearer to it than chance allows."""
    near = [value**2 * images < _OWN * chance.get(path, 0.0) for path, value in clean.distance.layers.items()]
    return bool(near) and all(near)


def _observe_half(setting: Setting) -> Observation:
    """Return what is seen of half of the clean images, drawn at random."""
    images = len(setting.labels)
    rows = np.random.default_rng(setting.seed).permutation(images)[: images // 2]
    return setting.observe(setting.some(torch.from_numpy(rows)))


def _as_fresh(cases: Sequence[Case], half: Look) -> list[Case]:
    """Return cases that look as if the source had been measured on other images.

    Half of the images are as far from all as all are from what they were taken from; the source is as far from that.
    And a model that is adapted to them changes as little as it does on other clean images.

    Args:
        cases: the cases, clean images first.
        half: what half of the clean images look like.
    """
    more = 2 * np.square(half.distance)
    clean = cases[0]._replace(features=half.features)
    distances = [tuple(np.sqrt(np.square(case.distance) + more).tolist()) for case in cases]
    return [
        case._replace(distance=distance, features=(*case.features[: len(FEATURES)], *features_of_distance(distance)))
        for case, distance in zip([clean, *cases[1:]], distances, strict=True)
    ]


def _make(setting: Setting, name: str, level: int, rows: Tensor) -> Images:
    clean = setting.images if len(rows) == len(setting.labels) else setting.some(rows)
    if name == "clean":
        return clean
    make = imitate if name in IMITATIONS else corrupt
    return make(clean, name, level, seed=setting.seed)


def _few_classes(setting: Setting, clean: Observation, temperature: float) -> Skews | None:
    """Return what is known of images of few classes, from the clean ones of some classes at a time.

    Of one class at a time and of two, if there are ten: what the model past the classes is off by differs.
    """
    whole = look_skewed(clean, temperature)
    if whole is None:
        return None
    cases = []
    for rows in (rows for groups in _GROUPS for rows in split_classes(setting.labels, FEWEST, groups)):
        found = skewed_case(setting.observe(setting.some(rows), classes=True), setting.labels[rows], temperature)
        cases += [found] if found is not None else []
    return Skews(whole.gap, cases)


def _condition(corruption: str, severity: int, seen: Observation, scale: Scale, truth: Tensor) -> Calibration:
    sides: tuple[WhichModel, ...] = ("plain", "adapted")
    signals = {f"{which} {method}": signal(method, which, seen, scale) for which in sides for method in SIGNALS}
    return Calibration(corruption, severity, error(seen, "plain", truth), error(seen, "adapted", truth), signals)
