"""What each of the two ranks of `test_ranks.py` runs."""

import sys

import pytest
import torch
import torch.distributed as dist
from networks import family, images, relative, tiny

import covshift
from covshift import Batch, CovshiftError, Stream

SPLITS = {"halves": [6, 6], "ragged": [10, 2], "empty": [12, 0]}


def compare(scenario: str, rank: int) -> None:
    x = images(12, 48)
    mine = slice(0, SPLITS[scenario][0]) if rank == 0 else slice(SPLITS[scenario][0], 12)
    for model in (tiny(), family("resnet18")[0]):
        for policy in (Batch, Stream):
            with covshift.adapt(model, policy(prior=4, sync=False)):
                want = [model(x), model(x * 0.5)]
            with covshift.adapt(model, policy(prior=4)) as adapter:
                got = [model(x[mine]), model(x[mine] * 0.5)]
                assert adapter.state.images == (12 if policy is Batch else 24)
            if SPLITS[scenario][rank]:
                assert max(relative(a, b[mine]) for a, b in zip(got, want, strict=True)) < 1e-9
        want = covshift.estimate(model, x.split(4), sync=False)
        parts = x[mine].split(2) if SPLITS[scenario][rank] else []
        got = covshift.estimate(model, parts)
        assert got.close_to(want, rtol=1e-9, atol=1e-9)
        near = covshift.estimate(model, parts, exact=False)
        assert near.images == 12


def fail(rank: int) -> None:
    """One rank's data are broken: the other must not wait for ever."""

    def loader():
        yield images(4)
        if rank == 1:
            raise KeyError("mine")
        yield images(4)

    error, words = (CovshiftError, "another rank failed") if rank == 0 else (KeyError, "mine")
    bad = images(4) if rank == 0 else images(4) * torch.nan
    for exact in (True, False):
        with pytest.raises(error, match=words):
            covshift.estimate(tiny(), loader(), exact=exact)
        with pytest.raises(CovshiftError, match=r"'stem.1' has NaN"):
            covshift.estimate(tiny(), bad, exact=exact)
    model = tiny()
    with pytest.raises(CovshiftError, match=r"'stem.1' has NaN"), covshift.adapt(model, Stream()):
        model(bad)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    with torch.no_grad():
        fail(dist.get_rank()) if sys.argv[1] == "failing" else compare(sys.argv[1], dist.get_rank())
    print(f"rank {dist.get_rank()} ok\n", end="", flush=True)  # noqa: T201
    dist.destroy_process_group()
