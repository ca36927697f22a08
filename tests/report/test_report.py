"""The page from made-up runs: its numbers are those of the rows, and odd runs give a sensible page."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_up import make_run, make_shift
from runs import a_run

from covshift.bench.results.store import Store
from covshift.bench.summary import table
from covshift.corruptions import names
from covshift.report.build import report, written_readme
from covshift.report.gather import _labels, gather
from covshift.report.sections import overview
from covshift.support.errors import CovshiftError
from covshift.support.tables import PERCENT, Table, TableCell
from covshift.support.writers import FILES, as_csv, as_latex, as_markdown

SMALL = {"corruptions": "fog,snow,spatter", "severities": "1,3"}


class Reader(HTMLParser):
    """The tables of a page as texts, by id, and every address that it would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.loaded: list[str] = []
        self._table = ""
        self._depth = 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.loaded += [given[key] for key in ("src", "srcset") if key in given]
        if tag == "link":
            self.loaded.append(given["href"])
        if (given.get("id") or "").startswith("table-"):
            self._table = given["id"].removeprefix("table-")
            self.tables[self._table] = []
        if tag == "tr":
            self.tables[self._table].append([])
        if tag in ("td", "th"):
            self.tables[self._table][-1].append("")
            self._depth = 1
        if tag == "small":
            self._depth = 0

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self._depth = 0

    def handle_data(self, data):
        if self._depth:
            self.tables[self._table][-1][-1] += data.strip()


@pytest.fixture(autouse=True)
def no_bundle(monkeypatch):
    """Putting Vega together takes seconds, and the browser's tests have it."""
    monkeypatch.setattr("covshift.report.page.vega", lambda: "/* vega */")


def written(runs, out: Path, **options) -> str:
    return report(runs, out, images=False, **options).read_text()


def by_hand(folder: Path, method: str, corruptions) -> float:
    """The mean error in per cent, from the lines of the file."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    found = [r["top1_errors"] / r["images"] for r in rows if r["method"] == method and r["corruption"] in corruptions]
    return 100 * sum(found) / len(found)


def test_the_table_has_the_numbers_of_the_rows(tmp_path):
    folders = [make_run(tmp_path / name, quality) for name, quality in (("a", 0.1), ("b", 0.2))]
    page = Reader(written(folders, tmp_path / "out"))
    head, *lines = page.tables["overview"]
    assert head[:5] == ["model", "clean", "none", "partial", "full"]
    for folder, line in zip(folders, lines, strict=True):
        assert line[0] == folder.name
        assert line[1] == f"{by_hand(folder, 'none', ['clean']):.1f}"
        for text, method in zip(line[2:5], ("none", "partial", "full"), strict=True):
            assert text == f"{by_hand(folder, method, names('test')):.1f}"
    fog = next(line for line in page.tables["corruptions-a"] if line[0] == "fog")
    assert fog[1] == f"{by_hand(folders[0], 'none', ['fog']):.1f}"


def test_the_page_loads_nothing(tmp_path):
    text = written([make_run(tmp_path / "a", **SMALL)], tmp_path / "out")
    assert all(address.startswith("data:") for address in Reader(text).loaded)
    assert not re.search(r"@import|url\(", text)


def test_a_folder_of_runs_is_all_of_them(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path / "results" / name, **SMALL)
    (tmp_path / "results" / "shift").mkdir()
    found = gather([tmp_path / "results", tmp_path / "results" / "a", tmp_path / "results" / ".." / "results" / "b"])
    assert [result.name for result in found.results] == ["a", "b"]


def test_same_names_are_told_apart(tmp_path):
    found = gather([make_run(tmp_path / place / "net", **SMALL) for place in ("x", "y")])
    assert [result.name for result in found.results] == ["x/net", "y/net"]
    assert _labels([Path("/net"), Path("/x/net")]) == ["/net", "x/net"]


def test_means_of_half_a_run_are_over_what_all_methods_have(tmp_path):
    folder = make_run(tmp_path / "half", keep=0.7)
    result = gather([folder]).results[0]
    assert 0 < len(result.shared) < len(result.planned)
    assert all(c in result.table["none"] and c in result.table["full"] for c in result.shared)
    text = written([folder], tmp_path / "out")
    assert f"{len(result.shared)} of 75 conditions" in text


def test_a_single_cell_gives_a_page(tmp_path):
    folder = make_run(tmp_path / "one", corruptions="fog", severities=3, methods="none", clean=False)
    text = written([folder], tmp_path / "out")
    assert "It was not adapted" in text
    assert "clean ones" not in text.split("<main>")[0]


def test_a_run_of_holdout_corruptions_only(tmp_path):
    result = gather([make_run(tmp_path / "h", corruptions="holdout")]).results[0]
    assert len(result.planned) == 20
    assert "gives back" in overview.sentence(result)


def test_other_schemas_are_left_out_and_said(tmp_path):
    good, old = (make_run(tmp_path / name, **SMALL) for name in ("good", "old"))
    run = json.loads((old / "run.json").read_text())
    (old / "run.json").write_text(json.dumps(run | {"schema_version": 7}))
    notes = []
    assert "has schema 7" in written([good, old], tmp_path / "out", files=False, notify=notes.append)
    assert ["has schema 7" in note for note in notes] == [True]
    with pytest.raises(CovshiftError, match=r"two runs .* has schema 7"):
        written([good, old], tmp_path / "out", compare=True)
    with pytest.raises(CovshiftError, match="has schema 7"):
        gather([old])


def test_folders_without_runs_are_errors(tmp_path):
    with pytest.raises(CovshiftError, match="no run in"):
        gather([tmp_path])
    good = make_run(tmp_path / "good", **SMALL)
    with pytest.raises(CovshiftError, match=r"no run in .*nowhere"):
        gather([tmp_path / "nowhere", good])
    Store.create(tmp_path / "empty", a_run())
    with pytest.raises(CovshiftError, match="no finished cell"):
        gather([tmp_path / "empty"])


@pytest.mark.parametrize("change", [{"images": 0}, {"top1_errors": -3}, {"top1_errors": 10**6}, {"n": "many"}])
def test_rows_that_cannot_be_are_said_with_their_line(tmp_path, change):
    folders = [make_run(tmp_path / name, **SMALL) for name in ("good", "odd")]
    first, second, *rest = (folders[1] / "rows.jsonl").read_text().splitlines()
    odd = json.dumps(json.loads(second) | change)
    (folders[1] / "rows.jsonl").write_text("\n".join([first, odd, *rest, ""]))
    found = gather(folders)
    assert [result.name for result in found.results] == ["good"]
    assert "line 2 of" in found.notes[0]
    assert found.notes[0].endswith("; delete that line, and resume the run, which computes it again")


def test_runs_that_cannot_be_read_are_said(tmp_path):
    good, other, blocked = (make_run(tmp_path / name, **SMALL) for name in ("good", "other", "blocked"))
    rows = (other / "rows.jsonl").read_text()
    rows = rows.replace('/full"', '/batch:foo"', 1).replace('"method":"full"', '"method":"batch:foo"', 1)
    (other / "rows.jsonl").write_text(rows)
    (blocked / "rows.jsonl").unlink()
    (blocked / "rows.jsonl").mkdir()
    found = gather([good, other, blocked])
    assert [result.name for result in found.results] == ["good"]
    assert [note.split(": ")[1] for note in found.notes] == [
        f"{other} has rows of a method that this covshift cannot read",
        f"cannot read {blocked / 'rows.jsonl'}",
    ]


def test_files_of_the_report_before_are_gone(tmp_path):
    first, second = (make_run(tmp_path / name, **SMALL) for name in ("first", "second"))
    out = tmp_path / "out"
    written([first], out)
    (out / "tables" / "corruptions-mine.csv").write_text("kept")
    written([second], out)
    assert {file.name for file in out.glob("*/corruptions-*.csv")} == {"corruptions-second.csv", "corruptions-mine.csv"}


def test_mce_against_another_run(tmp_path):
    a, b = (make_run(tmp_path / name, quality) for name, quality in (("a", 0.1), ("b", 0.2)))
    head, first, second = Reader(written([a, b], tmp_path / "out", baseline=a)).tables["overview"]
    place = head.index("mCE none")
    assert first[place] == "100.0"
    assert float(second[place]) > 100
    before, after, change = (float(second[head.index(f"mCE {name}")]) for name in ("none", "full", "Δ"))
    assert change == pytest.approx(after - before, abs=0.11)


def test_hostile_names_are_text(tmp_path):
    folder = make_run(tmp_path / "<img src=x>", **SMALL, model="m:</script><script>alert(1)")
    text = written([folder], tmp_path / "out", readme=tmp_path / "README.md")
    assert "<img src=x>" not in text
    assert "</script><script>alert" not in text
    assert "<img" not in (tmp_path / "README.md").read_text().partition("```")[0]  # commands are as they are


def test_gains_may_be_chance_or_losses(tmp_path):
    folder = make_run(tmp_path / "r", **SMALL)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]

    def told(full: int) -> str:
        changed = [row | ({"top1_errors": full} if row["method"] == "full" else {"top1_errors": 300}) for row in rows]
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))
        return overview.sentence(gather([folder]).results[0])

    assert "gives back 10.0" in told(200)
    assert "costs 10.0 more" in told(400)
    assert "may be chance" in told(301)
    assert "may be chance (95 % interval -7.8 to +0.04)" in told(261)  # not +0.0, which does not say so


def test_images_as_they_are_have_a_sentence(tmp_path):
    folder = make_run(tmp_path / "camera", 0.3, corruptions="none", methods="none,full")
    told = overview.sentence(gather([folder]).results[0])
    assert told.startswith(f"errs on {by_hand(folder, 'none', ['clean']):.1f} % of the images. Full adaptation changes")


TABLE = Table(
    "t",
    "a_b",
    ("model", "error in %", "Δ"),
    ((TableCell("a_1 & b"), TableCell(0.123, 0.11, 0.14, notation=PERCENT), TableCell("-1.0")),),
)


def test_every_form_has_the_same_numbers():
    for write in FILES.values():
        assert "12.3" in write(TABLE)
        assert "-1.0" in write(TABLE)
    row = next(csv.DictReader(io.StringIO(as_csv(TABLE))))
    assert row == {
        "model": "a_1 & b",
        "error in %": "12.3",
        "error in % low": "11.0",
        "error in % high": "14.0",
        "Δ": "-1.0",
    }
    assert r"a\_1 \& b & 12.3 & $-1.0$ \\" in as_latex(TABLE)
    strong = TABLE._replace(
        columns=("a|b", "<", "Δ"), lines=((TableCell("a", strong=True), TableCell(""), TableCell("-1.0", strong=True)),)
    )
    assert r"a\textbar{}b & \textless{} & $\Delta$" in as_latex(strong)
    assert r"\textbf{a} &  & $\mathbf{-1.0}$ \\" in as_latex(strong)  # \textbf leaves mathematics as they are
    assert "| 12.3 <sub>11.0 to 14.0</sub> | -1.0 |" in as_markdown(TABLE)


def test_words_begin_at_the_left_and_numbers_end_at_the_right():
    table = Table(
        "t",
        "t",
        ("model", "method", "error", "none"),
        ((TableCell("a"), TableCell("full"), TableCell("1.0"), TableCell("")),),
    )
    assert "| --- | --- | ---: | ---: |" in as_markdown(table)
    assert r"\begin{tabular}{llrr}" in as_latex(table)


def test_a_suite_beside_the_runs_is_said(tmp_path, monkeypatch):
    runs = [make_run(tmp_path / name, **SMALL) for name in ("a", "b")]
    assert "All of them" not in written_readme(runs)
    monkeypatch.chdir(runs[0])
    assert "--out a\n" in written_readme(["."])
    (tmp_path / "suite.yaml").write_text("")
    assert "All of them: `covshift bench run --config suite.yaml --out .` in their folder." in written_readme(
        [tmp_path]
    )


def test_formulas_in_csv_are_text(tmp_path):
    folder = make_run(tmp_path / "=1+1", **SMALL)
    page = Reader(written([folder, make_run(tmp_path / "b", **SMALL)], tmp_path / "out"))
    assert page.tables["overview"][1][0] == "=1+1"  # a page shows names as they are
    for file in (tmp_path / "out").glob("*/*.csv"):
        cells = [cell for row in csv.reader(io.StringIO(file.read_text())) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "@"))], file
    assert "'=1+1" in (tmp_path / "out" / "figures" / "overview.csv").read_text()


@pytest.fixture
def with_plugin(tmp_path) -> Path:
    """A run with a corruption and a method that nobody has registered here."""
    folder = make_run(tmp_path / "own", corruptions="fog,snow,spatter", severities="1,3", methods="none,full")
    make_shift(folder)
    for name in ("run.json", "rows.jsonl", "shift.json"):
        text = (folder / name).read_text().replace("snow", "my_rain")
        (folder / name).write_text(re.sub(r'(["/])full"', r'\1my_method:strength=2"', text))
    return folder


def test_what_is_not_registered_here_is_in_tables_and_report(with_plugin, tmp_path):
    by_bench = table(with_plugin, "text")
    assert f"{by_hand(with_plugin, 'my_method:strength=2', ['my_rain']):.1f}" in by_bench
    assert "Δ: my_method:strength=2 against none" in by_bench
    text = written([with_plugin], tmp_path / "out", readme=tmp_path / "README.md")
    page = Reader(text)
    line = next(line for line in page.tables["corruptions-own"] if line[0] == "my rain")
    assert line[1] == f"{by_hand(with_plugin, 'none', ['my_rain']):.1f}"
    assert line[2] == f"{by_hand(with_plugin, 'my_method:strength=2', ['my_rain']):.1f}"
    assert "my_method:strength=2" in [line[1] for line in page.tables["methods"]]
    assert "The method my_method:strength=2 gives back" in (tmp_path / "README.md").read_text().replace("\\", "")
    rows = (tmp_path / "out" / "figures" / "distance-own.csv").read_text()
    assert re.search(r"my rain,registered,3,test", rows)
    both = written([with_plugin, make_run(tmp_path / "b", **SMALL)], tmp_path / "two", compare=True)
    assert "compare-none" in Reader(both).tables


def test_a_run_of_own_corruptions_only_has_means(tmp_path):
    folder = make_run(tmp_path / "own", corruptions="snow", severities="1,3", methods="none,full")
    for name in ("run.json", "rows.jsonl"):
        (folder / name).write_text((folder / name).read_text().replace("snow", "my_rain"))
    expected = f"{by_hand(folder, 'full', ['my_rain']):.1f}"
    line = next(line for line in table(folder, "text").splitlines() if "mean of 1 corruption of your own" in line)
    assert expected in line
    make_run(tmp_path / "b", **SMALL)
    assert expected in next(line for line in table(tmp_path, "text").splitlines() if "own: 1 corruption × 2" in line)
    head, row = Reader(written([folder], tmp_path / "out")).tables["overview"]
    assert row[head.index("full")] == expected
