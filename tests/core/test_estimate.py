"""`estimate`: the statistics of one giant batch, in one pass, in bounded memory."""

import gc
from collections import namedtuple

import pytest
import torch
from networks import FAMILIES, assert_same, family, images, one_giant_batch, randomise, relative, snapshot, tiny
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import covshift
from covshift import CovshiftError, Statistics
from covshift.core.finding import find_layers
from covshift.core.lockstep import Lockstep
from covshift.core.parking import Held, Parking
from covshift.support.memory import parse_bytes

SMALL = 200_000  # bytes: forces spilling


def assert_giant(target: Statistics, saw: dict[str, tuple[torch.Tensor, torch.Tensor]], rtol: float = 1e-9) -> None:
    assert {path for path, moments in target.items() if moments.count} == saw.keys()
    for path, (mean, var) in saw.items():
        torch.testing.assert_close(target[path].mean, mean.double(), rtol=rtol, atol=rtol)
        torch.testing.assert_close(target[path].var, var.double(), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", FAMILIES)
def test_exact_equals_one_giant_batch_in_every_layer_and_in_the_logits(name):
    model, x = family(name)
    before = snapshot(model)
    want, saw = one_giant_batch(model, x)
    logits = {}
    target = covshift.estimate(model, x.split(4), collect=logits.__setitem__)
    assert_same(before, model)
    assert target.images == len(x)
    assert_giant(target, saw)
    assert relative(torch.cat([logits[position] for position in range(3)]), want) < 1e-9
    target.apply(model)
    with torch.no_grad():
        assert relative(model(x), want) < 1e-9


@pytest.mark.parametrize("size", [7, 16, 50])
@pytest.mark.parametrize("memory", [None, SMALL])
def test_the_split_and_the_memory_do_not_matter(size, memory, tmp_path):
    model, x = family("resnet18")
    x = images(64, 32)
    want, saw = one_giant_batch(model, x)
    target = covshift.estimate(model, x.split(size), memory=memory, scratch=tmp_path)
    assert_giant(target, saw)
    assert list(tmp_path.iterdir()) == []
    target.apply(model)
    with torch.no_grad():
        assert relative(model(x), want) < 1e-9


def test_outputs_that_are_kept_are_never_parked():
    model, x, kept = tiny(), images(64), []

    def collect(position, logits):
        kept.append(logits)
        assert all(len(earlier.numpy().tobytes()) == earlier.nbytes for earlier in kept)
        assert all(earlier.untyped_storage().nbytes() for earlier in kept)

    covshift.estimate(model, x.split(2), memory=SMALL, collect=collect)
    assert len(kept) == 32


def test_the_order_does_not_matter():
    model, x = tiny(), images(30)
    shuffled = x[torch.randperm(30, generator=torch.Generator().manual_seed(0))]
    assert covshift.estimate(model, x.split(7)).close_to(covshift.estimate(model, shuffled.split(4)), rtol=1e-9)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_single_precision(layout):
    model, x = tiny(dtype=torch.float32), images(64, 32, dtype=torch.float32).contiguous(memory_format=layout)
    want, _ = one_giant_batch(model, x)
    covshift.estimate(model, x.split(16)).apply(model)
    with torch.no_grad():
        assert relative(model(x), want) < 1e-3


def test_streaming_is_exact_in_the_first_layer_and_near_elsewhere():
    model, x = tiny(), images(64)
    _, saw = one_giant_batch(model, x)
    target = covshift.estimate(model, x.split(16), exact=False)
    torch.testing.assert_close(target["stem.1"].var, saw["stem.1"][1], rtol=1e-9, atol=1e-12)
    assert target.images == 64
    assert_giant(target, saw, rtol=0.2)


@pytest.mark.parametrize("exact", [True, False])
def test_only_chosen_layers_and_moments(exact):
    model, x = tiny(), images(20)
    target = covshift.estimate(model, x if exact else [x], layers=["norm"], only="mean", exact=exact)
    assert torch.equal(target["norm"].var, model.norm.running_var)
    assert list(target) == ["norm"]
    with torch.no_grad():
        inner = model.conv(model.stem(x))
    torch.testing.assert_close(target["norm"].mean, inner.mean((0, 2, 3)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("blocks", [[nn.Conv2d(3, 6, 3)], [nn.BatchNorm2d(3), nn.Conv2d(3, 96, 3, padding=1)]])
def test_what_waits_stays_under_the_budget(blocks):
    """Also where a later layer holds very much more than the first."""
    channels = blocks[-1].out_channels
    model = randomise(nn.Sequential(*blocks, nn.BatchNorm2d(channels), nn.ReLU(), nn.BatchNorm2d(channels)))
    x, budget = images(64, 24), 6_000_000
    _, saw = one_giant_batch(model, x)
    lockstep = Lockstep(find_layers(model), budget, None, False, lambda steps: None)
    with torch.inference_mode():
        seen = lockstep.run([lambda part=part: model(part.clone()) for part in x.split(2)])
    assert lockstep.parking.peak <= budget
    assert lockstep.parking.spilled > 0 or 64 * channels * 24 * 24 * 8 < budget
    torch.testing.assert_close(seen[max(seen)].var, saw[max(saw)][1], rtol=1e-9, atol=1e-9)


class Mixed(nn.Module):
    """Autocast inside of a model, around a norm layer, must not leak into other passes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)
        self.precisions = []

    def forward(self, x):
        x = self.first(x)
        self.precisions.append(x.dtype)
        with torch.autocast("cpu", torch.bfloat16):
            return self.norm(self.conv(x))


def test_autocast_in_the_model():
    model = Mixed().eval()
    covshift.estimate(model, images(16, dtype=torch.float32).split(4))
    assert model.precisions == [torch.float32] * 4
    assert not torch.is_autocast_enabled("cpu")


class Awkward(nn.Module):
    """Autocast, cached constants, branches chosen by the data and inference mode inside of a model."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.dark, self.last = nn.BatchNorm2d(3), nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.grid = None

    @torch.inference_mode()
    def forward(self, x):
        if self.grid is None:
            self.grid = torch.linspace(0, 1, x.shape[-1], dtype=x.dtype) * torch.ones(64, 1, 1, 1, dtype=x.dtype)
        with torch.autocast("cpu", enabled=False):
            x = self.first(x + self.grid[: len(x)])
        if x.mean() < 0:
            x = self.dark(x)
        return self.last(x * self.grid[: len(x)])


@pytest.mark.parametrize("memory", [None, SMALL])
def test_awkward_models(memory):
    model, x = randomise(Awkward()), images(32)
    target = covshift.estimate(model, x.split(8), memory=memory)
    assert not torch.is_inference_mode_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert target["last"].images == 32
    assert model.grid.isfinite().all()
    with torch.no_grad():
        assert torch.equal(model.grid[0, 0, 0], torch.linspace(0, 1, 12, dtype=torch.float64))


def test_a_layer_called_twice_gets_the_statistics_of_both_calls():
    layer = nn.BatchNorm2d(3)
    model = randomise(nn.Sequential(layer, nn.ReLU(), layer))
    x = images(12)
    want, _ = one_giant_batch(model, x)
    logits = {}
    target = covshift.estimate(model, x.split(5), collect=logits.__setitem__)
    assert target["0"].images == 12
    assert target["0"].count == 2 * 12 * 144
    assert relative(torch.cat([logits[position] for position in range(3)]), want) < 1e-9


def test_loaders_of_many_kinds():
    model, x = tiny(), images(20)
    want = covshift.estimate(model, x.split(8))
    labelled = DataLoader(TensorDataset(x, torch.zeros(20)), batch_size=8)
    assert covshift.estimate(model, labelled).close_to(want)
    assert covshift.estimate(model, x).close_to(want)
    assert covshift.estimate(model, ({"x": part} for part in x.split(8))).close_to(want)
    assert covshift.estimate(model, [{"a": x}], call=lambda model, batch: model(batch["a"])).close_to(want)
    Pair = namedtuple("Pair", ["image", "label"])
    assert covshift.estimate(model, [Pair(x, 0)], call=lambda model, batch: model(batch.image)).close_to(want)
    kept = x.clone()
    covshift.estimate(model, [x], memory=SMALL)
    assert torch.equal(x, kept)  # the caller's tensors are never emptied


def test_an_error_in_the_middle_leaves_everything_as_it_was(tmp_path):
    model, x = tiny(), images(40)
    before = snapshot(model)

    def loader():
        yield from x.split(8)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        covshift.estimate(model, loader(), memory=SMALL, scratch=tmp_path)
    assert_same(before, model)
    calls = []

    def interrupt(module, args):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt

    handle = model.head.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        covshift.estimate(model, x.split(8), memory=SMALL, scratch=tmp_path)
    handle.remove()
    assert_same(before, model)
    x[30, 0, 0, 0] = torch.nan
    for exact in (True, False):
        with pytest.raises(CovshiftError, match=r"layer 'stem.1' has NaN"):
            covshift.estimate(model, x.split(8), exact=exact)
        assert_same(before, model)


@pytest.mark.parametrize("exact", [True, False])
def test_a_batch_may_need_several_calls(exact):
    model, x = tiny(), images(12)
    parts = covshift.estimate(model, x.split(4), exact=exact, call=lambda model, x: model.conv(model.stem(x)))
    assert parts["stem.1"].images == 12
    twice = covshift.estimate(model, x.split(4), exact=exact, call=lambda model, x: (model(x), model(x + 1)))
    assert (twice["norm"].images, twice["norm"].count) == (12, 2 * 12 * 144)


def test_a_last_batch_of_one_image_does_not_stop_streaming():
    model, x = tiny(), images(9)
    assert covshift.estimate(model, x.split(4), exact=False).images == 9


@pytest.mark.parametrize("exact", [True, False])
def test_bad_input(exact):
    model = tiny()
    with pytest.raises(CovshiftError, match="expected a loader that gives batches of images, got NoneType"):
        covshift.estimate(model, None, exact=exact)
    with pytest.raises(CovshiftError, match="the loader gave no images"):
        covshift.estimate(model, [], exact=exact)
    with pytest.raises(CovshiftError, match="one single value"):
        covshift.estimate(model, images(1), exact=exact)
    with pytest.raises(CovshiftError, match="is on cpu but its input is on meta"):
        covshift.estimate(
            model, [images(2)], exact=exact, call=lambda model, x: model.norm(torch.rand(2, 6, 4, 4).to("meta"))
        )
    with pytest.raises(CovshiftError, match="being adapted already"), covshift.adapt(model, covshift.Batch()):
        covshift.estimate(model, images(4), exact=exact)


def test_no_room_on_disk(monkeypatch, tmp_path):
    model, x = tiny(), images(40)
    before = snapshot(model)
    with pytest.raises(CovshiftError, match=r"cannot park .* scratch="):
        covshift.estimate(model, x.split(8), memory=SMALL, scratch=tmp_path / "missing")
    assert_same(before, model)


def test_sizes_of_memory():
    assert parse_bytes(12.5) == 12.5
    assert parse_bytes("2kB") == 2000
    assert parse_bytes(1e16) == 1e16
    for bad in ("much", "0", "-3 GiB", "4 gallons", "1.2.3", -1, float("nan")):
        with pytest.raises(CovshiftError, match="expected a number of bytes"):
            parse_bytes(bad)


def test_what_is_parked_on_disk_takes_no_memory_and_comes_back():
    parking, held = Parking(budget=1000), Held()
    parking.current = held
    with torch.no_grad(), parking:
        x = torch.arange(3000.0)
        view, gone = x[10:20], x + 1
        del gone
        parking.park(held)
        assert parking.spilled == x.nbytes
        assert x.untyped_storage().nbytes() == 0
        parking.fetch(held)
    assert torch.equal(x, torch.arange(3000.0))
    assert view[0] == 10
    parking.close()


@pytest.mark.parametrize(("grown", "times"), [(500, 0), (1_000_000, 5), (None, 5)])
def test_freed_memory_is_given_back_only_by_a_process_that_has_grown(monkeypatch, grown, times):
    given, sizes = [], iter([10_000, *[None if grown is None else 10_000 + grown] * 5])
    monkeypatch.setattr("covshift.core.parking.resident_memory", lambda: next(sizes))
    monkeypatch.setattr("covshift.core.parking.give_back_freed_memory", lambda: given.append(1))
    parking = Parking(budget=1000)
    for _ in range(5):
        held = Held()
        parking.current = held
        with torch.no_grad(), parking:
            x = torch.arange(3000.0)
            parking.park(held)
            assert x.untyped_storage().nbytes() == 0
            parking.fetch(held)
    parking.close()
    assert len(given) == times


def test_nothing_is_kept_alive():
    model, x = tiny(), images(32)
    covshift.estimate(model, x.split(8), memory=SMALL)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(3):
        covshift.estimate(model, x.split(8), memory=SMALL)
    gc.collect()
    assert len(gc.get_objects()) < before + 300


@pytest.mark.parametrize("shape", [(16, 24, 40, 40), (7, 5, 300, 300), (300, 2000)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_threads_measure_what_one_pass_over_all_values_does(shape, layout):
    from covshift.core.compiled.dense import measure_dense

    threads = torch.get_num_threads()
    x = torch.randn(shape) * 3 + 5
    x = x.contiguous(memory_format=layout) if x.ndim == 4 else x
    torch.set_num_threads(3)
    try:
        seen = measure_dense(x, len(x))
    finally:
        torch.set_num_threads(threads)
    var, mean = torch.var_mean(x.double(), [0, *range(2, x.ndim)], correction=0)
    torch.testing.assert_close(seen.mean, mean, rtol=1e-10, atol=0)
    torch.testing.assert_close(seen.var, var, rtol=1e-9, atol=0)
    assert (seen.images, seen.count) == (len(x), x.numel() // x.shape[1])
