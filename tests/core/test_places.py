"""Models that cannot be adapted, and calls that cannot be right: a clear sentence, and the model as it was."""

import numpy as np
import pytest
import torch
from networks import assert_same, images, snapshot, tiny
from torch import nn

import covshift
from covshift import Batch, CovshiftError, Statistics, Stream
from covshift.support.torchvision import torchvision

import timm  # isort: skip

WITHOUT_STATISTICS = {
    "group norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)),
        r"norm layers \(GroupNorm\) keep none",
    ),
    "ViT": (lambda: timm.create_model("vit_tiny_patch16_224"), r"norm layers \(LayerNorm\) keep none"),
    "no norm": (lambda: nn.Conv2d(3, 8, 3), "it has no norm layers"),
    "untracked": (lambda: nn.BatchNorm2d(3, track_running_stats=False), r"norm layers \(BatchNorm2d\) keep none"),
}


@pytest.mark.parametrize("kind", WITHOUT_STATISTICS)
def test_models_without_statistics(kind):
    make, words = WITHOUT_STATISTICS[kind]
    model = make().eval()
    before = snapshot(model)
    for use in (
        lambda: covshift.adapt(model, Batch()),
        lambda: covshift.estimate(model, [images(2)]),
        lambda: Statistics.of(model),
    ):
        with pytest.raises(CovshiftError, match=words):
            use()
    assert_same(before, model)


def test_training_mode():
    model = tiny().train()
    for use in (lambda: covshift.adapt(model, Batch()), lambda: covshift.estimate(model, [images(2)])):
        with pytest.raises(CovshiftError, match=r"call model.eval\(\)"):
            use()
    model.eval()
    with pytest.raises(CovshiftError, match=r"'norm' is in training mode"), covshift.adapt(model, Batch()):
        model.norm.train()
        model(images(4))


def test_adapting_twice():
    model = tiny()
    with covshift.adapt(model, Batch()):
        for use in (lambda: covshift.adapt(model, Stream()), lambda: Statistics.of(model).apply(model)):
            with pytest.raises(CovshiftError, match="being adapted already; remove"):
                use()
    with covshift.adapt(model, Stream()):
        pass


@pytest.mark.parametrize(("policy", "words"), [
    (lambda: Batch(size=0), "expected size to be a number of images"), (lambda: Batch(size=2.5), "expected size to be"),
    (lambda: Stream(decay=1), "expected decay to be a factor"),
    (lambda: Stream(prior=-1), "expected prior to be a number"),
    (lambda: covshift.adapt(tiny(), "batch"), r"expected a policy such as Batch\(prior=16\)"),
    (lambda: covshift.adapt("model", Batch()), "expected a torch.nn.Module, got str"),
    (lambda: covshift.adapt(tiny(), Batch(), layers=[1]), "layers= takes patterns"),
    (lambda: Stream(decay="x"), "expected decay to be a factor"),
    (lambda: Batch(prior="8"), "expected prior to be a number"),
])  # fmt: skip
def test_bad_policies(policy, words):
    with pytest.raises(CovshiftError, match=words):
        policy()


def test_bad_calls():
    model = tiny()
    with covshift.adapt(model, Batch()), torch.no_grad():
        with pytest.raises(CovshiftError, match="'norm' is on cpu but its input is on meta"):
            model.norm(torch.rand(2, 6, 4, 4, device="meta", dtype=torch.float64))
        with pytest.raises(CovshiftError, match=r"expected a batch with 6 channels in dimension 1, got shape \(6, 4\)"):
            model.norm(torch.rand(6, 4))
        with pytest.raises(CovshiftError, match="got NoneType"):
            model.norm()


def test_rows_that_cannot_be_told_apart():
    class Regions(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.regions = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, x):
            return self.regions(self.stem(x)[:-1])

    model = Regions().eval()
    with pytest.raises(CovshiftError, match="3 rows for 4 images"), covshift.adapt(model, Batch(size=2)):
        model(torch.rand(4, 3, 4, 4))


def test_numbers_of_numpy_are_numbers():
    assert Batch(prior=np.int64(16), size=np.int64(8)).size == 8
    assert Stream(prior=np.float32(4), decay=np.float64(0.5)).decay == 0.5


def test_a_removed_adapter_does_nothing_more_and_keeps_its_state():
    model = tiny()
    with covshift.adapt(model, Stream(prior=1)) as adapter:
        model(images(4))
    assert adapter.state.images == 4
    before = snapshot(model)
    for use in (adapter.reset, lambda: setattr(adapter, "state", adapter.state)):
        with pytest.raises(CovshiftError, match="was removed"):
            use()
    adapter.state["norm"].mean.zero_()
    adapter.remove()
    assert_same(before, model)


def test_loading_weights_while_adapted():
    model = tiny()
    weights = tiny(seed=1).state_dict()
    with covshift.adapt(model, Stream()), pytest.raises(CovshiftError, match=r"remove\(\) the adapter before loading"):
        model.load_state_dict(weights)
    model.load_state_dict(weights)


def test_models_that_hooks_do_not_reach():
    with pytest.raises(CovshiftError, match="use DistributedDataParallel"):
        covshift.adapt(nn.DataParallel(tiny()), Batch())
    with pytest.raises(CovshiftError, match="run the model once"):
        covshift.adapt(nn.LazyBatchNorm2d().eval(), Batch())
    with torch.device("meta"):
        empty = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    held = Statistics.of(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    uses = (lambda: covshift.adapt(empty, Batch()), lambda: covshift.estimate(empty, images(4)))
    for use in (*uses, lambda: Statistics.of(empty), lambda: held.apply(empty)):
        with pytest.raises(CovshiftError, match="layer '1' is on the meta device"):
            use()


@pytest.mark.filterwarnings("ignore")  # of torch, which is about to move quantisation elsewhere
def test_a_model_whose_last_layer_is_quantised():
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    model, x = nn.Sequential(*layers).eval(), images(4, dtype=torch.float32)
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    with torch.no_grad(), covshift.adapt(quantised, Stream(prior=4)) as adapter:
        quantised(x)
        state = adapter.state
    assert state.images == 4
    state.apply(quantised)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript():
    scripted = torch.jit.script(torchvision.models.resnet18().eval())
    with pytest.raises(CovshiftError, match="TorchScript runs without Python hooks"):
        covshift.adapt(scripted, Batch())


def test_no_eps():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("running_mean", torch.zeros(3))
            self.register_buffer("running_var", torch.ones(3))

        def forward(self, x):
            return (x - self.running_mean.view(1, 3, 1, 1)) / self.running_var.sqrt().view(1, 3, 1, 1)

    model, x = Mine().eval(), images(4, dtype=torch.float32)
    with covshift.adapt(model, Batch(prior=0)):
        assert model(x).mean().abs() < 1e-6
    with pytest.raises(CovshiftError, match="has no eps"), covshift.adapt(model, Batch(size=2)):
        model(x)
