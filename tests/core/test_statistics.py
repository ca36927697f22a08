"""`Statistics`: merging is exact in any order, and a patch fits only the model it is of."""

from functools import reduce

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import Tiny, images, randomise, tiny
from torch import nn

import covshift
from covshift import Batch, CovshiftError, Statistics
from covshift.core.moments import Moments, measure, merge
from covshift.support.torchvision import torchvision


def sample(seed: int, number: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return mean + std * torch.randn(number, 3, 2, 2, generator=generator, dtype=torch.float64)


def assert_close(a: Moments, b: Moments, rtol: float = 1e-9) -> None:
    assert (a.count, a.images) == (b.count, b.images)
    torch.testing.assert_close(a.mean.double(), b.mean.double(), rtol=rtol, atol=1e-12)
    torch.testing.assert_close(a.var.double(), b.var.double(), rtol=rtol, atol=1e-15)


batches = st.lists(
    st.tuples(st.integers(0, 2**30), st.integers(0, 6), st.floats(-100, 100), st.floats(0.01, 100)),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(batches, st.randoms())
def test_merge_is_associative_and_order_free(specs, random):
    parts = [measure(sample(*spec), spec[1]) for spec in specs]
    want = reduce(merge, parts)
    random.shuffle(parts)
    middle = random.randrange(len(parts)) + 1
    right = reduce(merge, parts[middle:], Moments(0, 0, want.mean, want.var))
    got = merge(reduce(merge, parts[:middle]), right)
    if want.count:
        assert_close(got, want, rtol=1e-7)


@settings(deadline=None)
@given(st.integers(0, 2**30), st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_any_split_of_a_batch_gives_the_same(seed, sizes):
    x = sample(seed, sum(sizes), mean=3)
    parts = [measure(part, len(part)) for part in x.split(sizes)]
    assert_close(reduce(merge, parts, measure(x[:0], 0)), measure(x, len(x)))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_no_cancellation(layout, dtype, rtol):
    x = sample(0, 400, mean=1e4, std=1e-2).to(dtype).contiguous(memory_format=layout)
    parts = [measure(part, len(part)) for part in x.split(7)]
    got = reduce(merge, parts)
    values = x.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(got.mean.double(), values.mean(1), rtol=1e-7, atol=0)
    torch.testing.assert_close(got.var.double(), values.var(1, correction=0), rtol=rtol, atol=0)


def test_mix_is_equation_three():
    model, x = tiny(), images(12)
    source, target = Statistics.of(model), covshift.estimate(model, x)
    mixed = target.mix(source, prior=36)
    torch.testing.assert_close(mixed["norm"].var, 0.75 * source["norm"].var + 0.25 * target["norm"].var)
    assert target.mix(source, prior=0) == target
    infinite = target.mix(source, prior=float("inf"))
    assert all(torch.equal(infinite[path].mean, source[path].mean) for path in source)
    for bad in (-1, float("nan"), "8"):
        with pytest.raises(CovshiftError, match="from 0 to infinity"):
            target.mix(source, prior=bad)
        with pytest.raises(CovshiftError, match="from 0 to infinity"):
            Batch(prior=bad)


def test_a_patch_comes_back_exactly_and_repairs_the_model(tmp_path):
    model, x = tiny(dtype=torch.float32), images(12, dtype=torch.float32)
    target = covshift.estimate(model, x)
    target.save(tmp_path / "night.safetensors")
    loaded = Statistics.load(tmp_path / "night.safetensors")
    assert loaded == target
    assert loaded.images == 12
    loaded.apply(model)
    assert torch.equal(model.norm.running_var, target["norm"].var.float())
    assert [path.name for path in tmp_path.iterdir()] == ["night.safetensors"]


def test_a_patch_of_a_resnet_50_is_small(tmp_path):
    Statistics.of(torchvision.models.resnet50()).save(tmp_path / "patch")
    assert (tmp_path / "patch").stat().st_size < 500_000


def test_bad_patches(tmp_path):
    model, path = tiny(), tmp_path / "night.safetensors"
    statistics = Statistics.of(model)
    with pytest.raises(CovshiftError, match=r"no statistics patch at .*night"):
        Statistics.load(path)
    statistics.save(path)
    whole = path.read_bytes()
    for length in (0, 5, 100, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CovshiftError, match="not a whole statistics patch"):
            Statistics.load(path)
    torch.save({}, path)
    with pytest.raises(CovshiftError, match="not a whole statistics patch"):
        Statistics.load(path)
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(CovshiftError, match="not a statistics patch"):
        Statistics.load(path)
    save_file({"x": torch.zeros(1)}, path, {"format": "covshift statistics 1", "layers": "[]"})
    with pytest.raises(CovshiftError, match="not a whole statistics patch"):
        Statistics.load(path)
    with pytest.raises(CovshiftError, match="cannot write"):
        statistics.save(path / "under a file")
    statistics.save(tmp_path / "new folder" / "patch")
    with pytest.raises(CovshiftError, match="no statistics patch"):
        Statistics.load(tmp_path)


def test_statistics_of_another_model_do_not_fit():
    model, other = tiny(), randomise(Tiny(channels=8))
    statistics, before = Statistics.of(model), Statistics.of(other)
    with pytest.raises(CovshiftError, match=r"of another model: .*'stem.1' with 6 channels.*'stem.1' with 8 channels"):
        statistics.apply(other)
    assert Statistics.of(other) == before
    for combine in (statistics.merge, lambda other: statistics.mix(other, 4)):
        with pytest.raises(CovshiftError, match="different models"):
            combine(before)


def test_models_that_differ_in_other_layers_only():
    statistics = Statistics.of(torchvision.models.resnext50_32x4d())
    with pytest.raises(CovshiftError, match="the same layers, but other parameters"):
        statistics.apply(torchvision.models.wide_resnet50_2().eval())


def test_what_is_no_statistics():
    model = tiny()
    with pytest.raises(CovshiftError, match="expected Statistics, got int"):
        Statistics.of(model).merge(3)
    with pytest.raises(CovshiftError, match="expected a state"), covshift.adapt(model, covshift.Stream()) as adapter:
        adapter.state = None
    with pytest.raises(CovshiftError, match=r"these statistics are of norm, and layers='stem.*' matches none"):
        covshift.estimate(model, images(4), layers="norm").apply(model, layers="stem.*")


def test_a_patch_can_be_read_by_others(tmp_path):
    Statistics.of(tiny()).save(tmp_path / "patch")
    (tmp_path / "plain").touch()
    assert (tmp_path / "patch").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_readable():
    model = tiny()
    text = repr(Statistics.of(model))
    assert text.startswith("Statistics(3 layers, 16 channels, 0 images)\n    stem.1  6 channels  mean")
    assert "... 13 more" in repr(Statistics.of(torchvision.models.resnet18()))
    assert Statistics.of(model) != Statistics.of(tiny(seed=1))
    assert Statistics.of(model) != "statistics"


def test_wrappers_do_not_change_the_paths():
    model = tiny()
    assert Statistics.of(torch.compile(model, backend="eager")) == Statistics.of(model)
    assert list(Statistics.of(nn.Sequential(model))) == ["0.stem.1", "0.norm", "0.last"]
