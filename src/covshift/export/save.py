"""`save`: a model, repaired or as it is, as one file to deploy, which is compared with the model before it is kept."""

import copy
import io
import json
import os
from importlib.metadata import version
from typing import Literal, NamedTuple, Protocol, get_args

import torch
from torch import Tensor, nn

from covshift.core.finding import norm_modules
from covshift.core.identity import digest, fingerprint
from covshift.core.places import holds_statistics
from covshift.core.statistics import Statistics, check_prior
from covshift.core.wrappers import AnyModel, unwrap_eval
from covshift.export.deployed import Deployed, Frame, PixelInput
from covshift.export.extra import need_all, quiet
from covshift.export.graph import Form, to_onnx
from covshift.export.parity import check_onnx, check_pt2, check_state, some_images
from covshift.export.program import capture
from covshift.models.base import Model
from covshift.models.preprocess import Preprocess
from covshift.support.checks import brief, check_choice, check_flags, check_kind, check_number, check_path
from covshift.support.errors import CovshiftError, is_number
from covshift.support.files import replacing
from covshift.support.tensors import to_safetensors

FileKind = Literal["onnx", "pt2", "safetensors"]

_PRIOR = 16
"""N of an adaptive graph, unless another one is given."""


class Patch(Protocol):
    """A correction that can be written into a model, such as `Statistics`."""

    def apply(self, model: AnyModel) -> object:
        """Change the model for good."""


class Exported(NamedTuple):
    """A file that was written.

    Attributes:
        path: the file.
        to: the kind of file: onnx, pt2 or safetensors.
        size: the number of its bytes.
        difference: the largest difference between what the file and the model answer, over the largest answer.
    """

    path: str
    to: FileKind
    size: int
    difference: float


@torch.inference_mode(False)
def save(
    model: AnyModel,
    path: str | os.PathLike[str],
    *,
    to: FileKind | None = None,
    patch: Patch | str | os.PathLike[str] | None = None,
    swappable: bool = False,
    adaptive: bool = False,
    prior: float | None = None,
    with_preprocess: bool = False,
    frame: tuple[int, int] | None = None,
    preprocess: Preprocess | None = None,
    size: int | None = None,
) -> Exported:
    """Write a model to one file; it takes any number of images at a time.

    The file is compared with the model on random images before it gets its name. The model stays as it is.

    Args:
        model: what `open_model` returns, or any classifier in eval mode.
        path: the file to write.
        to: "onnx", "pt2" (of `torch.export`) or "safetensors" (the state dict); by default the suffix of the path.
        patch: statistics to write into the model first, such as `estimate` returns; or the file that they are in.
        swappable: whether an ONNX file has its statistics as inputs that may be given, for `swap`. This is slower than
            statistics that are folded into the weights.
        adaptive: whether an ONNX file adapts to each batch by Eq. 3, or to a stream if it is given the state that it
            returned last.
        prior: N of Eq. 3, where `adaptive`, 16 by default; in the file it is an input that may be given.
        with_preprocess: whether the graph takes uint8 pictures, NHWC, and returns probabilities; by default it takes
            the model's input, NCHW, and returns logits.
        frame: the height and width of the pictures, where `with_preprocess`; by default those of the model's input.
        preprocess: the preprocessing of a bare module.
        size: the side of the input of a bare module, in pixels.
    """
    check_flags(swappable=swappable, adaptive=adaptive, with_preprocess=with_preprocess)
    target = check_path(path, "path")
    kind = target.suffix[1:] if to is None else to
    if to is None and not kind:
        raise CovshiftError(f"expected a name that ends in .onnx, .pt2 or .safetensors, got {target}; or use `to=onnx`")
    check_choice(kind, "kind of file", get_args(FileKind))
    form = _form(kind, swappable, adaptive)
    n_prior = _prior(prior, adaptive)
    _check_frame(frame, with_preprocess)
    if kind == "safetensors" and with_preprocess:
        raise CovshiftError("expected onnx or pt2 with `with_preprocess=True`: a safetensors file has no graph")
    if kind == "onnx":
        need_all()  # before anything that takes long
    if preprocess is not None:
        check_kind(preprocess, Preprocess, "preprocess", "a Preprocess")
    module = _prepared(model, patch, form)
    notes = _notes(model, module)
    if kind == "safetensors":
        content, difference = _state_file(module, notes)
    else:
        chosen = model.preprocess if preprocess is None and isinstance(model, Model) else preprocess
        side = _side(model, chosen, size)
        taken = Frame(*frame) if frame is not None else Frame(side, side)
        pixels = _pixels(chosen, taken, module) if with_preprocess else None
        content, difference = _graph_file(Deployed(module, pixels).eval(), taken, form, n_prior, notes)
    with replacing(target) as part:
        part.write_bytes(content)
    return Exported(str(target), kind, len(content), difference)  # type: ignore[arg-type]


def _prepared(model: AnyModel, patch: Patch | str | os.PathLike[str] | None, form: Form | None) -> nn.Module:
    """Return a copy of a model on the CPU, with its patch, or raise a `CovshiftError` if it cannot be exported."""
    module = copy.deepcopy(unwrap_eval(model)).cpu()
    if form in ("swappable", "adaptive") and not any(map(holds_statistics, module.modules())):
        raise CovshiftError(
            f"expected a model whose layers hold statistics with `{form}=True`, got {type(module).__name__}, whose "
            "layers hold none; export it without"
        )
    if patch is not None:
        given = Statistics.load(patch) if isinstance(patch, str | os.PathLike) else patch
        if not callable(getattr(given, "apply", None)):
            raise CovshiftError(f"expected patch to be statistics, or the file that they are in, got {brief(patch)}")
        given.apply(module)
    return module


def _form(kind: str, swappable: bool, adaptive: bool) -> Form | None:
    if swappable and adaptive:
        raise CovshiftError("expected `swappable=True` or `adaptive=True`, got both")
    if kind != "onnx" and (swappable or adaptive):
        raise CovshiftError(f"expected an ONNX file with `{'swappable' if swappable else 'adaptive'}=True`, got {kind}")
    return ("swappable" if swappable else "adaptive" if adaptive else "folded") if kind == "onnx" else None


def _prior(given: float | None, adaptive: bool) -> float:
    if given is None:
        return _PRIOR
    check_prior(given)
    if not adaptive:
        raise CovshiftError(f"expected `adaptive=True` with `prior={given}`: other files have no prior")
    return given


def _check_frame(frame: tuple[int, int] | None, with_preprocess: bool) -> None:
    if frame is None:
        return
    if not (
        isinstance(frame, tuple) and len(frame) == 2 and all(is_number(side, whole=True) and side > 0 for side in frame)
    ):
        raise CovshiftError(f"expected frame to be a height and a width in pixels, got {frame!r}")
    if not with_preprocess:
        raise CovshiftError(
            "expected `with_preprocess=True` with a frame: without it the file takes the model's input, of one size"
        )


def _graph_file(
    deployed: Deployed, frame: Frame, form: Form | None, prior: float, notes: dict[str, str]
) -> tuple[bytes, float]:
    """Return the content of a file with a graph, and how far its answers are off."""
    if deployed.pixels is None:
        images, output = some_images(2, (3, *frame), _dtype(deployed.model)), "logits"
    else:
        images, output = some_images(2, (*frame, 3), torch.uint8), "probabilities"
    program = capture(deployed, images)
    if form is None:
        file = io.BytesIO()
        with quiet():
            torch.export.save(program, file, extra_files={"covshift.json": json.dumps(notes)})
        return file.getvalue(), check_pt2(file.getvalue(), deployed, images)
    paths = [] if form == "folded" else list(norm_modules(deployed.model))
    content = to_onnx(program, images, form, statistics=paths, output=output, prior=prior, notes=notes)
    return content, check_onnx(content, deployed, images, prior if form == "adaptive" else None)


def _state_file(module: nn.Module, notes: dict[str, str]) -> tuple[bytes, float]:
    """Return the content of a safetensors file of the state dict, and that it is not off at all."""
    state = module.state_dict()
    odd = [name for name, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        raise CovshiftError(
            f"expected a model that holds tensors only, got {odd[0]!r}, which a safetensors file cannot hold"
        )
    # Tensors that share memory are written each for itself.
    content = to_safetensors({name: tensor.contiguous().clone() for name, tensor in state.items()}, notes)
    return content, check_state(content, module)


def _side(model: AnyModel, preprocess: Preprocess | None, given: int | None) -> int:
    """Return the side of the model's input."""
    if given is not None:
        check_number(given, "size", 1, whole=True, of="pixels")
        return given
    if preprocess is not None and preprocess.size is not None:
        return preprocess.size
    if isinstance(model, Model):
        return model.side
    raise CovshiftError("expected the side of the model's input in pixels for a bare module; give size=, e.g. size=224")


def _pixels(preprocess: Preprocess | None, frame: Frame, module: nn.Module) -> PixelInput:
    if preprocess is None:
        raise CovshiftError(
            "expected the preprocessing of the model with `with_preprocess=True`; give what open_model returns, or "
            "preprocess="
        )
    return PixelInput(preprocess, frame, _dtype(module))


def _dtype(module: nn.Module) -> torch.dtype:
    return next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)


def _notes(model: AnyModel, module: nn.Module) -> dict[str, str]:
    """Return what a file says of itself."""
    notes = {
        "covshift.version": version("covshift"),
        "covshift.fingerprint": fingerprint(module),
        "covshift.weights": digest(module),
    }
    if isinstance(model, Model):
        notes["covshift.model"] = model.uri
        notes["covshift.preprocess"] = json.dumps(model.preprocess.as_dict())
    return notes
