"""The first screen, galleries and the list of what is missing, of real small runs and of made-up ones."""

import base64
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from made_up import make_run
from PIL import Image
from runs import OPTIONS, answered_runs

from covshift.bench.results.blocks import FILE
from covshift.bench.results.difference import difference, mean_difference
from covshift.bench.run import run
from covshift.data import open_data
from covshift.report.build import report
from covshift.report.gather import gather
from covshift.report.recommendation import recommendation
from covshift.report.sections import by_class, comparison, overview
from covshift.report.sections.gallery import KINDS, galleries
from covshift.support.tables import Table


@pytest.fixture(autouse=True)
def no_bundle(monkeypatch):
    monkeypatch.setattr("covshift.report.page.vega", lambda: "/* vega */")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    return answered_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def here(runs, monkeypatch):
    """The folder that the data of the runs are in."""
    monkeypatch.chdir(runs[0].parent)
    return runs


class Page(HTMLParser):
    """What a page has by tag, as attributes; and the ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [given for name, given in self.tags if name == tag]

    @property
    def ids(self) -> list[str]:
        return [given["id"] for _, given in self.tags if given.get("id")]


def test_galleries_show_the_images_and_answers_of_the_run(here):
    (result,) = gather(here[:1]).results
    (gallery,), notes = galleries([result])
    assert notes == ()
    assert [each.title for each in gallery.corruptions] == ["snow", "fog", "clean"]
    conditions = [condition for each in gallery.corruptions for condition in each.conditions]
    titles = [f"{name}, severity {severity}" for name in ("snow", "fog") for severity in (1, 3, 5)]
    assert [each.title for each in conditions] == [*titles, "clean"]
    frame = result.book.frame(result.rows)
    data = open_data("npz:set.npz")
    for each in conditions:
        name, severity = each.condition
        mine = frame[(frame["corruption"] == name) & (frame["severity"] == severity)]
        right = mine.pivot(index="index", columns="method", values="right")
        before, after = right["none"], right[gallery.method]
        numbers = [(~before & after).sum(), (before & ~after).sum(), (~before & ~after).sum()]
        assert [group.images for group in each.groups] == numbers
        assert [group.kind for group in each.groups] == list(KINDS)
        for group in each.groups:
            assert len(group.shots) == min(4 if severity in (0, 3) else 2, group.images)
            for shot in group.shots:
                answers = [int(re.match(r"class (\d+) \(\d+\s%\)", text)[1]) for text in (shot.before, shot.after)]
                truth = int(shot.truth.removeprefix("class "))
                assert [answer == truth for answer in answers] == [group.kind == "broken", group.kind == "repaired"]
    for each in gallery.corruptions:
        sums = zip(*([group.images for group in condition.groups] for condition in each.conditions), strict=True)
        assert [group.images for group in each.counts] == [sum(column) for column in sums]
    for shot in (shot for group in conditions[-1].groups for shot in group.shots):
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(shot.source.partition(",")[2]))))
        place = np.flatnonzero((data.array(None) == pixels).all((1, 2, 3)))
        assert data.labels[place[0]] == int(shot.truth.removeprefix("class "))


def test_the_page_has_pictures_with_words_and_links_to_them(here, tmp_path):
    file = report(here, tmp_path / "out", files=False)
    page = Page(file.read_text())
    assert file.stat().st_size < 8_000_000
    pictures = page.all("img")
    assert len(pictures) > 20
    assert all(each["alt"] and each["src"].startswith("data:image/") for each in pictures)
    assert len(set(page.ids)) == len(page.ids)
    links = [each["href"].removeprefix("#") for each in page.all("a") if (each.get("href") or "").startswith("#")]
    assert set(links) <= set(page.ids)
    text = file.read_text()
    for name in ("one", "two"):  # from bars, and for readers without a mouse from a list
        for corruption in ("fog", "snow"):
            assert f'\\"{corruption}\\": \\"#gallery-{name}-{corruption}\\"' in text
            assert f"gallery-{name}-{corruption}" in links
    assert text.index('class="shots"') < text.index("<main>")  # three of them on the first screen


def test_images_as_they_are_have_a_gallery_and_no_empty_overview(here, tmp_path):
    folder = run({**OPTIONS, "corruptions": "none", "methods": "none,full"}, tmp_path / "camera", progress=False).folder
    (result,) = gather([folder]).results
    ((gallery,), notes) = galleries([result])
    assert (notes, [each.title for each in gallery.corruptions]) == ((), ["as they are"])
    text = report([folder], tmp_path / "out", files=False).read_text()
    assert 'id="overview"' not in text
    assert 'id="natural"' in text
    assert "repaired: as they are" in text
    assert "over the corrupted conditions" not in text


def test_without_answers_there_is_no_gallery_and_intervals_say_so(here, tmp_path):
    folder = make_run(tmp_path / "old")
    found = galleries(gather([folder]).results)
    assert found.galleries == ()
    (result,) = gather([folder]).results
    assert "where answers were not kept: old" in " ".join(overview.table([result]).notes)
    assert by_class.section([result]).parts == ()
    text = report([folder], tmp_path / "out", files=False).read_text()
    assert 'id="gallery"' not in text
    assert 'id="classes"' not in text


def test_damaged_answers_are_said_and_the_other_runs_are_whole(here, tmp_path):
    runs = [shutil.copytree(folder, tmp_path / folder.name) for folder in here]
    content = bytearray((runs[1] / FILE).read_bytes())
    content[len(content) // 2] ^= 4
    (runs[1] / FILE).write_bytes(content)
    notes: list[str] = []
    text = report(runs, tmp_path / "out", files=False, notify=notes.append).read_text()
    assert len(notes) == 1
    assert notes[0].startswith("two is shown without its answers: ")
    assert "was changed" in text
    assert "gallery-one-fog" in text
    assert "gallery-two-fog" not in text
    whole, damaged = gather(runs).results
    assert (whole.paired, damaged.paired) == (True, False)
    assert "where answers were not kept: two" in " ".join(overview.table([whole, damaged]).notes)
    report(runs, tmp_path / "out", files=False, compare=True, images=False)


def test_lost_data_leave_out_the_gallery_with_a_reason(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = galleries(gather(here[:1]).results)
    assert found.galleries == ()
    assert found.notes[0].startswith("no gallery of one: ")
    text = report(here[:1], tmp_path / "out", files=False).read_text()
    assert "#gallery" not in text
    assert "A bar leads to" not in text


def test_where_there_is_no_room_other_severities_have_numbers_only(here, monkeypatch, tmp_path):
    (result,) = gather(here[:1]).results
    (whole,), _ = galleries([result])
    monkeypatch.setattr("covshift.report.sections.gallery._BUDGET", 9 * 4 * 4000)
    (some,), _ = galleries([result])
    for before, after in zip(whole.corruptions, some.corruptions, strict=True):
        assert before.counts == after.counts
        assert before.middle == after.middle
        assert [each.pictured for each in after.conditions] == [each == after.middle for each in after.conditions]
    text = report(here[:1], tmp_path / "out", files=False).read_text()
    numbers = [group.images for group in some.corruptions[0].conditions[0].groups]
    assert re.search(r"severity 1:\s*{} repaired,\s*{} broken,\s*{} still wrong".format(*numbers), text)


def test_what_is_missing_is_one_list_at_the_end(tmp_path):
    text = report([make_run(tmp_path / "a")], tmp_path / "out", files=False, images=False).read_text()
    head, _, end = text.partition('<section id="missing">')
    assert "This page could also show" in end
    assert "Missing:" not in head
    assert 'id="theory"' not in head  # without a measured point
    commands = re.findall(r"<code>(.*?)</code>", end, re.DOTALL)
    assert len(commands) == len(set(commands)) >= 3
    assert all(line.startswith("covshift ") for command in commands for line in command.splitlines())
    for section in re.findall(r'<section id="(\w+)">(.*?)</section>', head, re.DOTALL):
        assert re.search(r"<table|class=\"chart\"|<dl>", section[1]), section[0]


def test_gains_are_paired_and_narrower(here):
    (result,) = gather(here[:1]).results
    assert result.paired
    gain = result.gain("full")
    pairs = [(result.rate("none", c), result.rate("full", c)) for c in result.shared]
    before = mean_difference(difference(*pair) for pair in pairs)
    assert gain.value == pytest.approx(before.value)
    assert gain.high - gain.low < before.high - before.low


def test_two_runs_on_the_same_images_are_compared_by_pairs(here, tmp_path):
    text = report(here, tmp_path / "out", compare=True, files=False, images=False).read_text()
    assert "intervals of differences: 95 %, of paired differences, since both sides answered the same images" in text
    (here[1] / FILE).rename(tmp_path / FILE)
    try:
        text = report(here, tmp_path / "out", compare=True, files=False, images=False).read_text()
        assert "too wide, since the answers to the images were not kept" in text
        assert "paired differences" not in text
    finally:
        (tmp_path / FILE).rename(here[1] / FILE)


def test_a_comparison_names_the_lines_that_are_not_paired(here, tmp_path):
    """Answers were begun later, or left out at times: only some cells have them."""
    folders = [Path(shutil.copytree(run, tmp_path / run.name)) for run in here]
    rows = [json.loads(line) for line in (folders[1] / "rows.jsonl").read_text().splitlines()]
    for row in rows:
        if row["cell"] == "clean/0/none":
            del row["answers"]
    (folders[1] / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables = {part.name: part for part in comparison.section(*gather(folders).results).parts if isinstance(part, Table)}
    *_, note = tables["compare-none"].notes
    assert note.endswith("but of independent images (Newcombe's), and too wide, where answers were not kept: clean")
    assert tables["compare-full"].notes[-1].endswith("since both sides answered the same images")


def test_classes_and_confidence(here):
    (result,) = gather(here[:1]).results
    parts = {part.name: part for part in by_class.section([result]).parts}
    assert set(parts) == {"calibration", "reliability-one", "classes-one", "confusions-one"}
    frame = result.book.frame(result.rows)
    for line in parts["classes-one"].lines:
        mine = frame[(frame["label"] == int(line[0].text.split()[1])) & (frame["corruption"] != "clean")]
        for cell, method in zip(line[2:4], ("none", "full"), strict=True):
            assert cell.value == pytest.approx(1 - mine[mine["method"] == method]["right"].mean())
    assert len(parts["classes-one"].lines) == 6
    line = next(line for line in parts["calibration"].lines if line[1].text == "corrupted")
    mine = frame[(frame["method"] == "none") & (frame["corruption"] != "clean")]
    assert line[5].value == pytest.approx(mine["confidence"].mean())


def changed(folder: Path, **errors: int) -> None:
    lines = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    found = [row | {"top1_errors": errors[row["method"].partition(":")[0]], "top5_errors": 0} for row in lines]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (
            {"none": 400, "partial": 300, "full": 200},
            r"Adapt the model with full adaptation, by the statistics of all images of a condition \(here 1000\): "
            r"-20\.0 points \(95 % interval .*?\)\. With fewer images, from 8 on, use partial adaptation, by the "
            r"statistics of every 8 images with a prior of N = 32: -10\.0 points",
        ),
        (
            {"none": 400, "partial": 300, "full": 390},
            r"Adapt the model with partial adaptation, by the statistics of every 8 images with a prior of N = 32: "
            r"-10\.0 points .*?\)\. Against full adaptation, that is -9\.0 points",
        ),
        # What the verdict is about, as the other one is not better by more than chance.
        ({"none": 400, "partial": 295, "full": 300}, r"Adapt the model with full adaptation, .*: -10\.0 points"),
        (
            {"none": 400, "partial": 405, "full": 399},
            r"Leave the model as it is: nothing that was tried lowers the error by more than chance; full "
            r"adaptation, .*: -0\.1 points",
        ),
        (
            {"none": 200, "partial": 300, "full": 400},
            r"Leave the model as it is: all that was tried makes the error larger; full adaptation, .*: \+20\.0 points",
        ),
    ],
)
def test_the_recommendation_follows_from_the_rows(tmp_path, errors, words):
    folder = make_run(tmp_path / "r", corruptions="fog,snow", severities="1,3")
    changed(folder, **errors)
    (result,) = gather([folder]).results
    assert re.search(words, recommendation(result)), recommendation(result)
    assert "those of" not in recommendation(result)


def test_there_is_no_recommendation_without_adaptation(tmp_path):
    (result,) = gather([make_run(tmp_path / "r", corruptions="fog", severities=3, methods="none")]).results
    assert recommendation(result) is None


@pytest.mark.parametrize(
    ("full", "words"),
    [
        (300, r"^Adapt the model with full adaptation, .* Of the rivals, tent:n=64 errs less than that: -20\.0 points"),
        (450, r"^Leave the model as it is: .* Of the rivals, tent:n=64 errs less than that: -30\.0 points"),
        (90, r"^Adapt the model with full adaptation, (?!.*rivals)"),
    ],
)
def test_rivals_are_compared_with_and_not_recommended(tmp_path, full, words):
    folder = make_run(tmp_path / "r", corruptions="fog,snow", severities="1,3", methods="none,full,tent")
    changed(folder, none=400, full=full, tent=100)
    (result,) = gather([folder]).results
    assert re.search(words, recommendation(result)), recommendation(result)


def test_what_follows_a_stream_is_recommended_in_words(tmp_path):
    methods = "none,full,live:n=1,anchored"
    folder = make_run(tmp_path / "r", corruptions="fog,snow", severities="1,3", methods=methods)
    changed(folder, none=400, full=300, live=200)
    (result,) = gather([folder]).results
    words = r"Adapt the model with the method live:n=1,memory=200,anchored, which follows the images one by one: -20\.0"
    assert re.match(words, recommendation(result)), recommendation(result)
