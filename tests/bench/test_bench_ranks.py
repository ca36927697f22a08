"""`torchrun -m covshift bench run`: two ranks give the rows of one process."""

import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from runs import OPTIONS, answers_in, by_cell, workplace

from covshift.bench.engines.torchrun import Share
from covshift.bench.run import run
from covshift.data import CLEAN, open_data
from covshift.data.selection import Selection

METHODS = "none,partial,full,reverse,batch:n=5,N=2,batch:n=30,N=4,stream:n=1,N=4,stream:n=5,N=4"
CHANGES = {"corruptions": "fog,spatter", "severities": "5", "methods": METHODS, "batch_size": 16}
ODD = """
import os

import nets
from torch import nn

class Odd(nn.Sequential):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if os.environ["RANK"] == "1" and self.calls == 2:
            raise RuntimeError("only here")
        return super().forward(x)

def net():
    return Odd(*nets.net())
"""
LAUNCH = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    "-m",
    "covshift",
    "bench",
    "run",
]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(workplace(tmp_path, images=53))
    return tmp_path


def torchrun(*options: str) -> subprocess.CompletedProcess[str]:
    command = [*LAUNCH, "--data", "npz:set.npz", "--size", "16", "--corruptions", "fog,spatter", "--severities", "5"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=600, env=environment, check=False
    )


def test_two_ranks_give_the_rows_of_one_process(here):
    done = torchrun("--model", "py:nets:net", "--methods", METHODS, "--batch-size", "16", "--out", "ranks")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("error in %") == 1  # one of them shows the table
    run({**OPTIONS, **CHANGES}, "one", progress=False)
    assert by_cell("ranks") == by_cell("one")
    assert answers_in("ranks") == answers_in("one")


def test_ranks_share_the_source_of_anchored_methods(here):
    methods = "none,full:anchored,batch:n=5,N=2,anchored,stream:n=5,N=4,anchored"
    done = torchrun("--model", "py:nets:net", "--methods", methods, "--limit", "40", "--out", "ranks")
    assert done.returncode == 0, done.stderr[-3000:]
    run({**OPTIONS, **CHANGES, "methods": methods, "limit": 40, "batch_size": None}, "one", progress=False)
    assert by_cell("ranks") == by_cell("one")
    assert {row["source_images"] for row in by_cell("one").values() if "source" in row} == {13}


# In a stream the other rank waits for statistics when one fails, and cannot be told.
@pytest.mark.parametrize(
    ("model", "method", "words"),
    [("py:nets:broken", "none", "NaN or infinite"), ("py:odd:net", "stream:n=10,N=4", "only here")],
)
def test_an_error_ends_all_ranks(here, model, method, words):
    (here / "odd.py").write_text(ODD)
    done = torchrun("--model", model, "--methods", method, "--out", "out")
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_image_is_on_one_rank(here, ranks):
    selection = Selection(open_data("npz:set.npz"), range(53), np.asarray)
    shares = [Share(selection, CLEAN, 1e9, rank, ranks) for rank in range(ranks)]
    whole = np.concatenate([batch.images for batch in selection.images_in(CLEAN).batches(10)])

    def places(batches) -> list[int]:
        images = [image for batch in batches for image in batch.images]
        return [int(np.flatnonzero((whole == image).all((1, 2, 3)))[0]) for image in images]

    for size in (1, 8, 16, 100):
        mine = [places(share.batches(size)) for share in shares]
        assert sorted(chain(*mine)) == list(range(53))
    for n in (20, 30, 53):
        parts = [[places(batches) for batches in share.pieces(n, 8)] for share in shares]
        for group, together in enumerate(zip(*parts, strict=True)):
            assert sorted(chain(*together)) == list(range(53))[group * n : group * n + n]
            assert max(map(len, together)) - min(map(len, together)) <= 8
    for n in (1, 5, 26):
        turns = [list(share.in_turn(n)) for share in shares]
        assert sorted(place for turn in turns for place in places(turn)) == list(range(53))
        if shares[0].spread(n):
            assert {len(turn) for turn in turns} == {-(-53 // n)}
