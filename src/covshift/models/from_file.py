"""`file:PATH?arch=URI`: a checkpoint, and the architecture that it belongs to."""

from pathlib import Path

from covshift.errors import CovshiftError
from covshift.models.base import Model
from covshift.models.checkpoint import fit, read_state
from covshift.models.open import open_architecture
from covshift.models.query import KEYS
from covshift.uri import Uri


def load(uri: Uri) -> Model:
    """The architecture with the weights of the checkpoint."""
    uri.check_query("arch", "classes", *KEYS)
    path = Path(uri.name).expanduser()
    state = read_state(path)
    if not uri.query.get("arch"):
        raise CovshiftError(
            f"expected the architecture of {path}, e.g. file:{uri.name}?arch=torchvision:resnet50 or "
            f"?arch=py:module:function, got {uri.text!r}"
        )
    classes = uri.whole("classes")
    if classes == 0:
        raise CovshiftError("expected classes from 1 on, got 0")
    model = open_architecture(uri.query["arch"], state, classes)
    fit(model.module, state, path, model.uri)
    model.uri = f"file:{uri.name}?arch={model.uri}" + (f"&classes={classes}" if classes else "")
    return model
