"""What users register: the example of docs/howto/extend.md, run as a user would, and what is refused."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import OPTIONS, by_cell, workplace
from typer.testing import CliRunner

import covshift
from covshift import bench, corruptions
from covshift.bench.methods import base, parse_method
from covshift.bench.results.store import Store
from covshift.bench.run import run
from covshift.bench.settings import Settings
from covshift.bench.summary import table
from covshift.cli import app
from covshift.corruptions import registry as corruption_registry
from covshift.data import CLEAN, open_data
from covshift.data.selection import choose
from covshift.models import open_model
from covshift.support.errors import CovshiftError

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "extend.md"
CHANGES = {
    "plugins": "mine",
    "corruptions": "fog,darkness",
    "severities": "3",
    "methods": "none,full,forgetful:n=5,half_life=20,halfway:share=0.3",
}


@pytest.fixture(autouse=True)
def forget():
    """Let each test begin without what others have registered, and without their modules."""
    tables = (base.REGISTERED, corruption_registry._REGISTERED)
    before, module = [dict(each) for each in tables], sys.modules.pop("mine", None)
    corruption_registry._REGISTERED.clear()
    yield
    for held, was in zip(tables, before, strict=True):
        held.clear()
        held.update(was)
    sys.modules.pop("mine", None)
    if module is not None:
        sys.modules["mine"] = module


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with a model, data, and the page's example as mine.py."""
    monkeypatch.chdir(workplace(tmp_path))
    (example,) = re.findall(r"^```python title=\"mine.py\"\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "mine.py").write_text(example)
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def wrong(model, images, labels, at_once=50) -> int:
    with torch.inference_mode():
        parts = [model.module(model.preprocess.tensor(part)) for part in np.split(images, range(at_once, 50, at_once))]
    return int((torch.cat(parts).argmax(1) != torch.from_numpy(labels)).sum())


def test_example_counts_errors_as_plain_code_does(here):
    rows = by_cell(run({**OPTIONS, **CHANGES}, "out", progress=False).folder)
    model, data = open_model(OPTIONS["model"], size=16), open_data(OPTIONS["data"])
    order = choose(data.labels)
    labels = data.labels[order]
    images = covshift.corrupt(data.array(CLEAN)[order], "darkness", 3, indices=order)
    assert images.mean() < 0.5 * data.array(CLEAN).mean()
    assert rows["darkness/3/none"]["top1_errors"] == wrong(model, images, labels)
    with covshift.adapt(model.module, covshift.Stream(prior=16, decay=0.5 ** (1 / 20))):
        assert rows["darkness/3/forgetful:n=5,half_life=20"]["top1_errors"] == wrong(model, images, labels, 5)
    source = covshift.Statistics.of(model.module)
    target = covshift.estimate(model.module, model.preprocess.tensor(images))
    target.mix(source, prior=50 * 0.7 / 0.3).apply(model.module)
    assert rows["darkness/3/halfway:share=0.3"]["top1_errors"] == wrong(model, images, labels)
    assert rows["darkness/3/forgetful:n=5,half_life=20"]["prior"] == 16


def test_results_are_shown_without_the_code(here):
    run({**OPTIONS, **CHANGES}, "out", progress=False)
    with_code = table(Path("out"), "text")
    assert "darkness" in with_code
    assert "halfway:share=0.3" in with_code
    # Another process, which would fail if the module were imported.
    (here / "mine.py").write_text("raise SystemExit(7)")
    code = "from pathlib import Path; from covshift.bench.summary import table; print(table(Path('out'), 'text'))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == with_code.strip()


def test_a_report_shows_images_in_ones_own_corruptions_where_it_has_their_code(here):
    run({**OPTIONS, **CHANGES}, "out", progress=False)
    corruption_registry._REGISTERED.clear()
    sys.modules.pop("mine")
    without = invoke("report", "out", "--out", "page", "--no-files")
    assert (without.exit_code, "no gallery of out in darkness: unknown corruption" in without.stderr) == (0, True)
    text = Path("page/index.html").read_text()
    assert "since their code is not here: darkness; name its module as a plugin" in text
    assert 'id="gallery-out-fog"' in text
    assert 'id="gallery-out-darkness"' not in text
    assert invoke("report", "out", "--out", "page", "--no-files", "--plugin", "mine").exit_code == 0
    text = Path("page/index.html").read_text()
    assert 'id="gallery-out-darkness"' in text
    assert "covshift report out --out page --plugin mine --measure 1000" in text


def test_a_run_goes_on_with_its_plugin_only(here):
    run({**OPTIONS, **CHANGES}, "out", progress=False)
    held = by_cell("out")
    run({"severities": "5"}, "out", extend=True, progress=False)
    rows = by_cell("out")
    assert {cell for cell in rows if cell.startswith("darkness/5")} == {
        f"darkness/5/{method}" for method in Settings.read({**OPTIONS, **CHANGES}).methods
    }
    assert held.items() <= rows.items()
    assert Store(Path("out")).run.settings.plugins == ("mine",)


def test_own_corruptions_leave_mce_alone(here):
    """Only the 15 count, whatever is registered in whichever category."""
    corruptions.register("extra", lambda image, constant, rng: image, severities=range(5), category="noise")
    assert len(corruptions.names("test")) == 15
    assert len(corruptions.names("all")) == 19
    assert corruptions.names("registered") == ("extra",)
    assert Settings.read({**OPTIONS, "corruptions": "registered,fog"}).corruptions == ("fog", "extra")
    assert Settings.read(OPTIONS).corruptions == corruptions.names("all")


def test_what_comes_out_follows_from_seed_and_index():
    @corruptions.register("grain", severities=(1, 2, 3, 4, 5))
    def grain(image, strength, rng):
        return image / 255 + rng.normal(0, strength / 50, image.shape)

    images = np.full((4, 32, 32, 3), 128, np.uint8)
    whole = covshift.corrupt(images, "grain", 5)
    assert (covshift.corrupt(images[2:], "grain", 5, indices=[2, 3]) == whole[2:]).all()
    assert (covshift.corrupt(images, "grain", 5, seed=1) != whole).any()
    assert covshift.corrupt(images, "grain", 5).std() > covshift.corrupt(images, "grain", 1).std()


def same(image, constant, rng):
    return image


BAD_CORRUPTIONS = [
    (("fog", same, range(5)), "'fog' is taken"),
    (("clean", same, range(5)), "'clean' is taken"),
    (("two words", same, range(5)), "letters, digits and _"),
    (("a/b", same, range(5)), "letters, digits and _"),
    (("", same, range(5)), "letters, digits and _"),
    (("mine", same, (1, 2, 3)), "expected 5 constants"),
    (("mine", same, "12345"), "expected 5 constants"),
    (("mine", same, 5), "expected 5 constants"),
    (("mine", 5, range(5)), "expected a function"),
]


@pytest.mark.parametrize(("given", "words"), BAD_CORRUPTIONS)
def test_bad_corruptions_are_refused(given, words):
    name, function, severities = given
    with pytest.raises(CovshiftError, match=words):
        corruptions.register(name, function, severities=severities)
    assert corruptions.names("registered") == ()


BAD_RESULTS = [
    (lambda image: image[:-1], r"shape \(32, 32, 3\), got shape \(31, 32, 3\)"),
    (lambda image: image.tolist(), "got list"),
    (lambda image: image.astype(int), "got int64"),
    (lambda image: image / 0.0, "NaN or infinite"),
]


@pytest.mark.parametrize(("function", "words"), BAD_RESULTS)
def test_bad_results_are_refused(function, words):
    corruptions.register("odd", lambda image, constant, rng: function(image), severities=range(5))
    with np.errstate(all="ignore"), pytest.raises(CovshiftError, match=words):
        covshift.corrupt(np.zeros((32, 32, 3), np.uint8), "odd", 1)


def test_two_corruptions_of_one_name_are_refused():
    corruptions.register("mine", same, severities=range(5))
    corruptions.register("mine", same, severities=range(5))  # the same code again, as when a module is reloaded
    with pytest.raises(CovshiftError, match="'mine' is taken"):
        corruptions.register("mine", lambda image, constant, rng: image, severities=range(5))


BAD_METHODS = [
    ("full", covshift.Stream, "there is a method 'full' already"),
    ("a b", covshift.Stream, "letters, digits, _ and -"),
    ("a:b", covshift.Stream, "letters, digits, _ and -"),
    ("mine", 5, "a function that returns a policy"),
]


@pytest.mark.parametrize(("name", "what", "words"), BAD_METHODS)
def test_bad_methods_are_refused(name, what, words):
    with pytest.raises(CovshiftError, match=words):
        bench.register(name, what)


@dataclass(frozen=True)
class Twice(bench.Method):
    """A method with values of several kinds."""

    n: int | None = 4
    strength: float = 1.0
    mode: str = "soft"
    offset: int = 0

    def run(self, on):
        """Do nothing."""


def test_methods_are_written_and_read():
    bench.register("twice", Twice)
    bench.register("plain", covshift.Stream)
    method = parse_method("twice:strength=2")
    assert method == Twice(strength=2)
    assert method.name == "twice:n=4,strength=2,mode=soft,offset=0"
    assert parse_method(method.name) == method
    assert parse_method("twice:strength=-0.5,offset=-3") == Twice(strength=-0.5, offset=-3)
    assert parse_method("plain:n=8,decay=0.5").name == "plain:n=8,decay=0.5"
    for text, words in {
        "twice:n=0.5": "whole number from 1",
        "twice:n=-4": "n in 'twice:n=-4' to be a whole number from 1",
        "twice:offset=-0.5": "offset in .* to be a whole number$",
        "twice:strength=nan": "strength in .* to be a number$",
        "twice:strength=x": "expected a method such as",
        "twice:power=2": "takes no power",
        "plain:power=2": "cannot make the policy of method 'plain:power=2'",
        "plain:decay=2": "expected decay to be a factor",
        "twise": "did you mean 'twice'",
    }.items():
        with pytest.raises(CovshiftError, match=words):
            parse_method(text)
    with pytest.raises(CovshiftError, match="registered as 'twice' already"):
        bench.register("again", Twice)


@pytest.mark.parametrize(
    ("plugin", "content", "words"),
    [
        ("nowhere", "", "there is no Python module 'nowhere'"),
        ("mine", "1 / 0", "the plugin mine cannot be imported: ZeroDivisionError"),
        ("mine.py:f", "", "expected a Python module"),
    ],
)
def test_bad_plugins_are_refused(here, plugin, content, words):
    (here / "mine.py").write_text(content)
    with pytest.raises(CovshiftError, match=words):
        Settings.read({**OPTIONS, "plugins": plugin})


def test_unknown_names_are_refused_without_the_plugin(here):
    for changes, words in (({"corruptions": "darkness"}, "unknown corruption"), ({"methods": "halfway"}, "unknown")):
        with pytest.raises(CovshiftError, match=f"{words}.* your own, name its module as a plugin"):
            Settings.read({**OPTIONS, **changes})


def test_a_run_whose_code_is_not_here_says_so(here):
    """Of a run whose corruptions a script registered itself, so that no plugin is recorded."""
    code = "import mine, covshift; covshift.bench.run({0!r}, 'out', progress=False)"
    settings = {**OPTIONS, **CHANGES}
    del settings["plugins"]
    subprocess.run([sys.executable, "-c", code.format(settings)], check=True)
    missing = "name (the module that registers it|its module) as a plugin"
    with pytest.raises(CovshiftError, match=missing):
        run({"severities": "5"}, "out", extend=True, progress=False)
    assert re.search(missing, invoke("report", "out", "--measure", "20", "--no-files").stderr)
    run({"plugins": "mine"}, "out", extend=True, progress=False)  # which records it
    assert Store(Path("out")).run.settings.plugins == ("mine",)


def test_a_condition_of_ones_own_for_shift(here):
    words = ("shift", "--model", OPTIONS["model"], "--target", OPTIONS["data"], "--condition", "darkness/5")
    assert "name its module as a plugin" in invoke(*words).stderr
    assert "normalised distance" in invoke(*words, "--plugin", "mine").stdout


def test_the_callers_images_stay_as_they_are():
    @corruptions.register("black", severities=(1, 2, 3, 4, 5))
    def black(image, constant, rng):
        image[...] = 0
        return image

    images = np.full((2, 16, 16, 3), 7, np.uint8)
    with pytest.raises(ValueError, match="read-only"):
        covshift.corrupt(images, "black", 3)
    assert (images == 7).all()


def test_flags_are_written_as_words():
    @bench.register("flagged")
    @dataclass(frozen=True)
    class Flagged(bench.Method):
        loud: bool = False

        def run(self, on):
            on.run(on.images.batches(on.batch_size))

    assert [parse_method(text).name for text in ("flagged", "flagged:loud=yes")] == [
        "flagged:loud=no",
        "flagged:loud=yes",
    ]
    assert parse_method("flagged:loud=yes").loud is True


def test_a_policy_that_is_forgotten_is_refused_before_the_run():
    bench.register("nothing", lambda strength=1: None)
    with pytest.raises(CovshiftError, match="expected a policy such as"):
        parse_method("nothing:strength=2")


def test_a_method_that_shows_images_twice_is_refused(here):
    @bench.register("twice")
    @dataclass(frozen=True)
    class Twice(bench.Method):
        adapts = False

        def run(self, on):
            for _ in range(2):
                on.run(on.images.batches(on.batch_size))

    with pytest.raises(CovshiftError, match="'twice' has shown"):
        run({**OPTIONS, "corruptions": "fog", "severities": "3", "methods": "twice"}, "out", progress=False)
