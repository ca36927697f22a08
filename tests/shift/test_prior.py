"""The search for N on holdout corruptions."""

import json

import numpy as np
import pytest
import torch
from networks import tiny

import covshift
from covshift import Batch, CovshiftError
from covshift.shift.prior import search

IMAGES = torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = [i % 4 for i in range(12)]


def prepare(batch):
    return batch.double() / 255


def find(**changes):
    given = {"size": 4, "grid": [1, 16], "severities": [3], "preprocess": prepare, **changes}
    return search(tiny(), IMAGES, LABELS, **given)


def test_errors_are_those_of_batch_after_batch():
    got = find(corruptions=["fog", "speckle_noise"])
    model = tiny()
    for prior, error in got.errors.items():
        wrong = 0
        for name in ("fog", "speckle_noise"):
            shown = covshift.corrupt(IMAGES, name, 3)
            with covshift.adapt(model, Batch(prior=prior)), torch.no_grad():
                answers = torch.cat([model(prepare(part)).argmax(1) for part in shown.split(4)])
            wrong += int((answers != torch.tensor(LABELS)).sum())
        assert error == wrong / 24
    assert got.errors[got.prior] == min(got.errors.values())


def test_cache(tmp_path, monkeypatch):
    cache = tmp_path / "runs" / "priors.json"
    want = find(cache=cache)
    other = find(cache=cache, size=2)
    assert len(json.loads(cache.read_text())) == 2
    monkeypatch.setattr("covshift.shift.prior.adapt", None)  # nothing is run again
    assert find(cache=cache) == want
    assert find(cache=cache, size=2) == other
    with pytest.raises(TypeError):  # other inputs are another search
        find(cache=cache, preprocess=lambda batch: prepare(batch) - 1)
    array = IMAGES.permute(0, 2, 3, 1).numpy()
    with pytest.raises(TypeError):
        search(tiny(), array, LABELS, 4, grid=[1, 16], severities=[3], preprocess=prepare, cache=cache)


def written(path, text):
    path.write_text(text)
    return path


BAD = [
    (lambda t: find(corruptions=[]), "at least one holdout corruption"),
    (lambda t: find(grid=[]), "at least one holdout corruption"),
    (lambda t: find(grid=[-1]), "expected prior to be a number of images"),
    (lambda t: find(size=0), "expected size to be a number of images from 1"),
    (lambda t: search(tiny(), IMAGES, LABELS[:3], 4), "one label for each of 12 images"),
    (lambda t: find(corruptions=["mist"]), "unknown corruption 'mist'"),
    (lambda t: find(cache=t), "not a cache of searches"),
    (lambda t: find(cache=written(t / "list", "[1]")), "not a cache of searches"),
    (lambda t: find(cache=written(t / "broken", '{"a":')), "not a cache of searches"),
    (lambda t: find(preprocess=lambda batch: prepare(batch) / 0), "NaN or infinite"),
    (lambda t: search(tiny(), np.zeros((12, 16, 16, 3), np.uint8), LABELS, 4, corruptions=["brightness"]), "same one"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_input(call, message, tmp_path):
    with pytest.raises(CovshiftError, match=message):
        call(tmp_path)
