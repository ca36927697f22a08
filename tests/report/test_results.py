"""The results in the repository: what is written about them is what their rows say."""

import re
from pathlib import Path
from runpy import run_path

import pytest

from covshift.bench.methods import FULL, NONE, PARTIAL, SCENARIOS
from covshift.bench.suite import read_runs, run_folders
from covshift.bench.summary import table
from covshift.data.condition import CLEAN, SEQUENCE
from covshift.report.build import written_readme
from covshift.report.gather import gather
from covshift.report.sections.orders import compared

RESULTS = Path(__file__).parents[2] / "results"
README = (RESULTS.parent / "README.md").read_text()
NETWORKS = {"ResNet-20": "resnet20"}
ANCHORED = {
    "ResNet-20, BatchNorm": "resnet20-anchored",
    "ResNet-20, AugMix": "resnet20-augmix-anchored",
    "ResNet-20, Fixup, no normalisation": "resnet20-fixup",
    "ResNet-20, GroupNorm": "resnet20-gn",
    "ViT, LayerNorm": "vit",
    "ConvNeXt, LayerNorm": "convnext",
    "MobileNet-V2, ImageNet, severities 1, 3 and 5": "imagenet-mobilenet_v2",
}

IN_ANY_ORDER = {
    "as it is": NONE,
    "partial adaptation (n = 8)": PARTIAL,
    "TENT, by gradients": "tent:n=64",
    "TBR": "tbr:n=64",
    "LAME": "lame:n=64",
    "`Live`, image by image": "live:n=1,memory=200,anchored",
}


def errors_in(text: str) -> list[list[str]]:
    """The cells of the lines of tables with errors."""
    lines = [line for line in text.replace("*", "").splitlines() if " % |" in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.skipif(not (RESULTS / "tables.md").exists(), reason="there are no results yet")
@pytest.mark.parametrize("page", [RESULTS / "tables.md", RESULTS.parent / "docs" / "results" / "all.md"])
def test_what_is_written_is_what_the_rows_say(page):
    assert page.read_text() == written_readme([RESULTS]), "make results writes it again"


def test_the_first_page_names_every_stored_run_and_no_other():
    text = (RESULTS / "README.md").read_text()
    linked = set(re.findall(r"\]\(([^)]+)\)", text))
    assert {folder.name for folder in run_folders(RESULTS)} <= linked
    for link in linked:
        path, _, anchor = link.partition("#")
        assert (RESULTS / path).exists(), link
        heads = re.findall(r"^#+ (.+)$", (RESULTS / path).read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {head.lower().replace(" ", "-") for head in heads}, link


def test_the_page_on_claims_is_what_the_rows_say():
    page = RESULTS.parent / "docs" / "claims.md"
    assert page.read_text() == run_path(str(page.with_suffix(".py")))["written"](), "make results writes it again"


@pytest.mark.skipif(not (RESULTS / "resnet20-augmix").exists(), reason="there are no results yet")
def test_the_first_table_is_what_the_rows_say():
    cells_by_line = errors_in(README.partition("## Any network")[0])
    for label, *cells in cells_by_line:
        name, _, what = label.rpartition(", ") if label.endswith("clean") else ("", "", label.rpartition(": ")[2])
        if name:
            result = gather([RESULTS / NETWORKS[name]]).results[0]
        for cell, method in zip(cells, SCENARIOS, strict=True):
            rate = result.rate(method) if name else result.mean(method) if "mean" in what else result.over(method, what)
            assert cell == f"{100 * rate.value:.1f} %", (label, method)
    assert len(cells_by_line) == 5


def test_the_table_of_any_network_is_what_the_rows_say():
    text = README.partition("## Any network")[2].partition("## A stream")[0]
    written = {label: cells for label, *cells in errors_in(text)}
    assert written.keys() == ANCHORED.keys()
    for label, name in ANCHORED.items():
        result = gather([RESULTS / name]).results[0]
        clean = [result.rate(method) for method in (NONE, "full:anchored")]
        rates = [*clean, *(result.mean(method) for method in (NONE, FULL, "full:anchored"))]
        assert written[label] == ["cannot" if rate is None else f"{100 * rate.value:.1f} %" for rate in rates]


def test_the_table_of_a_stream_in_any_order_is_what_the_rows_say():
    text = README.partition("## A stream, in any order")[2].partition("\n## ")[0]
    runs = {folder.name: gather([folder]).results[0] for folder in run_folders(RESULTS / "methods")}
    orders = [runs[f"resnet20-{order}"] for order in ("shuffled", "dirichlet", "label")]
    written = {label: cells for label, *cells in errors_in(text)}
    assert written.keys() == IN_ANY_ORDER.keys()
    for label, method in IN_ANY_ORDER.items():
        worst = "" if method == NONE else f"{worst_change(orders, method):+.1f}"
        assert written[label] == [*(f"{100 * result.mean(method).value:.1f} %" for result in orders), worst]

    live = IN_ANY_ORDER["`Live`, image by image"]
    words = re.findall(r"([\d.]+) (?:points|%)", text.rpartition("|\n")[2])
    cells = {method: compared(list(runs.values()), method) for method in (live, live.replace("n=1", "n=16"))}
    for of_method in cells.values():
        worse = [cell for cell in of_method if cell.change > 0.01]
        assert f"of {len(of_method)} cells of five networks, {len(worse)} are more than a point above" in text
        where = {(cell.result.run.settings.model, str(cell.condition)) for cell in worse}
        assert where == {("builtin:vit", "contrast/5")}
    worst = max(worst_change(runs.values(), method) for method in cells)
    clean = [100 * runs["resnet20-label"].rate(method, CLEAN).value for method in ("lame:n=64", live)]
    mixed = [100 * runs["resnet20-mixed"].rate(method, SEQUENCE).value for method in ("tent:n=64", live, NONE)]
    assert words == [f"{worst:.2f}", *(f"{number:.1f}" for number in (*clean, *mixed))]


def worst_change(results, method: str) -> float:
    """By how many points a method is furthest above the model as it is."""
    return 100 * max(cell.change for cell in compared(list(results), method))


def test_the_words_about_the_first_picture_are_what_the_rows_say():
    result = gather([RESULTS / "resnet20-camera"]).results[0]
    live = "live:n=1,memory=200,anchored"
    whole = [f"{100 * result.rate(method, SEQUENCE).value:.1f}" for method in (NONE, "batch:n=16,N=16", live)]
    clean = table(RESULTS / "resnet20-camera", "markdown").partition("| clean")[2].splitlines()[0]
    words = README.partition("In mixed order")[0].partition("camera.svg)")[2]
    written = re.findall(r"([\d.]+) %", words)
    assert written[:3] == whole
    assert [f"{number} " in clean for number in written[3:]] == [True, True]


def test_the_page_on_the_built_in_networks_says_what_the_rows_say():
    told = "".join(table(folder, "text") for folder in run_folders(RESULTS))
    written = re.findall(r"([\d.]+) ± ([\d.]+) %", (RESULTS.parent / "docs" / "results" / "builtin.md").read_text())
    assert len(written) > 20
    assert not [pair for pair in written if " ±".join(pair) not in told]


def test_one_list_makes_every_stored_run():
    steps = run_path(str(RESULTS / "everything.py"))["STEPS"]
    places = [RESULTS.parent / step.config for step in steps if step.config]
    made = {place.parent / name for place in places for name in read_runs({}, place)}
    stored = {*run_folders(RESULTS), *run_folders(RESULTS / "methods")}
    assert stored <= made


def test_hours_are_estimated_for_what_is_left_of_a_run(tmp_path):
    hours_of_run = run_path(str(RESULTS / "everything.py"))["hours_of_run"]
    settings = read_runs({}, RESULTS / "suite.yaml")["resnet20-sorted"]
    assert hours_of_run(settings, RESULTS / "resnet20-sorted") == 0
    assert 0 < hours_of_run(settings, tmp_path / "not-there") < 10
