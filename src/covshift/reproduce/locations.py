"""`Locations`: a user's data and weights, and the settings of a run that follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from covshift.data.imagenet import VARIANTS
from covshift.models.zoo import ENTRIES
from covshift.models.zoo.tensorflow import is_tensorflow
from covshift.reproduce.target import Job
from covshift.support.errors import CovshiftError
from covshift.support.uri import escape

BUILTIN_DATA = "builtin"
"""The name of the miniature's data set in a `Job`."""


@dataclass(frozen=True)
class Locations:
    """The folders and files of a user, and what else all runs have in common.

    Attributes:
        folders: the folder of each data set, by its name, e.g. "imagenet-c".
        weights: the files of weights that are not the published ones, by the name of the model.
        limit: the number of images of a random subset; None for all images.
        device: the device to compute on.
        builtin: the URI of the miniature's data.
    """

    folders: Mapping[str, Path] = field(default_factory=dict)
    weights: Mapping[str, Path] = field(default_factory=dict)
    limit: int | None = None
    device: str = "auto"
    builtin: str = "builtin:cifar10"

    def check(self) -> None:
        """Raise a `CovshiftError` where a folder or file does not exist, before anything is fetched or run."""
        for name, folder in self.folders.items():
            if not folder.expanduser().is_dir():
                raise CovshiftError(f"expected a folder for `{name}=DIR`, got {folder}, which is not a folder")
        for name, file in self.weights.items():
            if not (file.expanduser().is_file() or is_tensorflow(file.expanduser())):
                raise CovshiftError(f"expected a file for `weights={name}=FILE`, got {file}, which does not exist")

    def settings(self, job: Job) -> dict[str, Any]:
        """Return the settings of a run.

        Raises:
            CovshiftError: if data or weights are missing; the message names the setting that takes them.
        """
        shared = {"limit": self.limit, "device": self.device}
        return {"model": self._model(job), **self._data(job.data), **job.settings, **shared}

    def _model(self, job: Job) -> str:
        if job.data == BUILTIN_DATA:
            return f"builtin:{job.model}"
        entry = ENTRIES[job.model]
        if job.model in self.weights:
            return f"zoo:{job.model}?file={escape(str(self.weights[job.model]))}"
        if not entry.files:
            train = f"; train it with covshift train {entry.recipe}" if entry.recipe else f"; it is at {entry.page}"
            raise CovshiftError(
                f"{job.model} has no weights to download{train}, and name it: `weights={job.model}=FILE`"
            )
        return f"zoo:{job.model}"

    def _data(self, data: str) -> dict[str, Any]:
        if data == BUILTIN_DATA:
            return {"data": self.builtin}
        source = "imagenet-v2" if data.startswith("imagenet-v2-") else data
        folder = self.folders.get(source)
        if folder is None and source == "imagenet-c" and "imagenet" in self.folders:
            # Made on the fly, through JPEG as the published files are; frost has other textures.
            return {"data": f"imagenet:{self.folders['imagenet']}", "jpeg": 85}
        if folder is None:
            other = " or `imagenet=DIR`" if source == "imagenet-c" else ""
            raise CovshiftError(f"{data} is missing; name its folder: `{source}=DIR`{other}")
        variant = next((f"?variant={name}" for name in VARIANTS if data == f"imagenet-v2-{name}"), "")
        return {"data": f"{source}:{folder}{variant}"}


def parse_weights(texts: list[str]) -> dict[str, Path]:
    """Return files of weights by model, from texts such as fixup-resnet50=runs/fixup.safetensors."""
    files = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or name not in ENTRIES:
            raise CovshiftError(f"expected weights as NAME=FILE with a name of the zoo, got {text!r}")
        files[name] = Path(path)
    return files
