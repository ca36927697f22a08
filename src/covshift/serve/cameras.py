"""The cameras of a server: which are in memory, which in the store only, and control over each."""

import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from covshift.core.fleet import Camera, Fleet
from covshift.core.statistics import Statistics
from covshift.serve.brief import Brief, Moment, brief_of
from covshift.serve.packing import pack_camera, unpack_camera
from covshift.serve.refusals import Busy, Refusal
from covshift.serve.settings import Limits
from covshift.serve.stores import Store, StoreError
from covshift.support.errors import CovshiftError

_LOADING = 64  # locks, each for a share of all names, so that their number does not grow


@dataclass
class _Resident:
    """A camera in memory."""

    camera: Camera
    users: int = 0  # requests that are waiting or being answered
    used: float = 0.0
    dirty: bool = False


class Cameras:
    """The cameras of a server, by name.

    A camera that is not in memory is read from the store when it is held; one that is idle is kept in the store only.
    A store that cannot be reached is never taken for one without the camera: requests for it are refused until it is
    back. Where servers share a store, a camera that another one has had since is read anew. All methods may be called
    from any thread.

    Args:
        fleet: the fleet that answers.
        store: where states are kept.
        limits: how many cameras there may be.
    """

    def __init__(self, fleet: Fleet, store: Store, limits: Limits) -> None:
        self.fleet = fleet
        self.store = store
        self.limits = limits
        self._lock = threading.RLock()
        self._writing = threading.Lock()
        self._loading = [threading.Lock() for _ in range(_LOADING)]
        self._resident: OrderedDict[str, _Resident] = OrderedDict()
        self._known = set(store.names())
        self._gone: set[str] = set()

    @contextmanager
    def held(self, name: str) -> Iterator[Camera]:
        """Keep a camera in memory for the length of a block; it is read from the store, or made."""
        camera = self.hold(name)
        try:
            yield camera
        finally:
            self.let_go(name)

    def hold_resident(self, name: str) -> bool:
        """Keep a camera in memory until `let_go` if it is sure to be there; return whether it is.

        Never waits for the store, and so knows nothing of a camera that other servers may have had since.
        """
        with self._lock:
            here = not self.store.shared and name in self._resident
            if here:
                self._use(name)
        return here

    def hold(self, name: str) -> Camera:
        """Keep a camera in memory until `let_go`; may have to wait for the store."""
        self._drop_if_taken(name)
        with self._lock:
            if name in self._resident:
                return self._use(name)
        with self._loading[hash(name) % _LOADING]:  # who comes second finds it in memory
            with self._lock:
                if name in self._resident:
                    return self._use(name)
                self._check_room(name)
                gone = name in self._gone
            state = None if gone else self._read(name)
            with self._lock:
                camera = self.fleet.add(name)
                if state is not None:
                    unpack_camera(state, camera, self.fleet)
                self._resident[name] = _Resident(camera)
                self._known.add(name)
                return self._use(name)

    def _drop_if_taken(self, name: str) -> None:
        """Drop a camera from memory that another server has had since it was used here."""
        with self._lock:
            resident = self._resident.get(name)
        if resident is None or resident.users:
            return
        try:
            owned = self.store.owns(name)
        except StoreError:
            return  # which no other server can reach either, to take the camera
        with self._lock:
            if not owned and not resident.users and self._resident.get(name) is resident:
                self._drop(name)

    def _drop(self, name: str) -> None:
        self._resident.pop(name, None)
        self.fleet.forget(name)

    def _use(self, name: str) -> Camera:
        resident = self._resident[name]
        resident.users += 1
        resident.used = time.monotonic()
        self._resident.move_to_end(name)
        return resident.camera

    def _check_room(self, name: str) -> None:
        if name not in self._known and len(self._known) >= self.limits.cameras:
            raise Refusal(f"expected at most {self.limits.cameras} cameras; forget one first", status=429)
        if len(self._resident) >= 2 * self.limits.resident:  # the store takes no more
            raise Busy("too many cameras are in use at once; try again later")

    def _read(self, name: str) -> bytes | None:
        with _reached():
            self.store.claim(name)
            return self.store.get(name)

    def let_go(self, name: str) -> None:
        """End one `hold` of a camera."""
        with self._lock:
            resident = self._resident.get(name)
            if resident is not None:
                resident.users -= 1

    def touched(self, names: Iterable[str]) -> None:
        """Note that what these cameras remember has changed, so that it is written to the store."""
        with self._lock:
            for name in names:
                if name in self._resident:
                    self._resident[name].dirty = True
                    self._gone.discard(name)

    def reset(self, name: str) -> None:
        """Have a camera forget what it has seen."""
        with self._existing(name) as camera:
            camera.reset()
            self.touched([name])

    def freeze(self, name: str, frozen: bool = True) -> None:
        """Keep what a camera remembers as it is, or let it follow again."""
        with self._existing(name) as camera:
            camera.frozen = frozen
            self.touched([name])

    def save(self, name: str) -> bytes:
        """Return the state of a camera as the content of a file that `Statistics.load` reads."""
        with self._existing(name) as camera, tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.safetensors"
            camera.state.save(file)
            return file.read_bytes()

    def load(self, name: str, content: bytes) -> None:
        """Let a camera resume from the content of a file that `Statistics.save` wrote; makes it if it is new."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.safetensors"
            file.write_bytes(content)
            try:
                state = Statistics.load(file)
            except CovshiftError as error:
                raise Refusal("expected the state of a camera as a safetensors file; it cannot be read") from error
        with self.held(name) as camera:
            camera.state = state
            self.touched([name])

    def forget(self, name: str) -> None:
        """Remove a camera, from memory and from the store."""
        if name not in self._resident:
            with _reached():
                self.store.claim(name)
        with self._lock:
            resident = self._resident.get(name)
            if resident is not None and resident.users:
                resident.camera.reset()  # it is in use, and starts anew
                resident.dirty = True
                return
            self._drop(name)
            self._known.discard(name)
            self._gone.add(name)

    def release(self, name: str) -> bool:
        """Write a camera to the store and drop it from memory, so that another server can take it over.

        Returns:
            Whether this was possible: the camera was not in use, and the store could be reached.
        """
        try:
            self.flush()
        except StoreError:
            return False
        with self._lock:
            resident = self._resident.get(name)
            if resident is not None and (resident.users or resident.dirty):
                return False
            self._drop(name)
            return True

    def listed(self) -> dict[str, Brief | None]:
        """Return what is done for each camera, by name; None for those in the store only."""
        with self._lock:
            here = {name: resident.camera for name, resident in self._resident.items()}
            known = sorted(self._known)
        return {name: brief_of(self.fleet, Moment.of(here[name])) if name in here else None for name in known}

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    @property
    def resident(self) -> int:
        """The number of cameras in memory."""
        return len(self._resident)

    @contextmanager
    def _existing(self, name: str) -> Iterator[Camera]:
        if name not in self._known and not self._elsewhere(name):
            raise Refusal(f"there is no camera {name!r}", status=404)
        with self.held(name) as camera:
            yield camera

    def _elsewhere(self, name: str) -> bool:
        """Return whether a camera that is not known here is in the store, where another server has put it."""
        with _reached():
            return name not in self._gone and self.store.get(name) is not None

    def flush(self) -> int:
        """Write to the store what has changed, and return how many cameras that were; raises a `StoreError`."""
        with self._writing:  # who comes second finds all written
            return self._flush()

    def _flush(self) -> int:
        with self._lock:
            dirty = {name: each for name, each in self._resident.items() if each.dirty}
            gone = set(self._gone)
            for each in dirty.values():
                each.dirty = False
        try:
            # What a camera remembers is replaced as a whole, never changed, so that it can be read here meanwhile.
            self.store.put({name: pack_camera(each.camera, self.fleet) for name, each in dirty.items()})
            self.store.delete(gone - dirty.keys())
            with self._lock:
                self._gone -= gone
        except BaseException:
            with self._lock:
                for each in self._resident.values():  # all, as a store that is back may have lost what it had
                    each.dirty = True
            raise
        return len(dirty)

    def evict(self) -> int:
        """Drop from memory the cameras that are idle or too many, where the store has them; return how many."""
        before = time.monotonic() - self.limits.idle
        with self._lock:
            surplus = len(self._resident) - self.limits.resident
            idle = [
                name
                for position, (name, each) in enumerate(self._resident.items())  # those unused longest come first
                if not each.users and not each.dirty and (each.used < before or position < surplus)
            ]
            for name in idle:
                self._drop(name)
        return len(idle)


@contextmanager
def _reached() -> Iterator[None]:
    """Refuse a request for now if the store cannot be reached."""
    try:
        yield
    except StoreError as error:
        raise Busy("the store of cameras cannot be reached; try again later") from error
