"""How long runs will take: the work of their forward passes, at the speed of this device."""

import time
from collections.abc import Mapping
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from covshift.bench.settings import Settings
from covshift.data.catalog import find_catalog_entry
from covshift.models.untrained import untrained
from covshift.models.zoo import ENTRIES
from covshift.support.device import choose_device
from covshift.support.uri import parse

_OVERHEAD = 1.2
"""Time of an adapted pass over that of a plain one, about."""


def hours(runs: Mapping[str, Settings], cells: Mapping[str, int]) -> dict[str, float]:
    """Return the hours that each run takes for its number of cells, without the time to read images."""
    device = {settings.device for settings in runs.values()}
    speed = device_speed(device.pop()) if device else 1.0
    work = {name: cells[name] * images_per_cell(settings) * flops(settings) for name, settings in runs.items()}
    return {name: _OVERHEAD * each / speed / 3600 for name, each in work.items()}


def images_per_cell(settings: Settings) -> int:
    """Return the number of images that pass through the model in a cell."""
    entry = find_catalog_entry(parse(settings.data, "data set", "imagenet:DIR").source)
    known = (entry.images if entry else 0) or 10_000
    return min(known, settings.limit or known)


def flops(settings: Settings) -> float:
    """Return the floating-point operations for one image."""
    uri = parse(settings.model, "model", "zoo:resnet50")
    if uri.source != "zoo":
        return _builtin_flops(uri.name)
    return _zoo_flops(uri.name, settings.size or ENTRIES[uri.name].preprocess.size or 224)


@cache
def _zoo_flops(name: str, size: int) -> float:
    # On a device without memory: the largest network has gigabytes of weights.
    module = untrained(ENTRIES[name].build, shapes_only=True).eval()
    return _count(module, torch.zeros(1, 3, size, size, device="meta"))


@cache
def _builtin_flops(name: str) -> float:
    from covshift.models.builtin import open_network

    return _count(open_network(name).network, torch.zeros(1, 3, 32, 32))


def _count(module: torch.nn.Module, image: torch.Tensor) -> float:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(image)
    return float(counter.get_total_flops())


def device_speed(device: str, size: int = 224) -> float:
    """Return the floating-point operations a second of a ResNet-18 on this device."""
    where = choose_device(device)
    batch = 4 if where.type == "cpu" else 64  # fewer do not keep a GPU busy
    module = untrained(ENTRIES["resnet18"].build).eval().to(where)
    pictures = torch.zeros(batch, 3, size, size, device=where)
    seconds = []
    with torch.inference_mode():
        for _ in range(3):
            begun = time.perf_counter()
            module(pictures).sum().item()  # waits for a GPU
            seconds.append(time.perf_counter() - begun)
    return batch * _zoo_flops("resnet18", size) / min(seconds)
