"""Streams in the report: lines of what the rows hold, with the changes of domain marked, and methods by order."""

from pathlib import Path

import pytest
from made_up import make_run
from runs import a_run

from covshift.bench.results.over_time import Counted
from covshift.bench.results.store import Row, Store
from covshift.report.build import report, sections
from covshift.report.figure import METHOD_COLOURS, colours
from covshift.report.gather import gather
from covshift.report.sections import streams

ERRORS = {"none": (5, 4, 30, 12, 6), "tent:n=64": (6, 6, 20, 10, 12)}


def make_stream(folder: Path, order: str = "shuffled") -> Path:
    """A run over 100 clean images, 70 in fog and 40 clean ones again."""
    settings = {"sequence": "clean,fog/5:70,clean:40", "methods": "none,tent", "order": order, "limit": 100}
    store = Store.create(folder, a_run(**settings))
    rows = [
        Row(
            cell=f"sequence/0/{method}",
            model="m:x",
            data="d:x",
            corruption="sequence",
            severity=0,
            method=method,
            n=None if method == "none" else 64,
            prior=None,
            images=210,
            top1_errors=sum(errors),
            top5_errors=0,
            seconds=2.1,
            order=order,
            over_time=errors,
        )
        for method, errors in ERRORS.items()
    ]
    store.append(rows)
    return folder


def test_the_error_over_time_is_that_of_the_rows(tmp_path):
    (section,) = sections(gather([make_stream(tmp_path / "drive")]).results)
    figure, table = section.parts
    for place, errors in enumerate(ERRORS.values(), 1):
        assert table.lines[0][place].value == pytest.approx(sum(errors) / 210)
    points = {(row["method"], row["images"]): row["error"] for row in figure.rows}
    sizes, middles = (50, 50, 50, 20, 40), (25, 75, 125, 160, 190)
    for method, errors in ERRORS.items():
        for wrong, size, middle in zip(errors, sizes, middles, strict=True):
            assert points[method, middle] == pytest.approx(100 * wrong / size, abs=1e-3)
    assert {row["domain"] for row in figure.rows} == {"clean", "fog/5"}
    marks = [text for text in figure.spec["datasets"].values() if text.startswith("images,domain")]
    assert marks == ["images,domain\n0,clean\n100,fog/5\n170,clean\n"]
    assert "40 to 100 images in each domain" in figure.caption
    assert table.notes[-1] == "intervals, also those of differences, take an image that is shown again for another one"


def test_methods_that_share_a_colour_have_other_dashes():
    names = ["none", *(f"live:n={n}" for n in range(1, 20))]
    styles = list(zip(colours(names, METHOD_COLOURS), map(tuple, streams._dashes(names)), strict=True))
    assert len(set(styles)) == len(names)


def test_many_pieces_become_few_points(tmp_path):
    store = Store.create(tmp_path / "long", a_run(sequence="continual", methods="none", limit=100))
    pieces = len(store.run.time_pieces)
    assert pieces == 30
    counted = [Counted(piece, 10) for piece in store.run.time_pieces * 10]
    lines = streams._line("none", counted)
    assert len(lines) <= 150
    assert {row["error"] for row in lines} == {20.0}


def test_methods_by_order(tmp_path):
    runs = [
        make_run(
            tmp_path / name,
            corruptions="fog,snow",
            severities="5",
            methods="none,full,tent",
            model="m:same",
            order=order,
        )
        for name, order in (("random", "shuffled"), ("slots", "dirichlet:0.1"))
    ]
    found = gather(runs).results
    section = next(each for each in sections(found) if each.name == "streams")
    (table,) = section.parts
    assert table.columns == ("method", "shuffled", "dirichlet:0.1", "worst against none", "in", "ms an image")
    assert [line[0].text for line in table.lines] == ["none", "full", "tent:n=64"]
    for line in table.lines:
        assert [cell.value for cell in line[1:3]] == [result.mean(line[0].text).value for result in found]


def test_the_worst_cell_is_where_a_method_loses_most(tmp_path):
    runs = [
        make_run(
            tmp_path / f"{model}-{order[:5]}",
            corruptions="fog,snow",
            severities="5",
            methods="none,full,tent,reverse",
            model=f"m:{model}",
            order=order,
        )
        for model in ("one", "two")
        for order in ("shuffled", "dirichlet:0.1")
    ]
    found = gather(runs).results
    together, *single = next(each for each in sections(found) if each.name == "streams").parts
    assert [line[0].text for line in together.lines] == ["full", "tent:n=64"]  # reverse shows other images
    for label, worst, where, number in together.lines:
        changes = {
            (result.run.settings.model, f"{condition}, {result.run.settings.order}"): row.top1_errors / row.images
            - result.rate("none", condition).value
            for result in found
            for condition, row in result.table[label.text].items()
        }
        assert worst.value == pytest.approx(max(changes.values()))
        assert changes[tuple(where.text.split(", ", 1))] == pytest.approx(worst.value)
        harmed = sum(change > 0.01 for change in changes.values())
        assert number.text == f"{harmed} of {len(changes)}"
    for table in single:
        assert max(line[3].value for line in table.lines if line[0].text == "full") <= together.lines[0][1].value
        assert table.lines[0][3].value is None  # the model as it is


def test_two_streams_are_compared(tmp_path):
    runs = [make_stream(tmp_path / name) for name in ("drive", "again")]
    text = report(runs, tmp_path / "out", compare=True, images=False, files=False).read_text()
    assert "whole stream" in text.partition('id="compare"')[2].partition("</section>")[0]


def test_a_page_of_sequences_alone_and_beside_others(tmp_path):
    drive, plain = (
        make_stream(tmp_path / "drive", "runs:20"),
        make_run(tmp_path / "plain", corruptions="fog", severities="5"),
    )
    alone = report([drive], tmp_path / "alone", images=False, files=False).read_text()
    both = report([drive, plain], tmp_path / "both", images=False, files=False).read_text()
    for page in (alone, both):
        assert "Error over time of drive" in page
        assert 'id="streams"' in page
        assert "of the images of its stream" in page
    assert alone.index('data-spec="spec-streams-drive"') < alone.index("<main>")
    assert 'id="batches"' not in alone
    shuffled = report([plain], tmp_path / "none", images=False, files=False).read_text()
    assert 'id="streams"' not in shuffled
