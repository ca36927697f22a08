"""What an answer says about its camera, in few operations: it is asked for with every request."""

from dataclasses import dataclass

import torch

from covshift.core.fleet import Camera, Fleet
from covshift.serve.events import Done, Predicted


@dataclass(frozen=True, slots=True)
class Brief:
    """What is done for a camera at the moment.

    Attributes:
        done: "following" a shift, "holding" the model as it is, "reset" after a sudden change, or "frozen".
        why: the reason, in words.
        shift: how far the camera is from the source, in standard deviations: the root mean square over all places;
            None before its first image.
        remembered: the number of images that count.
        predicted: the error to expect; None where that cannot be told.
    """

    done: Done
    why: str
    shift: float | None
    remembered: float
    predicted: Predicted | None = None


def brief_of(fleet: Fleet, camera: Camera) -> Brief:
    """Return what is done for a camera at the moment, and why."""
    memory, weights = camera.memory, camera.weights
    # Compiled code weighs by numbers, and asking those for their type is quicker than asking tensors.
    trust = max(
        (each if type(each) is float else float(torch.as_tensor(each).max()) for each in weights.values()), default=0.0
    )
    health = fleet.policy.judge(memory, {"all": trust} if weights else {}, {})
    frozen = "what this camera remembers is kept as it is, because somebody has frozen it"
    return Brief(
        "frozen" if camera.frozen else health.state,
        frozen if camera.frozen else health.why,
        camera.shift,
        health.images,
    )
