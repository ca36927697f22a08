"""Parts compose: what `open_model` and `open_data` return goes into every function, as a bare module does."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import covshift
from covshift import CovshiftError, Model, Preprocess, open_data, open_model
from covshift.doctor import examine
from covshift.models.base import count
from covshift.shift import Predictor, covariances
from covshift.shift.prior import search

SIDE = 24
PREPROCESS = Preprocess(None, SIDE, "bilinear", (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))


def net(seed=0, classes=4):
    """A small classifier whose statistics are those of normalised noise."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    made = nn.Sequential(body, nn.Linear(8, classes)).train()
    for _ in range(30):
        made(torch.rand(16, 3, SIDE, SIDE) * 3 - 1)
    return made.eval()


class Wrapped(nn.Module):
    """A network that returns its logits as Hugging Face's do: in an object, or in a dict."""

    def __init__(self, body, kind):
        super().__init__()
        self.body, self.kind = body, kind

    def forward(self, x):
        return self.kind(loss=None, logits=self.body(x))


def pixels(number, seed=0):
    rng = np.random.default_rng(seed)
    smooth = [Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8)).resize((SIDE, SIDE)) for _ in range(number)]
    return np.stack([np.asarray(each) for each in smooth])


def normalise(batch):
    """What `PREPROCESS` does to images of the right size, written for torch NCHW."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (PREPROCESS.mean, PREPROCESS.std))
    return (batch / 255 - mean) / std


@pytest.fixture
def model():
    return Model("py:mine", net(), PREPROCESS)


def test_the_whole_way_from_uris_to_a_repaired_model(tmp_path):
    for place, image in enumerate(pixels(12)):
        for folder in ("night", f"val/class{place % 3}"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).resize((80, 70)).save(tmp_path / folder / f"{place:02}.png")
    model = open_model("torchvision:resnet18/none", size=48)
    loader = open_data(f"folder:{tmp_path}/night").loader(model, batch_size=5)
    images = torch.cat(list(loader))
    plain = model(images)
    with covshift.adapt(model, covshift.Batch(prior=16)):
        adapted = model(images)
    assert plain.shape == adapted.shape == (12, 1000)
    assert not torch.equal(plain, adapted)
    assert torch.equal(model(images), plain)
    target = covshift.estimate(model, loader)
    assert target.images == 12
    # batches of a labelled loader are the same images in another order: the same statistics
    labelled = covshift.estimate(model, open_data(f"folder:{tmp_path}/val").loader(model))
    for path, moments in target.items():
        torch.testing.assert_close(labelled[path].mean, moments.mean, rtol=1e-3, atol=1e-4)
    with covshift.adapt(model, covshift.Batch(prior=0)):
        whole = model(images)
    target.apply(model)
    torch.testing.assert_close(model(images), whole, rtol=1e-3, atol=1e-3)


def test_a_model_is_called_with_its_input_or_with_pixels(model):
    images = pixels(3)
    want = model.module(normalise(torch.from_numpy(images).permute(0, 3, 1, 2)))
    for given in (model.preprocess.tensor(images), images, torch.from_numpy(images).permute(0, 3, 1, 2)):
        torch.testing.assert_close(model(given), want)
    larger = np.stack([np.asarray(Image.fromarray(image).resize((40, 30))) for image in images])
    cropped = np.stack([PREPROCESS.picture(Image.fromarray(image)) for image in larger])
    assert torch.equal(model(larger), model(cropped))
    with pytest.raises(CovshiftError, match=r"expected uint8 images, .* got float64 of shape \(3, 24, 24, 3\)"):
        model(images / 255)
    with pytest.raises(CovshiftError, match="move the axis of the channels"):
        model(np.moveaxis(images, -1, 1))


@pytest.mark.parametrize("kind", [SimpleNamespace, dict])
def test_logits_in_an_object_or_a_dict(model, kind):
    wrapped = Model("py:mine", Wrapped(net(), kind).eval(), PREPROCESS)
    images, labels = pixels(40), np.arange(40) % 4
    assert wrapped.classes == model.classes == 4
    assert torch.equal(wrapped(images), model(images))
    fits = [Predictor.fit(each, images, labels, severities=[5]) for each in (model, wrapped)]
    assert fits[0].predict(images).plain == fits[1].predict(images).plain
    grid = {"grid": (1, 16), "corruptions": ["spatter"], "severities": [5]}
    assert search(model, images, labels, 8, **grid).errors == search(wrapped, images, labels, 8, **grid).errors


def test_a_model_and_its_bare_module_give_the_same_numbers(model):
    images, labels = pixels(40), np.arange(40) % 4
    fits = [
        Predictor.fit(model, images, labels, severities=[3, 5]),
        Predictor.fit(model.module, images, labels, preprocess=PREPROCESS, severities=[3, 5]),
        Predictor.fit(
            model.module, torch.from_numpy(images).permute(0, 3, 1, 2), labels, preprocess=normalise, severities=[3, 5]
        ),
    ]
    unseen = covshift.corrupt(pixels(40, seed=1), "contrast", 4)
    forecasts = [fit.predict(unseen) for fit in fits]
    assert forecasts[0] == forecasts[1]
    # Fitted on 40 images, a regression makes more of rounding than the inputs have of it.
    assert forecasts[2].plain == pytest.approx(forecasts[0].plain, abs=1e-3)
    grid = {"grid": (1, 16), "corruptions": ["spatter"], "severities": [5]}
    bare = search(model.module, images, labels, 8, preprocess=PREPROCESS, **grid)
    assert search(model, images, labels, 8, **grid) == bare
    assert count(model) == count(model.module)
    inputs = model.preprocess(images)
    for path, seen in covariances(model, inputs).items():
        assert torch.equal(seen.cov, covariances(model.module, inputs)[path].cov)


def test_a_predictor_takes_a_loader_and_is_kept(model, tmp_path):
    images = pixels(40)
    np.savez(tmp_path / "some.npz", images=images, labels=np.arange(40) % 4)
    data = open_data(f"npz:{tmp_path}/some.npz")
    predictor = Predictor.fit(model, images, data.labels, severities=[5], batch_size=8)
    want = predictor.predict(covshift.corrupt(images, "fog", 3))
    assert predictor.predict(data.loader(model, condition="fog/3", batch_size=8)) == want
    predictor.save(tmp_path / "kept")
    assert Predictor.load(tmp_path / "kept", model).predict(covshift.corrupt(images, "fog", 3)).plain == pytest.approx(
        want.plain
    )


def test_the_doctor_takes_what_is_open(model, tmp_path):
    np.savez(tmp_path / "some.npz", images=pixels(40), labels=np.arange(40) % 4)
    data = open_data(f"npz:{tmp_path}/some.npz")
    for each in (model, Model("py:mine", Wrapped(net(), SimpleNamespace).eval(), PREPROCESS)):
        found = examine(each, data, limit=20, device="cpu")
        assert (found.model, found.images) == ("py:mine", 20)
        assert "labels" in found.findings
    with pytest.raises(CovshiftError, match="expected a model's URI or what open_model returns, got Sequential"):
        examine(model.module, data)


def test_reprs_fit_on_a_line(model, tmp_path):
    np.savez(tmp_path / "some.npz", images=pixels(4), labels=np.arange(4))
    data = open_data(f"npz:{tmp_path}/some.npz")
    assert repr(model) == "Model('py:mine', Sequential on cpu)"
    assert repr(data).endswith("some.npz', 4 images of 4 classes)")
    moments = covshift.Statistics.of(model.module)["0.1"]
    long = covshift.Preprocess(256, 224, "bicubic", (0.48145466, 0.4578275, 0.40821073), (0.268629, 0.261302, 0.275777))
    for each in (model, PREPROCESS, long, long.with_(size=336), covshift.Condition("fog", 3), moments):
        assert len(repr(each)) <= 120, each
        assert "\n" not in repr(each)
