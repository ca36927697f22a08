"""What else can be done to a model while it is adapted: copying, saving, losing the handle, passing by the layers."""

import copy
import pickle

import pytest
import torch
from networks import assert_same, images, randomise, snapshot, tiny
from torch import nn
from torch.nn import functional

import covshift
from covshift import Batch, CovshiftError, Statistics, Stream
from covshift.core.identity import digest
from covshift.core.moments import Moments

COPIES = {"deepcopy": copy.deepcopy, "pickle": pickle.dumps, "torch.save": lambda model: torch.save(model, "unused")}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("part", [lambda model: model, lambda model: model.norm], ids=["model", "layer"])
def test_an_adapted_model_is_not_copied(make, part, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tiny()
    with covshift.adapt(model, Batch()), torch.no_grad():
        model(images(4))
        model.norm(torch.rand(2, 6, 3, 3, dtype=torch.float64))
        with pytest.raises(CovshiftError, match=r"copy or pickle it before that, after remove\(\)"):
            make(part(model))
    make(part(model))


def test_the_state_dict_of_an_adapted_model_holds_the_source():
    model = tiny()
    plain, weights = copy.deepcopy(model.state_dict()), digest(model)
    with covshift.adapt(model, Stream(prior=1)), torch.no_grad():
        model(images(8))
        assert not torch.equal(model.norm.running_mean, plain["norm.running_mean"])
        assert digest(model) == weights
        for state in (
            model.state_dict(),
            nn.Sequential(model).state_dict(),
            {"0.norm.running_var": model.norm.state_dict()["running_var"]},
        ):
            for name, tensor in state.items():
                assert torch.equal(tensor, plain[name.removeprefix("0.")])
                tensor.zero_() if "running" in name else None  # the caller's own, whatever is done to it
        assert not torch.equal(model.norm.running_mean, torch.zeros(6))
    assert digest(model) == weights


def test_the_handle_was_lost():
    model, x = tiny(), images(4)
    before = snapshot(model)
    covshift.adapt(model, Stream(prior=1))
    with torch.no_grad():
        model(x)
    with pytest.raises(CovshiftError, match="being adapted already"):
        covshift.adapt(model, Batch())
    covshift.release(model)
    assert_same(before, model)
    covshift.release(model)
    covshift.adapt(model.stem, Batch())
    covshift.adapt(model.last, Batch())
    covshift.release(model)
    assert_same(before, model)


class Direct(nn.Module):
    """A model that uses the statistics of its layer, and not the layer."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return functional.batch_norm(x, self.norm.running_mean, self.norm.running_var)


@pytest.mark.parametrize("policy", [Batch(), Batch(size=2), Stream()])
def test_a_pass_that_reaches_no_layer_is_an_error(policy):
    model = randomise(Direct())
    before = snapshot(model)
    with (
        pytest.raises(CovshiftError, match=r"without calling 'norm' .* nothing was adapted"),
        covshift.adapt(model, policy),
    ):
        model(images(4))
    assert_same(before, model)
    with covshift.adapt(model, Batch(prior=float("inf"))):
        model(images(4))


def broken(change):
    good = Moments(8, 2, torch.zeros(6), torch.ones(6))
    return Moments(**{name: change.get(name, getattr(good, name)) for name in ("count", "images", "mean", "var")})


BROKEN = {
    "NaN mean": {"mean": torch.full((6,), torch.nan)}, "infinite mean": {"mean": torch.full((6,), torch.inf)},
    "negative variance": {"var": torch.tensor([1.0, 1, 1, 1, 1, -1e-9])},
    "NaN variance": {"var": torch.full((6,), torch.nan)},
    "infinite variance": {"var": torch.full((6,), torch.inf)}, "negative count": {"count": -1.0},
    "negative images": {"images": -3.0}, "NaN count": {"count": float("nan")}, "matrix": {"mean": torch.zeros(2, 3)},
    "broadcasts": {"mean": torch.zeros(1), "var": torch.ones(1)},
    "longer": {"mean": torch.zeros(7), "var": torch.ones(7)},
}  # fmt: skip


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_broken_statistics_are_refused_before_anything_is_written(change, tmp_path):
    model = tiny()
    held = Statistics.of(model)
    fine = Moments(8, 2, torch.zeros(6), torch.ones(6))
    bad = Statistics({**held, "stem.1": fine, "norm": broken(change)}, held.fingerprint)
    words = "expected statistics with .* got .* for layer 'norm'"
    with pytest.raises(CovshiftError, match=words):
        bad.apply(model)
    assert Statistics.of(model) == held
    with pytest.raises(CovshiftError, match=words), covshift.adapt(model, Stream()) as adapter:
        adapter.state = bad
    assert Statistics.of(model) == held
    bad.save(tmp_path / "patch")
    if len(broken(change).mean) not in (1, 7):  # which might be right for another model
        with pytest.raises(CovshiftError, match=words):
            Statistics.load(tmp_path / "patch")


def test_statistics_too_large_for_half_precision():
    model = tiny().half()
    held = Statistics.of(model)
    large = Statistics({**held, "norm": Moments(8, 2, torch.zeros(6), torch.full((6,), 1e6))}, held.fingerprint)
    with pytest.raises(CovshiftError, match=r"layer 'norm' can hold as torch.float16"):
        large.apply(model)
    assert Statistics.of(model) == held
