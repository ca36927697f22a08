"""`Live`: follows the shift and not the classes, notices a new domain, and holds still where it cannot tell."""

import numpy as np
import pytest
import torch
from networks import assert_same, images, snapshot, tiny
from torch import Tensor, nn

import covshift
from covshift import Batch, CovshiftError, Live, Source, Statistics, Stream
from covshift.core.classes import Regression, embed_classes
from covshift.core.live import policy
from covshift.core.live.answers import Answer, notes_after, repetition
from covshift.core.live.arrival import CHANGE, has_changed, meet
from covshift.core.live.order import FIRST
from covshift.core.moments import Moments
from covshift.core.policies import Memory
from covshift.core.toward import toward_training

CLASSES = 4


class Colours(nn.Module):
    """A network that tells four colours apart; each class has its own mean in the channels of every place."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(CLASSES, CLASSES, 1, bias=False)
        self.norm = nn.BatchNorm2d(CLASSES) if norm else nn.Identity()
        self.head = nn.Linear(CLASSES, CLASSES, bias=False)
        with torch.no_grad():
            self.conv.weight.copy_(torch.eye(CLASSES)[:, :, None, None])
            self.head.weight.copy_(6 * torch.eye(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x)).mean((2, 3)))


def colours(labels: np.ndarray, shift: float = 0.0, seed: int = 0) -> Tensor:
    """Images of one colour, each with a tint of its own; a shift raises one channel, whose class is then overrated."""
    generator = torch.Generator().manual_seed(seed)
    tint = 0.35 * torch.randn(len(labels), CLASSES, 1, 1, generator=generator)
    noise = 0.3 * torch.randn(len(labels), CLASSES, 4, 4, generator=generator)
    return torch.eye(CLASSES)[labels][:, :, None, None] + tint + noise + shift * torch.eye(CLASSES)[0][:, None, None]


LABELS = {
    "shuffled": np.random.default_rng(0).permutation(np.repeat(np.arange(CLASSES), 60)),
    "sorted": np.repeat(np.arange(CLASSES), 60),
    "runs": np.repeat(np.random.default_rng(1).permutation(np.repeat(np.arange(CLASSES), 6)), 10),
}


class WithoutClasses(Live):
    """One that takes everything that it sees for the shift, and so goes the way that the source says alone."""

    def aim(self, place, seen, rows):
        return seen


def network(norm: bool) -> tuple[nn.Module, Source]:
    model = Colours(norm).eval()
    clean = colours(np.random.default_rng(2).integers(0, CLASSES, 400), seed=3)
    return model, Source.measure(model, clean, places="norm" if norm else "conv")


@torch.inference_mode()
def errors(model: nn.Module, x: Tensor, labels: np.ndarray, size: int) -> float:
    answers = torch.cat([model(batch).argmax(1) for batch in x.split(size)])
    return (answers != torch.from_numpy(labels)).double().mean().item()


@pytest.mark.parametrize("norm", [True, False])
@pytest.mark.parametrize(
    ("order", "size"), [*((order, size) for order in LABELS for size in (1, 4)), ("sorted", 8), ("runs", 8)]
)
def test_it_follows_the_shift_and_not_the_classes(order, norm, size):
    model, source = network(norm)
    before, labels = snapshot(model), LABELS[order]
    shifted, clean = colours(labels, shift=0.9, seed=4), colours(labels, seed=5)
    plain, plain_clean = errors(model, shifted, labels, size), errors(model, clean, labels, size)
    with covshift.adapt(model, Live(), source=source) as adapter:
        live = errors(model, shifted, labels, size)
        assert adapter.health.state == "following"
    with covshift.adapt(model, Live(), source=source):
        live_clean = errors(model, clean, labels, size)
    assert_same(before, model)
    assert plain > 0.3
    assert live < 0.55 * plain
    assert live_clean <= plain_clean + 0.01


def test_without_the_classes_a_sorted_stream_is_ruined():
    """The network of these tests is one on which following everything does harm, so that they mean something."""
    model, source = network(norm=False)
    clean = colours(LABELS["sorted"], seed=5)
    with covshift.adapt(model, Stream(prior=16, decay=0.99), source=source):
        assert errors(model, clean, LABELS["sorted"], 4) > 0.2


def test_clean_images_are_left_alone():
    model, source = network(norm=True)
    with covshift.adapt(model, Live(), source=source) as adapter:
        assert adapter.health.why == "no images were seen yet"
        with torch.inference_mode():
            for batch in colours(LABELS["shuffled"], seed=6).split(1):
                model(batch)
        health = adapter.health
    assert health.state == "holding"
    assert health.images == pytest.approx(200 * (1 - (1 - 1 / 200) ** 240))
    assert sum(health.classes) == pytest.approx(1)
    assert repr(health).startswith("Health(state='holding', why='the images differ")


def test_a_sudden_change_starts_anew():
    model, source = network(norm=False)
    labels = LABELS["shuffled"]
    states = []
    with covshift.adapt(model, Live(), source=source) as adapter, torch.inference_mode():
        for shift in (0.0, 0.9, 0.0):
            for batch in colours(labels, shift, seed=7).split(2):
                model(batch)
                states.append(adapter.health.state)
    resets = [position for position, state in enumerate(states) if state == "reset"]
    each = len(labels) // 2
    assert len(resets) == 2
    assert all(change <= reset < change + 10 for change, reset in zip((each, 2 * each), resets, strict=True))
    assert CHANGE > 1


class Branches(nn.Module):
    """The same four colours, seen at several places side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Colours(norm=False) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([branch(x) for branch in self.branches]).mean(0)


@torch.inference_mode()
def test_the_batch_in_which_a_change_comes_is_not_answered_by_the_old_domain(monkeypatch):
    model = Branches().eval()
    source = Source.measure(model, colours(np.arange(400) % CLASSES, seed=3), places="branches.*.conv")
    foggy, clear = colours(LABELS["shuffled"], shift=2.5, seed=7), colours(np.zeros(16, int), seed=8)

    def answers() -> tuple[Tensor, str]:
        with covshift.adapt(model, Live(), source=source) as adapter:
            for batch in foggy.split(16):
                model(batch)
            assert adapter.health.state == "following"
            return model(clear), adapter.health.state

    noticed, state = answers()
    assert state == "reset"
    monkeypatch.setattr(policy, "has_changed", lambda memory: False)
    late, state = answers()
    assert state == "reset"
    plain = model(clear)
    assert (noticed - plain).abs().mean() < 0.5 * (late - plain).abs().mean()


def test_a_change_is_believed_at_several_places_of_one_pass():
    memory = Memory()
    for path in "ab":
        meet(memory, path, 100.0)
        assert not has_changed(memory)
    meet(memory, "c", 0.0)
    assert has_changed(memory)
    memory.derived.clear()  # as at the beginning of every pass
    for number in range(FIRST):
        meet(memory, f"{number}", 1.0)
    meet(memory, "late", 1e9)  # which corrections before it may have moved
    assert not has_changed(memory)


@torch.inference_mode()
@pytest.mark.parametrize(("size", "trained"), [(1, False), (5, False), (5, True)])
def test_compiled_code_remembers_what_the_operations_of_torch_do(size, trained):
    """A pass with gradients goes by separate operations, one without by compiled code; both come to the same state."""
    model, source = network(norm=True)
    if trained:
        model.norm.running_mean.copy_(source.statistics["norm"].mean + 0.05)
        model.norm.running_var.copy_(source.statistics["norm"].var)
        source = Source.measure(model, colours(LABELS["shuffled"], seed=3), places="norm")
        assert toward_training(source, model, 16) is not source
    shown = colours(LABELS["runs"][:60], shift=0.5, seed=6)
    shown[40:] += 3.0  # a new domain, so that the change is noticed by both
    states, resets, trust = [], [], []
    for grad in (False, True):
        with torch.set_grad_enabled(grad), covshift.adapt(model, Live(memory=50), source=source) as adapter:
            for number, batch in enumerate(shown.split(size)):
                model(batch)
                resets += [(grad, number)] * (adapter.health.state == "reset")
            states.append(adapter.state)
            trust.append(adapter.health.trust["norm"])
    assert trust[0] == pytest.approx(trust[1], rel=1e-4)
    compiled, operations = states
    assert [number for grad, number in resets if grad] == [number for grad, number in resets if not grad] != []
    assert set(compiled.notes) == set(operations.notes) == {"classes", "order", "recent"}
    for name, note in compiled.notes.items():
        torch.testing.assert_close(note, operations.notes[name], rtol=1e-4, atol=1e-5)
    for path, moments in compiled.items():
        torch.testing.assert_close(moments.mean, operations[path].mean, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize(("off", "trained"), [(0.0, True), (0.05, True), (0.6, False)])
def test_it_corrects_to_training_statistics_that_are_near_clean_images(off, trained):
    """The layer then holds Eq. 3 of its own statistics; else what brings its input to what clean images look like."""
    model, _ = network(norm=True)
    clean, shown = (colours(np.arange(400) % CLASSES, shift, seed=3) for shift in (0, 3))
    held = clean.mean((0, 2, 3)) + off, clean.var((0, 2, 3), correction=0)
    model.norm.running_mean.copy_(held[0])
    model.norm.running_var.copy_(held[1])
    source = Source.measure(model, clean, places="norm")
    assert (toward_training(source, model, 16) is not source) is trained
    with covshift.adapt(model, WithoutClasses(memory=1e9), source=source) as adapter:
        model(shown)
        assert adapter.health.shift["norm"] == pytest.approx(source_distance(shown, clean, model.norm.eps), rel=1e-3)
        weight = adapter.health.trust["norm"]
        now = model.norm.running_mean.clone(), model.norm.running_var.clone()
    assert weight > 0.8
    seen = shown.mean((0, 2, 3)), shown.var((0, 2, 3), correction=0)
    near = [
        torch.allclose(got, was + weight * (new - was), rtol=1e-3)
        for got, was, new in zip(now, held, seen, strict=True)
    ]
    assert near[0] is trained


def source_distance(shown: Tensor, clean: Tensor, eps: float) -> float:
    apart = (shown.mean((0, 2, 3)) - clean.mean((0, 2, 3))).square() / (clean.var((0, 2, 3), correction=0) + eps)
    return float(apart.mean().sqrt())


def test_a_change_of_contrast_alone_is_followed():
    """Means stay where they were; what grows is how much activations vary within an image."""
    model, source = network(norm=False)
    x = colours(LABELS["shuffled"], seed=6)
    centre = x.mean((2, 3), keepdim=True)
    with covshift.adapt(model, Live(), source=source) as adapter, torch.inference_mode():
        for batch in (centre + 2 * (x - centre)).split(4):
            model(batch)
        assert adapter.health.state == "following"
        assert adapter.health.shift["conv"] < 0.1
        assert adapter.health.trust["conv"] > 0.5


@pytest.mark.parametrize("measured", [True, False])
def test_its_state_is_saved_and_swapped(measured, tmp_path):
    model, source = network(norm=True)
    source = source if measured else None
    first, second = colours(LABELS["runs"], 1.2, seed=8), colours(LABELS["sorted"], 0.6, seed=9)
    with covshift.adapt(model, Live(), source=source) as adapter:
        for batch in first[:40].split(4):
            model(batch)
        adapter.state.save(tmp_path / "camera.safetensors")
        want = model(first[40:44])
        adapter.reset()
        for batch in second[:40].split(4):
            model(batch)
        adapter.state = Statistics.load(tmp_path / "camera.safetensors")
        torch.testing.assert_close(model(first[40:44]), want)


@torch.inference_mode()
def test_without_a_source_it_follows_what_the_layers_hold():
    model, x = tiny(dtype=torch.float32), images(40, dtype=torch.float32)
    before, plain = snapshot(model), model(x[:1])
    with covshift.adapt(model, Live()) as adapter:
        for image in (3 * x + 2).split(1):
            answer = model(image)
        assert adapter.health.state == "following"
        assert answer.isfinite().all()
    assert_same(before, model)
    assert torch.equal(model(x[:1]), plain)


def trained_on(shuffled: Tensor, labels: np.ndarray) -> nn.Module:
    """The network of these tests with the statistics of some images in its layer, and colours as far apart again."""
    model = Colours(norm=True)
    model.norm.momentum = None
    model(shuffled)
    with torch.no_grad():
        model.head.weight /= 2
    return model.eval()


def test_without_a_source_a_run_of_a_class_counts_as_few_images():
    labels = LABELS["shuffled"]
    model = trained_on(colours(labels, seed=3), labels)
    trust, errs = {}, {}
    for order in ("shuffled", "sorted"):
        with covshift.adapt(model, Live()) as adapter:
            errs[order] = errors(model, colours(LABELS[order], seed=5), LABELS[order], 4)
            trust[order], health = adapter.health.trust["norm"], adapter.health
        assert sum(health.classes) == pytest.approx(1)
        assert "measure one with Source.measure" in health.why
    with covshift.adapt(model, Stream(prior=16, decay=0.99)):
        followed = errors(model, colours(LABELS["sorted"], seed=5), LABELS["sorted"], 4)
    assert errs["sorted"] <= errs["shuffled"] + 0.05 < followed, (errs, followed)


def test_repetition_is_that_of_pairs_of_images():
    assert repetition(Memory()) == 1
    assert repetition(Memory(seen={"norm": Moments(1, 1, *torch.ones(2, 1))})) == 0
    for logits, wanted in (
        (50 * torch.eye(4), 0.0),
        (50 * torch.eye(4)[[1, 1, 1]], 1.0),
        (50 * torch.eye(4)[[0, 0, 1, 1]], (1 / 2 - 1 / 4) / (1 - 1 / 4)),  # pairs share a class half of the time
    ):
        answer = Answer.of(logits)
        assert answer is not None
        assert answer.images == len(logits)
        assert repetition(Memory(notes=answer.added({}, 1.0))) == pytest.approx(wanted)
    assert Answer.of(torch.full((2, 4), torch.nan)) is None
    assert Answer.of("no classes") is None


def test_the_regression_is_that_of_least_squares():
    """With many images and little ridge, class means are what the regression says they are."""
    model, _ = network(norm=False)
    labels = torch.arange(400) % CLASSES
    output = 50.0 * nn.functional.one_hot(labels, CLASSES)
    means = torch.randn(CLASSES, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    regression = Regression(embed_classes(model, output))
    regression.add(output, {"place": (means[labels], means[labels].square())})
    classes = regression.fit()
    slopes = classes.slopes["place"]
    fitted = means.mean(0) + (classes.embedding - classes.centre) @ slopes.mean
    torch.testing.assert_close(fitted, means, rtol=0.2, atol=0.12)
    assert slopes.unexplained.max() < 0.02 * means.var(0).max()


def test_many_classes_are_embedded_by_the_classifier():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 100)).eval()
    embedding = embed_classes(model, torch.zeros(2, 100))
    assert embedding.shape == (100, 32)
    assert embed_classes(nn.Sequential(nn.Flatten()), torch.zeros(2, 100)) is None
    assert embed_classes(model, "no tensor") is None


WRONG = {"memory": [1, 0, -3, "many", None, float("nan"), float("inf")], "prior": [-1, "auto", None]}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_wrong_values_are_refused(name, value):
    with pytest.raises(CovshiftError, match=f"expected {name}"):
        Live(**{name: value})


DAMAGE = {
    "no classes": lambda notes: {"order": notes["order"]},
    "short": lambda notes: {**notes, "classes": notes["classes"][:1]},
    "NaN": lambda notes: {**notes, "recent": notes["recent"] * torch.nan},
    "negative": lambda notes: {**notes, "order": -notes["order"]},
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_state_is_refused(kind):
    model, source = network(norm=True)
    with covshift.adapt(model, Live(), source=source) as adapter, torch.inference_mode():
        for batch in colours(LABELS["runs"][:20], 0.9).split(2):
            model(batch)
        whole = adapter.state
        damaged = Statistics(whole, whole.fingerprint, anchors=whole.anchors, notes=DAMAGE[kind](whole.notes))
        with pytest.raises(CovshiftError, match="state of a Live policy is damaged"):
            adapter.state = damaged
        assert adapter.state == whole


def test_a_damaged_state_of_answers_is_refused():
    model, _ = network(norm=True)
    with covshift.adapt(model, Live()) as adapter, torch.inference_mode():
        model(colours(LABELS["runs"][:4]))
        whole = adapter.state
        for answers in (-whole.notes["answers"], whole.notes["answers"] * torch.nan, whole.notes["answers"][None]):
            with pytest.raises(CovshiftError, match="state of a Live policy is damaged"):
                adapter.state = Statistics(whole, whole.fingerprint, notes={"answers": answers})
        assert adapter.state == whole


def test_health_of_other_policies():
    model, source = network(norm=True)
    with covshift.adapt(model, Batch(prior=16), source=source) as adapter, torch.inference_mode():
        model(colours(LABELS["shuffled"][:16], 1.0))
        assert adapter.health.state == "following"
        assert adapter.health.trust == {"norm": pytest.approx(0.5)}
        assert adapter.health.shift["norm"] > 0


@pytest.mark.parametrize("sizes", [[1] * 7, [1, 3, 2, 1]])
def test_answers_of_many_streams_are_noted_as_those_of_each(sizes):
    generator = torch.Generator().manual_seed(0)
    outputs = [torch.randn(size, 10, generator=generator) for size in sizes]
    held = {"answers": torch.rand(10, generator=generator, dtype=torch.float64), "other": torch.zeros(1)}
    notes = [held if number % 3 else {} for number in range(len(sizes))]
    shares = [0.1 * (1 + number) for number in range(len(sizes))]
    together = notes_after(notes, outputs, shares)
    assert together is not None
    for found, before, output, share in zip(together, notes, outputs, shares, strict=True):
        wanted = Answer.of(output).added(before, share)
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert notes_after([{}], [torch.full((1, 10), torch.nan)], [0.1]) is None
    assert notes_after([{}, {}], [torch.zeros(1, 10), torch.zeros(10)], [0.1, 0.1]) is None
