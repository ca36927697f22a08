"""The published code's own outputs, on drawn images: every corruption, severity and size that has them."""

from pathlib import Path

import numpy as np
import pytest

from covshift.corruptions import corrupt, names

DATA = Path(__file__).parent.parent / "data"


def written(function, image, *arguments):
    """Return what a function writes to its last argument."""
    out = np.empty_like(image)
    function(image, *arguments, out)
    return out


@pytest.fixture(scope="module")
def reference():
    loaded = {size: dict(np.load(DATA / f"synthetic_{size}.npz")) for size in (32, 64, 224)}
    loaded["textures"] = [loaded[32][f"texture/{i}"] for i in range(1, 7)]
    return loaded


@pytest.mark.parametrize("name", names("all"))
@pytest.mark.parametrize("size", [32, 64, 224])
def test_equals_the_published_code(reference, name, size):
    images, compared = reference[size]["images"], 0
    for severity in range(1, 6):
        expected = reference[size].get(f"{name}/{severity}")
        if expected is None:
            continue
        for i, image in enumerate(images):
            rng = np.random.RandomState(10007 * severity + i)
            got = corrupt(image, name, severity, rng=rng, frost=reference["textures"])
            off = np.abs(got.astype(int) - expected[i])
            assert off.max() <= 1
            assert off.mean() <= 0.001
            compared += 1
    assert compared >= len(images)


def test_one_state_serves_a_batch_in_order(reference):
    images = reference[32]["images"]
    rng = np.random.RandomState(5)
    one_by_one = [corrupt(image, "gaussian_noise", 3, rng=rng) for image in images]
    np.testing.assert_array_equal(corrupt(images, "gaussian_noise", 3, rng=np.random.RandomState(5)), one_by_one)


@pytest.mark.parametrize(("photons", "level"), [(3, 40), (60, 255), (500, 128)])
def test_poisson_by_inversion_has_the_right_moments(photons, level):
    from covshift.corruptions.seeding import poisson

    counts = poisson(np.random.default_rng(0), np.full(200_000, level, np.uint8), photons)
    rate = level / 255 * photons
    assert counts.mean() == pytest.approx(rate, abs=5 * (rate / counts.size) ** 0.5)
    assert counts.var() == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("sigma", [0.5, 2.44, 19.5, 170.8])
@pytest.mark.parametrize("shape", [(32, 32), (37, 50)])
def test_smooth_field_is_scipys_reflecting_gaussian(sigma, shape):
    from scipy.ndimage import gaussian_filter

    from covshift.corruptions.digital import smooth_field

    noise = np.random.default_rng(0).uniform(-1, 1, shape)
    expected = gaussian_filter(noise, sigma, mode="reflect", truncate=3.0)
    np.testing.assert_allclose(smooth_field(noise[None], sigma)[0], expected, atol=1e-13)


@pytest.mark.parametrize("size", [(29, 41), (64, 64), (224, 160)])
@pytest.mark.parametrize("scale", [0.25, 0.6, 0.95])
def test_pixelate_is_pillows_box_filter(size, scale):
    from PIL import Image

    from covshift.corruptions.digital import pixelate

    image = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)
    small = Image.fromarray(image).resize((int(size[1] * scale), int(size[0] * scale)), Image.Resampling.BOX)
    expected = np.asarray(small.resize(size[::-1], Image.Resampling.BOX))
    np.testing.assert_array_equal(written(pixelate, image, scale, None), expected)


@pytest.mark.parametrize("quality", [7, 25, 85])
def test_jpeg_is_pillows(quality):
    import io

    from PIL import Image

    image = np.load(DATA / "synthetic_224.npz")["images"][0]
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality, optimize=True)
    expected = np.asarray(Image.open(buffer))
    from covshift.corruptions.digital import jpeg

    np.testing.assert_array_equal(written(jpeg, image, quality), expected)


@pytest.mark.parametrize("draw", [("standard_normal", 300_000), ("random", 1000), ("uniform", -45, 45, (30, 7))])
def test_a_stream_draws_what_numpys_generator_draws(draw):
    from covshift.corruptions.seeding import Streams

    stream = Streams(0, "fog", 1).at(3)
    generator = stream.generator()
    name, *arguments = draw
    for low, high, size in [(-3, 3, (999,)), (0, 1, (5,)), (0, 700, ()), (0, (1 << 31) - 1, (1000,))]:
        expected = generator.integers(low, high, size, dtype=np.int32)
        np.testing.assert_array_equal(stream.integers(low, high, size), expected)
        np.testing.assert_array_equal(getattr(stream, name)(*arguments), getattr(generator, name)(*arguments))


@pytest.mark.parametrize("size", [(16, 16), (17, 19), (33, 64), (18, 131)])
@pytest.mark.parametrize("quality", [1, 10, 50, 95, 100])
def test_jpeg_is_pillows_at_any_size_and_contrast(size, quality):
    import io

    from PIL import Image

    from covshift.corruptions.digital import jpeg

    rng = np.random.default_rng(0)
    for image in (rng.integers(0, 256, (*size, 3)), 255 * rng.integers(0, 2, (*size, 3)), np.full((*size, 3), 77)):
        buffer = io.BytesIO()
        Image.fromarray(image.astype(np.uint8)).save(buffer, "JPEG", quality=quality)
        np.testing.assert_array_equal(written(jpeg, image.astype(np.uint8), quality), np.asarray(Image.open(buffer)))


def _drawn(height, width):
    """Images that are hard to round: flat ones, slopes, edges between two flat parts, and noise."""
    rng, slope = np.random.default_rng(0), np.add.outer(np.arange(height), np.arange(width))[..., None]
    noise = rng.integers(0, 256, (height, width, 3))
    white = np.where(np.arange(width)[:, None] < width // 2, 255, noise)
    images = [noise, white, slope % 256 + [[[0, 0, 0]]], 255 * rng.integers(0, 2, (height, width, 3))]
    images += [np.full((height, width, 3), level) for level in (0, 1, 77, 255)]
    return [image.astype(np.uint8) for image in images]


@pytest.mark.parametrize("size", [(16, 16), (33, 64), (18, 131), (90, 224)])
@pytest.mark.parametrize("constants", [32, 64, 224, 299])
def test_defocus_blur_is_opencvs_filter(size, constants):
    import cv2

    from covshift.corruptions.blur import disk
    from covshift.corruptions.severity import SEVERITY

    for severity, (radius, rim) in enumerate(SEVERITY[constants]["defocus_blur"], 1):
        for image in _drawn(*size):
            expected = (cv2.filter2D(image / 255.0, -1, disk(radius, rim)).clip(0, 1) * 255).astype(np.uint8)
            got = corrupt(image, "defocus_blur", severity, constants=constants)
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("sigma", [0.05, 0.7, 3, 6])
def test_gaussian_blur_is_scipys(sigma):
    from scipy.ndimage import gaussian_filter

    from covshift.corruptions.blur import gaussian_blur

    for image in _drawn(40, 61):
        blurred = gaussian_filter(image / 255.0, (sigma, sigma, 0), mode="nearest", truncate=4.0)
        expected = (blurred.clip(0, 1) * 255).astype(np.uint8)
        np.testing.assert_array_equal(written(gaussian_blur, image, sigma, None), expected)


@pytest.mark.parametrize("change", [(1.0, 0.0, 0.3), (0.3, 0.1, 0.0), (20.0, 0.2, 0.0), (1.0, 0.0, 0.0)])
def test_light_and_saturation_change_as_in_pythons_own_colours(change):
    import colorsys

    from covshift.corruptions.kernels import weather

    factor, saturation, value = change
    for image in _drawn(16, 21):
        got, expected = np.empty_like(image), np.empty(image.shape)
        weather.shift_hsv(image, *change, got)
        for place in np.ndindex(image.shape[:2]):
            h, s, v = colorsys.rgb_to_hsv(*(image[place] / 255.0).tolist())
            s, v = min(max(s * factor + saturation, 0.0), 1.0), min(v + value, 1.0)
            expected[place] = [255 * part for part in colorsys.hsv_to_rgb(h, s, v)]
        # Cut to whole levels, but for what rounding may do to a value that is one.
        assert (got <= expected + 1e-9).all()
        assert (got > expected - 1 - 1e-9).all()
