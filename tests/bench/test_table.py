"""Tables from rows, in every form with the same numbers."""

import csv
import io
import json

import pytest
from runs import a_row, a_run

from covshift.bench.results.metrics import ALEXNET, baseline_of
from covshift.bench.results.table import format_run_tables, grid_table, methods_table, overview, tables
from covshift.corruptions import names
from covshift.support.errors import CovshiftError
from covshift.support.writers import FORMATS

WRONG = {"none": 60, "partial": 45, "full": 40}


def all_rows(**wrong: int):
    return [
        a_row(f"{name}/{severity}/{method}", wrong=number)
        for name in names("test")
        for severity in range(1, 6)
        for method, number in (wrong or WRONG).items()
    ] + [a_row(f"clean/0/{method}", wrong=10) for method in WRONG]


def values(table, label):
    line = next(line for line in table.lines if line[0].text.strip() == label)
    cells = dict(zip(table.columns[1:], line[1:], strict=True))
    change = cells.pop("Δ").value if "Δ" in cells else None
    return [cell.value and round(100 * cell.value, 6) for cell in cells.values()], change


def test_means_and_change():
    table = methods_table(all_rows(), a_run(corruptions="test"))
    assert table.columns == ("", "none", "partial", "full", "Δ")
    assert values(table, "mean of 15 corruptions") == ([60, 45, 40], pytest.approx(-0.2))
    assert values(table, "fog") == ([60, 45, 40], pytest.approx(-0.2))
    assert values(table, "clean") == ([10, 10, 10], 0)


def test_mce_only_where_it_means_something():
    run = a_run(corruptions="test")
    plain = methods_table(all_rows(), run)
    assert not any("mCE" in line[0].text for line in plain.lines)
    assert "yardstick" in plain.notes[0]
    imagenet = methods_table(all_rows(), run.model_copy(update={"imagenet": True}))
    by_hand = sum(60 / ALEXNET[name] for name in names("test")) / 15
    assert values(imagenet, "mCE (AlexNet = 100)")[0][0] == pytest.approx(by_hand)
    some = methods_table(all_rows(), a_run(corruptions="fog").model_copy(update={"imagenet": True}))
    assert "all 15" in some.notes[0]


def test_another_baseline_takes_alexnets_place():
    table = methods_table(all_rows(), a_run(corruptions="test"), baseline_of(all_rows(), "r18"))
    assert values(table, "mCE (r18 = 100)")[0] == [100, 75, pytest.approx(66.666667)]


def test_runs_side_by_side():
    runs = {"a": (all_rows(), a_run(corruptions="test")), "b": (all_rows()[-3:], a_run(corruptions="none"))}
    plain = overview(runs)
    assert plain.columns == ("", "clean", "none", "partial", "full", "Δ")
    assert values(plain, "a: 15 corruptions × 5, 100 images") == ([10, 60, 45, 40], pytest.approx(-0.2))
    assert values(plain, "b: 100 images") == ([10, None, None, None], None)
    measured = overview(runs, baseline_of(all_rows(none=30), "r18"))
    assert measured.columns[5:] == ("mCE none", "mCE partial", "mCE full", "Δ")
    assert values(measured, "a: 15 corruptions × 5, 100 images")[0][4:] == [200, 150, pytest.approx(133.333333)]
    assert measured.notes[0] == "mCE: r18 = 100"
    assert "of independent images" in measured.notes[1]


def test_networks_without_statistics_have_their_change_side_by_side():
    methods = ("none", "full:anchored")
    cells = [a_row(f"fog/3/{method}", wrong) for method, wrong in zip(methods, (60, 40), strict=True)]
    settings = a_run(corruptions="fog", severities=3, clean=False, methods=methods)
    table = overview({"a": (all_rows(), a_run(corruptions="test")), "vit": (cells, settings)})
    assert table.columns == ("", "clean", "none", "partial", "full", "full:anchored", "Δ")
    assert values(table, "vit: 1 corruption at severity 3, 100 images") == (
        [None, 60, None, None, 40],
        pytest.approx(-0.2),
    )


def test_what_has_changed_is_named():
    methods = ["none", "full", "batch:n=8,N=0"]
    rows = [a_row(f"clean/0/{method}", wrong=number) for method, number in zip(methods, (10, 20, 30), strict=True)]
    table = methods_table(rows, a_run(corruptions="none", methods=methods))
    assert values(table, "clean") == ([10, 20, 30], pytest.approx(0.2))
    assert "Δ: batch:n=8,N=0 against none" in table.notes


def test_unfinished_runs_say_so():
    table = methods_table(all_rows()[:10], a_run(corruptions="test"))
    assert any("not done yet" in note for note in table.notes)
    assert not any("mean of 15" in line[0].text for line in table.lines)
    assert methods_table([], a_run(corruptions="test")).lines == ()


def test_reverse_is_no_change():
    rows = [a_row("fog/3/none", wrong=60), a_row("fog/3/reverse", wrong=90)]
    table = methods_table(rows, a_run(corruptions="fog", severities=3, methods="none,reverse"))
    assert values(table, "fog") == ([60, 90], None)
    assert not any("Δ" in format_run_tables([table], kind) for kind in ("text", "markdown"))  # nor a column of nothing
    assert "| fog | 60.0 | 90.0 |\n" in format_run_tables([table], "markdown") + "\n"


def test_the_grid_is_n_by_prior():
    rows = [a_row("fog/3/batch:n=8,N=16", wrong=30)]
    run = a_run(corruptions="fog", severities=3, methods="none", grid=True)
    assert len(tables(rows, run)) == 2
    table = grid_table(rows, run)
    assert [line[0].text for line in table.lines] == ["n = 8"]
    assert [cell.value for cell in table.lines[0][1:] if cell.text] == [0.3]


def test_every_form_has_the_same_numbers():
    found = [methods_table(all_rows(), a_run(corruptions="test"))]
    for kind in FORMATS:
        assert "60.0" in format_run_tables(found, kind) or "0.6" in format_run_tables(found, kind)
    lines = json.loads(format_run_tables(found, "json"))[0]["lines"]
    by_line = {line["line"]: line["values"]["full"]["value"] for line in lines}
    rows = list(csv.DictReader(io.StringIO(format_run_tables(found, "csv"))))
    assert {row["line"]: float(row["value"]) for row in rows if row["column"] == "full"} == by_line
    assert "| fog | 60.0 | 45.0 | 40.0 | **-20.0** |" in format_run_tables(found, "markdown")
    with pytest.raises(CovshiftError, match="did you mean 'json'"):
        format_run_tables(found, "jsn")


def test_csv_of_several_tables_has_one_head():
    found = tables([*all_rows(), a_row("fog/1/batch:n=8,N=16")], a_run(corruptions="test", grid=True))
    assert len(found) == 2
    lines = format_run_tables(found, "csv").splitlines()
    assert lines.count("line,column,value,low,high") == 1
