"""The records of a run: `Run`, all that its rows depend on, in `run.json`, and a `Row` for each finished cell."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from covshift.bench.methods import Prior
from covshift.bench.results.answers import Answers
from covshift.bench.results.guessed import guess
from covshift.bench.settings import STORED, Settings
from covshift.data.sequences import Domain, time_pieces
from covshift.models.architecture import pretraining_in
from covshift.support.errors import CovshiftError

SCHEMA = 1


class Block(BaseModel):
    """A part of the file of answers: its place, its number of bytes, and their checksum."""

    model_config = ConfigDict(frozen=True)

    at: int
    size: int
    crc: int


class Row(BaseModel):
    """A finished cell: the method and condition that were run, and the errors.

    `over_time` is the number of errors in each piece of a sequence, as `Run.time_pieces` cuts it; None elsewhere.
    `answers` is where the answers to each image are; None where they are not kept. `source` is what an anchored method
    was anchored by, and `source_images` the number of its images; None for other methods.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    cell: str
    model: str
    data: str
    corruption: str
    severity: int
    method: str
    n: int | None
    prior: Prior | None
    images: int
    top1_errors: int
    top5_errors: int
    seconds: float
    broken: int = 0
    limit: int | None = None
    order: str = "shuffled"
    seed: int = 0
    batch_size: int | None = None
    device: str | None = None
    over_time: tuple[int, ...] | None = None
    answers: Block | None = None
    source: str | None = None
    source_images: int | None = None

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what only some rows have, so that others stay as they always were."""
        written: dict[str, Any] = write(self)
        for name in ("over_time", "answers", "source", "source_images"):
            if getattr(self, name) is None:
                written.pop(name, None)
        return written


class Finished(NamedTuple):
    """A row, and the answers that it counts; None where they are not known."""

    row: Row
    answers: Answers | None = None

    @property
    def cell(self) -> str:
        """The name of the cell."""
        return self.row.cell


class Run(BaseModel):
    """A run: everything that its rows depend on.

    `model_family`, `model_norm` and `model_pretraining` are a model's `family`, `norm` and `pretraining`; of runs that
    did not record them, they are guessed from the model's name, where "" is unknown.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    schema_version: int = SCHEMA
    settings: Settings
    model_digest: str
    model_classes: int
    model_params: int
    model_uri: str = ""
    model_family: str = ""
    model_norm: str = ""
    model_pretraining: str | None = None
    preprocess: dict[str, Any]
    data_digest: str
    data_images: int
    data_remark: str = ""
    imagenet: bool
    source_images: int | None = None
    source_digest: str | None = None
    versions: dict[str, str]
    revision: str | None = None

    @model_validator(mode="after")
    def _of_old(self) -> Self:
        """Guess what old runs did not record."""
        if not self.model_family:
            adapted = any(method.adapts and not method.anchored for method in self.settings.all_methods)
            guessed = guess(self.settings.model, adapted=adapted)
            # The model is frozen for users; here it is being made.
            object.__setattr__(self, "model_family", guessed.family)
            object.__setattr__(self, "model_norm", guessed.norm)
        if self.model_pretraining is None:
            object.__setattr__(self, "model_pretraining", pretraining_in(self.settings.model))
        return self

    @property
    def image_count(self) -> int:
        """The number of images shown in a condition."""
        return min(self.settings.limit or self.data_images, self.data_images)

    @property
    def shows_images_again(self) -> bool:
        """Whether a sequence shows images more than once, so that an image has several answers, and none is kept."""
        domains = self.settings.domains(self.image_count)
        return bool(domains) and domains[-1].stop > self.image_count

    @property
    def time_pieces(self) -> list[Domain]:
        """The pieces of a sequence in which errors are counted: at most 50 images, all in one domain."""
        return time_pieces(self.settings.domains(self.image_count))


class RunFolder(Protocol):
    """A folder with the run that it holds."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""

    @property
    def run(self) -> Run:
        """The run, with everything that its rows depend on."""


def read_run(file: Path) -> Run:
    """Read a `run.json`; code that the run names is not imported."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CovshiftError(f"there is no run in {file.parent}: expected a {file.name} there") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CovshiftError(f"cannot read {file}: {error}; use another folder, or delete this one") from error
    try:
        run = Run.model_validate_json(text, context=STORED)
    except ValidationError as error:
        raise CovshiftError(f"{file} is not a valid run of schema {SCHEMA}: {error.errors()[0]['msg']}") from error
    if run.schema_version != SCHEMA:
        raise CovshiftError(f"{file} has schema {run.schema_version}, this covshift reads {SCHEMA}; use its version")
    return run
