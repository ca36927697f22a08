"""The augmentations: against Pillow's operations, and what AugMix promises."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from torch.nn import functional as F

from covshift.training import augmix
from covshift.training import loops as kernels
from covshift.training.augment import AUGMENTS, SIGMA, crop
from covshift.training.feed import TrainingBatch
from covshift.training.mixup import mixup


def picture(seed=0, low=0, high=256):
    """Smooth, so that one wrong pixel shows, with values that do not fill the range."""
    small = np.random.default_rng(seed).integers(low, high, (6, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((32, 32), Image.Resampling.BICUBIC))


def operate(name, amount, image):
    out = np.empty_like(image)
    kernels.operate(augmix.OPERATIONS.index(name), amount, image, out)
    return out


def affine(image, *coefficients):
    return image.transform(image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)


# name: amount, Pillow's way
OPERATIONS = {
    "autocontrast": (0, ImageOps.autocontrast),
    "equalize": (0, ImageOps.equalize),
    "posterize": (3, lambda image: ImageOps.posterize(image, 3)),
    "solarize": (192, lambda image: ImageOps.solarize(image, 192)),
    "rotate": (9, lambda image: image.rotate(9, Image.Resampling.BILINEAR)),
    "shear_x": (0.09, lambda image: affine(image, 1, 0.09, 0, 0, 1, 0)),
    "shear_y": (-0.05, lambda image: affine(image, 1, 0, 0, -0.05, 1, 0)),
    "translate_x": (3, lambda image: affine(image, 1, 0, 3, 0, 1, 0)),
    "translate_y": (-2, lambda image: affine(image, 1, 0, 0, 0, 1, -2)),
}


@pytest.mark.parametrize("name", augmix.OPERATIONS)
@pytest.mark.parametrize("limits", [(0, 256), (60, 180), (77, 78)])
def test_an_operation_is_pillows(name, limits):
    amount, pillow = OPERATIONS[name]
    image = picture(1, *limits)
    difference = operate(name, amount, image).astype(int) - np.asarray(pillow(Image.fromarray(image)))
    assert np.abs(difference).max() <= 1
    assert name in {"rotate", "shear_x", "shear_y"} or not difference.any()


def test_no_operation_is_a_test_corruption():
    assert not set(augmix.OPERATIONS) & {"contrast", "color", "brightness", "sharpness", "blur", "noise"}


@settings(deadline=None, max_examples=25)  # the first example compiles
@given(st.integers(0, 2**32))
def test_what_augmix_draws(seed):
    draws = augmix.draw(np.random.default_rng(seed), 8, 32)
    np.testing.assert_allclose(draws.weights.sum(1), 1, rtol=1e-5)
    assert ((draws.strength >= 0) & (draws.strength <= 1)).all()
    assert ((draws.depths >= 1) & (draws.depths <= 3)).all()
    bound = {"posterize": (3, 4), "solarize": (179, 256), "rotate": (-9, 9), "shear_x": (-0.09, 0.09)}
    for name, (low, high) in bound.items():
        amounts = draws.amounts[draws.ops == augmix.OPERATIONS.index(name)]
        assert ((amounts >= low) & (amounts <= high)).all()


@settings(deadline=None, max_examples=25)  # the first example compiles
@given(st.integers(0, 2**32))
def test_augmix_is_deterministic_and_stays_in_range(seed):
    images = np.stack([picture(i) for i in range(3)])
    mixed = augmix.mix(images, np.random.default_rng(seed))
    assert mixed.dtype == np.float32
    assert mixed.min() >= 0
    assert mixed.max() <= 255
    np.testing.assert_array_equal(mixed, augmix.mix(images, np.random.default_rng(seed)))
    assert (mixed != augmix.mix(images, np.random.default_rng(seed + 1))).any()


def test_augmix_blends_the_chains_by_their_weights():
    image = picture()[None]
    ops = np.array([[[3, 0, 0], [2, 0, 0], [7, 7, 0]]])
    amounts = np.array([[[128.0, 0, 0], [4, 0, 0], [2, 3, 0]]])
    weights, strength = np.array([[0.5, 0.2, 0.3]], np.float32), np.array([0.6], np.float32)
    out = np.zeros(image.shape, np.float32)
    kernels.mix_chains(image, ops, amounts, np.array([[1, 1, 2]]), weights, strength, out)
    base = Image.fromarray(image[0])
    chains = ImageOps.solarize(base, 128), ImageOps.posterize(base, 4), affine(base, 1, 0, 5, 0, 1, 0)
    mixture = sum(w * np.asarray(chain, float) for w, chain in zip([0.5, 0.2, 0.3], chains, strict=True))
    np.testing.assert_allclose(out[0], 0.4 * image[0] + 0.6 * mixture, atol=1e-3)


def test_divergence():
    torch.manual_seed(0)
    a, b, c = torch.randn(3, 16, 10, dtype=torch.float64)
    assert augmix.divergence(a, a, a).item() == pytest.approx(0, abs=1e-12)
    p, q, r = (x.softmax(1) for x in (a, b, c))
    m = (p + q + r) / 3
    expected = sum((x * (x / m).log()).sum(1).mean() for x in (p, q, r)) / 3
    assert augmix.divergence(a, b, c).item() == pytest.approx(expected.item(), rel=1e-9)
    assert augmix.divergence(a, b, c).item() > 0
    labels = torch.randint(0, 10, (16,))
    whole = torch.nn.functional.cross_entropy(a, labels) + 12 * expected
    assert augmix.loss(torch.cat([a, b, c]), labels).item() == pytest.approx(whole.item(), rel=1e-9)


def test_crop_moves_and_mirrors():
    images = np.stack([picture(i) for i in range(200)])
    out = crop(images, np.random.default_rng(0))
    padded = np.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
    seen = set()
    for before, after in zip(padded, out, strict=True):
        fits = [
            (y, x, flip)
            for y in range(9)
            for x in range(9)
            for flip in (False, True)
            if np.array_equal(before[y : y + 32, x : x + 32][:, :: -1 if flip else 1], after)
        ]
        assert len(fits) == 1
        seen.add(fits[0])
    assert {y for y, _, _ in seen} == {x for _, x, _ in seen} == set(range(9))
    assert {flip for _, _, flip in seen} == {False, True}


def test_noise_is_as_strong_as_said():
    grey = np.full((400, 32, 32, 3), 128, np.uint8)
    (noisy,) = AUGMENTS["noise"](grey, np.random.default_rng(0))
    middle = noisy[:, 4:-4, 4:-4]
    sigma = middle.std((1, 2, 3)) / 255
    assert 0 <= sigma.min() < 0.05 * SIGMA
    assert 0.95 * SIGMA < sigma.max() < 1.1 * SIGMA
    assert sigma.mean() == pytest.approx(SIGMA / 2, rel=0.1)


@pytest.mark.parametrize(("name", "views"), [("crop", 1), ("noise", 1), ("augmix", 3), ("mixup", 1)])
def test_views(name, views):
    images = np.stack([picture(i) for i in range(4)])
    made = AUGMENTS[name](images, np.random.default_rng(0))
    assert len(made) == views
    assert all(view.shape == images.shape and view.dtype == np.float32 for view in made)


def test_mixup_is_the_blend_of_two_losses():
    torch.manual_seed(0)
    images, labels, logits = torch.randn(8, 3, 4, 4), torch.arange(8) % 3, torch.randn(8, 3)
    mixed = mixup(TrainingBatch(images, labels), 3, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    share, other = rng.beta(0.7, 0.7), rng.permutation(8)  # as Fixup's authors draw them
    assert 0.05 < share < 0.95
    torch.testing.assert_close(mixed.images, share * images + (1 - share) * images[other])
    losses = F.cross_entropy(logits, labels), F.cross_entropy(logits, labels[other])
    torch.testing.assert_close(F.cross_entropy(logits, mixed.labels), share * losses[0] + (1 - share) * losses[1])
