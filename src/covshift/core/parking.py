"""Parking the activations of a forward pass that waits: in memory up to a budget, on disk beyond it.

A pass that is interrupted in the middle keeps its tensors in the local variables of the model's own functions, out of
our reach. So a dispatch mode notes the storage of every tensor that a pass makes; emptying a storage frees its memory
whoever still refers to it, and filling it again before the pass resumes makes every one of those tensors whole.
"""

import ctypes
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from covshift.support.allocator import give_back_freed_memory
from covshift.support.errors import CovshiftError
from covshift.support.memory import resident_memory

_TO_RUN = 4  # a pass that runs needs about this many times the memory that it holds while it waits


@dataclass
class Held:
    """The storages that one pass holds, by address, and which of them are on disk, and where."""

    storages: dict[int, StorageWeakRef] = field(default_factory=dict)
    size: int = 0
    on_disk: list[tuple[StorageWeakRef, int]] = field(default_factory=list)
    offset: int = 0
    room: int = 0


class Parking(TorchDispatchMode):
    """Keeps what waiting passes hold under `budget` bytes, by spilling to a temporary file in `folder`.

    Attributes:
        current: the storages of the pass that is running.
        peak: the largest number of bytes that waiting passes held in memory.
        spilled: the number of bytes written to disk so far.
    """

    def __init__(self, budget: float, folder: Path | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.current = Held()
        self.peak = 0
        self.spilled = 0
        self._budget = budget
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._file_size = 0
        self._parked = 0
        self._largest = 0
        self._freed = 0
        self._before = resident_memory()
        self._on_disk: dict[int, Held] = {}

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator; bring back what it needs, and note what it makes."""
        values = (*args, *kwargs.values()) if kwargs else args
        if self._on_disk:
            for address in {storage._cdata for storage in _storages(values)} & self._on_disk.keys():
                # Something that one pass made is used by another, such as a cached grid.
                self._read_back(self._on_disk[address])
        out = func(*args, **(kwargs or {}))
        noted = self.current.storages
        for storage in _storages((out,)):
            # What is not new is only seen in another way, or written to.
            if storage._cdata not in noted and not _holds(values, storage._cdata):
                noted[storage._cdata] = StorageWeakRef(storage)
        return out

    def park(self, held: Held) -> None:
        """Keep what a pass that begins to wait holds, in memory if there is room."""
        alive, held.size = {}, 0
        for address, weak in held.storages.items():
            if (storage := UntypedStorage._new_with_weak_ptr(weak.cdata)) is not None:
                alive[address] = weak
                held.size += storage.nbytes() if storage.resizable() else 0
        held.storages = alive
        self._largest = max(self._largest, held.size)
        self._parked += held.size
        if self._parked + _TO_RUN * self._largest > self._budget:
            self._spill(held)
        self.peak = max(self.peak, self._parked)

    def fetch(self, held: Held) -> None:
        """Bring all that a pass holds back into memory before it resumes."""
        self._read_back(held)
        self._parked -= held.size
        self.current = held

    def close(self) -> None:
        """Bring back whatever outlived its pass, and delete the file."""
        for held in list(self._on_disk.values()):
            self._read_back(held)
        if self._file is not None:
            self._file.close()

    def _spill(self, held: Held) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix="covshift-")  # noqa: SIM115
            if held.size > held.room:
                held.offset, held.room = self._file_size, held.size
                self._file_size += held.size
            self._file.seek(held.offset)
            for _, storage in _alive(held):
                self._file.write(_bytes_of(storage))
        except OSError as error:
            raise CovshiftError(
                f"cannot park {held.size / 2**20:.0f} MiB of activations on disk ({error.strerror}); give estimate() "
                "more memory=, a folder with room by scratch=, or fewer images"
            ) from error
        for weak, storage in _alive(held):
            held.on_disk.append((weak, storage.nbytes()))
            self._on_disk[weak.cdata] = held
            storage.resize_(0)
        self.spilled += held.size
        self._parked -= held.size
        self._freed += held.size
        if self._freed > self._budget / 4 and self._has_grown():
            # Else the heap grows by the gaps that tensors of many sizes leave, to several times the budget. Never more
            # often than it must, as the system then clears every page that the next tensors get.
            give_back_freed_memory()
            self._freed = 0

    def _has_grown(self) -> bool:
        """Return whether this process has grown beyond what waiting passes, and one that runs, may hold."""
        now = resident_memory()
        allowed = max(self._budget, _TO_RUN * self._largest)
        return now is None or self._before is None or now - self._before > allowed

    def _read_back(self, held: Held) -> None:
        if not held.on_disk:
            return
        assert self._file is not None
        offset = held.offset
        for weak, size in held.on_disk:
            storage = UntypedStorage._new_with_weak_ptr(weak.cdata)
            if storage is not None:
                self._file.seek(offset)
                storage.resize_(size)
                if storage.device.type == "cpu":
                    self._file.readinto(_bytes_of(storage))  # type: ignore[attr-defined]
                else:
                    storage.copy_(UntypedStorage.from_buffer(self._file.read(size), byte_order="native"))
            self._on_disk.pop(weak.cdata, None)
            offset += size
        held.on_disk = []
        self._parked += held.size


def _storages(values: Iterable[Any]) -> Iterator[UntypedStorage]:
    for value in values:
        if isinstance(value, Tensor):
            if value.layout is torch.strided:
                yield value.untyped_storage()
        elif isinstance(value, (list, tuple)):
            yield from _storages(value)


def _holds(values: Iterable[Any], address: int) -> bool:
    """Return whether the storage at an address is that of a tensor among some values."""
    return any(storage._cdata == address for storage in _storages(values))


def _alive(held: Held) -> list[tuple[StorageWeakRef, UntypedStorage]]:
    pairs = ((weak, UntypedStorage._new_with_weak_ptr(weak.cdata)) for weak in held.storages.values())
    return [(weak, storage) for weak, storage in pairs if storage is not None and storage.resizable()]


def _bytes_of(storage: UntypedStorage) -> Any:
    storage = storage.cpu()
    return (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())
