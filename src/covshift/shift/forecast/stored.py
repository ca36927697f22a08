"""What a predictor knows, as the tensors and the metadata of a safetensors file."""

import json
import math
from typing import Any

import torch
from torch import Tensor

from covshift.core.classes import Classes, Slopes
from covshift.core.identity import fingerprint
from covshift.core.packing import pack, pack_classes, pack_spreads, unpack, unpack_classes, unpack_spreads
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, module_of
from covshift.shift.forecast.beliefs import Beliefs
from covshift.shift.forecast.cases import Case
from covshift.shift.forecast.knowledge import Knowledge
from covshift.shift.forecast.skew import Skewed, SkewedCase, Skews

_SOURCE = "source "  # before the names of the tensors of a measured source
_KNOWN = "knowledge"


def pack_source(source: Source | None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a measured source; nothing of one that the model holds."""
    if source is None or not source.measured:
        return {}, {}
    tensors, metadata = pack(source.statistics, _SOURCE), {"places": json.dumps(list(source.statistics))}
    if source.spread:
        tensors |= pack_spreads(source.spread, source.spread_std, prefix=_SOURCE)
        metadata["spreads"] = "yes"
    if source.classes is not None:
        tensors |= pack_classes(source.classes)
        metadata["classes"] = json.dumps(list(source.classes.slopes))
    return tensors, metadata


def unpack_source(file: Any, metadata: dict[str, str], model: AnyModel) -> Source | None:
    """Return the source that an open file holds; None if there is none."""
    if "places" not in metadata:
        return None
    anchors = unpack(file, json.loads(metadata["places"]), _SOURCE)
    classes: Classes | None = None
    if "classes" in metadata:
        classes = unpack_classes(file, json.loads(metadata["classes"]))
        for name, slopes in classes.slopes.items():
            if len(slopes.unexplained) != len(anchors[name].mean):
                raise ValueError(f"what classes do at {name!r} has the wrong shape")
    statistics = Statistics(anchors, fingerprint(module_of(model)))
    statistics.check_values()
    spread, spread_std = unpack_spreads(file, statistics, _SOURCE) if "spreads" in metadata else ({}, {})
    of_model = metadata["weights"]
    return Source(statistics, spread, of_model, measured=True, classes=classes, spread_std=spread_std)


def as_stored(source: Source) -> Source:
    """Return a source with its classes in the precision of files, so that what is saved predicts the same."""
    if (known := source.classes) is None:
        return source

    def rounded(tensor: Tensor) -> Tensor:
        return tensor.float().to(tensor.dtype)

    slopes = {path: Slopes(*map(rounded, (each.mean, each.second, each.unexplained)))
              for path, each in known.slopes.items()}  # fmt: skip
    classes = Classes(rounded(known.embedding), rounded(known.centre), slopes)
    return Source(
        source.statistics,
        source.spread,
        source.digest,
        measured=source.measured,
        classes=classes,
        spread_std=source.spread_std,
    )


def pack_knowledge(known: Knowledge | None) -> dict[str, str]:
    """Return the metadata that hold what a predictor knows."""
    if known is None:
        return {}
    values = {
        "beliefs": known.beliefs,
        "cases": known.cases,
        "gap": None if known.skews is None else known.skews.gap,
        "skewed": [] if known.skews is None else known.skews.cases,
        "usual": known.usual.tolist(),
        "images": known.images,
        "fitted": known.fitted,
        "chance": known.chance,
    }
    return {_KNOWN: json.dumps(values)}


def unpack_knowledge(metadata: dict[str, str]) -> Knowledge | None:
    """Return what a predictor knows; None from a file of an older version. Raises a `ValueError` if it is damaged."""
    if _KNOWN not in metadata:
        return None
    values = json.loads(metadata[_KNOWN])
    _check_numbers(values)
    cases = tuple(Case(*row[:4], *map(tuple, row[4:])) for row in values["cases"])
    if not cases or {(len(case.features), len(case.distance)) for case in cases} != {
        (len(cases[0].features), len(cases[0].distance))
    }:
        raise ValueError("its calibration cases do not belong together")
    skewed = [SkewedCase(Skewed(look[0], *map(tuple, look[1:])), *errors) for look, *errors in values["skewed"]]
    skews = None if values["gap"] is None else Skews(float(values["gap"]), skewed)
    usual = torch.tensor(values["usual"], dtype=torch.float64)
    images = int(values["images"])
    fitted = int(values.get("fitted", images))  # older files do not have it
    return Knowledge(Beliefs(*values["beliefs"]), cases, skews, usual, images, fitted, dict(values["chance"]))


def _check_numbers(values: Any) -> None:
    """Raise a `ValueError` if a number somewhere is NaN or infinite."""
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list):
        for value in values:
            _check_numbers(value)
    elif isinstance(values, float) and not math.isfinite(values):
        raise ValueError(f"one of its numbers is {values}")
