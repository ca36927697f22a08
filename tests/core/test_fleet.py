"""`Fleet`: many cameras in one pass, each as if it had the model for itself."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from networks import assert_same, images, randomise, snapshot, tiny
from torch import Tensor, nn

import covshift
from covshift import Batch, CovshiftError, Fleet, Live, Source, Stream
from covshift.core.lane import copied


class Tokens(nn.Module):
    """A small transformer, whose LayerNorms see tokens; no BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, stride=4)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.mix = nn.Linear(8, 8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.mix(self.norm1(x)).relu()
        return self.head(self.norm2(x).mean(1))


class Activated(nn.BatchNorm2d):
    """A layer with a forward of its own, which must be called."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()


class Shared(nn.Module):
    """What a normalisation layer is given is also used by others."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm1, self.norm2 = nn.BatchNorm2d(8), Activated(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.head((self.norm1(x) + self.norm2(x) + x).mean((2, 3)))


def shared() -> nn.Module:
    torch.manual_seed(0)
    return Shared()


def groupnorm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)),
        *(nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )


def tokens() -> nn.Module:
    torch.manual_seed(0)
    return Tokens()


NETWORKS = {
    "batchnorm": lambda: tiny(dtype=torch.float32),
    "groupnorm": lambda: randomise(groupnorm(), dtype=torch.float32),
    "tokens": lambda: randomise(tokens(), dtype=torch.float32),
    "shared": lambda: randomise(shared(), dtype=torch.float32),
}
POLICIES = {
    "live": Live(memory=20),
    "stream": Stream(prior=4),
    "decaying": Stream(prior=4, decay=0.9),
    "batch": Batch(prior=4),
    "auto": Batch(prior="auto"),
}
SIZES = {"gate": 1, "yard": 3, "roof": 2, "hall": 1}


def clean(number: int = 64) -> Tensor:
    return images(number, seed=100, dtype=torch.float32)


def frames(camera: int, steps: int) -> list[Tensor]:
    """Batches of a camera, with a shift of its own that changes half-way."""
    size = list(SIZES.values())[camera]
    x = images(size * steps, seed=camera, dtype=torch.float32)
    x[: size * steps // 2] += 0.4 * camera
    return list(x.split(size))


def interleaved(steps: int, seed: int = 0) -> list[list[int]]:
    """Which cameras take part in each pass: any order, any company."""
    rng = np.random.default_rng(seed)
    left, passes = [steps] * len(SIZES), []
    while any(left):
        there = [camera for camera in rng.permutation(len(SIZES)).tolist() if left[camera] and rng.random() < 0.7]
        for camera in there:
            left[camera] -= 1
        if there:
            passes.append(there)
    return passes


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("network", "sourced"),
    [
        ("batchnorm", False),
        ("batchnorm", True),
        ("groupnorm", True),
        ("tokens", True),
        ("shared", False),
        ("shared", True),
    ],
)
def test_each_camera_is_answered_as_if_it_were_alone(network, policy, sourced):
    model, steps, names = NETWORKS[network](), 12, list(SIZES)
    source = Source.measure(model, clean(), progress=False) if sourced else None
    before = snapshot(model)
    alone: dict[str, list[Tensor]] = {}
    states, healths = {}, {}
    for number, name in enumerate(names):
        with torch.no_grad(), covshift.adapt(model, POLICIES[policy], source=source) as adapter:
            alone[name] = [model(batch) for batch in frames(number, steps)]
            states[name], healths[name] = adapter.state, adapter.health
    with Fleet(model, POLICIES[policy], source=source) as fleet:
        queues = [iter(frames(number, steps)) for number in range(len(names))]
        together: dict[str, list[Tensor]] = {name: [] for name in names}
        for there in interleaved(steps):
            answers = fleet.answer({names[number]: next(queues[number]) for number in there})
            for name, answer in answers.items():
                together[name].append(answer)
        for name in names:
            for one, other in zip(alone[name], together[name], strict=True):
                torch.testing.assert_close(other, one, rtol=0, atol=1e-4)
                assert torch.equal(one.argmax(1), other.argmax(1))
            assert fleet[name].state.images == pytest.approx(states[name].images)
            for path, moments in states[name].items():
                torch.testing.assert_close(fleet[name].state[path].mean, moments.mean, rtol=1e-4, atol=1e-4)
            assert fleet[name].health.state == healths[name].state
    assert_same(before, model)


class Crops(nn.Module):
    """Two crops of each image, those of all images side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = groupnorm()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.cat([x[..., :-2, :-2], x[..., 2:, 2:]])).unflatten(0, (2, -1)).mean(0)


class Frames(Crops):
    """Two crops of each image, image by image."""

    def forward(self, x: Tensor) -> Tensor:
        return (
            self.inner(torch.stack([x[..., :-2, :-2], x[..., 2:, 2:]], 1).flatten(0, 1)).unflatten(0, (-1, 2)).mean(1)
        )


class Coupled(Crops):
    """Images of a batch are normalised together."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x.mean(0))


class Leading(Crops):
    """The first image of a batch changes the others."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x - x[:1])


@pytest.mark.parametrize("network", [Crops, Coupled, Leading])
def test_cameras_do_not_share_a_pass_where_images_do_not_keep_apart(network):
    model = randomise(network(), dtype=torch.float32)
    source = Source.measure(model, clean(), progress=False)
    (alone,), (other,) = frames(0, 1), frames(3, 1)
    with Fleet(model, Stream(prior=4), source=source) as fleet:
        assert fleet.answer({"gate": torch.cat([alone, other])})["gate"].isfinite().all()  # a camera is its own company
        before = fleet["gate"].state.images
        for _ in range(2):
            with pytest.raises(CovshiftError, match="depends on the other images of its batch"):
                fleet.answer({"gate": alone, "hall": other})
        assert fleet["gate"].state.images == before


def test_several_rows_for_an_image_are_its_own():
    model = randomise(Frames(), dtype=torch.float32)
    source = Source.measure(model, clean(), progress=False)
    with covshift.adapt(model, Stream(prior=4), source=source):
        alone = torch.cat([model(frame) for frame in frames(0, 5)])
    with Fleet(model, Stream(prior=4), source=source) as fleet:
        pairs = zip(frames(0, 5), frames(3, 5), strict=True)
        shared = torch.cat([fleet.answer({"gate": one, "hall": other})["gate"] for one, other in pairs])
    assert torch.allclose(shared, alone, rtol=1e-4, atol=1e-5)


def test_a_pass_that_cannot_begin_leaves_the_fleet_as_it_was():
    with Fleet(tiny(dtype=torch.float32), Stream(prior=4)) as fleet:
        (one,) = frames(0, 1)
        with pytest.raises(RuntimeError):
            fleet.answer({"gate": one.expand(10**11, *one.shape[1:])})  # more than any memory holds
        assert fleet.answer({"gate": one})["gate"].isfinite().all()


def test_what_a_frozen_camera_meets_is_not_remembered():
    model = randomise(groupnorm(), dtype=torch.float32)
    source, later = Source.measure(model, clean(), progress=False), images(30, seed=5, dtype=torch.float32)
    other = randomise(groupnorm(), dtype=torch.float32)
    with (
        Fleet(model, Live(memory=20), source=source) as fleet,
        Fleet(other, Live(memory=20), source=source) as untouched,
    ):
        for each in (fleet, untouched):
            for frame in later.split(3):
                each.answer({"gate": frame})
        fleet["gate"].frozen = True
        fleet.answer({"gate": images(16, seed=6, dtype=torch.float32) * 4 + 3})
        fleet["gate"].frozen = False
        after = [each.answer({"gate": later[:1]})["gate"] for each in (fleet, untouched)]
    assert torch.equal(*after)


def test_nan_of_one_camera_touches_no_other():
    model = NETWORKS["batchnorm"]()
    x, bad = images(2, seed=1, dtype=torch.float32), torch.full((1, 3, 12, 12), torch.nan)
    with Fleet(model, Live()) as fleet:
        alone = fleet.answer({"good": x, "bad": x})
        fleet["good"].reset()
        kept = fleet["bad"].state
        answers = fleet.answer({"good": x, "bad": bad})
        torch.testing.assert_close(answers["good"], alone["good"], rtol=0, atol=1e-5)
        assert isinstance(answers["bad"], CovshiftError)
        assert "NaN" in str(answers["bad"])
        assert fleet["bad"].state == kept


@pytest.mark.parametrize("cameras", [("a",), ("a", "b")])
def test_answers_that_are_nan_are_not_remembered(cameras):
    """Of a model whose statistics are finite all the same."""

    class Spoilt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = tiny(dtype=torch.float32)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x).where(x.mean((1, 2, 3))[:, None] < 1, torch.nan)

    model = Spoilt().eval()
    source = Source.measure(model, images(64, 12, seed=9, dtype=torch.float32).clamp(max=1), progress=False)
    good = [images(1, 12, seed=seed, dtype=torch.float32) / 10 for seed in range(4)]
    with Fleet(model, Live(), source=source) as fleet, torch.no_grad():
        fleet.answer(dict.fromkeys(cameras, good[0]))
        before = fleet["a"].state
        spoilt = fleet.answer({name: good[1] + 5 * (name == "a") for name in cameras})
        assert isinstance(spoilt["a"], Tensor)
        assert spoilt["a"].isnan().all()
        assert fleet["a"].state == before
        assert all(note.isfinite().all() for name in cameras for note in fleet[name].memory.notes.values())
        assert all(answer.isfinite().all() for answer in fleet.answer(dict.fromkeys(cameras, good[2])).values())
    with torch.no_grad(), covshift.adapt(model, Live(), source=source) as adapter:
        for frame in (good[0], good[1] + 5, good[2]):
            logits = model(frame)
        assert logits.isfinite().all()
        assert adapter.state.images == pytest.approx(1.995)


def test_one_value_of_one_camera_is_its_own_error():
    """BatchNorm1d sees one value for each image, which plain batch statistics cannot normalise."""
    model = NETWORKS["batchnorm"]()
    with Fleet(model, Batch(prior=0)) as fleet:
        answers = fleet.answer({"one": images(1, dtype=torch.float32), "two": images(2, dtype=torch.float32)})
    assert "one single value" in str(answers["one"])
    assert answers["two"].isfinite().all()


def test_control_of_a_camera():
    model, x = NETWORKS["batchnorm"](), images(3, dtype=torch.float32)
    with Fleet(model, Stream(prior=4)) as fleet:
        fleet.answer({"a": x, "b": x})
        assert sorted(fleet) == ["a", "b"]
        fleet["a"].frozen = True
        fleet.answer({"a": x, "b": x})
        assert (fleet["a"].state.images, fleet["b"].state.images) == (3, 6)
        saved = fleet["b"].state
        fleet["b"].reset()
        assert fleet["b"].state.images == 0
        fleet["b"].state = saved
        assert fleet["b"].state == saved
        assert repr(fleet) == "Fleet(Stream(prior=4, decay=None, sync=True), 2 cameras)"
        fleet.forget("b")
        assert list(fleet) == ["a"]


def test_control_waits_for_no_pass_and_holds_after_it():
    model = tiny(dtype=torch.float32)
    in_pass, go_on, in_time = threading.Event(), threading.Event(), []
    x = images(2, 12, dtype=torch.float32)
    with Fleet(model, Stream(prior=4)) as fleet:
        fleet.answer({"gate": x, "yard": x, "hall": x})
        kept = fleet["yard"].state
        handle = model.register_forward_pre_hook(lambda *_: (in_pass.set(), in_time.append(go_on.wait(30)))[0])
        passing = threading.Thread(target=fleet.answer, args=({"gate": x, "yard": x, "hall": x},))
        passing.start()
        assert in_pass.wait(60)
        fleet.add("new")
        fleet.forget("new")
        fleet["gate"].reset()
        fleet["yard"].state = kept
        go_on.set()
        passing.join()
        handle.remove()
        assert in_time == [True]
        assert [fleet[name].state.images for name in ("gate", "yard", "hall")] == [0, 2, 4]


def test_the_model_is_called_through_the_fleet_only():
    model, x = NETWORKS["batchnorm"](), images(3, dtype=torch.float32)
    fleet = Fleet(model, Stream(prior=4))
    for call in (lambda: model(x), lambda: model.stem(x)):
        with pytest.raises(CovshiftError, match=r"fleet\.answer"):
            call()
    with pytest.raises(CovshiftError, match="before loading"):
        model.load_state_dict(model.state_dict())
    covshift.release(model)
    assert not any("forward" in vars(module) for module in model.modules())
    assert model(x).shape == (3, 4)
    with pytest.raises(CovshiftError, match="removed"):
        fleet.answer({"a": x})


@pytest.mark.parametrize("network", ["batchnorm", "tokens", "shared"])
def test_passes_run_at_once_and_each_camera_is_answered_as_if_it_were_alone(network):
    model, steps = NETWORKS[network](), 6
    source = Source.measure(model, clean(), progress=False)
    alone = {}
    for number, name in enumerate(SIZES):
        with Fleet(model, Live(memory=20), source=source) as fleet:
            alone[name] = [fleet.answer({name: batch})[name] for batch in frames(number, steps)], fleet[name].state
    before, meeting = snapshot(model), threading.Barrier(2, timeout=60)

    def meet(*_: object) -> None:
        meeting.wait()  # no pass goes on alone

    handle = model.register_forward_pre_hook(meet)
    with Fleet(model, Live(memory=20), source=source, passes=2) as fleet, ThreadPoolExecutor(2) as threads:

        def answer(pair: tuple[int, int], step: int) -> dict[str, Tensor]:
            return fleet.answer({list(SIZES)[number]: frames(number, steps)[step] for number in pair})

        for step in range(steps):  # in other company, and so on another lane, each time
            pairs = [((0, 1), (2, 3)), ((2, 1), (0, 3)), ((3, 2), (1, 0))][step % 3]
            for answers in threads.map(partial(answer, step=step), pairs):
                for name, logits in answers.items():
                    torch.testing.assert_close(logits, alone[name][0][step], rtol=0, atol=1e-5)
        for name in SIZES:
            assert fleet[name].state.images == pytest.approx(alone[name][1].images)
    handle.remove()
    assert_same(before, model)


def test_a_camera_is_in_one_pass_at_a_time():
    model, x = NETWORKS["batchnorm"](), images(2, dtype=torch.float32)
    inside, most = [], []

    def enter(*_: object) -> None:
        inside.append(None)
        most.append(len(inside))
        time.sleep(0.002)
        inside.pop()

    model.register_forward_pre_hook(enter)
    with Fleet(model, Stream(), passes=3) as fleet, ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda other: fleet.answer({"gate": x, other: x}), "abcabc"))
        assert fleet["gate"].state.images == 12
    assert set(most) == {1}


def test_copies_share_the_parameters_and_a_model_that_cannot_be_copied_runs_alone():
    model = NETWORKS["batchnorm"]()
    twin = copied(model)
    assert twin is not None
    assert all(one is other for one, other in zip(model.parameters(), twin.parameters(), strict=True))
    assert all(one is not other for one, other in zip(model.buffers(), twin.buffers(), strict=True))
    model.lock = threading.Lock()
    with Fleet(model, Stream(), passes=2) as fleet:
        assert fleet.passes == 1
        assert fleet.answer({"gate": images(2, dtype=torch.float32)})["gate"].shape == (2, 4)


@pytest.mark.parametrize("passes", [0, 1.5, True, "two", 1_000_000])
def test_the_number_of_passes_is_checked(passes):
    with pytest.raises(CovshiftError, match="passes"):
        Fleet(NETWORKS["batchnorm"](), Stream(), passes=passes)


def test_a_fleet_is_not_called_from_inside_of_its_own_pass():
    model, x = NETWORKS["batchnorm"](), images(2, dtype=torch.float32)
    for call in (lambda fleet: fleet.answer({"yard": x}), lambda fleet: fleet.remove()):
        with Fleet(model, Stream()) as fleet:
            handle = model.stem.register_forward_pre_hook(lambda *_, fleet=fleet, call=call: call(fleet))
            with pytest.raises(CovshiftError, match="inside of its own pass"):
                fleet.answer({"gate": x})
            handle.remove()


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ({}, "at least one camera"),
        ({"a": torch.zeros(0, 3, 12, 12)}, "camera 'a'"),
        ({"a": torch.zeros(1, 3, 12, 12), "b": torch.zeros(1, 3, 8, 8)}, "one shape"),
    ],
)
def test_batches_are_checked(batches, words):
    with Fleet(NETWORKS["batchnorm"](), Stream()) as fleet, pytest.raises(CovshiftError, match=words):
        fleet.answer(batches)


def test_policies_with_groups_are_refused():
    with pytest.raises(CovshiftError, match="without size="):
        Fleet(NETWORKS["batchnorm"](), Batch(size=4))
