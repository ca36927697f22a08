"""Tables in all their forms, against what a spreadsheet or a parser reads in them."""

import csv
import io
import json

import pytest

from covshift.support.errors import CovshiftError
from covshift.support.tables import (
    CHANGE,
    DECIMAL,
    Table,
    TableCell,
    change_cell,
    percent_cell,
    points_cell,
    share_cell,
    tidy,
)
from covshift.support.writers import (
    FORMATS,
    as_csv,
    as_html,
    as_latex,
    as_markdown,
    as_text,
    csv_text,
    format_tables,
    harmless,
)

TABLE = Table(
    "t",
    "errors in %",
    ("", "none", CHANGE),
    (
        (TableCell("  fog"), percent_cell((0.25, 0.24, 0.27)), change_cell((-0.1, -0.12, -0.08))),
        (TableCell("  fog"), share_cell(0.5), points_cell(0.04)),
        (TableCell("snow"), TableCell(), TableCell()),
    ),
    ("a note",),
)


def test_a_terminal_has_the_longer_half_of_an_interval():
    text = as_text(TABLE)
    assert "25.0 ±2.0" in text
    assert "50.0 " in text
    assert "50.0 ±" not in text
    assert text.count("fog") == 1  # a label is shown once
    assert text.splitlines()[0] == "errors in %"
    assert text.splitlines()[-1] == "a note"


def test_markup_is_text():
    odd = TABLE._replace(
        columns=("", "[bold]x[/bold]", "|"), lines=((TableCell("[red]"), TableCell("[/red]"), TableCell("<b>")),)
    )
    assert "[bold]x[/bold]" in as_text(odd)
    assert "[/red]" in as_text(odd)
    assert "&lt;b&gt;" in as_html(odd)
    assert r"\|" in as_markdown(odd)


def test_tidy_tables_have_all_digits():
    third = TABLE._replace(lines=((TableCell("fog"), percent_cell((1 / 3, 0.3, 0.4)), points_cell(0.1)),))
    (row,) = csv.DictReader(io.StringIO(as_csv(tidy(third))))
    assert float(row["value"]) == 1 / 3
    assert (row["line"], row["column"], row["low"], row["high"]) == ("fog", "none", "0.3", "0.4")


def test_json_is_what_programs_read():
    (table,) = json.loads(format_tables([TABLE], "json"))
    first, second, third = table.pop("lines")
    assert first["line"] == "fog"
    assert first["values"]["none"] == {"value": 0.25, "low": 0.24, "high": 0.27}
    assert second["values"] == {"none": 0.5, CHANGE: 0.04}
    assert third["values"]["none"] is None
    assert table == {"name": "t", "title": "errors in %", "columns": ["none", CHANGE], "notes": list(TABLE.notes)}


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ('=HYPERLINK("http://x")', False),
        ("+1+cmd|' /C calc'!A0", False),
        ("-2+3", False),
        ("@SUM(A1)", False),
        ("\t=1", False),
        ("-3.1", True),
        ("+0.04", True),
        ("-1e-05", True),
        ("12,345", True),
        ("fog", True),
        ("", True),
    ],
)
def test_formulas_do_no_harm(text, safe):
    assert harmless(text) == (text if safe else f"'{text}")
    table = Table("t", "t", (text, "error"), ((TableCell(text), TableCell(-3.1)),))
    for row in csv.reader(io.StringIO(as_csv(table))):
        assert not row[0].startswith(("=", "@", "\t")) or safe
        assert row[0].removeprefix("'").strip() == text.strip()
    assert as_csv(table).splitlines()[-1].endswith(",-3.1")
    assert next(csv.reader(io.StringIO(csv_text([[text, "x"]], formulas=True))))[0] == text  # a chart reads it as it is


@pytest.mark.parametrize("form", FORMATS)
def test_several_tables_are_one_text(form):
    assert format_tables([TABLE, TABLE], form).count("fog") >= 2
    with pytest.raises(CovshiftError, match="did you mean 'json'"):
        format_tables([TABLE], "jsn")


def test_numbers_in_bold():
    bold = TABLE._replace(
        lines=((TableCell("a"), TableCell(1.25, strong=True, notation=DECIMAL), change_cell((-0.1, -0.2, -0.05))),)
    )
    assert "**1.2**" in as_markdown(bold)
    assert "<b>-10.0</b> <small>-20.0 to -5.0</small>" in as_html(bold)
    assert r"\textbf{1.2} & $\mathbf{-10.0}$" in as_latex(bold)
