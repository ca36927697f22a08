"""What is recorded of a run, and how records of older versions are read."""

import json
from pathlib import Path

import pytest
from runs import OPTIONS, workplace

from covshift.bench.results.guessed import guess
from covshift.bench.results.store import Row, Store
from covshift.bench.run import run

STORED = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("prior", [None, 16.0, float("inf"), "auto", 0.5])
def test_rows_keep_their_prior(prior):
    values = {"cell": "fog/1/m", "model": "m", "data": "d", "corruption": "fog", "severity": 1, "method": "m", "n": 8}
    counts = {"images": 10, "top1_errors": 5, "top5_errors": 1, "seconds": 1.0}
    row = Row(**values, **counts, prior=prior)
    again = Row.model_validate_json(row.model_dump_json())
    assert again == row
    assert type(again.prior) is type(prior)


def test_family_and_norm_are_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(workplace(tmp_path))
    run({**OPTIONS, "corruptions": "none", "methods": "none"}, "out", progress=False)
    held = json.loads(Path("out/run.json").read_text())
    assert (held["model_family"], held["model_norm"], held["model_pretraining"]) == ("Sequential", "batch", "")
    # A run of an older version did not record them, nor plugins; it is read, and the same command records them.
    older = {name: value for name, value in held.items() if name not in ("model_family", "model_norm")}
    older["settings"].pop("plugins")
    Path("out/run.json").write_text(json.dumps(older))
    assert Store(Path("out")).run.model_family == "nets:net"
    run({**OPTIONS, "corruptions": "none", "methods": "none"}, "out", progress=False)
    assert json.loads(Path("out/run.json").read_text())["model_family"] == "Sequential"


@pytest.mark.parametrize(
    ("name", "family", "norm"),
    [("resnet20", "ResNet", "batch"), ("resnet20-gn", "ResNet", "group"), ("resnet20-fixup", "ResNet", "fixup")],
)
def test_what_old_runs_do_not_record_is_guessed_as_it_is(name, family, norm):
    """The guess for the runs that come with the repository against what their networks are."""
    from covshift import open_model

    old, model = Store(STORED / name).run, open_model(f"builtin:{name}")
    assert (old.model_family, old.model_norm) == (family, norm) == (model.family, model.norm)


@pytest.mark.parametrize(
    ("name", "adapted", "want"),
    [
        ("torchvision:vgg16", False, ("VGG", "")),
        ("torchvision:vgg16_bn", False, ("VGG", "batch")),
        ("torchvision:wide_resnet50_2/V1", True, ("Wide ResNet", "batch")),
        ("timm:resnext50_32x4d", False, ("ResNeXt", "batch")),
        ("py:mine:net?size=32", False, ("mine:net", "")),
        ("py:mine:net", True, ("mine:net", "batch")),
    ],
)
def test_guesses(name, adapted, want):
    assert guess(name, adapted=adapted) == want
