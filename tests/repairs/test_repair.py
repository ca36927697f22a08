"""Repair: errors fall where images have moved, nothing happens where they have not, and one class alone is refused."""

import errno
import hashlib
import json
import shutil

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
from covshift.repairs.batches import as_batches, spread
from covshift.repairs.verdict import believed_gain
from covshift.shift.distance import Distance
from covshift.shift.forecast.assess import learn
from covshift.shift.forecast.forecast import ClassMix, Forecast, Prediction
from covshift.shift.forecast.observe import Conditional, Observation


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
    asked = ["--model", model.uri, "--target", f"folder:{place}/dark", "--predictor", tmp_path / "learned"]
    done = run(*asked, "--source", source.uri, "--out", tmp_path / "r")
    assert done.exit_code == 0, done.output
    assert run(*asked, "--out", tmp_path / "again").stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert done.stdout.startswith("repair: the images have moved by ")
    assert "; the predicted error is " in done.stdout
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
    source = covshift.open_data(f"npz:{place}/source.npz")
    made = covshift.repair(model, labelled, source=source, limit=360, force=True, progress=False)
    assert "few classes, or a strong shift" in made.verdict.reason, "which it is cannot be told without BatchNorm"
    assert made.card.source == {"uri": source.uri, "digest": source.digest, "images": 360}, "of 600"
    assert made.card.method == "statistics of one giant batch, as far as chance does not explain them"
    learned = learn(model, source, 360, progress=False)
    learned.save(tmp_path / "learned")
    again = covshift.shift.Predictor.load(tmp_path / "learned", model, batch_size=64)
    assert covshift.repair(model, labelled, source=again, force=True, progress=False).patch == made.patch, (
        "learned before"
    )
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
    first = made.samples[0]
    assert f"| ![](samples/0.png) | {first.plain:02d} | {first.adapted:02d} |" in page, "names of folders"
    changed = [sample.plain != sample.adapted for sample in made.samples]
    assert changed[0]
    assert changed == sorted(changed, reverse=True), "those first whose class has changed"
    assert "samples/7.png" in page
    assert card["effective_classes"].keys() == {"before", "half", "after"}
    assert f"| effective classes with half of the layers adapted | {card['effective_classes']['half']:.1f} |" in page
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
    card = json.loads((tmp_path / "r" / "card.json").read_text())
    assert card["forced"] is True
    assert card["method"] == "statistics of one giant batch, first half of the layers", "which does less harm"
    assert list(Statistics.load(tmp_path / "r" / "patch.safetensors")) == ["1"], "of 1 and 4"
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
    assert (made.card.target["images"], made.card.target["looked_at"]) == (360, 100), "spread evenly"
    # Folders are sorted by class, and a batch of one class would have the statistics of that class.
    assert made.patch == covshift.estimate(model, data.loader(model, order="shuffled"), exact=False)


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
        (
            ["--model", f"file:{place}/fused.pt?arch=py:stripes:fused", *good[2:]],
            "measure them on, such as --source folder:val",
        ),
        ([*good, "--source", f"folder:{place}/one"], "distinguishes 12 classes"),
        ([*good, "--out", tmp_path / "there"], f"{tmp_path}/there exists already; name another folder"),
        ([*good, "--out", broken / path.name / "r"], "is not a folder that can be written to"),
        (["--check", few, "--labels", f"folder:{place}/dark"], "whose card.json cannot be read: No such file"),
        (["--check", few], "name them: --labels"),
        ([*good, "--labels", f"folder:{place}/dark"], "expected --labels with --check"),
        ([*good, "--limit", 10], "expected at least 32 images to take statistics of, got 10"),
        ([], "expected a model and images"),
        ([*good, "--predictor", "typo"], "there is no predictor at typo"),
        (
            ["--model", model.uri, "--target", f"folder:{few}", "--source", "npz:x", "--predictor", tmp_path / "p"],
            "expected at least 32 images to take statistics of, got 5",
        ),
        (["--model", model.uri, "--target", "video:none.mp4"], "there is no video at none.mp4"),
    ]
    for words, message in rows:
        done = run(*words) if "--out" in words or "--check" in words else run("--out", out, *words)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
        assert message in done.stderr
        assert not out.exists()
    assert not list((tmp_path / "there").iterdir())
    skipped = run("--model", model.uri, "--target", f"folder:{broken}", "--skip-broken", "--out", out, "--json")
    assert json.loads(skipped.stdout)["target"]["images"] == 80
    made = tmp_path / "made"
    printed = json.loads(run(*good, "--out", made, "--json").stdout)
    assert printed == json.loads((made / "card.json").read_text()), "with the digests of its files"
    source = ["--source", f"npz:{place}/source.npz"]
    for more in (["--force"], ["--out", tmp_path / "new"], source, ["--predictor", "p"]):
        done = run("--check", made, "--labels", f"folder:{place}/dark", *more)
        assert done.stderr.startswith("error: expected --check with --labels alone"), done.output
    shutil.copytree(place / "dark", tmp_path / "labelled")
    (tmp_path / "labelled" / "00" / "half.png").write_bytes(path.read_bytes()[:100])
    words = ["--check", made, "--labels", f"folder:{tmp_path}/labelled"]
    assert "leave it out with --skip-broken" in run(*words).stderr
    assert json.loads(run(*words, "--skip-broken", "--json").stdout)["images"] == 360


def test_a_limit_leaves_the_mix_of_classes_as_it_is(place, model):
    """By the limit of a loader, of which labels choose the images, most of one class would look like all alike."""
    images, labels = stripes.stripes(600, seed=3)
    kept = (labels == 7) | (np.arange(600) < 60)
    np.savez(place / "mostly.npz", images=images[kept], labels=labels[kept])
    data = covshift.open_data(f"npz:{place}/mostly.npz")
    share = (data.labels == 7).mean()
    taken = torch.cat([batch[1] for batch in as_batches(model, data, limit=60, skip_broken=False)])
    assert len(taken) == 60
    assert abs((taken == 7).double().mean().item() - share) < 0.15 < share - 1 / 12
    folder = torch.utils.data.DataLoader(torch.arange(100.0), batch_size=8)
    assert torch.cat(list(spread(folder, 25))).tolist() == list(range(0, 100, 4))
    shuffled = torch.utils.data.DataLoader(torch.arange(100.0), batch_size=8, shuffle=True)
    assert spread(shuffled, 25) is shuffled, "whose order is its own"


@pytest.mark.parametrize("name", ["patch.safetensors", "weights.safetensors"])
def test_a_folder_that_was_changed_is_noticed(name, place, model, tmp_path):
    made = covshift.repair(model, covshift.open_data(f"folder:{place}/dark"), progress=False)
    made.save(tmp_path / "r")
    Statistics.of(model).save(tmp_path / "r" / name)
    with pytest.raises(CovshiftError, match=f"{name} is not the file that its card describes"):
        repairs.check(tmp_path / "r", covshift.open_data(f"folder:{place}/dark"))


def seen(plain, adapted, half=None, past=None):
    """What `judge` looks at: logits, 100 images of 10 classes; `past` what their classes explain."""
    rows = torch.arange(0, 100, 2)
    conditional = None if past is None else Conditional(rows, past[rows])
    return Observation(plain, adapted, Distance({"layer": 0.5}), conditional), adapted if half is None else half


def forecast(plain, adapted, **more):
    return Forecast(Prediction(plain, 0, 1), Prediction(adapted, 0, 1), Distance({"layer": 0.5}), 100, **more)


ALL, ONE = torch.eye(10).repeat(10, 1), torch.eye(10)[:1].repeat(100, 1)
OTHER = ALL.roll(1, 1)
DOUBTFUL = torch.where(torch.arange(100)[:, None] % 5 < 3, 9 * ALL, 1.2 * ALL)
"""Answers of all classes, some of them sure."""
EIGHT = torch.eye(10)[torch.arange(100) % 8]
SOME = torch.where(torch.arange(100)[:, None] % 10 == 0, EIGHT.roll(1, 1), EIGHT)
"""Every tenth answer is another one than in `EIGHT`."""
HARDLY = torch.where(torch.arange(100)[:, None] % 10 == 0, EIGHT.roll(1, 1), 3 * EIGHT)
HARDLY[::10] *= torch.linspace(1.4, 8, 10)[:, None]
"""Every tenth answer is another one, and some of these are surer: a gain of some 1.4 standard errors."""
SKEWED = ClassMix((0.9, *[0.1 / 9] * 9), (0.1,) * 10, skewed=True)
FEW = forecast(0.3, 0.4, sure=False, why="few classes", classes=SKEWED)
NEW = forecast(0.3, 0.4, sure=False, why="it is new")
EVEN = ClassMix((0.1,) * 10, (0.1,) * 10, skewed=False)
PROMISE = forecast(0.8, 0.6, classes=EVEN)


@pytest.mark.parametrize(
    ("looks", "more", "word", "half"),
    [
        # the answers of the one that is surer are the better ones, on average
        (seen(3 * ALL, 4 * OTHER), {}, "repair", False),
        (seen(4 * ALL, 3 * OTHER), {}, "nothing to repair", False),
        (seen(4 * ALL, 4 * OTHER), {}, "nothing to repair", False),
        (seen(4 * ALL, 5 * ALL), {}, "nothing to repair", False),
        # adapting all layers makes it worse than adapting the first half
        (seen(3 * ALL, 4 * ALL, 5 * OTHER), {}, "repair", True),
        # uneven answers: all layers only where that is believed to be better than half of them
        (seen(3 * EIGHT, 5 * SOME, 5 * SOME), {}, "repair", True),
        (seen(3 * EIGHT, 5 * EIGHT.roll(1, 1), 4 * SOME), {}, "repair", False),
        (seen(3 * EIGHT, 5 * EIGHT.roll(1, 1), 4 * SOME), {"usual": EIGHT.mean(0)}, "repair", False),
        (seen(3 * EIGHT, 5 * SOME, 5 * SOME), {"usual": EIGHT.mean(0)}, "repair", False),
        # one class, which the adapted model takes for all; in a shift that the first half of the layers undoes; and not
        (seen(5 * ONE, 2 * ALL, 4 * ONE), {}, "cannot help", True),
        (seen(5 * ONE, 2 * ALL, 4 * ONE), {"forecast": forecast(0.8, 0.6)}, "cannot help", True),
        (seen(3 * ALL, 2 * ALL, 4 * ONE), {}, "repair", True),
        # a confused model
        (seen(3 * ONE, 5 * ALL, 4 * ALL), {}, "repair", False),
        # few classes by the forecast, which knows more of them, so that even answers speak for nothing
        (seen(4 * ALL, 3 * OTHER), {"forecast": forecast(0.8, 0.6, classes=SKEWED)}, "cannot help", True),
        (seen(3 * ONE, DOUBTFUL), {}, "repair", False),
        (seen(3 * ONE, DOUBTFUL), {"forecast": FEW}, "cannot help", True),
        (seen(3 * ONE, 2 * ALL), {}, "repair", False),
        # or a single class, which the network answers evenly once it is adapted to it
        (seen(3 * ONE, 2 * ALL, past=9 * ONE), {}, "repair", False),
        (seen(3 * ONE, 2 * ALL, past=9 * ONE), {"has_statistics": False}, "cannot help", False),
        (seen(3 * ONE, DOUBTFUL, past=9 * ALL), {"has_statistics": False}, "repair", False),
        # few classes: gains have to be clear, and the model that is adapted past the classes has to agree
        (seen(3 * ALL, 4 * OTHER, past=9 * OTHER), {"forecast": FEW}, "repair", True),
        (seen(3 * ALL, 4 * OTHER, past=9 * ALL), {"forecast": FEW}, "cannot help", True),
        (seen(3 * ALL, 4 * OTHER, past=9 * ALL), {"forecast": NEW}, "repair", False),
        (seen(3 * EIGHT, HARDLY), {}, "repair", True),
        (seen(3 * EIGHT, HARDLY), {"forecast": FEW}, "cannot help", True),
        # a clear fall is expected, and images of all classes, whatever is believed of uneven answers or of sure ones
        (seen(4 * ALL, 3 * OTHER), {"forecast": forecast(0.3, 0.26, classes=EVEN), "clean": 0.1}, "repair", False),
        (seen(5 * ONE, 2 * ALL, 4 * ONE), {"forecast": PROMISE}, "repair", False),
        (seen(4 * ALL, 3 * OTHER), {"forecast": forecast(0.3, 0.28, classes=EVEN)}, "cannot help", False),
        (seen(4 * ALL, 3 * OTHER), {"forecast": forecast(0.3, 0.2), "clean": 0.1}, "cannot help", False),
        (
            seen(4 * ALL, 3 * OTHER),
            {"forecast": forecast(0.3, 0.2, sure=False, classes=EVEN)},
            "nothing to repair",
            False,
        ),
        (seen(3 * ONE, 2 * ALL, past=9 * ONE), {"forecast": PROMISE}, "repair", False),
        (seen(3 * ONE, 2 * ALL, past=9 * ONE), {"forecast": PROMISE, "has_statistics": False}, "cannot help", False),
        # errors that cannot be relied on do not count
        (seen(3 * ALL, 4 * OTHER), {"forecast": NEW}, "repair", False),
        (seen(4 * ALL, 3 * OTHER), {"forecast": NEW}, "nothing to repair", False),
        # no gain: is the error above that on clean images by more than chance?
        (seen(4 * ALL, 3 * OTHER), {"forecast": forecast(0.15, 0.13), "clean": 0.1}, "nothing to repair", False),
        (seen(4 * ALL, 3 * OTHER), {"forecast": forecast(0.3, 0.32), "clean": 0.1}, "cannot help", False),
    ],
)
def test_verdicts(looks, more, word, half):
    verdict = repairs.judge(*looks, **more)
    assert (verdict.word, verdict.half) == (word, half)
    assert ("it is new" in verdict.reason) == (more.get("forecast") is NEW)


def test_a_gain_is_what_both_models_believe():
    """Truths are drawn as both models believe on average, and errors counted."""
    before, after = torch.randn(2, 2000, 5, generator=torch.Generator().manual_seed(0)) * 2
    beliefs = (before.softmax(1) + after.softmax(1)) / 2
    truths = torch.multinomial(beliefs, 200, replacement=True, generator=torch.Generator().manual_seed(1))
    wrong = [(each.argmax(1, keepdim=True) != truths).double().mean().item() for each in (before, after)]
    gain = believed_gain(before, after)
    assert gain.fall == pytest.approx(wrong[0] - wrong[1], abs=0.003)
    falls = [believed_gain(*(each[part] for each in (before, after))).fall for part in torch.arange(2000).split(50)]
    assert believed_gain(before[:50], after[:50]).uncertainty == pytest.approx(np.std(falls), rel=0.3)


def test_chance_makes_no_repair():
    """Of two models whose answers differ on one or two images of a hundred, neither is better."""
    plain, adapted = 4 * ALL, 4 * ALL
    adapted[:2] = 9 * torch.eye(10)[5:7]
    assert repairs.judge(*seen(plain, adapted)).word == "nothing to repair"
    adapted[2:4] = 9 * torch.eye(10)[7:9]
    assert repairs.judge(*seen(plain, adapted)).word == "repair"


def test_repeats_make_no_repair():
    """What speaks for nothing on 100 images speaks for nothing where each of them is shown nine times."""
    adapted = 4 * ALL
    adapted[:4] = torch.tensor([9.0, 9.0, 4.0, 3.0])[:, None] * torch.eye(10)[5:9]
    once = seen(4 * ALL, adapted)
    often = Observation(
        *(each.repeat(9, 1) for each in once[0][:2]), Distance({"layer": 0.5}), firsts=torch.arange(100)
    )
    verdict = repairs.judge(*once)
    assert verdict.word == "nothing to repair"
    assert repairs.judge(often, once[1].repeat(9, 1)) == verdict
    assert repairs.judge(often._replace(firsts=None), once[1].repeat(9, 1)).word == "repair"
    few = often._replace(firsts=torch.arange(20))
    with pytest.raises(CovshiftError, match="at least 32 different images to take statistics of, got 20 among 900"):
        repairs.judge(few, often.adapted)


def test_even_answers_that_get_surer_are_repaired():
    """Where the models disagree both are as sure; where they agree, one of them is surer."""
    for change, word in ((1.5, "repair"), (0.7, "nothing to repair")):
        adapted = 3 * change * ALL
        adapted[:10] = 3 * OTHER[:10]
        assert repairs.judge(*seen(3 * ALL, adapted)).word == word


def test_all_layers_are_not_adapted_against_a_forecast():
    looks = seen(3 * ALL, 4 * OTHER)
    assert repairs.judge(*looks, forecast(0.3, 0.2), clean=0.1).word == "repair"
    assert repairs.judge(*looks, forecast(0.3, 0.35), clean=0.1).word == "cannot help"


def test_few_images_have_no_verdict():
    with pytest.raises(CovshiftError, match="expected at least 32 images to take statistics of, got 20"):
        repairs.judge(*seen(4 * ALL[:20], 5 * ALL[:20]))


def test_a_verdict_rests_on_the_forecast_of_its_predictor(place, model):
    clean, labels = stripes.stripes(300, seed=2)
    learned = covshift.shift.Predictor.fit(model, clean, labels, severities=(3, 5), imitations=(), progress=False)
    images = covshift.open_data(f"folder:{place}/dark").pixels(model).images
    made, alone = covshift.repair(model, images, source=learned, progress=False), learned.predict(images)
    assert made.card.source == {"images": 300}
    assert made.forecast.plain.error == pytest.approx(alone.plain.error, abs=1e-4)
    assert (made.forecast.sure, made.forecast.advice.action) == (alone.sure, alone.advice.action)
    assert made.forecast.classes.shares == pytest.approx(alone.classes.shares, abs=1e-4)
    assert made.card.predicted["sure"] == alone.sure
    other = covshift.open_model(model.uri)
    assert covshift.repair(other, images, source=learned, progress=False).verdict == made.verdict, "the same weights"
    with torch.no_grad():
        other.module[0].weight.mul_(2)
    with pytest.raises(CovshiftError, match="fitted on another model or on other weights"):
        covshift.repair(other, images, source=learned, progress=False)


def test_a_full_disk_is_one_sentence(place, model, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    made = covshift.repair(model, covshift.open_data(f"folder:{place}/dark"), progress=False)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(CovshiftError, match=rf"^cannot write {tmp_path}/r/\w+.safetensors: No space left on device"):
        made.save(tmp_path / "r")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["save", "write_image"])
def test_nothing_is_left_of_a_repair_that_was_stopped(name, place, model, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"covshift.repairs.folder.{'export_model' if name == 'save' else name}", stop)
    done = run("--model", model.uri, "--target", f"folder:{place}/dark", "--out", tmp_path / "r")
    assert (done.exit_code, done.stderr) == (130, "stopped by Ctrl-C\n")
    assert not list(tmp_path.iterdir())


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
