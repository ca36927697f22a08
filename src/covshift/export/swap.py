"""`swap`: other statistics for an ONNX session, without a new export."""

import json
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.core.statistics import Statistics
from covshift.support.checks import brief
from covshift.support.errors import CovshiftError

_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


def swap(session: Any, patch: Statistics | str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the inputs that change the domain of a swappable ONNX model.

    They go beside the images into every run, so that one session serves many domains, from several threads too:
    `session.run(None, {"images": images, **night})`. Without them the model has the statistics that it was exported
    with.

    Args:
        session: an `onnxruntime.InferenceSession` of a file that was exported with `swappable=True`.
        patch: statistics of the same model, or the file that they were saved to.
    """
    statistics = patch if isinstance(patch, Statistics) else Statistics.load(patch)
    if not all(hasattr(session, name) for name in ("get_modelmeta", "get_overridable_initializers")):
        raise CovshiftError(f"expected session to be an onnxruntime.InferenceSession, got {brief(session)}")
    notes = session.get_modelmeta().custom_metadata_map
    if "covshift.swappable" not in notes:
        raise CovshiftError("expected a model whose statistics can be swapped; export it again with `swappable=True`")
    if notes.get("covshift.fingerprint") != statistics.fingerprint:
        layers = len(json.loads(notes["covshift.swappable"])) // 2
        raise CovshiftError(
            f"these statistics, of {len(statistics)} layers, are of another model than the session, which has {layers}"
        )
    if statistics.anchors is not None:
        raise CovshiftError(
            "expected statistics of normalisation layers, got a correction that is folded into weights; "
            "export the model again with it"
        )
    types = {value.name: _TYPES[value.type] for value in session.get_overridable_initializers()}
    feeds = {}
    for path, moments in statistics.items():
        for part, tensor in (("running_mean", moments.mean), ("running_var", moments.var)):
            name = f"{path}.{part}" if path else part
            if name in types:  # a layer may serve training only, and is not in the graph
                feeds[name] = tensor.detach().cpu().numpy().astype(types[name])
    return feeds
