"""Figures in the words and tables of the pages are those of the stored rows and of the cards of the networks."""

import re
from pathlib import Path

import pytest

from covshift.bench.methods import FULL, NONE
from covshift.bench.results.paired import change, evenly
from covshift.data.condition import Condition
from covshift.models.builtin import names, open_network
from covshift.report.gather import Result, gather

ROOT = Path(__file__).parents[2]
RESULTS, DOCS = ROOT / "results", ROOT / "docs"
BUILTIN = (DOCS / "results" / "builtin.md").read_text()
LIVE_IN_BATCHES = "live:n=16,memory=200,anchored"


def stored(name: str) -> Result:
    return gather([RESULTS / name]).results[0]


def table_lines(text: str) -> list[list[str]]:
    """The cells of all lines of tables, without marks."""
    lines = [line.replace("*", "").replace("`", "") for line in text.splitlines() if line[:2] == "| "]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def points(result: Result, method: str, condition: Condition | None = None) -> str:
    change = result.gain(method, None if condition is None else [condition])
    return f"{abs(100 * change.value):.1f}"


def test_clean_errors_are_those_of_the_cards():
    written = {cells[0]: cells[-1] for cells in table_lines(BUILTIN.partition("## Another seed")[0])}
    assert {name: written.get(name) for name in names()} == {
        name: f"{100 * open_network(name).card['clean error']:.2f} %" for name in names()
    }


def test_the_network_that_is_trained_with_noise_loses_by_adapting_what_the_readme_says():
    words = re.search(r"from ([\d.]+) to ([\d.]+) % on\s+gaussian_noise", (ROOT / "README.md").read_text())
    result = stored("resnet20-noise")
    assert words.groups() == tuple(
        f"{100 * result.over(method, 'gaussian_noise').value:.1f}" for method in (NONE, FULL)
    )


def test_what_live_loses_on_imagenet_is_in_the_readme():
    (loses,) = re.findall(r"MobileNet-V2 ([\d.]+) on ImageNet's jpeg_compression", (ROOT / "README.md").read_text())
    assert loses == points(stored("imagenet-mobilenet_v2"), LIVE_IN_BATCHES, Condition("jpeg_compression", 5))


def test_what_live_does_on_imagenet_is_on_its_page():
    (text,) = re.findall(r"On ImageNet a MobileNet-V2 .+?`\)", (DOCS / "howto" / "live.md").read_text(), re.DOTALL)
    result, worst = stored("imagenet-mobilenet_v2"), Condition("jpeg_compression", 5)
    severe = [condition for condition in result.planned if condition.severity == 5]
    gains = f"{-100 * result.gain(LIVE_IN_BATCHES, severe).value:.1f}"
    written = re.findall(r"\d+\.\d+", text)
    assert written == [gains, points(result, LIVE_IN_BATCHES, worst), points(result, FULL, worst)]


def test_the_paired_interval_of_sorted_images_is_on_the_page_on_built_in_networks():
    change = stored("resnet20-sorted").gain(FULL)
    ends = f"gives back {-100 * change.value:.1f} points, {-100 * change.high:.1f} to {-100 * change.low:.1f}"
    assert ends in BUILTIN.replace("\n", " ")


def test_how_much_worse_another_seed_is_is_on_the_page_on_built_in_networks():
    first, second = (stored(name) for name in ("resnet20-anchored", "resnet20-seed1"))
    paired = change((first.errors, FULL), (second.errors, FULL), evenly(first.shared))
    words = f"{100 * paired.value:.1f} points worse ({100 * paired.low:.1f} to {100 * paired.high:.1f})"
    assert words in BUILTIN.replace("\n", " ")


def test_the_table_on_prior_is_what_its_command_prints():
    printed = table_lines((RESULTS / "shift" / "prior-resnet20.md").read_text())
    page = table_lines((DOCS / "howto" / "prior.md").read_text())
    assert printed == [line for line in page if line in printed]


@pytest.mark.parametrize(("column", "name"), [(2, "resnet20"), (3, "resnet20-augmix")])
def test_the_tables_on_prediction_are_what_their_command_prints(column, name):
    printed = {
        (cells[0], cells[1]): cells[2:] for cells in table_lines((RESULTS / "shift" / f"predict-{name}.md").read_text())
    }
    how_good = (DOCS / "howto" / "predict.md").read_text().partition("## How good")[2]
    error, compared = "", 0
    for cells in table_lines(how_good):
        error = cells[0] or error
        key = (error, cells[1].replace("distance, kind known", "distance by kind"))
        if len(cells) == 6 and key in printed and key[1] != "method":
            assert cells[column] == printed[key][0], key
            compared += 1
        elif name in cells[0].partition(",")[0].split() and len(cells) == 5:
            label = cells[0].split(", ")
            assert cells[1:] == printed[label[1], label[2] if len(label) > 2 else "distance by kind"][1:5], label
    assert compared == 16
