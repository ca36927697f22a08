"""`covshift models`, and the paper's table of models."""

import json

import pytest
from typer.testing import CliRunner

from covshift.cli import app
from covshift.models.command import find

# The paper's table "Overview of different models with parameter counts": parameters and BN parameters. The table gives
# one row no name, between resnext101-32x8d and shufflenet-v2-x0-5; its numbers are those of resnext50-32x4d.
PAPER = {
    "densenet121": (7978856, 83648),
    "densenet161": (28681000, 219936),
    "densenet169": (14149480, 158400),
    "densenet201": (20013928, 229056),
    "googlenet": (13004888, 15072),
    "inception_v3": (27161264, 36224),
    "mnasnet0_5": (2218512, 20624),
    "mnasnet0_75": (3170208, 29808),
    "mnasnet1_0": (4383312, 37920),
    "mnasnet1_3": (6282256, 48816),
    "mobilenet_v2": (3504872, 34112),
    "resnet101": (44549160, 105344),
    "resnet152": (60192808, 151424),
    "resnet18": (11689512, 9600),
    "resnet34": (21797672, 17024),
    "resnet50": (25557032, 53120),
    "resnext101_32x8d": (88791336, 202880),
    "resnext50_32x4d": (25028904, 68224),
    "shufflenet_v2_x0_5": (1366792, 7952),
    "shufflenet_v2_x1_0": (2278604, 16180),
    "shufflenet_v2_x1_5": (3503624, 23440),
    "shufflenet_v2_x2_0": (7393996, 33716),
    "vgg11_bn": (132868840, 5504),
    "vgg13_bn": (133053736, 5888),
    "vgg16_bn": (138365992, 8448),
    "vgg19_bn": (143678248, 11008),
    "wide_resnet101_2": (126886696, 137856),
    "wide_resnet50_2": (68883240, 68224),
}


def run(*arguments):
    return CliRunner().invoke(app, ["models", *arguments])


def test_all_counts_of_the_paper():
    rows = {row.uri: row for row in find()}
    assert len(rows) >= 80
    assert len(PAPER) == 28
    for name, counts in PAPER.items():
        row = rows[f"torchvision:{name}"]
        assert (row.params, row.bn_params) == counts, name
        assert row.weights[0] == "IMAGENET1K_V1"


def test_json_for_programs():
    rows = json.loads(run("*resnet50*", "--json").stdout)
    assert [row["uri"] for row in rows] == ["torchvision:resnet50", "torchvision:wide_resnet50_2"]
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
        ("resnet18", ["torchvision:resnet18"]),
        ("torchvision:resnet18", ["torchvision:resnet18"]),
        ("squeezenet*", ["torchvision:squeezenet1_0", "torchvision:squeezenet1_1"]),
        ("timm:efficientnet_b0.*", ["timm:efficientnet_b0.ra4_e3600_r224_in1k", "timm:efficientnet_b0.ra_in1k"]),
    ],
)
def test_patterns(pattern, uris):
    assert [row.uri for row in find(pattern)] == uris


def test_the_table_and_its_errors():
    shown = run("resnet18")
    assert "torchvision:resnet18" in shown.stdout
    assert "11,689,512" in shown.stdout
    assert "0.08%" in shown.stdout
    nothing = run("no such model")
    assert nothing.exit_code == 1
    assert "no model fits 'no such model'; try" in nothing.stderr
