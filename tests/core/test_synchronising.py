"""Passes on a device that cannot be asked: nothing in a pass may wait for a value, which on a GPU stops the queue.

Tensors on the device "meta" have no values, so that whatever asks for one fails. There, as on a GPU, no compiled code
of ours runs. The one question of a pass, whether all was finite, comes when the model has returned.
"""

import pytest
import torch
from torch import nn

from covshift import Batch, Live, Policy, Stream
from covshift.core.adapter import Adapter
from covshift.core.live.answers import Answer
from covshift.core.passes import Pass
from covshift.core.places import NormLayer, holds_statistics

POLICIES = {
    "batch": Batch(prior=4),
    "auto": Batch(prior="auto"),
    "groups": Batch(prior=4, size=2),
    "groups, auto": Batch(prior="auto", size=2),
    "stream": Stream(prior=4),
    "fading": Stream(prior=4, decay=0.9),
    "live": Live(memory=20),
}


def network() -> nn.Module:
    layers = [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 5, 3, stride=2), nn.BatchNorm2d(5)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(5), nn.Linear(5, 4)).eval()


def adapted(model: nn.Module, policy: Policy) -> Adapter:
    """Put a policy on a model as `adapt` does, which refuses a model without values."""
    places = [NormLayer(path, layer) for path, layer in model.named_modules() if holds_statistics(layer)]
    return Adapter(model, policy, places)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("grad", [False, True])
def test_no_operator_of_a_pass_waits_for_the_device(monkeypatch, policy, grad):
    model, asked = network().to("meta"), []
    # What is read once, when a pass has ended: whether it was finite, and what it answered.
    monkeypatch.setattr(Pass, "broken", lambda self: asked.append(self))
    monkeypatch.setattr(Answer, "of", lambda output: None)
    with adapted(model, POLICIES[policy]), torch.set_grad_enabled(grad):
        for _ in range(2):  # the second pass of a stream follows the first
            assert model(torch.empty(6, 3, 24, 24, device="meta")).shape == (6, 4)
    assert len(asked) == 2


def test_a_value_that_is_asked_for_is_noticed():
    class Asking(Batch):
        def weigh(self, place, seen, rows):
            return float(seen.mean.abs().max() > 0)

    model = network().to("meta")
    with adapted(model, Asking()), pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        model(torch.empty(6, 3, 24, 24, device="meta"))


def test_images_go_to_a_gpu_from_pinned_memory_without_waiting(monkeypatch):
    from covshift.core.calling import to_device

    calls = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: (calls.append("pinned"), self)[1])
    monkeypatch.setattr(torch.Tensor, "to", lambda self, device, **how: (calls.append((device.type, how)), self)[1])
    to_device({"images": [torch.ones(2)]}, torch.device("cuda"))
    assert calls == ["pinned", ("cuda", {"non_blocking": True})]
