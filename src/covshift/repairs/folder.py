"""The folder of a repair: patch, weights, card and samples; it appears when all of it is there."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel
from covshift.export.save import save as export_model
from covshift.repairs.card import Card, table
from covshift.repairs.sample import Sample
from covshift.support.cache import checksum
from covshift.support.checks import check_path
from covshift.support.errors import CovshiftError
from covshift.support.images import write_image

PATCH, WEIGHTS, CARD, PAGE, SAMPLES = "patch.safetensors", "weights.safetensors", "card.json", "card.md", "samples"


def check_new(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder that is not there yet and can be made, or raise a `CovshiftError`."""
    path = check_path(folder, "folder")
    if path.exists() or path.is_symlink():
        raise CovshiftError(f"{path} exists already; name another folder, or remove it")
    parent = next(above for above in path.absolute().parents if above.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise CovshiftError(f"cannot write {path}: {parent} is not a folder that can be written to")
    return path


def write_folder(
    folder: str | os.PathLike[str],
    patch: Statistics,
    model: AnyModel,
    card: Card,
    samples: Sequence[Sample],
    class_names: Sequence[str],
) -> Card:
    """Write all parts of a repair to a new folder, and return the card with the digests of its files."""
    target = check_new(folder)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.mkdir(parents=True)
        patch.save(part / PATCH)
        export_model(model, part / WEIGHTS, patch=patch)
        card = replace(card, files={name: checksum(part / name, "SHA-256") for name in (PATCH, WEIGHTS)})
        (part / CARD).write_text(card.as_json(), encoding="utf-8")
        (part / PAGE).write_text(card.as_markdown() + _gallery(samples, class_names), encoding="utf-8")
        for number, sample in enumerate(samples):
            if sample.pixels is not None:
                write_image(sample.pixels, part / SAMPLES / f"{number}.png", None)
        part.rename(target)
        return card
    except CovshiftError as error:  # which names a file of the folder that is not there any more
        raise CovshiftError(str(error).replace(str(part), str(target))) from error
    except OSError as error:
        raise CovshiftError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(part)


def _gallery(samples: Sequence[Sample], class_names: Sequence[str]) -> str:
    """Return the samples as a part of the page, with the names of their classes where these are known."""

    def name(label: int) -> str:
        return (class_names[label] if label < len(class_names) else "") or str(label)

    rows = [
        (f"![]({SAMPLES}/{number}.png)", name(sample.plain), name(sample.adapted))
        for number, sample in enumerate(samples)
        if sample.pixels is not None
    ]
    return "\n" + table(("sample", "class before", "class after"), rows) if rows else ""
