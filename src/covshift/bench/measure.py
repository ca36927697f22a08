"""`shift.json` in a run folder: how far each condition moves a model's statistics, in every layer.

Measuring opens the model and the images of the run. What layers saw in a condition is kept beside it, in `statistics/`,
so that a measurement that was stopped is resumed; `shift.json` alone is enough for a report.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from torch import Tensor

from covshift.bench.methods import GRID_IMAGES, GRID_PRIORS
from covshift.bench.results.store import Run, RunFolder, check_same
from covshift.bench.run import describe, open_model_of
from covshift.core.estimate import estimate
from covshift.core.places import holds_statistics
from covshift.core.statistics import Statistics
from covshift.corruptions import names
from covshift.data import CLEAN, MIXED, Condition, open_data
from covshift.data.condition import SEQUENCE
from covshift.data.selection import Selection, choose
from covshift.models import Model
from covshift.shift import Point, embed, jeffrey, layer_bounds, wasserstein
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing
from covshift.support.progress import progress_bar

SCHEMA = 1
MEASURES = ("normalised Wasserstein", "Wasserstein", "Jeffrey")
_FILE = "shift.json"
_BATCH = 100


class Measured(BaseModel):
    """A condition: the three distances for each layer, and its place on the map of conditions."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    corruption: str
    severity: int
    distances: dict[str, list[float]]
    x: float | None = None
    y: float | None = None

    @property
    def condition(self) -> Condition:
        """The condition that was measured."""
        return Condition(self.corruption, self.severity)

    def average(self, measure: str = MEASURES[0]) -> float:
        """Return the distance, averaged over the layers."""
        return float(np.mean(self.distances[measure]))


class Expected(BaseModel):
    """The theory's √L for n and N, averaged over layers and over test conditions of middle severity."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    n: int
    prior: float
    lower: float


class Shift(BaseModel):
    """The distances that were measured on a run.

    Attributes:
        images: the number of images of each condition.
        layers: the paths of the layers that images reach, in the order of the model.
        channels: the number of channels of every layer of the model; each channel has two parameters.
        conditions: the measurements of the conditions of the run, without mixtures.
        theory: the expectations for the grid of n and N.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    schema_version: int = SCHEMA
    model_digest: str
    images: int
    layers: list[str]
    channels: list[int]
    conditions: list[Measured]
    theory: list[Expected]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        """Check that every condition has every distance in every layer."""
        for each in self.conditions:
            lengths = {name: len(values) for name, values in each.distances.items()}
            if lengths != dict.fromkeys(MEASURES, len(self.layers)):
                raise ValueError(f"expected {', '.join(MEASURES)} of {len(self.layers)} layers in {each.condition}")
        if not self.conditions or not self.layers:
            raise ValueError("expected one condition and one layer or more")
        return self


def measurable(result: RunFolder) -> list[Condition]:
    """Return the conditions of a run that have a distance: a mixture has no statistics of its own."""
    return [condition for condition in result.run.settings.plan.conditions if condition not in (MIXED, SEQUENCE)]


def read_shift(result: RunFolder) -> Shift | None:
    """Return the measurements of a run; None where there are none."""
    file = result.folder / _FILE
    try:
        shift = Shift.model_validate_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CovshiftError(f"{file} is not a valid measurement ({error}); delete it and measure again") from error
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise CovshiftError(f"{file} is not a valid measurement ({reason}); delete it and measure again") from error
    if shift.schema_version != SCHEMA:
        raise CovshiftError(f"{file} has schema {shift.schema_version}, this covshift reads {SCHEMA}; measure again")
    if shift.model_digest != result.run.model_digest:
        raise CovshiftError(f"{file} was measured on other weights than those of the run; measure again")
    return shift


def measure_shift(result: RunFolder, images: int, *, progress: bool = True) -> Shift | None:
    """Measure a run's conditions, write the result into its folder and return it; None without statistics.

    A measurement on the same number of images is not repeated.

    Args:
        result: the run; its model and data are opened.
        images: the number of the run's images to measure on.
        progress: whether to show progress.
    """
    run, settings = result.run, result.run.settings
    conditions, wanted = measurable(result), min(images, run.image_count)
    held = _held(result)
    if held and held.images == wanted and [each.condition for each in held.conditions] == conditions:
        return held
    model = open_model_of(settings)
    if not any(map(holds_statistics, model.module.modules())):
        return None
    source, data = Statistics.of(model.module), open_data(settings.data)
    check_same(result.folder, run, describe(settings, model, data), extend=False)
    indices = choose(data.labels, limit=settings.limit, order="shuffled", seed=settings.seed)[:images]
    selection = Selection(
        data, indices, model.preprocess.picture, corruption_settings=settings.corruption_settings, skip_broken=True
    )
    key = _key(run, len(indices))
    targets = {}
    with progress_bar(f"measuring {result.folder.name}", len(conditions), enabled=progress) as advance:
        for condition in conditions:
            kept = result.folder / "statistics" / f"{key}-{str(condition).replace('/', '-')}.safetensors"
            if kept.exists():
                targets[condition] = Statistics.load(kept)
                targets[condition].check_fits(model.module)
            else:
                targets[condition] = _estimate(model, selection, condition)
                targets[condition].save(kept)
            advance(1)
    shift = derive(source, targets, run.model_digest)
    with replacing(result.folder / _FILE) as part:
        part.write_text(shift.model_dump_json(indent=None) + "\n", encoding="utf-8")
    return shift


def _held(result: RunFolder) -> Shift | None:
    """Return the measurements in the folder; None where they have to be made again."""
    try:
        return read_shift(result)
    except CovshiftError:
        return None


def _key(run: Run, images: int) -> str:
    """Return a name for what statistics depend on: those of other weights or images must not be resumed from."""
    depends_on = (
        run.model_digest,
        run.data_digest,
        run.preprocess,
        run.settings.limit,
        run.settings.corruption_settings,
        images,
    )
    return hashlib.sha256(repr(depends_on).encode()).hexdigest()[:12]


def _estimate(model: Model, selection: Selection, condition: Condition) -> Statistics:
    def batches() -> Iterator[Tensor]:
        for batch in selection.images_in(condition).batches(_BATCH):
            yield model.preprocess.tensor(batch.images)

    return estimate(model.module, batches(), progress=False)


def derive(source: Statistics, targets: Mapping[Condition, Statistics], digest: str) -> Shift:
    """Return the distances of conditions from the source, their map, and what theory expects for n and N."""
    points: Mapping[str, Point] = {}
    if len(targets) >= 3:
        points = embed({str(condition): target for condition, target in targets.items()}, source)
    # An auxiliary head, for example, is part of the model, and no image reaches it.
    layers = [path for path in source if all(target[path].count for target in targets.values())]
    conditions = [
        _measured(condition, layers, source, target, points.get(str(condition)))
        for condition, target in targets.items()
    ]
    return Shift(
        model_digest=digest,
        images=round(max(target.images for target in targets.values())),
        layers=layers,
        channels=[len(moments.mean) for moments in source.values()],
        conditions=conditions,
        theory=_theory(source, targets),
    )


def _measured(
    condition: Condition, layers: list[str], source: Statistics, target: Statistics, place: Point | None
) -> Measured:
    found = (wasserstein(source, target, normalized=True), wasserstein(source, target), jeffrey(source, target))
    return Measured(
        corruption=condition.corruption,
        severity=condition.severity,
        distances={
            name: [_short(each.layers[path]) for path in layers] for name, each in zip(MEASURES, found, strict=True)
        },
        x=None if place is None else _short(place.x),
        y=None if place is None else _short(place.y),
    )


def _theory(source: Statistics, targets: Mapping[Condition, Statistics]) -> list[Expected]:
    severities = sorted({condition.severity for condition in targets if condition != CLEAN})
    if not severities:
        return []
    middle = severities[len(severities) // 2]
    at_middle = [moved for condition, moved in targets.items() if condition.severity == middle]
    tested = [each for c, each in targets.items() if c.severity == middle and c.corruption in names("test")]
    n, N = (axis.ravel() for axis in np.meshgrid(GRID_IMAGES, GRID_PRIORS, indexing="ij"))
    roots = [
        np.sqrt(bound.lower)
        for target in tested or at_middle
        for bound in layer_bounds(n, N, source, target, normalized=True).values()
    ]
    average = np.mean(roots, axis=0)
    return [
        Expected(n=int(images), prior=float(prior), lower=_short(value))
        for images, prior, value in zip(n, N, average, strict=True)
    ]


def _short(value: float) -> float:
    """Return a number with five digits: more would be noise, and make the file large."""
    return float(f"{value:.5g}")
