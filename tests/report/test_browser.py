"""The page in a real browser: offline, without complaints, everything drawn, and nothing cut off on a phone."""

import csv
import json
import shutil
from urllib.parse import unquote

import pytest
from browser import INSTALLED, browser
from made_up import make_run, make_shift

from covshift.corruptions import names
from covshift.report.build import report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not INSTALLED, reason="chromium and chromium-driver are not installed; make test-browser does"),
]

TABLE = """
const table = document.querySelector(`#table-${CSS.escape(arguments[0])} table`).cloneNode(true);
table.querySelectorAll("small").forEach(each => each.remove());
return [...table.rows].map(row => [...row.cells].map(cell => cell.textContent.trim()));
"""

MARKS = """
return Object.fromEntries([...document.querySelectorAll(".chart")].map(chart => [
  chart.dataset.spec.slice(5),
  chart.querySelectorAll("svg .mark-symbol path, svg .mark-rect path, svg .mark-line path, svg .mark-rule line").length,
]));
"""

# Labels of an axis that lie on each other, and texts that stick out of their chart.
UGLY = """
const found = [];
for (const chart of document.querySelectorAll(".chart")) {
  const svg = chart.querySelector("svg"), frame = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll("text")) {
    const box = text.getBoundingClientRect();
    if (box.width && (box.right > frame.right + 1 || box.left < frame.left - 1 || box.top < frame.top - 1))
      found.push(`${chart.dataset.spec}: '${text.textContent}' is cut off`);
  }
  for (const axis of svg.querySelectorAll(".role-axis-label, .role-legend-entry")) {
    const boxes = [...axis.querySelectorAll("text")]
      .filter(text => getComputedStyle(text).opacity > 0 && text.textContent)
      .map(text => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([name, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
        found.push(`${chart.dataset.spec}: '${name}' lies on '${other}'`);
    }));
  }
}
return found;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    settings = {
        "corruptions": "test,spatter",
        "severities": "1,3",
        "mixed": True,
        "methods": "none,partial,full,reverse",
    }
    runs = [make_run(folder / "runs" / "resnet20", 0.08, grid=True, **settings)]
    runs.append(make_run(folder / "runs" / "resnet20-a-rather-long-name", 0.1, grid=True, **settings))
    anchored = {**settings, "methods": "none,partial:anchored,full:anchored"}
    runs.append(make_run(folder / "runs" / "resnet20-gn", 0.1, **anchored))
    runs.append(make_run(folder / "runs" / "half", 0.2, keep=0.7, **settings))
    make_shift(runs[0])
    return report(runs, folder / "out", images=False)


@pytest.fixture(scope="module")
def window():
    with browser() as opened:
        yield opened


def test_it_loads_offline_and_without_complaints(page, window, tmp_path):
    alone = shutil.copy(page, tmp_path / "alone.html")  # without the files beside it
    window.log("browser")
    window.log("performance")
    window.open(alone, 1280)
    complaints = {entry["message"].partition(".html ")[2] for entry in window.log("browser")}
    assert complaints == set()
    events = [json.loads(entry["message"])["message"] for entry in window.log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [address for address in asked if not address.startswith(("data:", alone.as_uri()))] == []


def test_every_chart_is_drawn(page, window):
    window.open(page, 1280)
    marks = window.run(MARKS)
    assert len(marks) == len(list((page.parent / "figures").glob("*.svg")))
    assert all(count > 0 for count in marks.values()), marks
    bars = "return document.querySelectorAll('[data-spec$=corruptions-resnet20] [aria-roledescription=bar]').length"
    with (page.parent / "figures" / "corruptions-resnet20.csv").open() as file:
        assert window.run(bars) == len(list(csv.reader(file))) - 1


def test_tables_have_the_numbers_of_the_files(page, window):
    window.open(page, 1280)
    for file in (page.parent / "tables").glob("*.csv"):
        with file.open(newline="") as opened:
            head, *lines = csv.reader(opened)
        shown = [place for place, name in enumerate(head) if not name.endswith((" low", " high"))]
        assert window.run(TABLE, file.stem) == [[line[place] for place in shown] for line in (head, *lines)]


def test_tables_have_the_numbers_of_the_store(page, window):
    window.open(page, 1280)
    lines = (page.parents[1] / "runs" / "resnet20" / "rows.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["corruption"] in names("test")]
    head, line, *_ = window.run(TABLE, "overview")
    for method in ("none", "partial", "full"):
        found = [row["top1_errors"] / row["images"] for row in rows if row["method"] == method]
        assert line[head.index(method)] == f"{100 * sum(found) / len(found):.1f}"


def test_charts_and_tables_fit_the_paper(page, window):
    window.open(page, 1280)
    window.cdp("Emulation.setEmulatedMedia", media="print")
    wide = """
    document.body.style.width = "640px";  // the window stays as it is, as it does in print
    document.querySelectorAll("details").forEach(each => { each.open = true; });
    const end = document.body.getBoundingClientRect().right + 1;
    return [...document.querySelectorAll(".chart svg, table")]
      .filter(each => each.getBoundingClientRect().right > end)
      .map(each => each.closest(".sheet, figure").textContent.slice(0, 80));
    """
    assert window.run(wide) == []
    window.cdp("Emulation.setEmulatedMedia", media="")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_or_on_top_of_each_other(page, window, width):
    window.open(page, width)
    assert window.run(UGLY) == []
    assert window.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def test_what_can_be_scrolled_fades_at_its_end_and_takes_the_keyboard(page, window):
    hints = """
    document.querySelectorAll(".sheet details").forEach(each => { each.open = true; });
    await new Promise(done => setTimeout(done, 300));
    return [...document.querySelectorAll(".scroll")].map(each => [
      each.scrollWidth - each.clientWidth > 1, each.classList.contains("more"), each.tabIndex === 0]);
    """
    window.open(page, 390)
    found = window.run(f"return (async () => {{ {hints} }})()")
    assert any(hidden for hidden, _, _ in found)
    assert all(hidden == more == reached for hidden, more, reached in found)
    scrolled = """
    const place = document.querySelector("#table-overview .scroll");
    place.scrollLeft = place.scrollWidth;
    await new Promise(done => setTimeout(done, 300));
    return place.classList.contains("more");
    """
    assert not window.run(f"return (async () => {{ {scrolled} }})()")


def test_a_comparison_fits_a_phone(window, tmp_path):
    runs = [make_run(tmp_path / f"a-network-with-a-rather-long-name-{i}", corruptions="fog") for i in (1, 2)]
    window.open(report(runs, tmp_path / "out", compare=True, images=False, files=False), 390)
    assert window.run(UGLY) == []
    assert window.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_in_light_and_dark(page, window, dark):
    window.open(page, 1280, dark=dark)
    colours = window.run(
        "const grey = text => text.match(/[\\d.]+/g).slice(0, 3).reduce((sum, each) => sum + +each / 3, 0);"
        "return [getComputedStyle(document.querySelector('.chart svg text')).fill,"
        " getComputedStyle(document.body).backgroundColor].map(grey)"
    )
    assert abs(colours[0] - colours[1]) > 150
    assert (colours[1] < 128) == dark


def test_files_are_saved_by_name(page, window):
    window.open(page, 1280)
    link = "a[download='corruptions-resnet20.csv'][href^='data:text/csv']"
    href = window.run(f'return document.querySelector("figure {link}").href')
    text = unquote(href.partition(",")[2])
    assert text == (page.parent / "figures" / "corruptions-resnet20.csv").read_text()
