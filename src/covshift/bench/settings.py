"""`Settings`: everything that a user can choose for a run, on the command line, in a YAML file, or in Python."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

from covshift.bench.methods import SCENARIOS, Method, Prior, grid, parse_methods, stored_method
from covshift.bench.plan import Plan, plan
from covshift.corruptions import category, names
from covshift.corruptions.apply import check_severity
from covshift.data.condition import SEQUENCE, SEVERITIES
from covshift.data.orders import Order, parse_order
from covshift.data.selection import CorruptionSettings
from covshift.data.sequences import Domain, Piece, domains, pieces, read_sequence
from covshift.support.checks import check_kind
from covshift.support.errors import CovshiftError, unknown
from covshift.support.images import check_quality
from covshift.support.plugins import load_plugins

PLANNED = ("plugins", "corruptions", "severities", "clean", "mixed", "methods", "grid")
"""Settings that determine which cells there are; a run may be extended by more."""

OF_A_SEQUENCE = ("corruptions", "severities")
"""Settings that a sequence is made of, so that it cannot be extended by more."""

FREE = ("device", "batch_size", "memory", "threads", "skip_broken", "answers")
"""Settings of how cells are computed, which change no result but rounding: a broken picture would have stopped them."""

STORED = {"stored": True}
"""The context in which settings of a finished run are read: its code need not be here, and is not imported."""

_CORRUPTION_GROUPS = ("test", "holdout", "all", "registered")
_NO_CORRUPTION = "none"


class Settings(BaseModel):
    """The settings of a run. The defaults are the paper's: clean and 19 × 5 conditions; none, partial and full.

    Attributes:
        model, data: names for `open_model` and `open_data`.
        plugins: Python modules that register corruptions and methods of the user's own; they are imported.
        corruptions, severities: which conditions; groups are `test`, `holdout`, `all`, `registered` and `none`.
        clean: whether the clean images are a condition, too.
        mixed: whether there is the control in which every image has another corruption.
        methods: as `covshift.bench.methods` writes them.
        grid: whether to add batches of n = 1 … 512 with N = 1 … 256 each.
        prior: N of `partial`, or "auto" for the N that each layer chooses for each batch; by default N is chosen on the
            holdout corruptions.
        source: clean images to measure the source of anchored methods on, such as `folder:train`; labels are not used.
            By default a random part of the run's own clean images that is never tested on.
        source_limit: the number of images to measure it on.
        limit: the number of images in a random subset, balanced over the classes; None for all images.
        order: the order in which images come and form batches: shuffled, label, source, dirichlet:0.1 or runs:20.
        sequence: one stream through several conditions, without a reset: `continual`, `gradual`, `mixed`, `recurring`,
            or its pieces such as `clean,fog/5:200,clean`, also from a file. It takes the place of single conditions;
            by default it has the test corruptions at severity 5, and `gradual` at all severities.
        seed: the seed of the subset, the order and the corruptions.
        mean, std, size, resize, interpolation: in place of what the model came with.
        frost, jpeg: as in `covshift.corrupt`.
        skip_broken: whether to leave out pictures that cannot be read.
        batch_size: the number of images that the model gets at once; by default it depends on their size.
        device: the device to compute on: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
        memory: for decoded images and, on a CPU, batches that wait for each other in full adaptation, such as "4 GiB";
            beyond it images are decoded again and batches go to disk. By default half of what the machine has free.
        threads: the number of threads that torch may use; by default torch decides.
        answers: whether to keep the answer to every image, beside the rows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    data: str
    plugins: tuple[str, ...] = ()
    corruptions: tuple[str, ...] = names("all")
    severities: tuple[int, ...] = SEVERITIES
    clean: bool = True
    mixed: bool = False
    methods: tuple[str, ...] = SCENARIOS
    grid: bool = False
    prior: Prior | None = None
    source: str | None = None
    source_limit: int = 500
    limit: int | None = None
    order: Order = "shuffled"
    sequence: tuple[str, ...] = ()
    seed: int = 0
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    size: int | None = None
    resize: int | None = None
    interpolation: str | None = None
    frost: str = "procedural"
    jpeg: int | None = None
    skip_broken: bool = False
    batch_size: int | None = None
    device: str = "auto"
    memory: str | float | None = None
    threads: int | None = None
    answers: bool = True

    @model_validator(mode="before")
    @classmethod
    def _usual_of_a_sequence(cls, values: Any) -> Any:
        """Give a sequence the corruptions and severities that it is published with, where none are given."""
        if not isinstance(values, Mapping) or not values.get("sequence"):
            return values
        levels = SEVERITIES if "gradual" in _words(values["sequence"]) else SEVERITIES[-1:]
        return {"corruptions": ("test",), "severities": levels, "clean": False} | dict(values)

    @model_validator(mode="wrap")
    @classmethod
    def _with_one_error(cls, values: object, make: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        """Raise a `CovshiftError` that names the setting; of a stored run, its reader names the file."""
        if _is_stored(info) or isinstance(values, cls):
            return make(values)
        check_kind(values, Mapping, "settings", "a mapping from names to values")
        assert isinstance(values, Mapping)
        for name in values:
            if name not in cls.model_fields:
                raise unknown("setting", name, cls.model_fields)
        missing = [name for name in ("model", "data") if name not in values]
        if missing:
            raise CovshiftError(
                f"expected the setting {' and '.join(missing)}, e.g. model torchvision:resnet18 and data folder:val"
            )
        for name in ("model", "data"):
            if any("\ud800" <= char <= "\udfff" for char in str(values[name])):
                raise CovshiftError(
                    f"expected {name} to be text that UTF-8 can hold, got {values[name]!r}; use a UTF-8 locale, "
                    "such as LC_ALL=C.UTF-8"
                )
        try:
            return make(values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            reason = first["msg"].removeprefix("Value error, ")
            raise CovshiftError(f"setting {where!r}: {reason}, got {first['input']!r}") from error

    @field_validator("plugins", mode="before")
    @classmethod
    def _imported(cls, value: object, info: ValidationInfo) -> list[str]:
        modules = list(dict.fromkeys(_words(value)))
        if not _is_stored(info):
            load_plugins(modules)
        return modules

    @field_validator("corruptions", mode="before")
    @classmethod
    def _known_corruptions(cls, value: object, info: ValidationInfo) -> list[str]:
        found: list[str] = []
        for name in _words(value):
            found += names(name) if name in _CORRUPTION_GROUPS else [name]  # type: ignore[arg-type]
        found = list(dict.fromkeys(name for name in found if name != _NO_CORRUPTION))
        if not _is_stored(info):
            for name in found:
                category(name)
        published = names("all")
        return [*(name for name in published if name in found), *(name for name in found if name not in published)]

    @field_validator("severities", mode="before")
    @classmethod
    def _known_severities(cls, value: object) -> list[int]:
        given = [int(word) if word.isdecimal() else word for word in _words(value)]
        if not given:
            raise CovshiftError("expected at least one severity from 1 to 5")
        return sorted({check_severity(severity) for severity in given})  # type: ignore[arg-type]

    @field_validator("methods", mode="before")
    @classmethod
    def _known_methods(cls, value: object, info: ValidationInfo) -> list[str]:
        texts = _words(value, split=False)
        if _is_stored(info):
            return texts
        return list(dict.fromkeys(method.name for text in texts for method in parse_methods(text)))

    @field_validator("batch_size", "limit", "source_limit", "threads")
    @classmethod
    def _above_zero(cls, value: int | None) -> int | None:
        if value is not None and value < 1:
            raise ValueError("expected a number from 1")
        return value

    @field_validator("seed")
    @classmethod
    def _not_negative(cls, value: int) -> int:
        if value < 0:
            raise ValueError("expected a number from 0")
        return value

    @field_validator("prior", mode="before")
    @classmethod
    def _number_of_images(cls, value: object) -> object:
        if value is None or (isinstance(value, str) and value == "auto"):
            return value
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, RuntimeError):
            raise ValueError("expected a number from 0, or auto") from None
        if not number >= 0:
            raise ValueError("expected a number from 0")
        return number

    @field_validator("jpeg")
    @classmethod
    def _known_quality(cls, value: int | None) -> int | None:
        if value is not None:
            check_quality(value)
        return value

    @field_validator("order", mode="before")
    @classmethod
    def _known_order(cls, value: object) -> str:
        try:
            return str(parse_order(value))
        except CovshiftError as error:
            raise ValueError(str(error)) from error

    @field_validator("sequence", mode="before")
    @classmethod
    def _known_sequence(cls, value: object, info: ValidationInfo) -> tuple[str, ...]:
        words = [] if value is None else _words(value)
        return read_sequence(words, known=not _is_stored(info)) if words else ()

    @field_validator("frost")
    @classmethod
    def _known_frost(cls, value: str) -> str:
        if value not in ("procedural", "published") and not Path(value).is_dir():
            raise ValueError("expected procedural, published or a folder of textures")
        return value

    @property
    def all_methods(self) -> list[Method]:
        """The methods, with those of the grid."""
        asked = [stored_method(name) for name in self.methods]
        if self.prior is not None:
            asked = [method.with_prior(self.prior) for method in asked]
        return [*asked, *(grid() if self.grid else [])]

    @property
    def plan(self) -> Plan:
        """The cells to run."""
        if self.sequence:
            return Plan((SEQUENCE,), tuple(dict.fromkeys(self.all_methods)))
        return plan(self.corruptions, self.severities, self.all_methods, clean=self.clean, mixed=self.mixed)

    @property
    def pieces(self) -> list[Piece]:
        """The pieces of the sequence; none where each condition is run by itself."""
        return pieces(self.sequence, self.corruptions, self.severities) if self.sequence else []

    def domains(self, images: int) -> list[Domain]:
        """Return the domains of the sequence, for a run of this number of images."""
        return domains(self.sequence, self.pieces, images)

    @property
    def corruption_settings(self) -> CorruptionSettings:
        """The settings that images are corrupted with."""
        return CorruptionSettings(self.seed, self.frost, self.jpeg)

    def command(self, out: str) -> str:
        """Return the command that makes such a run.

        >>> Settings(model="torchvision:resnet18", data="folder:val", corruptions=("fog",), prior=16).command("r18")
        'covshift bench run --model torchvision:resnet18 --data folder:val --corruptions fog --prior 16 --out r18'
        """
        words = ["covshift", "bench", "run"]
        for name, value in self.model_dump(exclude_defaults=True, exclude=set(FREE)).items():
            if name == "plugins":
                words += ["--plugin", ",".join(value)]
            elif isinstance(value, bool):
                words.append(f"--{name}" if value else f"--no-{name}")
            elif name == "corruptions":
                group = next((group for group in ("test", "holdout") if names(group) == value), None)
                words += ["--corruptions", group or ",".join(value) or _NO_CORRUPTION]
            else:
                number = f"{value:.15g}" if isinstance(value, float) else f"{value}"
                words += [
                    f"--{name.replace('_', '-')}",
                    ",".join(map(str, value)) if isinstance(value, tuple) else number,
                ]
        return shlex.join([*words, "--out", out])

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Return settings from values by name, over the defaults."""
        return cls.model_validate(values)


def _is_stored(info: ValidationInfo) -> bool:
    return bool(info.context and info.context.get("stored"))


def _words(value: object, *, split: bool = True) -> list[str]:
    """Return a list, or a text with commas, as a list of words."""
    parts = value if isinstance(value, list | tuple) else [value]
    texts = [str(part) for part in parts]
    return [word.strip() for text in texts for word in text.split(",") if word.strip()] if split else texts
