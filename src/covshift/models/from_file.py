"""`file:PATH?arch=URI`: a checkpoint, and the architecture that it belongs to."""

from pathlib import Path
from typing import cast

from covshift.models.architecture import PRETRAININGS, Pretraining
from covshift.models.base import Model
from covshift.models.builtin import open_weights
from covshift.models.checkpoint import load_weights, read_state
from covshift.models.from_builtin import as_model
from covshift.models.open import open_architecture
from covshift.models.query import KEYS
from covshift.support.checks import check_choice
from covshift.support.errors import CovshiftError
from covshift.support.uri import Uri


def load(uri: Uri) -> Model:
    """Return the architecture with the weights of the checkpoint."""
    uri.check_query("arch", "classes", "pretraining", *KEYS)
    pretraining = uri.query.get("pretraining", "")
    check_choice(pretraining, "pretraining", PRETRAININGS)
    path = Path(uri.name).expanduser()
    if not uri.query.get("arch"):
        if path.with_suffix(".json").exists():  # the card that `covshift train` writes
            return as_model(f"file:{uri.name}", open_weights(path))
        read_state(path)
        raise CovshiftError(
            f"expected the architecture of {path}, e.g. file:{uri.name}?arch=torchvision:resnet50 or "
            f"?arch=py:module:function, got {uri.text!r}"
        )
    classes = uri.whole("classes")
    if classes == 0:
        raise CovshiftError("expected classes from 1 on, got 0")
    state = read_state(path)
    model = open_architecture(uri.query["arch"], state, classes)
    load_weights(model.module, state, path, model.uri)
    model.uri = f"file:{uri.name}?arch={model.uri}" + (f"&classes={classes}" if classes else "")
    model.pretraining = cast(Pretraining, pretraining)
    if pretraining:
        model.uri += f"&pretraining={pretraining}"
    return model
