"""Preprocessing in the query of a model's URI: `torchvision:resnet50?size=256`."""

from typing import Any

from covshift.support.errors import CovshiftError
from covshift.support.uri import Uri

KEYS = ("mean", "std", "size", "resize", "interpolation")
"""Keys of the query; the same names as the keywords of `open_model`."""


def preprocessing(uri: Uri) -> dict[str, Any]:
    """Return the preprocessing that the query asks for, as keywords of `Preprocess.with_`.

    >>> preprocessing(Uri("", "torchvision", "resnet50", {"size": "256", "mean": "0.5,0.5,0.5"}))
    {'mean': (0.5, 0.5, 0.5), 'size': 256}
    """
    read = {"mean": _numbers, "std": _numbers, "size": Uri.whole, "resize": Uri.whole}
    return {key: read[key](uri, key) if key in read else uri.query[key] for key in KEYS if key in uri.query}


def _numbers(uri: Uri, key: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in uri.query[key].split(","))
    except ValueError:
        raise CovshiftError(f"expected {key} as numbers such as 0.5,0.5,0.5, got {uri.query[key]!r}") from None
