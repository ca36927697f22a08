"""Two ranks with a part of the data each give what one process gives with all of it (torchrun, gloo)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("scenario", ["halves", "ragged", "empty", "failing"])
def test_two_ranks(scenario):
    worker = Path(__file__).parent.with_name("ranks_worker.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, str(worker), scenario], capture_output=True, text=True, timeout=600, env=environment, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == ["rank 0 ok", "rank 1 ok"]
