"""`timm:NAME`: the models of timm, which is an extra."""

from functools import partial
from importlib import import_module
from typing import Any, cast

from torch import nn

from covshift.models.architecture import pretraining_in
from covshift.models.base import Model
from covshift.models.checkpoint import StateDict, classes_in
from covshift.models.from_torchvision import NONE  # which imports torchvision, our way, before timm does
from covshift.models.preprocess import Preprocess
from covshift.models.query import KEYS
from covshift.models.untrained import untrained
from covshift.support.errors import CovshiftError, unknown
from covshift.support.uri import Uri

try:
    timm: Any = import_module("timm")
except ModuleNotFoundError as error:
    if error.name != "timm":
        raise
    raise CovshiftError("timm is not installed; run: pip install 'covshift[timm]'") from error


def names() -> list[str]:
    """Return all classifiers with weights, each with the tag of its weights."""
    return [name for name in timm.list_models(pretrained=True) if timm.get_pretrained_cfg(name).num_classes]


def family(name: str) -> str:
    """Return the family of a model: the name of timm's module that defines it."""
    return str(timm.model_entrypoint(name).__module__.rpartition(".")[2])


def build(name: str, **settings: Any) -> nn.Module:
    """Return a model without its weights."""
    return cast(nn.Module, timm.create_model(name, pretrained=False, **settings))


def load(uri: Uri) -> Model:
    """Return the model with its weights; `NAME/none` is untrained, the same every time."""
    uri.check_query(*KEYS)
    name, config, trained = _resolve(uri)
    if not trained:
        return Model(f"timm:{name}/{NONE}", untrained(partial(build, name)), _preprocess(name, config))
    if not config.has_weights or not config.num_classes:
        raise CovshiftError(
            f"timm:{name} has no weights of a classifier; name a model that has, such as timm:resnet50.a1_in1k"
        )
    preprocess = _preprocess(name, config)
    try:
        module = timm.create_model(name, pretrained=True)
    except Exception as error:  # of the hub, of the network, of timm: each with types of its own
        where = f"{config.hf_hub_id or config.url} on the hub that timm loads from"
        raise CovshiftError(
            f"cannot get the weights of timm:{name} ({error}); fetch the model.safetensors of {where} by other means "
            f"and open it with file:PATH?arch=timm:{name}"
        ) from error
    return Model(f"timm:{name}", module, preprocess, pretraining_in(name))


def architecture(uri: Uri, state: StateDict, classes: int | None) -> Model:
    """Return the model without its weights, with as many classes as the checkpoint has."""
    uri.check_query(*KEYS)
    name, config, trained = _resolve(uri)
    plain = untrained(partial(build, name), shapes_only=True)
    found = classes or classes_in(state, plain, config.num_classes)
    module = untrained(partial(build, name, num_classes=found))
    return Model(f"timm:{name}" if trained else f"timm:{name}/{NONE}", module, _preprocess(name, config))


def _resolve(uri: Uri) -> tuple[str, Any, bool]:
    """Return the full name of a model, its configuration, and whether its weights are wanted."""
    name, slash, wanted = uri.name.partition("/")
    if slash and wanted.lower() != NONE:
        raise CovshiftError(f"expected timm:{name}, timm:{name}.TAG or timm:{name}/{NONE}, got {uri.text!r}")
    if not timm.is_model(name):
        raise unknown("timm model", name, timm.list_models(pretrained=True) if "." in name else timm.list_models())
    try:
        config = timm.get_pretrained_cfg(name)
    except RuntimeError:
        architecture_name = name.partition(".")[0]
        raise unknown("timm model", name, timm.list_models(f"{architecture_name}.*", pretrained=True)) from None
    tag = f".{config.tag}" if config.tag and "." not in name else ""
    return name + tag, config, not slash


def _preprocess(name: str, config: Any) -> Preprocess:
    how = timm.data.resolve_data_config(pretrained_cfg=config.to_dict())
    channels, size, width = how["input_size"]
    if channels != 3 or size != width or how["crop_mode"] not in ("center", "squash"):
        raise CovshiftError(
            f"timm:{name} takes images of {channels} x {size} x {width} with crop mode {how['crop_mode']!r}; "
            "covshift can crop or squash colour images to squares only"
        )
    resize = int(size / how["crop_pct"])
    squash = how["crop_mode"] == "squash"
    return Preprocess(resize, size, how["interpolation"], how["mean"], how["std"], squash)
