"""The training loop on a few drawn images: it learns, and killing it changes nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from covshift.cli import app
from covshift.data import cifar10
from covshift.data.cifar10 import CifarImages
from covshift.models import builtin
from covshift.support.errors import CovshiftError
from covshift.training import session, train
from covshift.training import state as run
from covshift.training.feed import ArrayFeed
from covshift.training.recipe import RECIPES, Recipe, find_recipe

TINY = Recipe("tiny", depth=8, width=4, epochs=3, batch=16, rate=0.05)


def images(count, seed):
    """Two classes that differ in colour, so that a tiny network can learn them."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    pixels = rng.integers(0, 160, (count, 32, 32, 3))
    pixels[labels == 1, :, :, 0] += 60
    return CifarImages(pixels.astype(np.uint8), labels.astype(np.int64))


def feed(augment="crop", count=72, classes=2):
    return ArrayFeed(images(count, 0), images(20, 1), augment, classes=classes)


def fit(folder, recipe=TINY, seed=0, **options):
    return train.train(recipe, feed(recipe.augment), folder, seed=seed, **options)


def after(steps):
    """A stop that says yes after so many steps."""
    left = iter(range(steps - 1))
    return lambda: next(left, None) is None


def assert_same(one, other):
    for name, tensor in one.network.state_dict().items():
        assert torch.equal(tensor, other.network.state_dict()[name]), name
    assert [row._replace(seconds=0) for row in one.history] == [row._replace(seconds=0) for row in other.history]


@pytest.mark.parametrize("augment", ["crop", "noise", "augmix"])
@pytest.mark.parametrize("norm", ["batch", "group", "fixup"])
def test_it_learns(tmp_path, augment, norm):
    result = fit(tmp_path, replace(TINY, augment=augment, norm=norm, epochs=10))
    assert result.done
    assert len(result.history) == 10
    assert result.history[-1].test_error <= 0.2
    assert result.history[-1].loss < result.history[0].loss


ADAMW = {"descent": "adamw", "decay": 0.05, "smoothing": 0.1, "rate": 3e-3, "norm": "layer"}


@pytest.mark.parametrize(
    "change",
    [
        {"precision": "bfloat16"},
        {"precision": "bfloat16", "norm": "group"},
        {"precision": "bfloat16", "augment": "augmix"},
        {"architecture": "vit", "depth": 1, "width": 32, **ADAMW},
        {"architecture": "convnext", "depth": 4, "width": 8, **ADAMW},
        {"architecture": "vit", "depth": 1, "width": 32, "precision": "bfloat16", **ADAMW},
    ],
    ids=str,
)
def test_it_learns_by_other_recipes_and_goes_on_to_the_same_weights(tmp_path, change):
    recipe = replace(TINY, epochs=8, **change)
    whole = fit(tmp_path / "whole", recipe)
    assert whole.history[-1].test_error <= 0.2
    assert all(tensor.dtype != torch.bfloat16 for tensor in whole.network.state_dict().values())
    fit(tmp_path / "parts", recipe, stop=after(6))
    assert_same(whole, fit(tmp_path / "parts", recipe))


@pytest.mark.parametrize("norm", ["batch", "group", "fixup"])
def test_bfloat16_learns_what_float32_learns(tmp_path, norm):
    recipe = replace(TINY, norm=norm, epochs=4)
    losses = [
        [row.loss for row in fit(tmp_path / precision, replace(recipe, precision=precision)).history]
        for precision in ("float32", "bfloat16")
    ]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.03)


def test_adamw_decays_matrices_only():
    recipe = find_recipe("vit")
    network = recipe.network()
    matrices, others = recipe.optimiser(network).param_groups
    assert (matrices["weight_decay"], others["weight_decay"]) == (0.05, 0)
    layers = [layer for layer in network.modules() if isinstance(layer, torch.nn.LayerNorm)]
    assert {id(layer.weight) for layer in layers} <= {id(p) for p in others["params"]}
    assert len(matrices["params"]) + len(others["params"]) == len(list(network.parameters()))


@pytest.mark.parametrize("augment", ["crop", "augmix", "mixup"])
@pytest.mark.parametrize("steps", [1, 4, 6])  # an epoch has four
def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path, augment, steps):
    recipe = replace(TINY, augment=augment)
    whole = fit(tmp_path / "whole", recipe)
    half = fit(tmp_path / "parts", recipe, stop=after(steps))
    assert not half.done
    assert_same(whole, fit(tmp_path / "parts", recipe))


def test_a_killed_run_goes_on_to_the_same_weights(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch; torch.set_num_threads(1)\n"
        "import test_train as t; from pathlib import Path; t.train.EVERY = 0\n"
        "t.fit(Path(sys.argv[2]), t.replace(t.TINY, epochs=1000))"
    )
    place = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", code, str(Path(__file__).parent), str(place)])
    while not (place / run.CHECKPOINT).exists():
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    step = torch.load(place / run.CHECKPOINT, weights_only=True)["sums"]["step"]
    recipe = replace(TINY, epochs=1000)
    assert_same(fit(tmp_path / "whole", recipe, stop=after(step + 3)), fit(place, recipe, stop=after(3)))


def test_a_done_run_is_not_repeated(tmp_path):
    first = fit(tmp_path)
    steps = []
    assert_same(first, fit(tmp_path, advance=steps.append))
    assert steps == [12]


def test_seeds_differ(tmp_path):
    one, other = fit(tmp_path / "0"), fit(tmp_path / "1", seed=1)
    assert not torch.equal(one.network.head.weight, other.network.head.weight)


def test_training_leaves_the_global_generator_alone(tmp_path):
    before = torch.get_rng_state()
    fit(tmp_path)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(("change", "seed"), [({"rate": 0.1}, 0), ({"name": "other", "norm": "group"}, 0), ({}, 7)])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, seed):
    fit(tmp_path, stop=after(1))
    with pytest.raises(CovshiftError, match=r"is of another run: it has .*, not .*; train in another folder"):
        fit(tmp_path, replace(TINY, **change), seed)


@pytest.mark.parametrize(
    ("change", "words"), [({"count": 48}, "images 72, not 48"), ({"classes": 3}, "classes 2, not 3")]
)
def test_a_checkpoint_of_other_images_is_refused(tmp_path, change, words):
    fit(tmp_path)
    with pytest.raises(CovshiftError, match=f"is of another run: it has {words}; train in another folder"):
        train.train(TINY, feed(**change), tmp_path)


def test_a_checkpoint_from_before_it_told_the_images_is_gone_on_with(tmp_path):
    fit(tmp_path, stop=after(1))
    whole = torch.load(tmp_path / run.CHECKPOINT, weights_only=True)
    torch.save({key: whole[key] for key in whole if key not in ("images", "classes")}, tmp_path / run.CHECKPOINT)
    assert fit(tmp_path).done


def test_a_folder_that_cannot_be_written_to_is_told_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    steps = []
    with pytest.raises(CovshiftError, match="cannot write"):
        fit(tmp_path / "file", advance=steps.append)
    assert not steps


@pytest.mark.parametrize("key", ["sums", "history", "network"])
def test_a_checkpoint_without_a_part_is_refused(tmp_path, key):
    fit(tmp_path, stop=after(1))
    whole = torch.load(tmp_path / run.CHECKPOINT, weights_only=True)
    del whole[key]
    torch.save(whole, tmp_path / run.CHECKPOINT)
    with pytest.raises(CovshiftError, match="not a checkpoint"):
        fit(tmp_path)


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\3\4"])
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    (tmp_path / run.CHECKPOINT).write_bytes(content)
    with pytest.raises(CovshiftError, match="not a checkpoint"):
        fit(tmp_path)


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    recipe = replace(TINY, norm="fixup", rate=1e30)
    fit(tmp_path, recipe, stop=after(1))
    good = (tmp_path / run.CHECKPOINT).read_bytes()
    with pytest.raises(CovshiftError, match=r"no longer a number in epoch 1, .*last good checkpoint.*lower rate"):
        fit(tmp_path, recipe)
    assert (tmp_path / run.CHECKPOINT).read_bytes() == good


def test_the_recipes():
    assert RECIPES["resnet20-gn"].norm == "group"
    with pytest.raises(CovshiftError, match="unknown recipe 'resnet20-augmx'; did you mean 'resnet20-augmix'"):
        find_recipe("resnet20-augmx")
    with pytest.raises(CovshiftError, match="at least one epoch, got 0"):
        Recipe("x", epochs=0)
    with pytest.raises(CovshiftError, match="at least one cycle, got 0"):
        Recipe("x", cycles=0)
    with pytest.raises(CovshiftError, match="unknown precision 'bfloat61'; did you mean 'bfloat16'"):
        Recipe("x", precision="bfloat61")
    with pytest.raises(CovshiftError, match="learning rate above 0, got nan"):
        Recipe("x", rate=float("nan"))
    with pytest.raises(CovshiftError, match="expected crop or mixup for pictures in folders, got 'augmix'"):
        Recipe("x", "imagenet", 50, augment="augmix")
    names = [name for name, recipe in RECIPES.items() if recipe.data == "cifar10"]
    assert {RECIPES[name].augment for name in names} == {"crop", "augmix", "noise"}


def test_a_recipe_starts_from_the_weights_of_another(tiny_cifar, tmp_path, monkeypatch):
    monkeypatch.setattr(builtin, "WEIGHTS", tmp_path)
    assert invoke("tiny", "--out", tmp_path).exit_code == 0
    recipe = replace(TINY, name="next", start="tiny", augment="noise")
    begun = fit(tmp_path / "next", recipe, stop=after(1)).network.state_dict()
    tiny = builtin.open_network("tiny").network.state_dict()
    drawn = TINY.network(2).state_dict()
    assert torch.dist(begun["stem.weight"], tiny["stem.weight"]) < 0.1 * torch.dist(
        begun["stem.weight"], drawn["stem.weight"]
    )
    with pytest.raises(CovshiftError, match="unknown built-in network 'tny'; did you mean 'tiny'"):
        replace(recipe, start="tny").network()


def test_fixup_scalars_learn_at_a_tenth_of_the_rate():
    recipe = find_recipe("resnet20-fixup")
    groups = recipe.optimiser(recipe.network()).param_groups
    assert [group["share"] for group in groups] == [1.0, 0.1]
    assert sum(p.numel() for p in groups[1]["params"]) == 9 * 5 + 2


@pytest.fixture
def tiny_cifar(monkeypatch):
    """The command, with drawn images in place of CIFAR-10 and one more recipe."""
    sets = {"train": images(72, 0), "test": images(20, 1)}
    monkeypatch.setattr(cifar10, "load", lambda split, folder=None: sets[split])
    monkeypatch.setitem(RECIPES, "tiny", TINY)


def invoke(*arguments):
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_the_command_writes_weights_and_a_card_that_open(tiny_cifar, tmp_path, monkeypatch):
    result = invoke("tiny", "--out", tmp_path, "--seed", 3, "--epochs", 2, "--threads", 1)
    assert result.exit_code == 0, result.output
    assert "tiny: clean error" in result.stdout
    assert "epoch 2/2: loss" in result.stderr
    card = json.loads((tmp_path / "tiny.json").read_text())
    assert card["command"] == "covshift train tiny --epochs 2 --rate 0.05 --seed 3"
    monkeypatch.setattr(builtin, "WEIGHTS", tmp_path)
    assert builtin.names() == ["tiny"]
    opened = builtin.open_network("tiny")
    assert opened.card["parameters"] == sum(p.numel() for p in opened.network.parameters())
    pixels = images(20, 1)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (opened.mean, opened.std))
    x = (torch.from_numpy(pixels.images).permute(0, 3, 1, 2) / 255 - mean) / std
    wrong = (opened.network(x).argmax(1).numpy() != pixels.labels).mean()
    assert wrong == pytest.approx(card["clean error"])


def test_the_card_says_the_precision(tiny_cifar, tmp_path):
    assert invoke("tiny", "--out", tmp_path, "--precision", "bfloat16").exit_code == 0
    card = json.loads((tmp_path / "tiny.json").read_text())
    assert card["recipe"]["precision"] == "bfloat16"
    assert card["command"] == "covshift train tiny --epochs 3 --rate 0.05 --seed 0 --precision bfloat16"


def test_the_command_says_how_to_go_on_after_ctrl_c(tiny_cifar, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "train", lambda *args, **kw: _interrupted(*args, **kw))
    result = invoke("tiny", "--out", tmp_path)
    assert result.exit_code == 130
    assert "the same command resumes" in result.stderr
    assert (tmp_path / run.CHECKPOINT).exists()
    monkeypatch.setattr(session, "train", train.train)
    assert invoke("tiny", "--out", tmp_path).exit_code == 0


def test_the_command_says_how_to_go_on_after_ctrl_c_while_it_fetches(tmp_path, monkeypatch):
    def load(split, folder=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(cifar10, "load", load)
    result = invoke("resnet20", "--out", tmp_path)
    assert result.exit_code == 130
    assert "what is fetched is kept, and the same command resumes" in result.stderr


def _interrupted(*args, **options):
    os.kill(os.getpid(), signal.SIGINT)
    return train.train(*args, **options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet-20"], "did you mean 'resnet20'"),
        (["tiny", "--rate", "-1"], "learning rate above 0"),
        (["tiny", "--precision", "float16"], "unknown precision 'float16'"),
        (["resnet20", "--data", "/nowhere"], "does not exist"),
        (["resnet50-gn"], "name it: --data DIR"),
        (["resnet50-gn", "--data", "/nowhere"], "expected a folder"),
    ],
)
def test_the_command_explains_bad_arguments(arguments, message, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "tiny", TINY)
    result = invoke(*arguments, "--out", tmp_path)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("device", ["abacus", "meta"])
def test_a_device_that_cannot_compute(device, tmp_path):
    with pytest.raises(CovshiftError, match=r"expected an? (available )?device,? such as auto, cpu"):
        fit(tmp_path, device=device)


def test_unknown_and_damaged_builtin_networks(tmp_path, monkeypatch):
    monkeypatch.setattr(builtin, "WEIGHTS", tmp_path)
    with pytest.raises(CovshiftError, match="unknown built-in network"):
        builtin.open_network("resnet20")
    (tmp_path / "resnet20.safetensors").write_bytes(b"half")
    with pytest.raises(CovshiftError, match="expected weights of covshift train"):
        builtin.open_network("resnet20")
