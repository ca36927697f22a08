"""Answers beside rows: the same images, the same counts, whatever happens to the process or the file."""

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import OPTIONS, a_row, a_run, by_cell, processes_to_kill, workplace
from safetensors.numpy import load
from trees import picture
from typer.testing import CliRunner

from covshift.bench.engines.where import Shard, Where
from covshift.bench.results.answers import Answers, ImageTable, to_block
from covshift.bench.results.blocks import FILE
from covshift.bench.results.merge import merge_runs
from covshift.bench.results.store import Store
from covshift.bench.run import image_table, run
from covshift.bench.settings import Settings
from covshift.bench.summary import table
from covshift.cli import app
from covshift.data import open_data
from covshift.models import open_model
from covshift.support.errors import CovshiftError

CHANGES = {"corruptions": "fog,spatter", "severities": "1,5", "threads": 1}
RNG = np.random.default_rng(0)
TABLE = ImageTable(RNG.permutation(np.arange(100, 200)), np.arange(100) % 7, tuple(f"ä/{i}\n.png" for i in range(100)))


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path))
    return tmp_path


def given(wrong: int, table: ImageTable = TABLE) -> Answers:
    """Answers of which the first ones are wrong, and the very first is not among the top 5, in another order."""
    classes = table.labels + (np.arange(len(table.labels)) < wrong)
    top5, sure = np.arange(len(classes)) >= 1, RNG.integers(0, 256, len(classes)).astype(np.uint8)
    order = RNG.permutation(len(classes))
    return Answers(*(column[order] for column in (table.indices, classes, top5, sure)))


def keeping(folder: Path) -> Store:
    store = Store.create(folder, a_run())
    store.keep_answers(TABLE)
    return store


def test_answers_come_back_in_the_order_of_the_run(tmp_path):
    answers = given(7)
    keeping(tmp_path).append([a_row()], {"fog/3/none": answers})
    store = Store(tmp_path)
    assert store.book.images.same_as(TABLE)
    read = store.book.of(store.rows()[0])
    assert read.indices.tolist() == TABLE.indices.tolist()
    place = {index: place for place, index in enumerate(answers.indices.tolist())}
    for there, index in enumerate(read.indices.tolist()):
        assert [column[there] for column in read] == [column[place[index]] for column in answers]


def test_anyone_can_read_the_file(tmp_path):
    """With gzip and safetensors alone, as the documentation says."""
    keeping(tmp_path).append([a_row()], {"fog/3/none": given(7)})
    row = json.loads((tmp_path / "rows.jsonl").read_text())
    content, place = (tmp_path / FILE).read_bytes(), row["answers"]
    columns = load(gzip.decompress(content[place["at"] : place["at"] + place["size"]]))
    assert columns["answer"].dtype == columns["confidence"].dtype == np.uint8
    assert (columns["answer"] != TABLE.labels).sum() == row["top1_errors"]
    assert (np.unpackbits(columns["top5"])[:100] == 0).sum() == row["top5_errors"]
    assert zlib.crc32(content[place["at"] : place["at"] + place["size"]]) == place["crc"]
    images = load(gzip.decompress(content[: place["at"]]))
    assert images["index"].tolist() == TABLE.indices.tolist()
    assert tuple(images["name"].tobytes().decode().split("\0")) == TABLE.names


def test_what_was_not_shown_is_left_out(tmp_path):
    answers = Answers(*(column[3:] for column in given(0)))._replace(in_top5=np.ones(97, bool))
    store = keeping(tmp_path)
    row = a_row(wrong=0).model_copy(update={"images": 97, "top5_errors": 0})
    store.append([row], {"fog/3/none": answers})
    assert sorted(store.book.of(store.rows()[0]).indices) == sorted(answers.indices)
    assert len(store.answers()) == 97


def test_the_model_itself_gives_these_answers(here):
    """Against the network and the images themselves, one image at a time."""
    store = run({**OPTIONS, **CHANGES, "methods": "none", "limit": 20}, "out", progress=False)
    frame = store.answers("fog", 5, "none")
    model, data = open_model("py:nets:net", size=16), open_data("npz:set.npz")
    loader = data.loader(model, condition="fog/5", batch_size=1)
    with torch.inference_mode():
        logits = torch.cat([model.module(images) for images, _ in loader])
    assert len(frame) == 20
    for line in frame.itertuples():
        index = line[frame.columns.get_loc("index") + 1]  # `line.index` is a method of tuples
        probabilities = logits[index].softmax(0)
        assert line.answer == int(probabilities.argmax())
        assert line.confidence == pytest.approx(float(probabilities.max()), abs=0.51 / 255 + 1e-3)
        assert line.label == data.labels[index]
        assert line.right == (line.answer == line.label)
        assert line.in_top5 == (line.label in probabilities.topk(5).indices)


def test_every_cell_of_a_run_has_its_answers(here):
    options = {**OPTIONS, **CHANGES, "methods": "none,partial,full,reverse,batch:n=30,N=4,stream:n=5,N=4"}
    store = run(options, "out", progress=False)
    assert {len(cell["answers"][0]) for cell in by_cell("out").values()} == {50}
    assert set(by_cell("out")) == set(store.run.settings.plan.all_names())  # chosen N among them
    assert len(store.answers()) == 50 * len(store.rows())
    rates = store.answers().groupby(["corruption", "severity", "method"], observed=True)["right"].mean()
    for row in store.rows():
        assert rates[row.corruption, row.severity, row.method] == pytest.approx(1 - row.top1_errors / row.images)


def test_answers_can_be_left_out_and_begun_later(here):
    options = {**OPTIONS, "corruptions": "fog", "severities": "5", "threads": 1}
    run({**options, "methods": "none", "answers": False}, "out", progress=False)
    assert not Path("out", FILE).exists()
    assert "answers" not in json.loads(Path("out/rows.jsonl").read_text().splitlines()[0])
    assert Store(Path("out")).answers().empty
    store = run({**options, "methods": "none,full"}, "out", extend=True, progress=False)
    assert set(store.answers()["method"]) == {"full"}
    said = CliRunner().invoke(app, ["bench", "answers", "out"])
    assert said.stderr == "note: 2 of 4 cells have no answers and are left out: none (all)\n"
    assert {line.split()[2] for line in said.stdout.splitlines()[1:]} == {"full"}


def test_an_empty_file_of_a_process_that_was_killed_at_its_first_cell_is_passed_over(here):
    options = {**OPTIONS, "corruptions": "fog", "severities": "5", "threads": 1, "answers": False}
    run(options, "out", progress=False)
    Path("out", FILE).touch()
    assert "has no answers there" in CliRunner().invoke(app, ["bench", "answers", "out"]).stderr
    merge_runs([Path("out")], Path("merged"))
    assert not Path("merged", FILE).exists()


def test_shards_and_parts_keep_answers_when_merged(here):
    run({**OPTIONS, **CHANGES}, "whole", progress=False)
    for shard in ("0/2", "1/2", "0/2", "1/2"):
        run({**OPTIONS, **CHANGES}, "out", progress=False, where=Where(shard=Shard.parse(shard)))
    merge_runs([Path("out")])
    assert all("answers" in cell for cell in by_cell("out").values())
    assert by_cell("out") == by_cell("whole")
    merge_runs([Path("out")])  # once more changes nothing
    assert by_cell("out") == by_cell("whole")


def test_broken_pictures_have_no_answer(here):
    for index in range(12):
        picture(here / "set" / f"class{index % 6}" / f"{index}.png", index)
    (here / "set" / "class0" / "broken.jpg").write_bytes(b"no")
    options = {"model": "py:nets:net", "data": "folder:set", "size": 16, "corruptions": "fog", "severities": "5"}
    store = run({**options, "skip_broken": True}, "out", progress=False)
    frame = store.answers("fog", 5, "none")
    assert len(frame) == 12
    assert "class3/3.png" in set(frame["name"])
    assert "class0/broken.jpg" not in set(frame["name"])
    table = image_table(open_data("folder:set"), Settings.read(options))
    assert "class0/broken.jpg" in table.names


def test_a_block_without_a_row_is_cut_off(tmp_path):
    """A process was killed after it had written answers, and before their row."""
    store = keeping(tmp_path)
    store.append([a_row()], {"fog/3/none": given(7)})
    whole = (tmp_path / FILE).read_bytes()
    for rest in (to_block("fog/4/none", given(3), TABLE), to_block("fog/4/none", given(3), TABLE)[:50]):
        with (tmp_path / FILE).open("ab") as file:
            file.write(rest)
        assert len(Store(tmp_path).answers()) == 100
    keeping(tmp_path).append([a_row("fog/5/none", wrong=4)], {"fog/5/none": given(4)})
    assert (tmp_path / FILE).read_bytes().startswith(whole)
    rows = Store(tmp_path).rows()
    assert rows[1].answers.at == len(whole)
    assert (tmp_path / FILE).stat().st_size == len(whole) + rows[1].answers.size
    assert len(store.answers()) == 200


def test_a_row_that_was_deleted_is_written_again(tmp_path):
    keeping(tmp_path).append([a_row(f"fog/{s}/none") for s in (1, 2)], {f"fog/{s}/none": given(7) for s in (1, 2)})
    lines = (tmp_path / "rows.jsonl").read_text().splitlines(keepends=True)
    for left in (lines[1:], lines[:1]):
        (tmp_path / "rows.jsonl").write_text("".join(left))
        keeping(tmp_path).append([a_row(f"fog/{s}/none") for s in (1, 2)], {f"fog/{s}/none": given(7) for s in (1, 2)})
        assert len(Store(tmp_path).answers()) == 200


def test_a_full_disk_writes_neither_row_nor_answers(tmp_path):
    keeping(tmp_path).append([a_row()], {"fog/3/none": given(7)})
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    code = (
        "import resource, signal, sys; from pathlib import Path; from runs import a_row; import test_answers as t;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); room = int(sys.argv[2]); store = t.Store(Path(sys.argv[1]));"
        "store.keep_answers(t.TABLE); resource.setrlimit(resource.RLIMIT_FSIZE, (room, room));"
        "store.append([a_row('fog/4/none')], {'fog/4/none': t.given(7)})"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(len(before[FILE]) + 40)]
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert "CovshiftError: cannot write" in done.stderr, done.stderr
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


HARM = {
    "deleted": (lambda file: file.unlink(), r"expected \d+ bytes in .*which rows point to, got 0"),
    "cut": (lambda file: os.truncate(file, file.stat().st_size - 9), r"expected \d+ bytes in"),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_file_that_lost_answers_is_not_continued(tmp_path, harm):
    keeping(tmp_path).append([a_row()], {"fog/3/none": given(7)})
    do, words = HARM[harm]
    do(tmp_path / FILE)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(CovshiftError, match=words):
        keeping(tmp_path).append([a_row("fog/4/none")], {"fog/4/none": given(7)})
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert len(Store(tmp_path).rows()) == 1
    Store(tmp_path).append([a_row("fog/4/none")])  # without answers
    assert len(Store(tmp_path).rows()) == 2


def test_rows_may_be_copied_without_their_answers(tmp_path):
    keeping(tmp_path).append([a_row()], {"fog/3/none": given(7)})
    (tmp_path / FILE).unlink()
    store = Store(tmp_path)
    assert store.book.of(store.rows()[0]) is None
    assert store.answers().empty


@pytest.mark.parametrize("place", [0.02, 0.5, 0.97])
def test_a_changed_byte_is_noticed(tmp_path, place):
    keeping(tmp_path).append([a_row()], {"fog/3/none": given(7)})
    content = bytearray((tmp_path / FILE).read_bytes())
    content[int(place * len(content))] ^= 4
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CovshiftError, match=r"was changed|is damaged|cannot read|does not begin"):
        Store(tmp_path).answers()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"top1_errors": 8}, "with 7 and 1 errors, and the row 100 with 8 and 1"),
        ({"cell": "fog/4/none", "severity": 4}, "expected the answers of fog/4/none in .*, got those of fog/3/none"),
    ],
)
def test_a_row_and_answers_that_disagree_are_refused(tmp_path, changes, words):
    keeping(tmp_path).append([a_row()], {"fog/3/none": given(7)})
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes) + "\n")
    with pytest.raises(CovshiftError, match=words):
        Store(tmp_path).answers()


def test_a_table_says_that_answers_are_damaged_and_does_without(here):
    options = {**OPTIONS, **CHANGES, "methods": "none,full"}
    for name in ("runs/a", "runs/b"):
        run(options, name, progress=False)
    whole = {name: table(Path(name), "json") for name in ("runs", "runs/b")}
    os.truncate(Path("runs/b", FILE), Path("runs/b", FILE).stat().st_size // 2)
    for name, said in (("runs", "b: answers are left out: "), ("runs/b", "answers are left out: ")):
        before, after = (json.loads(each)[0] for each in (whole[name], table(Path(name), "json")))
        assert after["notes"][-1].startswith(said)
        assert "was changed" in after["notes"][-1]
        changes = [each["lines"][-1]["values"]["Δ"] for each in (before, after)]
        assert changes[0]["value"] == pytest.approx(changes[1]["value"])
        assert changes[0]["high"] - changes[0]["low"] < changes[1]["high"] - changes[1]["low"]
    Path("bare").mkdir()
    Path("bare", FILE).write_bytes(b"rubbish that no row points to")
    run({**options, "answers": False}, "bare", progress=False)
    assert "answers to the images were not kept" in table(Path("bare"), "text")
    assert json.loads(table(Path("runs"), "json"))[0]["lines"][0] == json.loads(whole["runs"])[0]["lines"][0]


def test_other_images_are_refused(tmp_path):
    keeping(tmp_path).append([a_row()], {"fog/3/none": given(7)})
    store, other = Store(tmp_path), TABLE._replace(indices=TABLE.indices + 1)
    store.keep_answers(other)
    with pytest.raises(CovshiftError, match="answers to other images"):
        store.append([a_row("fog/4/none")], {"fog/4/none": given(7, other)})


def test_the_command_prints_answers(here):
    run({**OPTIONS, **CHANGES, "methods": "none,full"}, "out", progress=False)
    words = ["bench", "answers", "out", "--corruption", "fog", "--severity", "5", "--method", "full"]
    lines = CliRunner().invoke(app, words).stdout.splitlines()
    assert lines[0].split()[:5] == ["corruption", "severity", "method", "index", "name"]
    assert len(lines) == 51
    printed = [json.loads(line) for line in CliRunner().invoke(app, [*words, "--json"]).stdout.splitlines()]
    frame = Store(Path("out")).answers("fog", 5, "full")
    assert [line["answer"] for line in printed] == frame["answer"].tolist()
    wrong = CliRunner().invoke(app, [*words[:-1], "batch:n=3,N=1"])
    assert (wrong.exit_code, "covshift bench rows lists them" in wrong.stderr) == (1, True)
    run({**OPTIONS, **CHANGES, "methods": "none", "answers": False}, "bare", progress=False)
    assert "no answers there" in CliRunner().invoke(app, ["bench", "answers", "bare"]).stderr


def test_ten_thousand_images_in_288_cells_take_less_than_12_mb():
    """The worst case: answers that nothing can compress, among a thousand classes."""
    table = ImageTable(np.arange(10_000), RNG.integers(0, 1000, 10_000), tuple(map(str, range(10_000))))
    sizes = [len(table.to_block())]
    for _ in range(3):
        noise = RNG.integers(0, 1000, 10_000), RNG.random(10_000) < 0.5, RNG.integers(0, 256, 10_000).astype(np.uint8)
        sizes.append(len(to_block("fog/3/none", Answers(table.indices, *noise), table)))
    assert sizes[0] + 288 * max(sizes[1:]) < 12e6


MANY = ImageTable(np.arange(3000), np.arange(3000) % 7, tuple(map(str, range(3000))))


def write_on(folder: Path) -> None:
    """Add cell after cell, for a process that is killed meanwhile."""
    store = Store(folder)
    store.keep_answers(MANY)
    for number in range(len(store.rows()), 10**6):
        wrong = 1 + number % 50
        row = a_row(f"fog/{number}/none", wrong).model_copy(update={"images": 3000})
        store.append([row], {row.cell: given(wrong, MANY)})


def write_half(folder: Path) -> None:
    """Be killed between the answers of a cell and its row."""
    Store._write = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
    write_on(folder)


def kill_while_writing(folder: Path, kills: int, seed: int) -> None:
    context = processes_to_kill()
    Store.create(folder, a_run())
    moments, before, orphans = random.Random(seed), 0, 0
    for number in range(kills):
        half = number == kills // 2  # what the other moments may happen to miss
        process = context.Process(target=write_half if half else write_on, args=(folder,))
        process.start()
        while process.is_alive() and not half:
            if (folder / "rows.jsonl").exists() and (folder / "rows.jsonl").stat().st_size > before:
                time.sleep(moments.uniform(0, 0.05))
                process.kill()
            time.sleep(0.001)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        store = Store(folder)
        rows = store.rows()
        assert all(store.book.of(row) is not None for row in rows)  # and as many errors as the row counts
        end = rows[-1].answers.at + rows[-1].answers.size
        orphans += (folder / FILE).stat().st_size > end
        before = (folder / "rows.jsonl").stat().st_size
    assert [row.cell for row in rows] == [f"fog/{number}/none" for number in range(len(rows))]
    sizes = [0, *(row.answers.size for row in rows)]
    assert [row.answers.at for row in rows] == (rows[0].answers.at + np.cumsum(sizes)[:-1]).tolist()  # nothing between
    assert orphans  # killed between the answers and their row


def test_killed_while_writing_at_twenty_moments(tmp_path):
    kill_while_writing(tmp_path, kills=20, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_killed_while_writing_at_a_hundred_moments(tmp_path, seed):
    kill_while_writing(tmp_path, kills=25, seed=seed)
