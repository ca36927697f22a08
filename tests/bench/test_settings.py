"""Settings from the command line, from YAML and from defaults; and the plan they make."""

import shlex

import pytest
from typer.testing import CliRunner

from covshift.bench.methods import PRIORS
from covshift.bench.settings import Settings
from covshift.cli import app
from covshift.data.condition import CLEAN, MIXED
from covshift.support.errors import CovshiftError

GIVEN = {"model": "m:x", "data": "d:x"}


def test_defaults_are_the_papers():
    plan = Settings.read(GIVEN).plan
    assert len(plan.conditions) == 96
    assert CLEAN in plan.conditions
    assert len(plan.holdout) == 20
    assert len(plan.all_names()) == len(set(plan.all_names())) == 96 * 3 + 20 * len(PRIORS)


def test_groups_lists_and_order():
    settings = Settings.read({**GIVEN, "corruptions": ["snow,fog", "holdout"], "severities": "5,1,5", "mixed": True})
    assert settings.corruptions == ("snow", "fog", "speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert settings.severities == (1, 5)
    assert MIXED in settings.plan.conditions


def test_methods_are_written_one_way():
    settings = Settings.read({**GIVEN, "methods": ["none,batch:n=8", "stream", "batch:n=8,N=16.0"]})
    assert settings.methods == ("none", "batch:n=8,N=16", "stream:n=1,N=16")


def test_the_grid_is_the_papers():
    assert len(Settings.read({**GIVEN, "methods": "none", "grid": True}).all_methods) == 1 + 10 * 9


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"corruptions": "test", "severities": "3", "methods": "none,batch:n=8,N=0", "grid": True, "prior": 16},
        {"prior": "auto", "methods": "none,batch:n=4,N=auto", "plugins": "string,textwrap"},
        {"corruptions": "none", "limit": 100, "order": "label", "seed": 3, "mean": (0.5, 0.25, 0.125), "size": 64},
        {"order": "dirichlet:0.10", "sequence": "gradual", "methods": "none,tent:n=16,lame"},
        {"order": "runs:20", "sequence": "clean,fog/5:200,clean", "severities": "3"},
        {"corruptions": "snow,saturate", "mixed": True, "clean": False, "jpeg": 85, "data": "folder:my images"},
    ],
)
def test_the_command_of_settings_makes_them_again(given, monkeypatch, tmp_path):
    told = {}
    monkeypatch.setattr("covshift.cli.bench_run.run", lambda values, *_, **__: told.update(values))
    settings = Settings.read({**GIVEN, **given})
    words = shlex.split(settings.command(str(tmp_path / "out")))
    CliRunner().invoke(app, words[1:], catch_exceptions=False)
    assert Settings.read(told) == settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "m:x"}, "expected the setting data"),
        ({**GIVEN, "limits": 5}, "did you mean 'limit'"),
        ({**GIVEN, "limit": 0}, "expected a number from 1"),
        ({**GIVEN, "limit": "many"}, "setting 'limit'"),
        ({**GIVEN, "corruptions": "fogg"}, "did you mean 'fog'"),
        ({**GIVEN, "severities": "6"}, "severity from 1 to 5"),
        ({**GIVEN, "severities": "x"}, "severity from 1 to 5"),
        ({**GIVEN, "mean": (0.5, 0.5)}, "setting 'mean"),
        ({**GIVEN, "order": "random"}, "setting 'order'"),
        ({**GIVEN, "order": "runs:0"}, "such as runs:20"),
        ({**GIVEN, "sequence": "continuous"}, "did you mean 'continual'?"),
        ({**GIVEN, "sequence": "fogg/5,clean"}, "did you mean 'fog'?"),
        ({**GIVEN, "seed": -1}, "setting 'seed': expected a number from 0"),
        ({**GIVEN, "prior": -1}, "setting 'prior': expected a number from 0"),
        ({**GIVEN, "prior": "some"}, "setting 'prior': expected a number from 0, or auto"),
        ({**GIVEN, "jpeg": 300}, "JPEG quality from 1 to 100"),
        ({**GIVEN, "frost": "nonsense"}, "a folder of textures"),
        ({**GIVEN, "severities": ""}, "at least one severity"),
    ],
)
def test_bad_settings(given, words):
    with pytest.raises(CovshiftError) as caught:
        Settings.read(given)
    assert words in str(caught.value)
