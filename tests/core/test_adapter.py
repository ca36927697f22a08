"""`adapt`: Eq. 3 on every batch and along a stream, and a model that is left as it was."""

import copy
import math

import pytest
import torch
from networks import (
    FAMILIES,
    Tiny,
    assert_same,
    family,
    images,
    norm_layers,
    one_giant_batch,
    randomise,
    relative,
    snapshot,
    tiny,
)  # fmt: skip
from torch import nn

import covshift
from covshift import Batch, CovshiftError, Statistics, Stream
from covshift.core import groups
from covshift.support.torchvision import torchvision


@pytest.mark.parametrize("name", FAMILIES)
def test_batch_without_prior_is_train_mode_and_leaves_no_trace(name):
    model, x = family(name)
    before = snapshot(model)
    want, saw = one_giant_batch(model, x)
    with torch.inference_mode(), covshift.adapt(model, Batch(prior=0)) as adapter:
        got = model(x)
        held = Statistics.of(model)
        assert adapter.state.images == len(x)
    assert relative(got, want) < 1e-9
    for path, (mean, var) in saw.items():
        torch.testing.assert_close(held[path].mean, mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(held[path].var, var, rtol=1e-9, atol=1e-9)
    assert_same(before, model)


@pytest.mark.parametrize("prior", [0, 1, 16, 1e6])
@pytest.mark.parametrize("name", ["densenet121", "efficientnet_b0"])
def test_statistics_in_use_follow_the_formula(name, prior):
    model, x = family(name)
    n, source, inputs = len(x), Statistics.of(model), {}
    for path, layer in norm_layers(model).items():
        layer.register_forward_pre_hook(lambda m, args, path=path: inputs.update({path: args[0].clone()}))
    with torch.no_grad(), covshift.adapt(model, Batch(prior=prior)):
        model(x)
        held = Statistics.of(model)
    for path, seen in inputs.items():
        dims = [0, *range(2, seen.ndim)]
        mean = prior / (prior + n) * source[path].mean + n / (prior + n) * seen.mean(dims)
        var = prior / (prior + n) * source[path].var + n / (prior + n) * seen.var(dims, correction=0)
        torch.testing.assert_close(held[path].mean, mean, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(held[path].var, var, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("policy", [Batch(prior=math.inf), Batch(prior=math.inf, size=2), Stream(prior=math.inf)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_infinite_prior_is_the_model_itself(policy, dtype):
    model, x = tiny(dtype=dtype), images(5, dtype=dtype)
    with torch.no_grad():
        want = model(x)
        with covshift.adapt(model, policy):
            assert torch.equal(model(x), want)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_100"])
@pytest.mark.parametrize(
    ("layout", "large"),
    [(torch.contiguous_format, 1 << 17), (torch.channels_last, 1 << 17), (torch.channels_last, 1)],
)
@pytest.mark.parametrize(("size", "only"), [(1, None), (3, None), (4, "mean"), (10, None), (64, "var")])
def test_groups_in_one_pass_equal_groups_one_by_one(name, layout, large, size, only, monkeypatch):
    monkeypatch.setattr(groups, "_LARGE", large)
    model, x = family(name)
    model, x = model.to(memory_format=layout), x.contiguous(memory_format=layout)
    before = snapshot(model)
    with torch.no_grad():
        with covshift.adapt(model, Batch(prior=4), only=only):
            want = torch.cat([model(group) for group in x.split(size)])
        with covshift.adapt(model, Batch(prior=4, size=size), only=only):
            got = model(x)
    assert relative(got, want) < 1e-9
    assert_same(before, model)


def test_groups_of_several_rows_an_image():
    """Tokens: the norm layer sees images × tokens as rows."""

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.norm = nn.BatchNorm2d(3), nn.BatchNorm1d(3)

        def forward(self, x):
            tokens = self.stem(x).flatten(2).transpose(1, 2)
            return self.norm(tokens.flatten(0, 1)).reshape(tokens.shape)

    model, x = randomise(Tokens()), images(7)
    with torch.no_grad():
        with covshift.adapt(model, Batch(prior=8)) as adapter:
            want = torch.cat([model(group) for group in x.split(2)])
            assert adapter.state["norm"].images == 1  # an image, not its 144 tokens
        with covshift.adapt(model, Batch(prior=8, size=2)):
            assert relative(model(x), want) < 1e-9


def test_layers_and_moments_can_be_chosen():
    model, x = tiny(), images(8)
    source = Statistics.of(model)
    with torch.no_grad(), covshift.adapt(model, Batch(prior=0), layers="stem.*", only="var"):
        model(x)
        held = Statistics.of(model)
    assert not torch.equal(held["stem.1"].var, source["stem.1"].var)
    assert torch.equal(held["stem.1"].mean, source["stem.1"].mean)
    assert torch.equal(held["norm"].var, source["norm"].var)
    with pytest.raises(CovshiftError, match=r"'nope\*' matches no layer to adapt; the model has stem.1, norm"):
        covshift.adapt(model, Batch(), layers="nope*")
    with pytest.raises(CovshiftError, match="only= takes"):
        covshift.adapt(model, Batch(), only="median")


def test_a_ragged_last_batch_counts_the_images_it_has():
    model, x = tiny(), images(11)
    with torch.no_grad(), covshift.adapt(model, Batch(prior=5)) as adapter:
        for batch in x.split(8):
            model(batch)
            assert adapter.state.images == len(batch)


@pytest.mark.parametrize("sizes", [[12], [1] * 12, [5, 1, 6], [3, 0, 9]])
def test_a_stream_sees_what_one_batch_would(sizes):
    """The first layer's input depends on no statistics, so the stream's must be those of all images at once."""
    model, x = tiny(), images(12)
    with torch.no_grad():
        _, saw = one_giant_batch(model, x)
        with covshift.adapt(model, Stream(prior=4)) as adapter:
            for batch in x.split(sizes):
                model(batch)
            seen, held = adapter.state, Statistics.of(model)
            source = adapter._places[0]
    torch.testing.assert_close(seen["stem.1"].mean, saw["stem.1"][0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(seen["stem.1"].var, saw["stem.1"][1], rtol=1e-9, atol=1e-12)
    assert seen.images == 12
    torch.testing.assert_close(held["stem.1"].var, 4 / 16 * source.var + 12 / 16 * saw["stem.1"][1])


def test_a_forgetting_stream_has_a_memory_in_images_not_batches():
    model, x = tiny(), images(600, 4)
    effective = []
    for size in (1, 20, 50):
        with torch.no_grad(), covshift.adapt(model, Stream(prior=0.1, decay=0.98)) as adapter:
            for batch in x.split(size):
                model(batch)
            effective.append(adapter.state.images)
    assert effective == pytest.approx([50, 50, 50], rel=1e-4)


def test_a_forgetting_stream_follows_a_drift():
    model, day, night = tiny(), images(200), images(200) * 0.2 - 1
    with torch.no_grad():
        want = covshift.estimate(model, night)["stem.1"].mean
        with covshift.adapt(model, Stream(prior=1, decay=0.95)) as adapter:
            for batch in torch.cat([day, night]).split(4):
                model(batch)
            forgetting = adapter.state["stem.1"].mean
        with covshift.adapt(model, Stream(prior=1)) as adapter:
            for batch in torch.cat([day, night]).split(4):
                model(batch)
            remembering = adapter.state["stem.1"].mean
    assert (forgetting - want).abs().max() < 0.2 * (remembering - want).abs().max()


def test_streams_can_be_saved_loaded_reset_and_swapped(tmp_path):
    model, day, night = tiny(), images(6), images(6, seed=2) * 0.3
    with torch.no_grad(), covshift.adapt(model, Stream(prior=2)) as adapter:
        source = Statistics.of(model)
        model(day)
        after_day, one = Statistics.of(model), adapter.state
        one.save(tmp_path / "day.safetensors")
        adapter.reset()
        assert Statistics.of(model) == source
        assert adapter.state.images == 0
        model(night)
        two = adapter.state
        adapter.state = Statistics.load(tmp_path / "day.safetensors")
        assert Statistics.of(model) == after_day
        want = model(night)
        adapter.state = two
        model(day)
        adapter.state = one
        assert torch.equal(model(night), want)
    other = randomise(Tiny(channels=8))
    with pytest.raises(CovshiftError, match="another model"), covshift.adapt(other, Stream()) as adapter:
        adapter.state = one
    with pytest.raises(CovshiftError, match="only a Stream"), covshift.adapt(model, Batch()) as adapter:
        adapter.state = one


def test_an_exception_in_the_block_leaves_the_model_as_it_was():
    model, x = tiny(), images(4)
    before = snapshot(model)
    for policy in (Batch(prior=1), Batch(prior=1, size=2), Stream(prior=1)):
        with pytest.raises(KeyError), torch.no_grad(), covshift.adapt(model, policy):
            model(x)
            raise KeyError("mine")
        assert_same(before, model)
    adapter = covshift.adapt(model, Batch(prior=1))
    model(x)
    adapter.remove()
    adapter.remove()
    assert_same(before, model)
    assert repr(adapter) == "Adapter(Batch(prior=1, size=None, sync=True), removed)"


def test_an_error_in_a_pass_does_not_count_what_it_saw():
    model, x = tiny(), images(4)

    def fail(module, args):
        raise KeyError("mine")

    with torch.no_grad(), covshift.adapt(model, Stream(prior=1)) as adapter:
        model(x)
        state, held = adapter.state, Statistics.of(model)
        handle = model.last.register_forward_pre_hook(fail)
        with pytest.raises(KeyError):
            model(x)
        handle.remove()
        assert adapter.state == state
        assert Statistics.of(model) == held
        model.stem(x)  # a part called alone counts at once
        assert adapter.state["stem.1"].images == 8
        adapter.state = state
        bad = x.clone()
        bad[2, 1, 3, 3] = torch.nan
        with pytest.raises(CovshiftError, match=r"layer 'stem.1' has NaN or infinite"):
            model(bad)
        assert adapter.state == state
        assert Statistics.of(model) == held
        assert model(x).isfinite().all()


def test_a_pass_inside_of_an_exception_handler_counts():
    model = tiny()
    with torch.no_grad(), covshift.adapt(model, Stream(prior=1)) as adapter:
        try:
            raise KeyError("mine")
        except KeyError:
            model(images(3))
        assert adapter.state.images == 3


def test_half_precision_that_overflows_is_an_error():
    model = nn.BatchNorm2d(3).eval().half()
    x = (500 * images(4)).half()
    with pytest.raises(CovshiftError, match="NaN or infinite"), covshift.adapt(model, Batch(prior=0)):
        model(x)
    for exact in (True, False):
        with pytest.raises(CovshiftError, match="NaN or infinite"):
            covshift.estimate(model, x, exact=exact)


@pytest.mark.parametrize("policy", [Batch(prior=1), Batch(prior=1, size=2), Batch(prior=1, size=3), Stream(prior=1)])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_the_first_layer_with_bad_values_is_named(policy, value):
    model, x = tiny(), images(4)
    model.conv.register_forward_hook(lambda m, args, out: out.index_fill(0, torch.tensor([3]), value))
    before = snapshot(model)
    with pytest.raises(CovshiftError, match="'norm' has NaN"), torch.no_grad(), covshift.adapt(model, policy):
        model(x)
    assert_same(before, model)


def test_single_values_need_a_prior():
    model, x = tiny(), images(1)
    with torch.no_grad():
        for policy in (Batch(prior=0), Batch(prior=0, size=1), Stream(prior=0)):
            words = r"layer 'last' sees one single value .* prior= above 0"
            with pytest.raises(CovshiftError, match=words), covshift.adapt(model, policy):
                model(x)
        with covshift.adapt(model, Batch(prior=1)):
            assert model(x).isfinite().all()
        with covshift.adapt(model, Batch(prior=1)):
            assert model(x[:0]).shape == (0, 4)


def test_a_layer_called_twice_is_train_mode_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.unused = nn.BatchNorm2d(3), nn.BatchNorm2d(3)

        def forward(self, x):
            return self.norm(self.norm(x).relu() + 1)

    model, x = randomise(Twice()), images(5)
    want, _ = one_giant_batch(model, x)
    with torch.no_grad():
        with covshift.adapt(model, Batch(prior=0)) as adapter:
            assert relative(model(x), want) < 1e-9
            assert adapter.state["norm"].images == 5
            assert adapter.state["norm"].count == 2 * 5 * 144
            assert adapter.state["unused"].count == 0
        with covshift.adapt(model, Stream(prior=1)) as adapter:
            model(x)
            model(x)
            assert adapter.state["norm"].images == 10


def test_a_layer_with_two_parents_is_adapted_once():
    shared = nn.BatchNorm2d(3)
    model = randomise(nn.Sequential(nn.Sequential(shared), nn.Sequential(shared)))
    before = snapshot(model)
    with torch.no_grad(), covshift.adapt(model, Batch(prior=0)) as adapter:
        model(images(4))
        assert list(adapter.state) == ["0.0"]
    assert_same(before, model)


def test_a_part_of_a_model_can_be_called_alone():
    model, x = tiny(), images(4)
    with torch.no_grad(), covshift.adapt(model, Stream(prior=1)) as adapter:
        model.stem(x)
        model.stem(x)
        assert adapter.state["stem.1"].images == 8
        assert adapter.state["norm"].images == 0


@pytest.mark.parametrize("layer", [
    lambda: nn.BatchNorm1d(3), lambda: nn.BatchNorm3d(3), lambda: nn.SyncBatchNorm(3),
    lambda: nn.BatchNorm2d(3, affine=False), lambda: type("Mine", (nn.BatchNorm2d,), {})(3),
    lambda: torchvision.ops.FrozenBatchNorm2d(3),
], ids=["1d", "3d", "sync", "no affine", "subclass", "frozen"])  # fmt: skip
def test_kinds_of_layers(layer):
    layer = randomise(layer())
    x = images(6)
    x = x.flatten(2) if isinstance(layer, nn.BatchNorm1d) else x
    x = x.unsqueeze(2) if isinstance(layer, nn.BatchNorm3d) else x
    dims = [0, *range(2, x.ndim)]
    mean, var = x.mean(dims, keepdim=True), x.var(dims, correction=0, keepdim=True)
    want = (x - mean) / (var + layer.eps).sqrt()
    if isinstance(layer.weight, torch.Tensor):
        shape = [1, 3] + [1] * (x.ndim - 2)
        want = want * layer.weight.view(shape) + layer.bias.view(shape)
    with torch.no_grad(), covshift.adapt(layer, Batch(prior=0)):
        torch.testing.assert_close(layer(x), want, rtol=1e-9, atol=1e-9)
    with torch.no_grad(), covshift.adapt(layer, Batch(prior=0, size=6)):
        torch.testing.assert_close(layer(x), want, rtol=1e-9, atol=1e-9)
    assert covshift.estimate(layer, x.split(4))[""].images == 6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("policy", [Batch(prior=4), Batch(prior=4, size=4), Stream(prior=4)])
def test_half_precision(policy, dtype):
    model, x = tiny(dtype=torch.float32), images(8, dtype=torch.float32)
    with torch.no_grad():
        with covshift.adapt(model, policy):
            want = model(x)
        with covshift.adapt(model, policy), torch.autocast("cpu", dtype):
            torch.testing.assert_close(model(x).float(), want, rtol=0.1, atol=0.1)
        half = copy.deepcopy(model).to(dtype)
        before = snapshot(half)
        with covshift.adapt(half, policy):
            out = half(x.to(dtype))
        assert out.dtype == dtype
        torch.testing.assert_close(out.float(), want, rtol=0.1, atol=0.15)
        assert_same(before, half)
        assert covshift.estimate(half, x.to(dtype).split(4)).images == 8


def test_models_born_in_inference_mode_and_gradients_through_the_model():
    with torch.inference_mode():
        model = tiny()
    with covshift.adapt(model, Batch(prior=1)), torch.no_grad():
        model(images(4))
    model = tiny()
    for policy in (Batch(prior=1), Batch(prior=1, size=2)):
        with covshift.adapt(model, policy):
            model(images(4)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_several_inputs_and_keyword_arguments():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, left, *, right):
            return self.norm(input=left) + self.norm(right)

    model, x = randomise(Two()), images(4)
    for policy in (Batch(prior=1), Batch(prior=1, size=2)):
        with torch.no_grad(), covshift.adapt(model, policy):
            assert relative(model(x, right=x), 2 * model.norm(x)) < 1e-9


def test_compiled_models_in_inference_mode():
    """Nothing of ours is compiled: torch cannot make code of compiled loops and NumPy arrays."""
    model, x = tiny(dtype=torch.float32), images(4, dtype=torch.float32)
    with torch.inference_mode():
        with covshift.adapt(model, Batch(prior=4)):
            adapted = model(x)
        torch.compiler.reset()
        with covshift.adapt(model, Batch(prior=4)) as adapter:
            compiled = torch.compile(model, backend="eager")
            assert torch.equal(compiled(x), adapted)
            assert torch.equal(compiled(x), adapted)
            assert adapter.state.images == 4
    torch.compiler.reset()


def test_compiled_models():
    model, x = tiny(dtype=torch.float32), images(4, dtype=torch.float32)
    want = covshift.estimate(model, x)
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        for policy in (Batch(prior=4), Stream(prior=4)):
            with covshift.adapt(model, policy):
                adapted = model(x)
            with covshift.adapt(model, policy) as adapter:  # the hooks are there before it is compiled
                assert torch.equal(torch.compile(model, backend="eager")(x), adapted)
                assert adapter.state.images == 4
        compiled(x)
        with pytest.raises(CovshiftError, match="before it is compiled"):
            covshift.adapt(compiled, Batch())
        assert covshift.estimate(compiled, x) == want
        want.apply(compiled)
        torch.testing.assert_close(compiled(x), model(x))
        in_place = tiny()
        in_place.compile(backend="eager")
        for refused in (lambda: covshift.adapt(in_place, Batch()), lambda: covshift.estimate(in_place, x)):
            with pytest.raises(CovshiftError, match="before it is compiled"):
                refused()
