"""`covshift models`, and the paper's table of models."""

import json

import pytest
from published import PAPER
from typer.testing import CliRunner

from covshift.cli import app
from covshift.models.listing import find_models


def run(*arguments):
    return CliRunner().invoke(app, ["models", *arguments])


def test_all_counts_of_the_paper():
    rows = {row.uri: row for row in find_models()}
    assert len(rows) >= 80
    assert len(PAPER) == 28
    for name, counts in PAPER.items():
        row = rows[f"torchvision:{name}"]
        assert (row.params, row.bn_params) == counts, name
        assert row.weights[0] == "IMAGENET1K_V1"


def test_json_for_programs():
    rows = json.loads(run("*resnet50*", "--json").stdout)
    assert [row["uri"] for row in rows if not row["uri"].startswith("zoo:")] == [
        "torchvision:resnet50",
        "torchvision:wide_resnet50_2",
    ]
    assert rows[0] == {
        "uri": "torchvision:resnet50",
        "family": "resnet",
        "params": 25557032,
        "bn_params": 53120,
        "weights": ["IMAGENET1K_V1", "IMAGENET1K_V2"],
    }


@pytest.mark.parametrize(
    ("pattern", "uris"),
    [
        ("resnet18", ["torchvision:resnet18", "zoo:resnet18"]),
        ("zoo:ant*", ["zoo:ant", "zoo:ant-sin"]),
        ("torchvision:resnet18", ["torchvision:resnet18"]),
        ("squeezenet*", ["torchvision:squeezenet1_0", "torchvision:squeezenet1_1"]),
        ("timm:efficientnet_b0.*", ["timm:efficientnet_b0.ra4_e3600_r224_in1k", "timm:efficientnet_b0.ra_in1k"]),
    ],
)
def test_patterns(pattern, uris):
    assert [row.uri for row in find_models(pattern)] == uris


def test_the_table_and_its_errors():
    shown = run("resnet18")
    assert "torchvision:resnet18" in shown.stdout
    assert "11,689,512" in shown.stdout
    assert "0.08%" in shown.stdout
    nothing = run("no such model")
    assert nothing.exit_code == 1
    assert "no model matches 'no such model'; try" in nothing.stderr


def test_the_zoo_says_whose_it_is():
    (row,) = json.loads(run("zoo:augmix", "--json").stdout)
    assert row["licence"] == "Apache-2.0"
    assert row["address"][0].startswith("https://drive.google.com/file/d/")
    assert "sha256" not in row
    (row,) = json.loads(run("zoo:sin", "--json").stdout)
    assert row["sha256"] == ["2a0d100e"]
    assert row["preprocess"]["mean"] == [0.485, 0.456, 0.406]
    (row,) = json.loads(run("zoo:simclrv2-resnet50", "--json").stdout)  # a checkpoint in two files
    assert len(row["weights"]) == len(row["address"]) == 2
    (row,) = json.loads(run("zoo:fixup-resnet50", "--json").stdout)
    assert row["train"] == "covshift train resnet50-fixup"
    assert row["note"] == "nobody has published weights"
    assert "about" not in row


PLACES = {
    "builtin:resnet20": (19, {"layer": "BatchNorm2d", "side": "input", "channels": 16}),
    "builtin:resnet20-gn": (19, {"layer": "GroupNorm", "side": "output", "channels": 16}),
    "builtin:resnet20-fixup": (19, {"layer": "Conv2d", "side": "output", "channels": 16}),
    "builtin:vit": (13, {"layer": "LayerNorm", "side": "output", "channels": 96}),
    "builtin:convnext": (12, {"path": "stem_norm", "layer": "LayerNorm", "side": "output", "channels": 32}),
    "torchvision:squeezenet1_1": (26, {"path": "features.0", "layer": "Conv2d", "side": "output", "channels": 64}),
    "torchvision:swin_t/none": (29, {"path": "features.0.2", "layer": "LayerNorm", "side": "output", "channels": 96}),
    "torchvision:convnext_tiny": (
        23,
        {"path": "features.0.1", "layer": "LayerNorm2d", "side": "output", "channels": 96},
    ),
    "timm:vit_tiny_patch16_224": (
        25,
        {"path": "blocks.0.norm1", "layer": "LayerNorm", "side": "output", "channels": 192},
    ),
    "timm:convnext_atto": (17, {"path": "stem.1", "layer": "LayerNorm2d", "side": "output", "channels": 40}),
    "zoo:groupnorm-resnet50": (53, {"layer": "GroupNorm", "side": "output", "channels": 64}),
}


@pytest.mark.parametrize("uri", PLACES)
def test_the_places_of_a_model_need_no_weights(uri):
    number, first = PLACES[uri]
    rows = json.loads(run(uri, "--places", "--json").stdout)
    assert len(rows) == number
    assert first.items() <= rows[0].items()


def test_places_as_a_table_and_their_errors():
    shown = run("builtin:resnet20-gn", "--places")
    assert shown.stdout.splitlines()[1].split() == ["norm", "GroupNorm", "output", "16"]
    assert "19 places, 688 channels" in shown.stderr
    nameless = run("--places")
    assert nameless.exit_code == 1
    assert "expected the URI of a model with --places" in nameless.stderr
    assert "did you mean 'resnet18'" in run("torchvision:resnet81", "--places").stderr
