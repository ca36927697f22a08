"""Errors to expect in `adapter.health`: passed on from a predictor, whatever that is, and forgotten with the stream."""

from types import SimpleNamespace

import pytest
import torch
from networks import images, tiny

import covshift
from covshift import CovshiftError, Live, Stream


class Counting:
    """A predictor that counts answers, and has the number as its error."""

    def __init__(self) -> None:
        self.memory = 0.0
        self.fails = False

    def follow(self, memory: float = 0) -> "Counting":
        self.memory = memory
        return self

    def remember(self, before: int | None, logits: torch.Tensor) -> int:
        if self.fails:
            raise CovshiftError("no logits")
        return (before or 0) + len(logits)

    def forecast(self, answers: int, seen: object) -> SimpleNamespace:
        error = SimpleNamespace(error=answers, low=0, high=1)
        return SimpleNamespace(plain=error, adapted=error, sure=bool(seen), why="")


@pytest.mark.parametrize(("policy", "memory"), [(Live(memory=50), 50), (Stream(), 200)])
def test_health_has_the_errors_to_expect(policy, memory):
    net, predictor = tiny(), Counting()
    with covshift.adapt(net, policy, predictor=predictor) as adapter:
        assert predictor.memory == memory
        assert adapter.health.forecast is None
        for batch in images(6).split(2):
            net(batch)
        assert adapter.health.forecast.adapted.error == 6
        assert adapter.health.forecast.sure
        kept = adapter.state
        adapter.reset()
        assert adapter.health.forecast is None
        adapter.state = kept
        net(images(1))
        assert adapter.health.forecast.adapted.error == 1, "what is not in a state starts anew"


def test_without_a_predictor_nothing_is_expected():
    net = tiny()
    with covshift.adapt(net, Stream()) as adapter:
        net(images(2))
        assert adapter.health.forecast is None


def test_an_answer_that_cannot_be_remembered_leaves_no_trace():
    net, predictor = tiny(), Counting()
    with covshift.adapt(net, Stream(), predictor=predictor) as adapter:
        net(images(2))
        before, buffers = adapter.state, [buffer.clone() for buffer in net.buffers()]
        predictor.fails = True
        with pytest.raises(CovshiftError, match="no logits"):
            net(images(3, seed=1))
        assert adapter.state.images == before.images
        assert all(map(torch.equal, net.buffers(), buffers))
        assert adapter.health.forecast.adapted.error == 2
