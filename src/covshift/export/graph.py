"""The model as an ONNX graph: folded, with statistics that can be swapped, or adapting by itself."""

import json
import re
from typing import Any, Literal

import torch
from torch import Tensor
from torch.export import ExportedProgram

from covshift.export.adaptive import adapt_in_graph
from covshift.export.extra import quiet
from covshift.export.program import reason
from covshift.support.errors import CovshiftError

Form = Literal["folded", "swappable", "adaptive"]

_PREFIX = "model."  # the model's name in `Deployed`
_LARGEST = 2**31 - 2**20
"""Bytes of the largest graph: a file of Protocol Buffers ends at 2 GiB."""


def to_onnx(
    program: ExportedProgram,
    images: Tensor,
    form: Form,
    *,
    statistics: list[str],
    output: str,
    prior: float,
    notes: dict[str, str],
) -> bytes:
    """Return the content of an ONNX file.

    Args:
        program: the graph of `capture`.
        images: the images that it was captured with.
        form: whether statistics are folded into weights, can be overridden, or follow the images.
        statistics: paths of the layers that hold statistics.
        output: the name of the output.
        prior: N of Eq. 3, for the adaptive form.
        notes: texts by name for the file's metadata.
    """
    size = sum(tensor.nbytes for tensor in program.state_dict.values())
    if size > _LARGEST:
        raise CovshiftError(f"an ONNX file holds at most 2 GiB, and the model has {size:,} bytes; export it to pt2")
    with quiet():
        try:
            made = torch.onnx.export(
                program,
                (images,),
                dynamo=True,
                input_names=["images"],
                output_names=[output],
                optimize=form == "folded",
                verbose=False,
            )
        except (torch.onnx.errors.OnnxExporterError, RuntimeError, TypeError, ValueError) as error:
            raise CovshiftError(
                f"ONNX has no counterpart for {_culprit(error)} of this model; export it to pt2"
            ) from error
        assert made is not None
        if form != "folded":
            overridable = _name_statistics(made.model.graph, statistics)
            if form == "swappable":
                made.model.graph.inputs.extend(overridable.values())
                notes = {**notes, "covshift.swappable": json.dumps(list(overridable))}
            else:
                notes = {**notes, "covshift.state": json.dumps(adapt_in_graph(made.model.graph, prior))}
            made.optimize()
        _name_batch(made.model.graph)
        _forget_sources(made.model)
        made.model.metadata_props.update(notes)
        return bytes(made.model_proto.SerializeToString())


def _name_statistics(graph: Any, paths: list[str]) -> dict[str, Any]:
    """Return the statistics that a graph uses, by their names in the model."""
    named = {}
    for path in paths:
        for part in ("running_mean", "running_var"):
            name = f"{path}.{part}" if path else part
            value = graph.initializers.get(_PREFIX + name)
            if value is not None and value.uses():  # a layer may serve training only
                value.name = name
                named[name] = value
    if not named:
        raise CovshiftError("expected a model that normalises by statistics of its own, got none in its graph")
    return named


def _name_batch(graph: Any) -> None:
    """Call the free dimension of all values "batch", whatever symbol torch has for it."""
    symbol = str(graph.inputs[0].shape[0])
    values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
    for value in values:
        for axis, length in enumerate(value.shape or ()):
            if str(length) == symbol:
                value.shape[axis] = "batch"


def _forget_sources(model: Any) -> None:
    """Remove what torch notes of the lines of Python that each part came from: names of folders on this machine."""
    for part in (model, model.graph, *model.graph.inputs, *model.graph.initializers.values()):
        part.metadata_props.clear()
    for node in model.graph:
        node.doc_string = None
        for part in (node, *node.outputs):
            part.metadata_props.clear()


def _culprit(error: BaseException) -> str:
    """Return the operator that an exporter's error is about, or else its first line."""
    cause: BaseException | None = error
    while cause is not None:
        operator = re.search(r"op(?:erator)?='?([\w.:]+)|function (\w+::[\w.]+)|<OpOverload\(op='([\w.]+)'", str(cause))
        if operator:
            return "the operator " + next(part for part in operator.groups() if part)
        cause = cause.__cause__
    return f"a part ({reason(error)})"
