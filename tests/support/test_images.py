"""Pictures from strangers: what is not one of the accepted kinds, or damaged, is named; nothing else happens."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from covshift.support import images
from covshift.support.errors import CovshiftError


def encoded(kind: str, **options: object) -> bytes:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8))
    content = io.BytesIO()
    picture.save(content, kind, **options)
    return content.getvalue()


def header_only(width: int, height: int) -> bytes:
    """A PNG file that declares a size and holds no pixels."""
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", size), (b"IDAT", b""), (b"IEND", b"")]
    written = [struct.pack(">I", len(c)) + kind + c + struct.pack(">I", zlib.crc32(kind + c)) for kind, c in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


@pytest.mark.parametrize("kind", ["EPS", "GIF", "DDS", "PDF", "ICO", "TGA"])
def test_only_the_accepted_formats_are_decoded(kind, tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(kind))
    with pytest.raises(CovshiftError, match="cannot read the picture"):
        images.open_rgb(tmp_path / "a.jpg")


@pytest.mark.parametrize("kind", images.FORMATS)
def test_the_accepted_formats_are(kind, tmp_path):
    (tmp_path / "a.jpg").write_bytes(encoded(kind))
    assert images.open_rgb(tmp_path / "a.jpg").size == (24, 24)


@pytest.mark.parametrize("kind", images.FORMATS)
def test_damage_is_a_broken_picture_whatever_the_decoder_raises(kind, tmp_path):
    rng, whole = np.random.default_rng(1), encoded(kind)
    for attempt in range(60):
        damaged = bytearray(whole[: rng.integers(1, len(whole))] if attempt % 3 == 0 else whole)
        for position in rng.integers(0, len(damaged), 8):
            damaged[position] = rng.integers(0, 256)
        (tmp_path / "a.jpg").write_bytes(damaged)
        try:
            images.open_rgb(tmp_path / "a.jpg")
        except CovshiftError:
            continue


def test_a_decoder_that_fails_in_its_own_way(tmp_path, monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise struct.error("unpack requires a buffer of 4 bytes")

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(CovshiftError, match="unpack requires"):
        images.open_rgb(tmp_path / "a.jpg")


@pytest.mark.parametrize(("width", "height"), [(10_000, 9_000), (20_000, 9_000), (60_000, 60_000)])
def test_large_pictures_are_refused_before_they_are_decoded(width, height, tmp_path):
    (tmp_path / "a.png").write_bytes(header_only(width, height))
    with pytest.raises(CovshiftError, match="pixels"):
        images.open_rgb(tmp_path / "a.png")


def test_the_limit_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    (tmp_path / "a.png").write_bytes(encoded("PNG"))
    monkeypatch.setenv(images.LIMIT, "100")
    with pytest.raises(CovshiftError, match="at most 100 pixels, got 24 x 24; set COVSHIFT_MAX_PIXELS"):
        images.open_rgb(tmp_path / "a.png")
    monkeypatch.setenv(images.LIMIT, "400000000")
    assert images.open_rgb(tmp_path / "a.png").size == (24, 24)
    (tmp_path / "b.png").write_bytes(header_only(19_000, 20_000))
    with pytest.raises(CovshiftError, match=r"truncated|broken|cannot identify"):  # it was tried
        images.open_rgb(tmp_path / "b.png")
    monkeypatch.setenv(images.LIMIT, "many")
    with pytest.raises(CovshiftError, match="got 'many'"):
        images.open_rgb(tmp_path / "a.png")


@pytest.mark.parametrize(("values", "words"), [(np.float32, "floating-point"), (np.int32, "32-bit numbers")])
def test_values_of_unknown_range_do_not_turn_black(values, words, tmp_path):
    Image.fromarray((np.eye(24) * (0.9 if values is np.float32 else 1e6)).astype(values)).save(tmp_path / "a.tif")
    with pytest.raises(CovshiftError, match=words):
        images.open_rgb(tmp_path / "a.tif")


def test_sixteen_bits_keep_their_range(tmp_path):
    Image.fromarray(np.array([[0, 257, 65535]] * 3, np.uint16)).save(tmp_path / "a.png")
    assert np.asarray(images.open_rgb(tmp_path / "a.png"))[0, :, 0].tolist() == [0, 1, 255]
