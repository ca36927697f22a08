"""Runs and rows for tests."""

import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from covshift.bench.results.store import Row, Run, Store
from covshift.bench.settings import Settings


def a_run(**changes) -> Run:
    settings = Settings.read({"model": "m:x", "data": "d:x", **changes})
    return Run(
        settings=settings,
        model_digest="m",
        model_classes=10,
        model_params=5,
        preprocess={},
        data_digest="d",
        data_images=100,
        imagenet=False,
        versions={},
    )


def a_row(cell: str = "fog/3/none", wrong: int = 7) -> Row:
    corruption, severity, method = cell.split("/")
    return Row(
        cell=cell,
        model="m:x",
        data="d:x",
        corruption=corruption,
        severity=int(severity),
        method=method,
        n=None,
        prior=None,
        images=100,
        top1_errors=wrong,
        top5_errors=1,
        seconds=0.1,
    )


FACTORY = """
import torch
from torch import nn

def net():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 6),
    )
    for layer in (model[1], model[4]):
        layer.running_mean.normal_(std=0.2)
        layer.running_var.uniform_(0.5, 2)
    return model

def plain():
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 6))

def broken():
    model = net()
    model[0].weight.data[0] = float("nan")
    return model
"""


def workplace(folder: Path, images: int = 50) -> Path:
    """A folder with a model, py:nets:net, and data, npz:set.npz, with six classes of small images."""
    (folder / "nets.py").write_text(FACTORY)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, 16, 16, 3), np.uint8)
    np.savez(folder / "set.npz", images=pixels, labels=rng.permutation(np.arange(images) % 6))
    return folder


OPTIONS = {"model": "py:nets:net", "data": "npz:set.npz", "size": 16}


def run_in(folder: Path, options: dict[str, object], out: str) -> None:
    """A run, for a process of its own."""
    from covshift.bench.run import run

    os.chdir(folder)
    run(Settings.read(options), Path(out), progress=False)


def processes_to_kill():
    """A context for processes that are ready at once: all that takes long to import is there when they start."""
    context = multiprocessing.get_context("forkserver")
    # Only what is installed: the server does not know where the tests are.
    installed = ["covshift.bench.run", "covshift.cli", "covshift.corruptions.kernels", "pytest", "typer.testing"]
    context.set_forkserver_preload(installed)
    return context


def answered_runs(folder: Path) -> list[Path]:
    """Two real runs on the same small images, which kept their answers; their data are in `folder`."""
    from covshift.bench.run import run

    changes = {"corruptions": "fog,snow", "severities": "1,3,5", "threads": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workplace(folder, images=120))
        for name, more in (("one", {}), ("two", {"mean": (0.4, 0.4, 0.4)})):
            run({**OPTIONS, **changes, **more}, name, progress=False)
    return [folder / "one", folder / "two"]


def by_cell(folder: Path | str) -> dict[str, dict]:
    """The rows of a run by cell, each there once, without what differs from one time to the next.

    Each has its answers, image by image, in place of where they are; confidence depends on rounding, and is left out.
    """
    store = Store(Path(folder))
    rows = store.rows()
    assert len({row.cell for row in rows}) == len(rows)
    cells = {row.cell: row.model_dump(exclude={"seconds", "batch_size", "answers"}) for row in rows}
    for row in rows:
        if answers := store.book.of(row):  # which compares them with the counts of the row
            cells[row.cell]["answers"] = [column.tolist() for column in answers[:3]]
    return cells


def answers_in(folder: str) -> list[tuple]:
    """The answers of a run, whatever the order in which its cells were computed."""
    frame = Store(Path(folder)).answers()
    return sorted(frame.astype({"corruption": str, "method": str}).itertuples(index=False, name=None))
