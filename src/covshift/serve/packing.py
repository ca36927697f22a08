"""What a camera remembers as a few bytes for the store: one row of numbers for all places together."""

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from covshift.core.fleet import Camera, Fleet
from covshift.core.moments import Moments, widen
from covshift.core.policies import Memory
from covshift.core.seen import Seen
from covshift.core.statistics import Statistics
from covshift.support.errors import CovshiftError

_NOTE = "note "
_log = logging.getLogger(__name__)


def pack_camera(camera: Camera, fleet: Fleet) -> bytes:
    """Return what a camera remembers, and whether it is frozen."""
    memory = camera.memory
    numbers, mean, var = _rows(memory.seen, [place.path for place in fleet.places])
    tensors = {"numbers": numbers, "mean": mean, "var": var, "frozen": torch.tensor([camera.frozen])}
    tensors |= {f"{_NOTE}{name}": note.detach().cpu().contiguous() for name, note in memory.notes.items()}
    return save({name: tensor.numpy() for name, tensor in tensors.items()})


def _rows(seen: Mapping[str, Moments], places: list[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the number of each place with its counts, and all means and all variances, one place after another."""
    if isinstance(seen, Seen) and list(seen) == places:
        numbers = np.column_stack([np.arange(len(places)), seen.counts])
        return torch.from_numpy(numbers), torch.from_numpy(seen.table[0]), torch.from_numpy(seen.table[1])
    rows = [[places.index(path), each.count, each.images] for path, each in seen.items()]
    nothing = torch.empty(0, dtype=torch.float64)
    mean = torch.cat([nothing, *(widen(each.mean).cpu() for each in seen.values())])
    var = torch.cat([nothing, *(widen(each.var).cpu() for each in seen.values())])
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 3), mean, var


def unpack_camera(content: bytes, camera: Camera, fleet: Fleet) -> None:
    """Let a camera resume from what `pack_camera` returned; one that is damaged starts anew."""
    try:
        memory, frozen = _unpack(content, fleet)
    except (CovshiftError, SafetensorError, LookupError, ValueError, RuntimeError) as error:
        _log.warning("the stored state of a camera is damaged (%s); it starts anew", error)
        return
    camera.memory, camera.frozen = memory, frozen


def _unpack(content: bytes, fleet: Fleet) -> tuple[Memory, bool]:
    tensors = load(content)
    numbers: list[list[float]] = tensors["numbers"].tolist()
    places = [fleet.places[int(index)] for index, _, _ in numbers]
    sizes = [len(place.mean) for place in places]
    means, variances = (tensors[name].split(sizes) for name in ("mean", "var"))
    seen = {
        place.path: Moments(count, images, mean.to(place.mean.device), var.to(place.mean.device))
        for place, (_, count, images), mean, var in zip(places, numbers, means, variances, strict=True)
    }
    notes = {name.removeprefix(_NOTE): note for name, note in tensors.items() if name.startswith(_NOTE)}
    state = Statistics(seen, fleet.fingerprint, notes=notes)
    state.check_values({place.path: place.mean.shape for place in places})
    memory = fleet.policy.resume(state) if fleet.policy.carries else Memory()
    return replace(memory, source=fleet.source), bool(tensors["frozen"].item())
