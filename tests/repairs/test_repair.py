"""Repair: errors fall where images have moved, nothing happens where they have not, and one class alone is refused."""

import hashlib
import json

import numpy as np
import pytest
import stripes
import torch
from PIL import Image
from safetensors.torch import load_file
from typer.testing import CliRunner

import covshift
from covshift import CovshiftError, Statistics, repairs
from covshift.cli import app
from covshift.shift.distance import Distance
from covshift.shift.forecast.observe import Observation
from covshift.shift.forecast.predictor import Forecast, Prediction


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A trained network; clean images with labels; clean, foggy and one-class pictures in folders, by class."""
    root = tmp_path_factory.mktemp("repair")
    stripes.train(root)
    images, labels = stripes.stripes(600, seed=2)
    np.savez(root / "source.npz", images=images, labels=labels)
    images, labels = stripes.stripes(360, seed=3)
    for name, made, kept in (
        ("clean", images, labels >= 0),
        ("dark", covshift.corrupt(images, "contrast", 4), labels >= 0),
        ("one", images, labels == 7),
    ):
        for number in np.flatnonzero(kept):
            path = root / name / f"{labels[number]:02d}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(made[number]).save(path)
    return root


@pytest.fixture
def model(place):
    return covshift.open_model(f"file:{place}/net.pt?arch=py:stripes:net")


def error(model, data):
    wrong = images = 0
    for batch, labels in data.loader(model):
        wrong += (model(batch).argmax(1) != labels).sum().item()
        images += len(labels)
    return wrong / images


def run(*words):
    return CliRunner().invoke(app, ["repair", *map(str, words)])


def test_shifted_pictures_are_repaired_as_estimate_does(place, model, tmp_path):
    labelled = covshift.open_data(f"folder:{place}/dark")
    source = covshift.open_data(f"npz:{place}/source.npz")
    done = run(
        "--model", model.uri, "--target", f"folder:{place}/dark", "--source", source.uri, "--out", tmp_path / "r"
    )
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("repair: the predicted error is ")
    before = error(model, labelled)
    covshift.estimate(model, labelled.loader(model)).apply(model)
    after = error(model, labelled)
    assert after < before - 0.05
    checked = run("--check", tmp_path / "r", "--labels", labelled.uri, "--json")
    assert json.loads(checked.stdout) == {"before": before, "after": after, "images": 360}
    again = covshift.open_model(f"file:{tmp_path}/r/weights.safetensors?arch=py:stripes:net")
    assert error(again, labelled) == after


def test_a_network_without_statistics_is_repaired_by_a_source(place, tmp_path):
    model = covshift.open_model(f"file:{place}/fused.pt?arch=py:stripes:fused")
    labelled = covshift.open_data(f"folder:{place}/dark")
    made = covshift.repair(model, labelled, source=covshift.open_data(f"npz:{place}/source.npz"), progress=False)
    made.save(tmp_path / "r")
    checked = repairs.check(tmp_path / "r", labelled)
    assert checked.before == error(model, labelled)
    assert checked.after < checked.before - 0.3
    again = covshift.open_model(f"file:{tmp_path}/r/weights.safetensors?arch=py:stripes:fused")
    assert error(again, labelled) == checked.after


def test_the_folder_holds_what_the_card_says(place, model, tmp_path):
    made = covshift.repair(model, covshift.open_data(f"folder:{place}/dark"), progress=False)
    made.save(tmp_path / "r")
    files = {path.relative_to(tmp_path / "r").as_posix() for path in (tmp_path / "r").rglob("*") if path.is_file()}
    samples = {f"samples/{number}.png" for number in range(8)}
    assert files == {"patch.safetensors", "weights.safetensors", "card.json", "card.md", *samples}
    card = json.loads((tmp_path / "r" / "card.json").read_text())
    assert card["weights"] == model.digest
    assert card["predicted"] is None
    assert card["target"]["images"] == 360
    for name, digest in card["files"].items():
        assert hashlib.sha256((tmp_path / "r" / name).read_bytes()).hexdigest() == digest
    page = (tmp_path / "r" / "card.md").read_text()
    assert page.startswith("# Repair\n\n**repair**: the images have moved by ")
    assert "samples/7.png" in page
    patch = Statistics.load(tmp_path / "r" / "patch.safetensors")
    assert patch == made.patch
    patch.apply(model)
    weights = load_file(tmp_path / "r" / "weights.safetensors")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.module.state_dict().items())
    picture = np.asarray(Image.open(tmp_path / "r" / "samples" / "0.png"))
    targets = [np.asarray(Image.open(path)) for path in (place / "dark").rglob("*.png")]
    assert any((picture == target).all() for target in targets)


@pytest.mark.parametrize("with_source", [False, True])
def test_clean_pictures_are_left_alone(place, model, tmp_path, with_source):
    source = ["--source", f"npz:{place}/source.npz"] if with_source else []
    done = run("--model", model.uri, "--target", f"folder:{place}/clean", *source, "--out", tmp_path / "r")
    assert done.exit_code == 3
    assert done.stdout.startswith("nothing to repair: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("with_source", [False, True])
def test_one_class_alone_is_refused_unless_forced(place, model, tmp_path, with_source):
    images, labels = stripes.stripes(1200, seed=5)
    target = images[labels == 7]
    source = covshift.open_data(f"npz:{place}/source.npz") if with_source else None
    made = covshift.repair(model, target, source=source, progress=False)
    assert made.verdict.word == "cannot help"
    assert "of few classes" in made.verdict.reason
    assert made.patch is None
    with pytest.raises(CovshiftError, match="nothing was repaired"):
        made.save(tmp_path / "r")
    forced = covshift.repair(model, target, force=True, progress=False)
    forced.save(tmp_path / "r")
    assert json.loads((tmp_path / "r" / "card.json").read_text())["forced"] is True
    assert "Repaired against this advice" in (tmp_path / "r" / "card.md").read_text()


def test_the_model_is_as_before(place, model):
    before = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    made = covshift.repair(model, covshift.open_data(f"folder:{place}/dark"), progress=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.module.state_dict().items())
    made.apply(model)
    assert not torch.equal(model.module.state_dict()["1.running_mean"], before["1.running_mean"])


def test_images_data_and_loaders_give_the_same(place, model):
    data = covshift.open_data(f"folder:{place}/dark")
    made = [covshift.repair(model, each, progress=False).patch for each in (data, data.loader(model, batch_size=50))]
    made.append(covshift.repair(model, data.pixels(model).images, progress=False).patch)
    assert made[0].close_to(made[1], rtol=1e-4, atol=1e-6)
    assert made[0].close_to(made[2], rtol=1e-4, atol=1e-6)


def test_many_images_are_measured_batch_by_batch(place, model, monkeypatch):
    monkeypatch.setattr("covshift.repairs.make._MOST_EXACT", 100)
    data = covshift.open_data(f"folder:{place}/dark")
    made = covshift.repair(model, data, progress=False)
    assert made.card.method == "statistics of batches, merged"
    assert made.patch == covshift.estimate(model, data.loader(model), exact=False)


def test_bad_input_is_one_sentence(place, model, tmp_path):
    few = tmp_path / "few"
    few.mkdir()
    for path in list((place / "clean").rglob("*.png"))[:5]:
        (few / path.name).write_bytes(path.read_bytes())
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in list((place / "dark").rglob("*.png"))[:80]:
        (broken / path.name).write_bytes(path.read_bytes())
    (broken / "half.png").write_bytes(path.read_bytes()[:100])
    (tmp_path / "there").mkdir()
    out = tmp_path / "out"
    good = ["--model", model.uri, "--target", f"folder:{place}/dark"]
    rows = [
        (
            ["--model", model.uri, "--target", f"folder:{few}"],
            "expected at least 32 images to take statistics of, got 5",
        ),
        (
            ["--model", model.uri, "--target", f"folder:{broken}"],
            "repair or remove it, or leave it out with --skip-broken",
        ),
        (["--model", f"file:{place}/fused.pt?arch=py:stripes:fused", *good[2:]], "holds no statistics"),
        ([*good, "--source", f"folder:{place}/one"], "distinguishes 12 classes"),
        ([*good, "--out", tmp_path / "there"], f"{tmp_path}/there exists already; name another folder"),
        (["--check", few, "--labels", f"folder:{place}/dark"], "expected a folder of covshift repair, with card.json"),
        (["--check", few], "name them: --labels"),
        ([], "expected a model and images"),
        (["--model", model.uri, "--target", "video:none.mp4"], "there is no video at none.mp4"),
    ]
    for words, message in rows:
        done = run("--out", out, *words) if "--out" not in words else run(*words)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
        assert message in done.stderr
        assert not out.exists()
    assert not list((tmp_path / "there").iterdir())
    skipped = run("--model", model.uri, "--target", f"folder:{broken}", "--skip-broken", "--out", out, "--json")
    assert json.loads(skipped.stdout)["target"]["images"] == 80


def test_a_folder_that_was_changed_is_noticed(place, model, tmp_path):
    made = covshift.repair(model, covshift.open_data(f"folder:{place}/dark"), progress=False)
    made.save(tmp_path / "r")
    Statistics.of(model).save(tmp_path / "r" / "patch.safetensors")
    with pytest.raises(CovshiftError, match="not the patch that its card describes"):
        repairs.check(tmp_path / "r", covshift.open_data(f"folder:{place}/dark"))


def seen(plain, adapted, half=None):
    """What `judge` looks at: logits, 100 images of 10 classes."""
    return Observation(plain, adapted, Distance({"layer": 0.5})), adapted if half is None else half


def forecast(plain, adapted):
    return Forecast(Prediction(plain, 0, 1), Prediction(adapted, 0, 1), Distance({"layer": 0.5}), 100)


ALL, ONE = torch.eye(10).repeat(10, 1), torch.eye(10)[:1].repeat(100, 1)
EIGHT = torch.eye(10)[torch.arange(100) % 8]


@pytest.mark.parametrize(
    ("looks", "more", "word"),
    [
        # one class: also half adapted it stays one, though the adapted model sees all
        (seen(5 * ONE, 2 * ALL, 5 * ONE), {}, "cannot help"),
        (seen(5 * ONE, 2 * ALL, 5 * ONE), {"forecast": forecast(0.8, 0.6)}, "cannot help"),
        # a confused model: half adapted it sees all classes
        (seen(5 * ONE, 4 * ALL, 3 * ALL), {}, "repair"),
        (seen(3 * ONE, 4 * ALL, 3 * ALL), {}, "repair"),
        # some classes, and a model that is less sure once it is adapted
        (seen(5 * EIGHT, 3 * ALL, 4 * EIGHT), {"forecast": forecast(0.3, 0.2)}, "cannot help"),
        (seen(3 * EIGHT, 4 * ALL, 4 * EIGHT), {"forecast": forecast(0.3, 0.2)}, "repair"),
        # a mix that is the usual one
        (seen(3 * EIGHT, 4 * EIGHT.roll(1, 1)), {"usual": EIGHT}, "repair"),
        # no shift
        (seen(4 * ALL, 5 * ALL), {}, "nothing to repair"),
        (seen(5 * ALL, 4 * ALL), {}, "nothing to repair"),
        (seen(5 * ALL, 4 * ALL), {"forecast": forecast(0.1, 0.1), "clean": 0.1}, "nothing to repair"),
        # a shift that adapting does not help with
        (seen(4 * ALL, 5 * ALL), {"forecast": forecast(0.3, 0.32), "clean": 0.1}, "cannot help"),
        (seen(4 * ALL[:20], 5 * ALL[:20]), {}, "cannot help"),
    ],
)
def test_verdicts(looks, more, word):
    assert repairs.judge(*looks, **more).word == word


@pytest.mark.slow
@pytest.mark.network
def test_foggy_pictures_of_cifar10():
    """Built-in images and network: the source and the target are images that the network was not trained on."""
    data = covshift.open_data("builtin:cifar10")
    model = covshift.open_model("builtin:resnet20")
    images, labels = data.pixels(model)
    shuffled = np.random.default_rng(0).permutation(len(labels))
    source, target = shuffled[:1000], shuffled[1000:2000]
    learned = covshift.shift.Predictor.fit(model, images[source], labels[source])
    for condition, words in (("fog", "repair"), ("clean", "nothing to repair")):
        made = images[target] if condition == "clean" else covshift.corrupt(images[target], condition, 4, seed=7)
        assert covshift.repair(model, made, source=learned).verdict.word == words
        assert covshift.repair(model, made).verdict.word == words
        one = made[labels[target] == 8]
        assert covshift.repair(model, one, source=learned).verdict.word == "cannot help"
        assert covshift.repair(model, one).verdict.word == "cannot help"
