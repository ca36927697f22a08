"""What an answer says about its camera, in few operations: it is asked for with every request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch

from covshift.core.carried import Weights
from covshift.core.fleet import Camera, Fleet
from covshift.core.policies import Memory
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


class Moment(NamedTuple):
    """What is known of a camera at one moment, which its next pass does not change."""

    memory: Memory
    weights: Weights
    frozen: bool
    shift: float | None

    @classmethod
    def of(cls, camera: Camera) -> Self:
        """Return what is known of a camera now."""
        return cls(camera.memory, camera.weights, camera.frozen, camera.shift)

    @classmethod
    def of_all(cls, cameras: Sequence[Camera], fleet: Fleet) -> list[Self]:
        """Return what is known of some cameras now."""
        memories = [camera.memory for camera in cameras]  # each may be replaced meanwhile, by a reset
        shifts = fleet.distance.of_all([memory.seen for memory in memories])
        rows = zip(memories, cameras, shifts, strict=True)
        return [cls(memory, camera.weights, camera.frozen, shift) for memory, camera, shift in rows]


def brief_of(fleet: Fleet, moment: Moment, predicted: Predicted | None = None) -> Brief:
    """Return what is done for a camera at a moment, and why, with the error that is predicted for it."""
    memory, weights, is_frozen, shift = moment
    # Compiled code weighs by numbers, and asking those for their type is quicker than asking tensors.
    trusts = [each if type(each) is float else float(torch.as_tensor(each).mean()) for each in weights.values()]
    health = fleet.policy.judge(memory, {"all": sum(trusts) / len(trusts)} if trusts else {}, {})
    frozen = "what this camera remembers is kept as it is, because somebody has frozen it"
    return Brief(
        "frozen" if is_frozen else health.state,
        frozen if is_frozen else health.why,
        shift,
        health.images,
        predicted,
    )
