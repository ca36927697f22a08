"""What keeping answers costs and gives: `python benchmarks/answers.py [RUN]`, with a run such as demo/resnet20.

Without a run: the bytes of 10,000 images in 288 cells, and the share of a sweep that writing them takes. With one that
kept its answers: how wide the interval of adaptation against none is, and a report of eight such runs with galleries,
in CPU time, which a busy machine stretches less than the clock.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import subjects
from bench import METHODS, evaluator
from subjects import Subject

from covshift.bench.evaluate import ErrorCounts
from covshift.bench.results.answers import ImageTable
from covshift.bench.results.difference import difference, mean_difference
from covshift.bench.results.store import Row, Run, Store
from covshift.bench.settings import Settings
from covshift.data import Condition
from covshift.report.build import report
from covshift.report.gather import gather

CELLS = 288
"""Number of cells of the built-in benchmark: clean images and 19 corruptions × 5, with three methods."""


def _run() -> Run:
    return Run(
        settings=Settings.read({"model": "m:x", "data": "d:x"}),
        model_digest="",
        model_classes=10,
        model_params=0,
        preprocess={},
        data_digest="",
        data_images=10_000,
        imagenet=False,
        versions={},
    )


def _row(number: int, counts: ErrorCounts) -> Row:
    return Row(
        cell=f"fog/{number}/none",
        model="m:x",
        data="d:x",
        corruption="fog",
        severity=number,
        method="none",
        n=None,
        prior=None,
        images=counts.images,
        top1_errors=counts.top1,
        top5_errors=counts.top5,
        seconds=counts.seconds,
    )


def writing(subject: Subject, images: int, turns: int) -> None:
    """Rows with and without answers against the evaluation of the same cells: best turn of each, and bytes."""
    ours = evaluator(images)
    table = ImageTable(np.arange(images), np.arange(images) % 10, tuple(map(str, range(images))))
    best = {"evaluate": float("inf"), "rows": float("inf"), "answers": float("inf")}
    size = 0
    for turn in range(turns + 1):
        spent = {}
        begun = time.perf_counter()
        foggy = ours.images_in(Condition("fog", 3))
        found = [ours.run(foggy, method)[0] for method in METHODS]
        spent["evaluate"] = time.perf_counter() - begun
        for name in ("rows", "answers"):
            with tempfile.TemporaryDirectory() as folder:
                store = Store.create(Path(folder), _run())
                if name == "answers":
                    store.keep_answers(table)
                begun = time.perf_counter()
                for number, counts in enumerate(found, 1):
                    row = _row(number, counts)
                    store.append([row], {row.cell: counts.answers} if counts.answers else {})
                spent[name] = time.perf_counter() - begun
                if name == "answers":
                    size = max(row.answers.size for row in store.rows() if row.answers)
        if turn:
            best = {name: min(best[name], seconds) for name, seconds in spent.items()}
    share = (best["answers"] - best["rows"]) / best["evaluate"]
    subject.add("writing them, share of a sweep", 100 * share, 1, unit="%")
    subject.add(f"10,000 images in {CELLS} cells", size / images * 10_000 * CELLS / 1e6, 12, unit="MB")


def interval(subject: Subject, folder: Path) -> None:
    """The interval of adaptation against none over all conditions, paired, against that of independent images."""
    (result,) = gather([folder]).results
    assert result.adapted is not None
    paired = result.gain(result.adapted)
    pairs = [(result.rate("none", each), result.rate(result.adapted, each)) for each in result.shared]
    plain = mean_difference(difference(before, after) for before, after in pairs if before and after)
    assert paired is not None
    extent = f"{len(result.shared)} conditions, {result.image_count} images"
    name = f"width of {result.adapted} against none, {extent}; against independent"
    subject.add(name, (paired.high - paired.low) / (plain.high - plain.low), 0.5)


def eight(subject: Subject, folder: Path) -> None:
    """A report of eight such runs, with galleries."""
    with tempfile.TemporaryDirectory() as name:
        runs = [shutil.copytree(folder, Path(name, f"net{number}")) for number in range(1, 9)]
        for files, label in ((False, "report of eight runs with galleries"), (True, "the same with files for a paper")):
            spent = time.process_time()
            page = report(runs, Path(name, "out"), files=files)
            subject.add(label, time.process_time() - spent, 30, unit="s")
        subject.add("its page", page.stat().st_size / 1e6, 8, unit="MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="folder of a run that kept its answers")
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    answers = Subject("Answers")
    writing(answers, given.images, given.turns)
    if given.run:
        interval(answers, given.run)
        eight(answers, given.run)
    subjects.report(answers)
