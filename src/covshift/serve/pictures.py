"""Pictures as clients send them: JPEG or PNG, decoded within limits, and as small ones for the live page."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from covshift.serve.refusals import Refusal, TooLarge
from covshift.support.images import rgb

FORMATS = ("JPEG", "PNG")
_SMALL = 160  # px, the longer side of a thumbnail


def decode(content: bytes, most: int) -> Image.Image:
    """Return a picture as RGB, or raise a `Refusal`.

    Args:
        content: a JPEG or PNG file.
        most: the number of pixels that are allowed; the header is read before anything is decoded.
    """
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            if picture.width * picture.height > most:
                raise TooLarge(f"expected a picture of at most {most} pixels")
            return rgb(picture)
    except Refusal:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:  # far above what Pillow has seen
        raise TooLarge(f"expected a picture of at most {most} pixels") from error
    except Exception as error:  # a damaged or malicious file can make a decoder raise anything
        raise Refusal("expected a whole JPEG or PNG picture; this one cannot be decoded") from error


def thumbnail(pixels: NDArray[np.uint8]) -> bytes:
    """Return a small JPEG of an image, HWC."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((_SMALL, _SMALL))
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=70)
    return content.getvalue()
