"""`Fleet`: many cameras in one forward pass, each with statistics of its own.

Every row of the batch is normalised by the statistics of its own camera, through the same hooks and by the same policy
as in `adapt`. What a camera sees, remembers and is answered is what it would be if it had the model for itself.
"""

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import NoReturn

import torch
from torch import Tensor

from covshift.core.carried import Distance, Weights, export_state, health_of, resume_state, settle
from covshift.core.health import Health
from covshift.core.hooks import check_not_compiled, refuse_to_copy
from covshift.core.identity import fingerprint
from covshift.core.lane import Lane, copied
from covshift.core.places import Only, Patterns
from covshift.core.policies import Memory, Policy, check_policy
from covshift.core.ranks import has_ranks
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.core.wrappers import AnyModel, module_of
from covshift.support.checks import check_dense, check_kind, check_number
from covshift.support.errors import CovshiftError, plural

MOST_PASSES = 64
"""Number of passes of a `Fleet` that may run at once, at most."""


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
        passes: the number of passes that may run at once, called from as many threads. Each further one runs on a
            copy of the model, which shares its parameters; a model that cannot be copied runs one at a time. A camera
            is in one pass at a time.

    Attributes:
        policy: the policy.
        source: the source that it works with.
        places: the places that are corrected.
        fingerprint: the digest of the architecture, which states are checked by.
        passes: the number of passes that may run at once.

    >>> from torch import nn
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
        passes: int = 1,
    ) -> None:
        check_policy(policy)
        if policy.size is not None:
            raise CovshiftError(f"expected a policy without size=, since each camera is a batch, got {policy!r}")
        if policy.sync and has_ranks():
            raise CovshiftError("expected a policy with sync=False: cameras of one rank are not those of another")
        check_number(passes, "passes", 1, whole=True)
        if passes > MOST_PASSES:
            raise CovshiftError(f"expected at most {MOST_PASSES} passes at once, got {passes}")
        module = module_of(model)
        self.policy = policy
        self.source, self.places = settle(policy, module, source, layers, only)
        check_not_compiled(module)
        copies = [each for _ in range(passes - 1) if (each := copied(module)) is not None]
        others = [(each, settle(policy, each, source, layers, only)[1]) for each in copies]
        self.passes = 1 + len(others)
        self.fingerprint = fingerprint(module)
        self._cameras: dict[str, Camera] = {}
        self._changed = threading.Condition()
        self._in_pass: set[str] = set()
        self._lanes = [Lane(module, policy, self.source, self.places, None, self.remove)]
        layout = self._lanes[0].layout
        self._lanes += [Lane(each, policy, self.source, places, layout, self.remove) for each, places in others]
        self._free = list(self._lanes)

    @cached_property
    def distance(self) -> Distance:
        """How far cameras are from the source."""
        return Distance(self.places)

    def __getitem__(self, name: str) -> Camera:
        return self._cameras[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cameras))  # other threads may add to them meanwhile

    def __len__(self) -> int:
        return len(self._cameras)

    def add(self, name: str) -> Camera:
        """Return the camera of this name, which starts at the source statistics if it is new."""
        check_kind(name, str, "name", "the name of a camera")
        camera = self._cameras.get(name)
        return self._cameras.setdefault(name, Camera(self)) if camera is None else camera

    def forget(self, name: str) -> None:
        """Remove a camera, with all that is remembered of it."""
        self._cameras.pop(name, None)

    def remove(self) -> None:
        """Take the hooks off the model, which is as it was; what cameras remember stays."""
        with self._changed:
            self._check_outside()
            self._changed.wait_for(lambda: len(self._free) == len(self._lanes))
            for lane in self._lanes:
                lane.give_back()
            self._lanes, self._free = [], []
            self._changed.notify_all()

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
        with self._lane_for(batches) as lane, torch.inference_mode():
            cameras = [self.add(name) for name in batches]
            return dict(zip(batches, lane.run(cameras, list(batches.values())), strict=True))

    @contextmanager
    def _lane_for(self, names: Collection[str]) -> Iterator[Lane]:
        """Wait until there is a lane for a pass, and none of its cameras is in another one."""
        with self._changed:
            self._check_outside()
            self._changed.wait_for(lambda: not self._lanes or (self._free and self._in_pass.isdisjoint(names)))
            if not self._lanes:
                raise CovshiftError("this fleet was removed from its model; make another one")
            lane = self._free.pop()
            self._in_pass.update(names)
        try:
            yield lane
        finally:
            with self._changed:
                self._free.append(lane)
                self._in_pass.difference_update(names)
                self._changed.notify_all()

    def _check_outside(self) -> None:
        """Raise a `CovshiftError` in a thread that runs a pass, for which it would wait without end."""
        if any(lane.thread == threading.get_ident() for lane in self._lanes):
            raise CovshiftError("a fleet was called from inside of its own pass; call it from outside of the model")


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
