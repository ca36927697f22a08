"""A measured source: any network can be adapted, at inputs and at outputs, and a folded one needs no hook."""

import copy

import pytest
import torch
from networks import assert_same, images, one_giant_batch, randomise, relative, snapshot, tiny
from torch import Tensor, nn

import covshift
from covshift import Batch, CovshiftError, Source, Statistics, Stream
from covshift.core.finding import choose_places
from covshift.core.outputs import Output
from covshift.core.places import NormLayer
from covshift.support.torchvision import torchvision

import timm  # isort: skip

models = torchvision.models


class Norms(nn.Module):
    """Every kind of place: group norm, instance norm, tokens, channels last, a linear layer, no bias anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.group = nn.GroupNorm(2, 8, affine=False)
        self.instance = nn.InstanceNorm2d(8)
        self.last = nn.LayerNorm(8, bias=False)
        self.second = timm.layers.LayerNorm2d(8)
        self.attend = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.group(self.conv(x)).relu() + self.instance(self.conv(x))
        x = self.last(x.movedim(1, -1)).movedim(-1, 1)
        x = self.attend(self.second(x).flatten(2).mT)
        return self.head(x.mean(1))


def bare() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4)
    )


# name: (maker, image size, how many of its tests are quick)
ANY: dict[str, tuple] = {
    "norms": (Norms, 12),
    "bare": (bare, 12),
    "resnet18": (models.resnet18, 48),
    "mobilenet_v2": (models.mobilenet_v2, 48),
    "squeezenet": (models.squeezenet1_1, 48),
    "efficientnet_b0": (lambda: timm.create_model("efficientnet_b0"), 48),
    "densenet121": (models.densenet121, 48),
    "regnety": (lambda: timm.create_model("regnety_002"), 48),
    "vit_tiny": (lambda: timm.create_model("vit_tiny_patch16_224", img_size=48), 48),
    "convnext_atto": (lambda: timm.create_model("convnext_atto"), 48),
}
LARGE: dict[str, tuple] = {
    "vgg11": (models.vgg11, 32),
    "convnext_tiny": (models.convnext_tiny, 48),
    "vit_b_16": (lambda: models.vit_b_16(image_size=48), 48),
    "swin_t": (models.swin_t, 48),
}
ALL = [*ANY, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]


def network(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, Tensor, Tensor]:
    """A network, clean images for it, and shifted ones."""
    torch.manual_seed(0)
    make, size = (ANY | LARGE)[name]
    return (
        randomise(make(), dtype=dtype),
        images(12, size, dtype=dtype),
        1.5 * images(10, size, seed=2, dtype=dtype) + 0.4,
    )


@pytest.mark.parametrize("name", ALL)
@torch.inference_mode()
def test_nothing_changes_where_nothing_has_shifted(name):
    model, clean, _ = network(name)
    want, before = model(clean), snapshot(model)
    source = Source.measure(model, clean.split(5))
    for policy in (Batch(prior=0), Batch(prior=16), Batch(prior=float("inf")), Stream(prior=0)):
        with covshift.adapt(model, policy, source=source):
            assert relative(model(clean), want) < 1e-9, policy
    assert_same(before, model)


@pytest.mark.parametrize("name", ALL)
@torch.inference_mode()
def test_a_folded_network_answers_as_one_giant_batch_and_can_be_restored(name, tmp_path):
    model, clean, shifted = network(name)
    before = snapshot(model)
    source = Source.measure(model, clean)
    with covshift.adapt(model, Batch(prior=0), source=source) as adapter:
        want, saw = model(shifted), adapter.state
    logits: dict[int, Tensor] = {}
    target = covshift.estimate(model, shifted.split(4), source=source, collect=logits.__setitem__)
    assert target.close_to(saw, rtol=1e-9, atol=1e-9)
    assert relative(torch.cat([logits[0], logits[1], logits[2]]), want) < 1e-9
    target.save(tmp_path / "patch.safetensors")
    applied = Statistics.load(tmp_path / "patch.safetensors").apply(model)
    # The buffers of a layer that holds statistics hold no negative variances, which rounding may ask for.
    assert relative(model(shifted), want) < 1e-6
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    applied.restore()
    assert_same(before, model)


@pytest.mark.parametrize("name", ["norms", "bare", "resnet18", "vit_tiny"])
@torch.inference_mode()
def test_places_get_the_moments_of_the_source(name):
    """Where all places before it are corrected, too, a corrected place looks like the source, by torch's own count."""
    model, clean, shifted = network(name)
    source = Source.measure(model, clean)
    seen: dict[str, Tensor] = {}
    with covshift.adapt(model, Batch(prior=0), source=source) as adapter:
        for place in adapter._places:
            if not hasattr(place.module, "running_mean") or place.module.running_mean is None:
                place.module.register_forward_hook(
                    lambda _, __, out, place=place: seen.__setitem__(place.path, place.read(out))
                )
        model(shifted)
    assert seen or name == "resnet18"
    for path, x in seen.items():
        values, anchor = x.transpose(0, 1).flatten(1), source.statistics[path]
        torch.testing.assert_close(values.mean(1), anchor.mean.double(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(values.var(1, correction=0), anchor.var.double(), rtol=1e-3, atol=1e-6)


class BeyondChance(Batch):
    """James and Stein's weight with twice the chance, by its formula, for one giant batch."""

    def weigh(self, place, seen, rows):
        source = rows.memory.source
        scale = 1 / (place.var.double() + place.eps)
        stds = [(var.double() + place.eps).sqrt() for var in (seen.var, place.var)]
        moved = (((seen.mean.double() - place.mean.double()) ** 2 + (stds[0] - stds[1]) ** 2) * scale).mean()
        spread = source.spread[place.path] + source.spread_std[place.path]
        chance = 2 * (spread * scale).mean() * (1 / seen.images + 1 / source.statistics.images)
        return max(0.0, 1 - float(chance / moved))


@pytest.mark.parametrize("name", ["norms", "bare", "resnet18", "vit_tiny"])
@torch.inference_mode()
def test_the_whole_set_is_followed_as_far_as_chance_does_not_explain(name):
    model, clean, shifted = network(name)
    source = Source.measure(model, clean)
    for x in (shifted, clean[:7], clean):
        with covshift.adapt(model, BeyondChance(prior=0), source=source):
            want = model(x)
        logits: dict[int, Tensor] = {}
        target = covshift.estimate(model, x.split(6), source=source, prior="auto", collect=logits.__setitem__)
        assert relative(torch.cat([logits[i] for i in range(len(logits))]), want) < 1e-9
        with target.apply(model):
            assert relative(model(x), want) < 1e-6
    for path, moments in target.items():
        torch.testing.assert_close(moments.mean, source.statistics[path].mean)


@torch.inference_mode()
def test_an_anchor_that_the_layers_hold_is_the_papers_way():
    """Correcting to the training statistics and normalising by these is normalising by the target's."""
    model, x = tiny(), images(10)
    want, _ = one_giant_batch(model, x)
    held = Statistics.of(model)
    measured = Source.measure(model, images(12))
    source = Source(held, {path: measured.spread[path] for path in held}, measured.digest, measured=True)
    with covshift.adapt(model, Batch(prior=0), source=source):
        assert relative(model(x), want) < 1e-9
    with covshift.adapt(model, Batch(prior=0), source=Source.of(model)):
        assert relative(model(x), want) < 1e-9


@pytest.mark.parametrize("policy", [Batch(prior=4, size=3), Batch(prior="auto", size=3), Batch(prior=4, size=5)])
@pytest.mark.parametrize("name", ["norms", "bare", "resnet18"])
@torch.inference_mode()
def test_groups_in_one_batch_are_batches_of_their_own(name, policy):
    model, clean, shifted = network(name)
    source = Source.measure(model, clean)
    with covshift.adapt(model, Batch(prior=policy.prior), source=source):
        want = torch.cat([model(batch) for batch in shifted.split(policy.size)])
    with covshift.adapt(model, policy, source=source):
        assert relative(model(shifted), want) < 1e-9


@torch.inference_mode()
def test_a_stream_of_any_network_is_saved_and_resumed(tmp_path):
    model, clean, shifted = network("norms")
    source = Source.measure(model, clean)
    with covshift.adapt(model, Stream(prior=4), source=source) as adapter:
        for batch in shifted[:6].split(2):
            model(batch)
        adapter.state.save(tmp_path / "camera.safetensors")
        want = model(shifted[6:])
    source.save(tmp_path / "source.safetensors")
    with covshift.adapt(model, Stream(prior=4), source=Source.load(tmp_path / "source.safetensors")) as adapter:
        adapter.state = Statistics.load(tmp_path / "camera.safetensors")
        assert relative(model(shifted[6:]), want) < 1e-12


@pytest.mark.parametrize("memory", [None, 100_000])
@pytest.mark.parametrize("size", [1, 7])
@torch.inference_mode()
def test_the_split_and_the_memory_do_not_matter(size, memory, tmp_path):
    model, clean, shifted = network("norms")
    source = Source.measure(model, clean)
    with covshift.adapt(model, Batch(prior=3), source=source):
        want = model(shifted)
    target = covshift.estimate(model, shifted.split(size), source=source, memory=memory, scratch=tmp_path, prior=3)
    with target.apply(model):
        assert relative(model(shifted), want) < 1e-9
    quick = covshift.estimate(model, [shifted], source=source, exact=False)
    assert quick.close_to(covshift.estimate(model, [shifted], source=source), rtol=1e-9)


@pytest.mark.parametrize("only", ["mean", "var"])
@pytest.mark.parametrize("name", ["norms", "resnet18"])
@torch.inference_mode()
def test_one_moment_only(name, only):
    model, clean, shifted = network(name)
    source = Source.measure(model, clean)
    target = covshift.estimate(model, [shifted], source=source, only=only)
    with covshift.adapt(model, Batch(prior=0), source=source, only=only):
        want = model(shifted)
    with target.apply(model, only=only):
        assert relative(model(shifted), want) < 1e-6
    with covshift.adapt(model, Batch(prior=0, size=len(shifted)), source=source, only=only):
        assert relative(model(shifted), want) < 1e-9


def test_spread_is_the_variance_of_the_means_of_images():
    model, clean, _ = network("norms")
    source, seen = Source.measure(model, clean.split(5), places="last"), []
    handle = model.last.register_forward_hook(lambda _, __, out: seen.append(out.mean((1, 2))))
    with torch.no_grad():
        model(clean)
    handle.remove()
    torch.testing.assert_close(source.spread["last"], seen[0].var(0, correction=0))
    assert repr(source) == "Source(1 place, 8 channels, 12 images)"


CHOICES = {
    "norms": {"group", "instance", "last", "second", "attend.norm1", "attend.norm2"},
    "bare": {"0", "2"},
    "vit_tiny": {"norm", *(f"blocks.{block}.norm{i}" for block in range(12) for i in (1, 2))},
}


@pytest.mark.parametrize("name", CHOICES)
def test_auto_chooses_by_the_kind_of_network(name):
    assert choose_places(network(name)[0]).keys() == CHOICES[name]


def test_patterns_choose_any_layer_that_can_be_folded():
    model, clean, _ = network("norms")
    assert Source.measure(model, clean, places=["group", "head"]).statistics.keys() == {"group", "head"}
    with pytest.raises(CovshiftError, match="matches no"):
        Source.measure(model, clean, places="attend.self_attn.out_proj")  # torch's attention never calls it


class Standardised(nn.Conv2d):
    """A convolution whose weight is standardised when it is used, so that no scale can be folded into it."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight / self.weight.std((1, 2, 3), keepdim=True)
        return nn.functional.conv2d(x, weight, self.bias)


def test_a_layer_that_cannot_be_folded_is_no_place():
    model = nn.Sequential(
        Standardised(3, 4, 3), nn.Conv2d(4, 4, 3), nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3))
    )
    before = snapshot(model.eval())
    assert choose_places(model).keys() == {"1"}
    assert_same(before, model)


def test_shared_weights_are_not_folded():
    model, x = bare().eval(), images(10, dtype=torch.float32)
    model[2] = nn.Conv2d(8, 8, 3)
    model.append(nn.Identity())
    model[6].register_parameter("weight", model[0].weight)
    target = covshift.estimate(model, x, source=Source.measure(model, x))
    before = snapshot(model)
    with pytest.raises(CovshiftError, match="'0' shares its weight with another layer"):
        target.apply(model)
    assert_same(before, model)
    target.apply(model, layers="2").restore()


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny"])
def test_a_correction_is_not_applied_to_what_is_corrected_already(name, tmp_path):
    model, clean, shifted = network(name)
    target = covshift.estimate(model, shifted, source=Source.measure(model, clean))
    target.save(tmp_path / "patch.safetensors")
    applied = target.apply(model)
    corrected = snapshot(model)
    for again in (target, target.merge(target), Statistics.load(tmp_path / "patch.safetensors")):
        with pytest.raises(CovshiftError, match=r"other weights now; restore\(\)"):
            again.apply(model)
    assert_same(corrected, model)
    applied.restore()
    target.apply(model).restore()


def test_statistics_that_the_layers_hold_can_be_applied_again():
    model = tiny()
    target = covshift.estimate(model, images(10), source=Source.of(model))
    assert target.anchors is None
    target.apply(model)
    once = snapshot(model)
    target.apply(model)
    assert_same(once, model)


class Shared(nn.Module):
    """One norm that is called twice in a pass, on activations that differ; one that is called never."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.twice = nn.GroupNorm(2, 8)
        self.never = nn.GroupNorm(2, 8)
        self.once = nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.twice(self.conv(x))
        return self.head(self.once(self.twice(3 * x.relu() + 1)).relu().mean((2, 3)))


@torch.inference_mode()
def test_places_that_are_called_several_times_or_never_are_left_out(tmp_path):
    torch.manual_seed(0)
    model, clean = randomise(Shared()), images(12)
    source = Source.measure(model, clean.split(5))
    assert source.statistics.keys() == {"once"}
    want = model(clean)
    with covshift.adapt(model, Batch(prior=0), source=source):
        assert relative(model(clean), want) < 1e-9
    assert Source.measure(model, clean, places="*").statistics.keys() == {"conv", "once", "head"}
    known = Source.measure(model, images(60).split(20))
    assert known.classes is not None
    known.save(tmp_path / "source.safetensors")
    assert Source.load(tmp_path / "source.safetensors").classes.slopes.keys() == {"once"}
    # Two passes in one call are not one pass that calls its layers twice.
    twin = Source.measure(model, clean, call=lambda model, x: (model(x), model(-x)))
    assert twin.statistics["once"].images == 12


@torch.inference_mode()
def test_a_network_of_linear_layers_is_adapted_before_its_last():
    torch.manual_seed(0)
    model, clean = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)).double().eval(), images(12)[:, 0, 0, :6]
    source = Source.measure(model, clean)
    assert source.statistics.keys() == {"0"}
    with covshift.estimate(model, 2 * clean + 1, source=source).apply(model):
        corrected = model[0](2 * clean + 1)
    torch.testing.assert_close(corrected.mean(0), model[0](clean).mean(0))


WRONG_SOURCES = {
    "of another network": (
        lambda model: Source.measure(bare().double().eval(), images(12)),
        "measured on another model",
    ),
    "of other weights": (
        lambda model: Source.measure(randomise(Norms(), seed=5), images(12)),
        "measured on another model",
    ),
    "no statistics": (lambda model: Source(3, {}, "", measured=True), "expected statistics to be Statistics"),
    "no spread": (lambda model: Source(Statistics({}, ""), 3, "", measured=True), "expected spread to be a mapping"),
    "no source": (lambda model: images(12), "expected source to be a Source"),
    "statistics": (lambda model: Statistics({}, ""), "expected source to be a Source"),
    "too few images": (lambda model: Source.measure(model, images(7)), "at least 8 clean images.*got 7"),
    "no images": (lambda model: Source.measure(model, []), "no images that reach a place"),
    "NaN": (lambda model: Source.measure(model, images(12) / 0), "NaN or infinite"),
    "unknown place": (lambda model: Source.measure(model, images(12), places="nowhere"), "'nowhere' matches no"),
    "place never called": (
        lambda model: Source.measure(randomise(Shared()), images(12), places=["once", "never"]),
        "'never' to match a layer that the model calls once",
    ),
    "place called twice": (
        lambda model: Source.measure(randomise(Shared()), images(12), places="twice"),
        "got 'twice', which it calls several times",
    ),
    "no pattern": (lambda model: Source.measure(model, images(12), places=3), "takes patterns|expected layers"),
    "no loader": (lambda model: Source.measure(model, 3), "expected a loader"),
}


def test_no_measured_source_no_auto():
    model = tiny()
    for source in (None, Source.of(model)):
        with pytest.raises(CovshiftError, match=r"Source\.measure"):
            covshift.estimate(model, images(10), source=source, prior="auto")


@pytest.mark.parametrize("kind", WRONG_SOURCES)
def test_wrong_sources_are_refused_and_the_model_is_as_it_was(kind):
    make, words = WRONG_SOURCES[kind]
    model, _, shifted = network("norms")
    before = snapshot(model)
    for use in (
        lambda: covshift.adapt(model, Batch(), source=make(model)),
        lambda: covshift.estimate(model, shifted, source=make(model)),
    ):
        with pytest.raises(CovshiftError, match=words):
            use()
    assert_same(before, model)


def test_a_damaged_source_file_is_refused(tmp_path):
    model, clean, _ = network("norms")
    file = tmp_path / "source.safetensors"
    with pytest.raises(CovshiftError, match="there is no source"):
        Source.load(file)
    source = Source.measure(model, clean)
    source.save(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CovshiftError, match="not a whole source"):
        Source.load(file)
    source.statistics.save(file)
    with pytest.raises(CovshiftError, match="not a source of this version"):
        Source.load(file)
    broken = copy.copy(source)
    broken.spread = {path: -each for path, each in source.spread.items()}
    broken.save(file)
    with pytest.raises(CovshiftError, match="finite spreads from 0"):
        Source.load(file)


def test_the_first_error_of_a_pass_leaves_the_model_as_it_was():
    model, clean, shifted = network("norms")
    source, before = Source.measure(model, clean), snapshot(model)
    with covshift.adapt(model, Batch(), source=source):
        with pytest.raises(CovshiftError, match="NaN or infinite"):
            model(shifted / 0)
        model(shifted)
    assert_same(before, model)


@pytest.mark.parametrize("name", ["norms", "resnet18"])
def test_a_correction_that_is_interrupted_leaves_the_model_as_it_was(name, monkeypatch):
    model, clean, shifted = network(name)
    target, before = covshift.estimate(model, shifted, source=Source.measure(model, clean)), snapshot(model)
    for kind in (Output, NormLayer):
        keep = kind.keep

        def interrupted(place, mean, var, keep=keep):
            if place.path in list(target)[2:]:
                raise KeyboardInterrupt
            keep(place, mean, var)

        monkeypatch.setattr(kind, "keep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        target.apply(model)
    assert_same(before, model)
