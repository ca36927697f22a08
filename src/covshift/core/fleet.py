"""`Fleet`: many cameras in one forward pass, each with statistics of its own.

Every row of the batch is normalised by the statistics of its own camera, through the same hooks and by the same policy
as in `adapt`. What a camera sees, remembers and is answered is what it would be if it had the model for itself.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from covshift.core.calling import call_model, logits_of
from covshift.core.carried import Distance, Weights, export_state, health_of, resume_state, settle
from covshift.core.compiled.fused import Fused, FusedPass, is_plain
from covshift.core.groups import correct_rows
from covshift.core.health import Health
from covshift.core.hooks import Shortcut, check_not_compiled, refuse_to_copy
from covshift.core.identity import fingerprint
from covshift.core.moments import Meter, Moments, not_finite
from covshift.core.passes import Pass
from covshift.core.places import NormLayer, Only, Patterns, Place, give_back
from covshift.core.policies import Memory, Policy, check_policy
from covshift.core.ranks import has_ranks
from covshift.core.seen import Seen
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, module_of, unwrap
from covshift.support.checks import check_dense, check_kind
from covshift.support.errors import CovshiftError, plural


class Camera:
    """One camera of a `Fleet`: what it remembers, and control over it.

    Attributes:
        frozen: whether what it remembers stays as it is; its images are still corrected.
    """

    def __init__(self, fleet: "Fleet") -> None:
        self._fleet = fleet
        self._changing = threading.Lock()
        self.frozen = False
        self.memory = Memory(source=fleet.source)
        self.weights: Weights = {}

    @property
    def state(self) -> Statistics:
        """What the camera remembers, to save; assign a state to resume from it."""
        fleet = self._fleet
        return export_state(fleet.policy, self.memory, fleet.places, fleet.fingerprint, fleet.source)

    @state.setter
    def state(self, state: Statistics) -> None:
        fleet = self._fleet
        self._replace(resume_state(fleet.policy, state, fleet.places, fleet.fingerprint, fleet.source))

    @property
    def health(self) -> Health:
        """What is done for this camera at the moment, and why."""
        return health_of(self._fleet.policy, self.memory, self.weights, self._fleet.places)

    @property
    def shift(self) -> float | None:
        """How far what was seen is from the source, in its standard deviations: the root mean square over all places.

        None before the first image. Cheaper than `health`, which has the distance of every place.
        """
        seen = self.memory.seen
        return self._fleet.distance.of(seen) if seen else None

    def reset(self) -> None:
        """Forget what was seen and return to the source statistics."""
        self._replace(Memory(source=self._fleet.source))

    def _replace(self, memory: Memory) -> None:
        with self._changing:
            self.memory, self.weights = memory, {}

    def settle(self, before: Memory, after: Memory, weights: Weights) -> None:
        """Remember what a pass has seen, unless the camera was reset or given a state since the pass began."""
        with self._changing:
            if self.memory is before:
                self.memory, self.weights = before if self.frozen else after, weights


class _Turn:
    """The part of one camera in a forward pass."""

    def __init__(self, camera: Camera, memory: Memory, number: int, fused: FusedPass | None) -> None:
        self.camera = camera
        self.current = Pass(memory, None, None, fused, number)
        self.error: CovshiftError | None = None


class Fleet(Mapping[str, Camera]):
    """Many cameras that share a model: one forward pass for all, statistics and memory for each.

    It maps the names of cameras to `Camera`. A camera exists from its first images on, or from `add`; `remove` takes
    the hooks off the model. While a fleet is on a model, the model is called through `answer` only.

    Args:
        model: any model in eval mode, or what `open_model` returns.
        policy: `Live()`, `Stream(prior=N)` or `Batch(prior=N)`, for each camera by itself.
        source: what clean images look like inside of this model, as for `adapt`.
        layers: patterns of layer paths, to adapt only those.
        only: "mean" or "var" to adapt only that moment.

    >>> from covshift.core.policies import Stream
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 4)).eval()
    >>> with Fleet(net, Stream(prior=16)) as fleet:
    ...     answers = fleet.answer({"gate": torch.rand(1, 3, 8, 8), "yard": torch.rand(2, 3, 8, 8)})
    ...     answers["yard"].shape, fleet["gate"].state.images
    (torch.Size([2, 4]), 1.0)
    """

    def __init__(
        self,
        model: AnyModel,
        policy: Policy,
        *,
        source: Source | None = None,
        layers: Patterns = None,
        only: Only = None,
    ) -> None:
        check_policy(policy)
        if policy.size is not None:
            raise CovshiftError(f"expected a policy without size=, since each camera is a batch, got {policy!r}")
        if policy.sync and has_ranks():
            raise CovshiftError("expected a policy with sync=False: cameras of one rank are not those of another")
        self._module = module_of(model)
        self.policy = policy
        self.source, self.places = settle(policy, self._module, source, layers, only)
        check_not_compiled(self._module)
        self._passing = threading.RLock()
        self._cameras: dict[str, Camera] = {}
        self._fused = Fused(self.places, policy, self.source.classes if self.source else None)
        self._turns: list[_Turn] = []
        self._pass: FusedPass | None = None
        self._sizes: tuple[int, ...] = ()
        self._images: tuple[int, ...] = ()
        self._meter = Meter()
        self._thread: int | None = None
        plain = [place for place in self.places if place.path in self._fused.slots and is_plain(place.module)]
        self._shortcuts = {place.path: Shortcut(place.module) for place in plain}
        root = unwrap(self._module)
        self._handles = [
            root.register_forward_pre_hook(self._check_called_by_us, prepend=True),
            *(handle for place in self.places for handle in place.hook(self._act)),
            root.register_load_state_dict_pre_hook(_refuse_to_load),
        ]

    @cached_property
    def distance(self) -> Distance:
        """How far cameras are from the source."""
        return Distance(self.places)

    @cached_property
    def fingerprint(self) -> str:
        """The digest of the architecture, which states are checked by."""
        return fingerprint(self._module)

    def __getitem__(self, name: str) -> Camera:
        return self._cameras[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cameras))  # other threads may add to them meanwhile

    def __len__(self) -> int:
        return len(self._cameras)

    def add(self, name: str) -> Camera:
        """Return the camera of this name, which starts at the source statistics if it is new."""
        check_kind(name, str, "name", "the name of a camera")
        return self._cameras.setdefault(name, Camera(self))

    def forget(self, name: str) -> None:
        """Remove a camera, with all that is remembered of it."""
        self._cameras.pop(name, None)

    def remove(self) -> None:
        """Take the hooks off the model, which is as it was; what cameras remember stays."""
        with self._passing:
            if self._handles:
                give_back(self.places, [*self._handles, *self._shortcuts.values()])
            self._handles = []

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"Fleet({self.policy}, {plural(len(self._cameras), 'camera')})"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse_to_copy()

    def answer(self, batches: Mapping[str, Tensor]) -> dict[str, Tensor | CovshiftError]:
        """Run the model once on the images of many cameras, and let each camera follow its own.

        Args:
            batches: the images of each camera by its name, all of one shape: the model's input, [images, ...].

        Returns:
            The logits of each camera. Where the images of a camera cannot be followed, such as those with NaN, it is
            the error instead; what the camera remembers is then as before, and no other camera is touched.
        """
        _check_batches(batches)
        with self._passing, torch.inference_mode():
            if not self._handles:
                raise CovshiftError("this fleet was removed from its model; make another one")
            cameras = [self.add(name) for name in batches]
            memories = [camera.memory for camera in cameras]  # each may be replaced meanwhile, by a reset
            self._pass = fused = self._fused.begin(memories)
            self._turns = [_Turn(*each, fused) for each in zip(cameras, memories, range(len(cameras)), strict=True)]
            self._sizes = tuple([len(images) for images in batches.values()])
            self._meter, self._thread = Meter(), threading.get_ident()
            try:
                output = call_model(self._module, torch.cat(list(batches.values())))
                parts = self._split(logits_of(output))
                return dict(zip(batches, self._settle(parts), strict=True))
            finally:
                self._thread, self._turns, self._pass = None, [], None

    def _split(self, logits: Tensor) -> tuple[Tensor, ...]:
        images = sum(self._sizes)
        if len(logits) != images:
            raise CovshiftError(f"expected logits for {plural(images, 'image')}, got {plural(len(logits), 'row')}")
        if not self._meter.used and not self.policy.idle:
            raise CovshiftError("the model has run without calling any of the layers to adapt; choose others: layers=")
        return tuple(logits.split(self._sizes))

    def _check_called_by_us(self, module: nn.Module, args: object) -> None:
        if self._thread != threading.get_ident() or self._meter.used:
            raise CovshiftError("this model serves a Fleet; call fleet.answer(), or remove() the fleet first")

    def _act(self, place: Place, passing: Any) -> Any:
        """Correct the rows of every camera by its own statistics."""
        if self.policy.idle:
            return None
        if self._thread != threading.get_ident():
            raise CovshiftError("a layer of this model was called while a Fleet is on it; call fleet.answer()")
        x = place.read(passing, self._meter.known)
        rows = self._rows_of(place, x)
        if not self._meter.used:
            self._images = rows
            for turn, part in zip(self._turns, x.split(rows), strict=True):
                turn.current.meter.images(part)
        self._meter.images(x)
        if self._pass is not None:
            # The input of a layer may also be that of others; what a layer returns is its own.
            y = torch.empty_like(x) if isinstance(place, NormLayer) else x
            if self._pass.correct(place, x, rows, self._images, y):
                if place.path in self._shortcuts:
                    self._shortcuts[place.path].done = y
                return None if y is x else place.replaced(passing, y)
        moments = [self._learn(turn, place, part) for turn, part in zip(self._turns, x.split(rows), strict=True)]
        return place.replaced(passing, correct_rows(x, place, rows, moments))

    def _rows_of(self, place: Place, x: Tensor) -> tuple[int, ...]:
        """Return the number of rows that each camera has in the activations of a place."""
        rows, images = x.shape[0], sum(self._sizes)
        if rows == images:
            return self._sizes
        if rows % images:
            problem = f"layer {place.path!r} has {rows} rows for {images} images, which cannot be assigned to images"
            raise CovshiftError(f"{problem}; leave this layer out with layers=")
        return tuple([rows // images * size for size in self._sizes])

    def _learn(self, turn: _Turn, place: Place, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and variance to correct the rows of one camera by."""
        if turn.error is None:
            try:
                target, weight = turn.current.learn(self.policy, place, x, turn.current.memory)
                return place.mixed(target.mean, target.var, weight)
            except CovshiftError as error:
                turn.error = error
        return place.wide

    def _settle(self, logits: Sequence[Tensor]) -> list[Tensor | CovshiftError]:
        """Add what each camera saw to its memory, unless it was not finite; return its logits, or what was wrong."""
        for turn in self._turns:
            if turn.error is None and (path := turn.current.broken()) is not None:
                turn.error = not_finite(path)
        good = [(turn, part) for turn, part in zip(self._turns, logits, strict=True) if turn.error is None]
        given = [(turn.current.memory, _own(turn.current.all_seen()), part) for turn, part in good]
        later = self.policy.commit_all(*zip(*given, strict=True)) if given else []
        for (turn, _), memory in zip(good, later, strict=True):
            turn.camera.settle(turn.current.memory, memory, turn.current.all_weights())
        return [turn.error or part for turn, part in zip(self._turns, logits, strict=True)]


def _own(seen: Mapping[str, Moments]) -> Mapping[str, Moments]:
    """Return what a camera has seen in arrays of its own, so that it does not keep those of other cameras in memory."""
    return seen.copy() if isinstance(seen, Seen) else seen


def _check_batches(batches: Mapping[str, Tensor]) -> None:
    check_kind(batches, Mapping, "batches", "the images of cameras by their names")
    if not batches:
        raise CovshiftError("expected the images of at least one camera, got none")
    first = next(iter(batches.values()))
    for name, images in batches.items():
        if not isinstance(images, Tensor) or images.ndim < 2 or not len(images):
            raise CovshiftError(f"expected images of camera {name!r} as a tensor, [images, ...], got another value")
        check_dense(images, f"the images of camera {name!r}")
        if images.shape[1:] != first.shape[1:] or images.dtype != first.dtype:
            raise CovshiftError("expected images of one shape and type from all cameras; answer others in another call")


def _refuse_to_load(*args: object) -> None:
    raise CovshiftError("remove() the fleet before loading other weights: what cameras remember is of these")
