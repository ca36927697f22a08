"""The published code's own outputs, on drawn images: every corruption, severity and size that has them."""

from pathlib import Path

import numpy as np
import pytest

from covshift.corruptions import corrupt, names

DATA = Path(__file__).parent.parent / "data"


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
    np.testing.assert_array_equal(pixelate(image, scale, np.random.default_rng(0)), expected)


@pytest.mark.parametrize("quality", [7, 25, 85])
def test_jpeg_is_pillows(quality):
    import io

    from PIL import Image

    image = np.load(DATA / "synthetic_224.npz")["images"][0]
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality, optimize=True)
    expected = np.asarray(Image.open(buffer))
    from covshift.corruptions.digital import jpeg

    np.testing.assert_array_equal(jpeg(image, quality), expected)


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
        np.testing.assert_array_equal(jpeg(image.astype(np.uint8), quality), np.asarray(Image.open(buffer)))
