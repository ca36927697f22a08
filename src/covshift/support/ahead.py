"""Work of the CPU that is done while a device is busy."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_END: Final = object()


def made_ahead(items: Iterator[T], device: "torch.device") -> Iterator[T]:
    """Return items in their order, each made while the device works on the one before it.

    On the CPU they are made when they are asked for: there both would want the same cores.

    Args:
        items: the items, such as batches of images to corrupt; an error that they raise is raised at their place.
        device: the device that works on them.
    """
    return items if device.type == "cpu" else _one_ahead(items)


def _one_ahead(items: Iterator[T]) -> Iterator[T]:
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, items, _END)
            yield item  # type: ignore[misc]
