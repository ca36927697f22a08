"""`Lane`: a model that runs one pass of many cameras at a time, for a `Fleet`."""

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from covshift.core.apart import check_apart
from covshift.core.calling import call_model, logits_of
from covshift.core.carried import Weights
from covshift.core.compiled.fused import Fused, FusedPass, is_plain
from covshift.core.groups import correct_rows
from covshift.core.hooks import Shortcut
from covshift.core.moments import Meter, Moments, not_finite
from covshift.core.passes import Pass
from covshift.core.places import NormLayer, Place, give_back
from covshift.core.policies import Memory, Policy
from covshift.core.seen import Layout, Seen
from covshift.core.source import Source
from covshift.core.wrappers import unwrap
from covshift.support.errors import CovshiftError, plural


class Followed(Protocol):
    """What a pass needs of a camera."""

    memory: Memory

    def settle(self, before: Memory, after: Memory, weights: Weights) -> None:
        """Remember what a pass has seen, unless the camera was reset since it began."""


class _Turn:
    """The part of one camera in a forward pass."""

    def __init__(self, camera: Followed, memory: Memory, number: int, fused: FusedPass | None) -> None:
        self.camera = camera
        self.current = Pass(memory, None, None, fused, number)
        self.error: CovshiftError | None = None


class Lane:
    """A model with hooks on it, which runs one pass of many cameras at a time.

    Args:
        model: the model, or a copy of it.
        policy: how cameras are followed.
        source: what clean images look like inside of this model.
        places: the places to correct.
        layout: where the channels of each place are in the tables that cameras carry from lane to lane; None for the
            first lane, which makes it.
        remove: takes the hooks off this model and all copies of it; `release` calls it.
    """

    def __init__(
        self,
        model: nn.Module,
        policy: Policy,
        source: Source | None,
        places: Sequence[Place],
        layout: Layout | None,
        remove: Callable[[], None],
    ) -> None:
        self.remove = remove
        self.thread: int | None = None
        self._model, self._policy, self._places = model, policy, places
        self._fused = Fused(places, policy, source.classes if source else None, layout)
        self._turns: list[_Turn] = []
        self._pass: FusedPass | None = None
        self._sizes: tuple[int, ...] = ()
        self._images: tuple[int, ...] = ()
        self._meter = Meter()
        self._apart = False  # whether the images of a batch are known to keep apart
        self._looking = False  # whether that is being looked at
        plain = [place for place in places if place.path in self._fused.slots and is_plain(place.module)]
        self._shortcuts = {place.path: Shortcut(place.module) for place in plain}
        root = unwrap(model)
        self._handles = [
            root.register_forward_pre_hook(self._check_called_by_us, prepend=True),
            *(handle for place in places for handle in place.hook(self._act)),
            root.register_load_state_dict_pre_hook(_refuse_to_load),
        ]

    @property
    def layout(self) -> Layout:
        """Where the channels of each place are in the tables that cameras carry."""
        return self._fused.layout

    def give_back(self) -> None:
        """Take the hooks off the model, which is as it was."""
        give_back(self._places, [*self._handles, *self._shortcuts.values()])

    def run(self, cameras: Sequence[Followed], batches: Sequence[Tensor]) -> list[Tensor | CovshiftError]:
        """Run the model once on the images of some cameras, and let each camera follow its own.

        Returns:
            The logits of each camera, or what was wrong with its images.
        """
        memories = [camera.memory for camera in cameras]  # each may be replaced meanwhile, by a reset
        for memory in memories:
            memory.derived.clear()  # of a pass that failed, or of a camera that is frozen
        self._pass = fused = self._fused.begin(memories)
        self._turns = [_Turn(*each, fused) for each in zip(cameras, memories, range(len(cameras)), strict=True)]
        self._sizes = tuple([len(images) for images in batches])
        self._meter, self.thread = Meter(), threading.get_ident()
        try:
            images = torch.cat(list(batches))
            if not self._apart and len(batches) > 1:
                self._check_apart(images)
            parts = self._split(logits_of(call_model(self._model, images)))
            return self._settle(parts)
        finally:
            self.thread, self._turns, self._pass = None, [], None

    def _check_apart(self, images: Tensor) -> None:
        self._looking = True
        try:
            check_apart(self._model, self._places, images)
            self._apart = True
        finally:
            self._looking = False

    def _split(self, logits: Tensor) -> tuple[Tensor, ...]:
        images = sum(self._sizes)
        if len(logits) != images:
            raise CovshiftError(f"expected logits for {plural(images, 'image')}, got {plural(len(logits), 'row')}")
        if not self._meter.used and not self._policy.idle:
            raise CovshiftError("the model has run without calling any of the layers to adapt; choose others: layers=")
        return tuple(logits.split(self._sizes))

    def _check_called_by_us(self, module: nn.Module, args: object) -> None:
        if self.thread != threading.get_ident() or self._meter.used:
            raise CovshiftError("this model serves a Fleet; call fleet.answer(), or remove() the fleet first")

    def _act(self, place: Place, passing: Any) -> Any:
        """Correct the rows of every camera by its own statistics."""
        if self._policy.idle or self._looking:
            return None
        if self.thread != threading.get_ident():
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
                target, weight = turn.current.learn(self._policy, place, x, turn.current.memory)
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
        later = self._policy.commit_all(*zip(*given, strict=True)) if given else []
        for (turn, _), memory in zip(good, later, strict=True):
            turn.camera.settle(turn.current.memory, memory, turn.current.all_weights())
        return [turn.error or part for turn, part in zip(self._turns, logits, strict=True)]


def _own(seen: Mapping[str, Moments]) -> Mapping[str, Moments]:
    """Return what a camera has seen in arrays of its own, so that it does not keep those of other cameras in memory."""
    return seen.copy() if isinstance(seen, Seen) else seen


def _refuse_to_load(*args: object) -> None:
    raise CovshiftError("remove() the fleet before loading other weights: what cameras remember is of these")


def copied(model: nn.Module) -> nn.Module | None:
    """Return a copy of a model that shares its parameters, so that both can run at once; None if it has none."""
    try:
        return copy.deepcopy(model, {id(each): each for each in unwrap(model).parameters()})
    except CovshiftError:  # it is being adapted
        raise
    except Exception:  # whatever a model holds may refuse to be copied, in its own way
        return None
