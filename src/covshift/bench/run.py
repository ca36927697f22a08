"""A run from its settings: open the model and the data, check that they fit, and let the engine work."""

import os
import platform
import subprocess
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covshift.bench.cells import Work
from covshift.bench.engines.local import LocalEngine
from covshift.bench.engines.torchrun import RankEvaluator, check_alike, follow, is_first, joined, leading, own_device
from covshift.bench.engines.where import HERE, Where
from covshift.bench.evaluate import Evaluator
from covshift.bench.methods import ANCHORED, FULL, NONE
from covshift.bench.results.answers import ImageTable
from covshift.bench.results.store import Run, Store, holds_a_run, watch
from covshift.bench.screen import Screen
from covshift.bench.settings import FREE, OF_A_SEQUENCE, PLANNED, Settings
from covshift.bench.source import RunSource, source_of
from covshift.core.finding import find_layers
from covshift.core.ranks import has_ranks
from covshift.core.source import Source
from covshift.data import CLEAN, Condition, Data, open_data
from covshift.data.selection import Selection, choose
from covshift.data.sequences import stream, time_pieces
from covshift.models import Model, open_model
from covshift.models.query import KEYS
from covshift.support.checks import check_flags, check_kind, check_path
from covshift.support.device import choose_device
from covshift.support.errors import CovshiftError
from covshift.support.memory import free_memory, parse_bytes
from covshift.support.plugins import load_plugins

_VERSIONS = ("covshift", "torch", "torchvision", "numpy", "opencv-python-headless", "pillow", "numba")


def run(
    settings: Settings | Mapping[str, Any],
    out: str | os.PathLike[str],
    *,
    extend: bool = False,
    progress: bool = True,
    where: Where = HERE,
) -> Store:
    """Run all cells that the folder does not have yet.

    Args:
        settings: what to run, e.g. `{"model": "torchvision:resnet18", "data": "folder:val", "limit": 1000}`.
        out: the run folder; made if it is not there.
        extend: whether to add conditions and methods to an existing run; settings that are not given stay as they were.
        progress: whether to show progress.
        where: the engine that computes, e.g. `Where("ray", address="auto")`.

    Returns:
        The results; with a shard, those of the shard.
    """
    out = check_path(out, "out")
    check_kind(settings, (Settings, Mapping), "settings", "Settings or a mapping of them")
    check_kind(where, Where, "where", "a Where")
    check_flags(extend=extend, progress=progress)
    if not isinstance(settings, Settings):
        settings = Settings.read(from_held(out) | dict(settings) if extend else dict(settings))
    whole, shard = out, where.shard
    out = where.folder(whole)
    elsewhere = watch(shard.others(whole) if shard else [])
    with joined(), Screen(progress and is_first()) as screen:
        screen.say(f"{settings.model} on {settings.data}, into {out}")
        data = open_data(settings.data)
        if data.remark:
            screen.say(data.remark)
        if data.caution and any(method.adapts for method in settings.all_methods):
            screen.say(f"note: {data.caution}")
        if extend:
            settings = with_held(settings, out)
        settings = fit_to_data(settings, data, screen.say)
        model = open_model_of(settings)
        check_together(model, data, settings, where)
        model.module.to(choose_device(own_device(settings.device)))
        source = source_of(settings, model, data, out)
        description = describe(settings, model, data, source)
        if settings.answers and description.shows_images_again:
            screen.say("note: the sequence shows images more than once, so the answers to them are not kept")
        if where.engine == "ray":
            from covshift.bench.engines.ray import RayEngine, cluster

            store = make_store(out, description, data, settings, extend=extend)
            images = len(choose(data.labels, limit=settings.limit))
            with cluster(where):
                RayEngine(store, screen, settings, images, where, elsewhere, source and source.source).run()
            return store
        work = Work(make_evaluator(settings, model, data, screen, source=source and source.source), settings)
        if not is_first():
            follow(work)
            return Store(out)
        with leading(work) if has_ranks() else nullcontext():
            store = make_store(out, description, data, settings, extend=extend)
            LocalEngine(store, screen, work, shard, elsewhere).run()
    return store


def make_store(folder: Path, description: Run, data: Data, settings: Settings, *, extend: bool) -> Store:
    """Return the store of a run that begins or resumes, which keeps answers unless the settings leave them out."""
    store = Store.create(folder, description, extend=extend)
    if settings.answers:
        store.keep_answers(image_table(data, settings))
    return store


def image_table(data: Data, settings: Settings) -> ImageTable:
    """Return the images of a run, in its order."""
    indices = choose(data.labels, limit=settings.limit, order=settings.order, seed=settings.seed)
    names = tuple(data.image_name(index) for index in indices)
    return ImageTable(np.array(indices, np.int64), data.labels[indices], names, data.class_names)


def open_model_of(settings: Settings) -> Model:
    """Open the model of a run, with the preprocessing that the settings ask for, and import the run's plugins."""
    load_plugins(settings.plugins)
    return open_model(settings.model, **{key: getattr(settings, key) for key in KEYS})


def from_held(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the settings of the run in a folder, without conditions and methods, for a run that extends it."""
    if not holds_a_run(Path(folder)):
        return {}
    held = Store(Path(folder)).run.settings
    left_out = {*PLANNED, *FREE} - (set(OF_A_SEQUENCE) if held.sequence else set())
    return held.model_dump(exclude=left_out, exclude_defaults=True)


def with_held(settings: Settings, folder: Path) -> Settings:
    """Return the settings, completed by those of the run that is extended."""
    held = Store(folder).run.settings
    update = {name: getattr(held, name) for name in PLANNED if name not in settings.model_fields_set}
    return settings.model_copy(update=update)


def fit_to_data(settings: Settings, data: Data, say: Callable[[str], None] = lambda text: None) -> Settings:
    """Return the settings with the conditions that the data have; what was not named is left out, with a notice."""
    if settings.sequence:
        if missing := next((each.condition for each in settings.pieces if not data.has(each.condition)), None):
            raise CovshiftError(f"{data.uri} has no condition {missing}, which the sequence goes through")
        if settings.skip_broken:
            raise CovshiftError("a sequence cannot leave out broken pictures; repair or remove these first")
        if clean := next((method for method in settings.all_methods if method.needs_clean), None):
            raise CovshiftError(f"method {clean} is evaluated on clean images, not on a stream; leave it out")
        return settings
    asked = settings.model_fields_set
    change: dict[str, Any] = {}
    if "clean" not in asked:
        change["clean"] = data.has(CLEAN)
    severities = settings.severities
    if "severities" not in asked and settings.corruptions:
        severities = tuple(s for s in severities if any(data.has(Condition(name, s)) for name in settings.corruptions))
        change["severities"] = severities
    if "corruptions" not in asked:
        change["corruptions"] = tuple(
            name for name in settings.corruptions if all(data.has(Condition(name, s)) for s in severities)
        )
    fitted = settings.model_copy(update=change)
    left_out = [str(condition) for condition in settings.plan.conditions if condition not in fitted.plan.conditions]
    if left_out:
        say(f"{data.uri} does not have all conditions; left out: {', '.join(left_out)}")
    if not fitted.plan.conditions:
        raise CovshiftError(f"{data.uri} has no corruption at all of its severities; name corruptions and severities")
    for condition in fitted.plan.conditions:
        if not data.has(condition):
            what = "clean images" if condition == CLEAN else f"condition {condition}"
            raise CovshiftError(f"{data.uri} has no {what}; name a source of clean images: {data.uri}?clean=folder:DIR")
    for method in fitted.all_methods:
        if method.needs_clean and not data.has(CLEAN):
            raise CovshiftError(
                f"method {method} needs clean images; name a source of them: {data.uri}?clean=folder:DIR"
            )
    return fitted


def check_together(model: Model, data: Data, settings: Settings, where: Where = HERE) -> None:
    """Raise a `CovshiftError` where the model cannot be evaluated on the data, before anything runs."""
    if has_ranks():
        if where.engine != "local":
            raise CovshiftError("expected either torchrun or `engine=ray`, got both; leave one of them out")
        if settings.skip_broken:
            raise CovshiftError("ranks cannot skip broken pictures together; remove these, or run without torchrun")
        if settings.sequence:
            raise CovshiftError("a sequence is one stream, which ranks cannot share; run it without torchrun")
        check_alike([model.digest, data.digest])
    model.check_classes(data.classes, data.uri)
    if any(method.adapts and not method.anchored for method in settings.all_methods):
        try:
            find_layers(model.module)
        except CovshiftError as error:
            raise CovshiftError(
                f"{error}; evaluate it with `methods={NONE}`, or by anchored methods such as {FULL}:{ANCHORED}"
            ) from error


def make_evaluator(
    settings: Settings, model: Model, data: Data, screen: Screen, share: float = 1, source: Source | None = None
) -> Evaluator:
    """Return an evaluator of the model on its device, which takes this share of the machine's memory."""
    device = choose_device(own_device(settings.device))
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    model.module.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    indices = choose(data.labels, limit=settings.limit, order=settings.order, seed=settings.seed)
    shown = (
        stream(settings.sequence, settings.pieces, indices, data.labels, settings.order, settings.seed)
        if settings.sequence
        else []
    )
    share /= int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if has_ranks() else 1
    memory = share * free_memory(torch.device("cpu")) / 2 if settings.memory is None else parse_bytes(settings.memory)
    size = model.preprocess.size
    # Clean images and those of a condition; batches that wait for each other in full adaptation get the rest.
    room = min(memory / 2, 2 * max(len(indices), len(shown)) * 3 * size**2) if size else memory / 2
    selection = Selection(
        data,
        indices,
        model.preprocess.picture,
        corruption_settings=settings.corruption_settings,
        memory=room,
        skip_broken=settings.skip_broken,
        stream=shown,
    )
    batch_size = settings.batch_size or (256 if (size or 0) <= 64 or device.type != "cpu" else 64)
    waiting = memory - room if device.type == "cpu" else None  # on a GPU, half of what that has free
    for method in settings.all_methods:
        method.check(batch_size)
    kind = RankEvaluator if has_ranks() else Evaluator
    cuts = [piece.start for piece in time_pieces(settings.domains(len(indices)))][1:]
    return kind(
        model, selection, batch_size=batch_size, memory=waiting, cuts=cuts, source=source, advance=screen.images
    )


def describe(settings: Settings, model: Model, data: Data, source: RunSource | None = None) -> Run:
    """Return what goes into `run.json`."""
    return Run(
        settings=settings,
        model_digest=model.digest,
        model_classes=model.classes,
        model_params=model.params,
        model_uri=model.uri,
        model_family=model.family,
        model_norm=model.norm,
        model_pretraining=model.pretraining,
        preprocess=model.preprocess.as_dict(),
        data_digest=data.digest,
        data_images=len(data),
        data_remark=data.remark,
        imagenet=data.imagenet,
        source_images=None if source is None else source.images,
        source_digest=None if source is None else source.digest,
        versions={"python": platform.python_version(), **{name: version(name) for name in _VERSIONS}},
        revision=_revision(),
    )


def _revision() -> str | None:
    """Return the git revision of covshift's own code, where it runs from a clone."""
    here = Path(__file__)

    def git(*words: str) -> str:
        # Git is found by name, as everywhere.
        command = ["git", "-C", str(here.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()  # noqa: S603

    try:
        git("ls-files", "--error-unmatch", here.name)  # else this is some other project's repository
        return git("describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.SubprocessError):
        return None
