"""Threads that share a model take turns: one forward pass at a time writes and reads its statistics."""

import gc
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType

from torch import nn

from covshift.core.uncompiled import leave_uncompiled
from covshift.support.errors import CovshiftError

_PATIENCE = 0.2  # seconds between two checks on the thread that has the turn
_LOOKING = threading.RLock()


class Turns:
    """A lock held for a whole call of a model, which its thread may enter again, and which never outlives the call.

    Torch reports the end of a call to its hooks after an exception, but not after Ctrl-C, and not where a thread was
    stopped. So each entry remembers the frame of its call: a turn whose thread no longer runs that frame is over.

    Attributes:
        busy: whether the thread whose turn it is runs the model's own code; a thread that is part of this code must
            not have to wait for it.
    """

    def __init__(self, *, busy: bool = True) -> None:
        self.busy = busy
        self._lock = threading.Lock()
        self._guard = threading.Lock()
        self._owner: int | None = None
        self._frames: list[FrameType | None] = []

    def mine(self) -> bool:
        """Return whether it is this thread's turn."""
        return self._owner == get_ident()

    def enter(self, frame: FrameType | None = None, *, part: str | None = None) -> int:
        """Wait for a turn, or enter this thread's own turn once more; `leave` ends every entry.

        Args:
            frame: the frame of the call that the turn is for; None if `leave` is certain to be called.
            part: the path of the layer that wants the turn for itself, outside of a call of the whole model.

        Returns:
            The number of calls that this thread is already in.
        """
        me = get_ident()
        if self._owner == me:
            with self._guard:
                if self._owner == me:  # else it was taken from a call of ours that Ctrl-C had ended
                    self._frames = [entry for entry in self._frames if entry is None or _runs(me, entry)]
                    self._frames.append(frame)
                    return len(self._frames) - 1
        if not self._lock.acquire(blocking=False):
            self._queue(part)
        self._owner, self._frames = me, [frame]
        return 0

    def leave(self) -> None:
        """End the latest entry; the turn is over when the first one has ended."""
        if self._owner == get_ident():
            del self._frames[-1:]
            if not self._frames:
                self._owner = None
                self._lock.release()

    def give_up(self) -> None:
        """End the turn, if it is this thread's, however many entries it has."""
        if self._owner == get_ident():
            self._frames = []
            self.leave()

    def wait(self, part: str) -> None:
        """Wait until the turn of another thread is over; `part` is as for `enter`."""
        self.enter(part=part)
        self.leave()

    def drain(self, modules: Iterable[nn.Module]) -> None:
        """Wait until no other thread is inside a call of `modules` that began before they had their hooks."""
        hooked = {id(module) for module in modules}
        while any(self._calls(top, hooked) for thread, top in _tops().items() if thread != get_ident()):
            time.sleep(1e-4)

    def _calls(self, frame: FrameType | None, modules: set[int]) -> bool:
        while frame is not None:
            if frame.f_code is Turns.enter.__code__ and frame.f_locals.get("self") is self:
                return False  # waits in one of the hooks
            if frame.f_code.co_name == "_call_impl" and id(frame.f_locals.get("self")) in modules:
                return True
            frame = frame.f_back
        return False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the turn for the length of a block."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def _queue(self, part: str | None) -> None:
        stuck: list[object] = []
        while not self._lock.acquire(timeout=_PATIENCE):
            with self._guard:
                owner, frames = self._owner, self._frames[:1]
                if owner is not None and frames and not _runs(owner, frames[0]):
                    self._owner, self._frames = None, []
                    self._lock.release()
                    continue
            # The model may wait for a thread of its own, which calls a layer, which would wait for the model.
            now = _waits_for_a_thread(owner) if part is not None and self.busy else None
            stuck = [*stuck, now] if now is not None and all(place == now for place in stuck) else []
            if len(stuck) == 5:
                raise CovshiftError(
                    f"layer {part!r} is called from a thread that the model waits for; adapt or estimate models that "
                    "run all of their layers in the thread they are called from, or leave this layer out with layers="
                )


def _tops() -> dict[int, FrameType]:
    """Return the innermost frame of each thread.

    Python up to 3.11.8 and 3.12.2 stops for ever if garbage is collected meanwhile, and another thread asks, too.
    """
    with _LOOKING:
        collecting = gc.isenabled()
        try:
            gc.disable()
            return sys._current_frames()
        finally:
            if collecting:
                gc.enable()


def _runs(thread: int, frame: FrameType | None) -> bool:
    """Return whether a thread is alive and, unless `frame` is None, still in the call of that frame."""
    current = _tops().get(thread)
    if frame is None:
        return current is not None
    while current is not None and current is not frame:
        current = current.f_back
    return current is not None


def _waits_for_a_thread(thread: int | None) -> tuple[int, int] | None:
    """Return where a thread waits in `threading`, as a value that stays the same while it does; None if it runs."""
    frame = None if thread is None else _tops().get(thread)
    if frame is None or frame.f_globals.get("__name__") != "threading":
        return None
    return id(frame), frame.f_lasti


leave_uncompiled(Turns.mine, Turns.enter, Turns.leave)
