"""The case that is examined: a model, images, perhaps a run, and what the model says of the images."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from covshift.bench.evaluate import Evaluator
from covshift.bench.methods import Method
from covshift.bench.results.metrics import Rate, rate
from covshift.bench.results.store import Store
from covshift.bench.settings import Settings
from covshift.core.places import holds_statistics
from covshift.data import CLEAN, Condition, Data
from covshift.data.selection import Selection, Shown
from covshift.doctor.fit import Fit, first_layer
from covshift.doctor.readings import explained
from covshift.doctor.trial import NO_CLASS, Look, Trial
from covshift.models import Model
from covshift.support.arrays import Array
from covshift.support.classes import restrict
from covshift.support.errors import CovshiftError

_SIZES = 64  # images whose size is looked at


class Case:
    """What checks look at. What takes a pass through the model is done once, when it is first asked for.

    Args:
        evaluator: the model, and a class-balanced, shuffled subset of the images, without those that are broken.
        settings: of the run, or the defaults.
        store: the run, if there is one.
        advance: told how many more images have gone through the model.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        settings: Settings,
        store: Store | None = None,
        advance: Callable[[int], None] = lambda images: None,
    ) -> None:
        self.model = evaluator.model
        self.selection = evaluator.selection
        self.data = evaluator.selection.data
        self.settings = settings
        self.store = store
        self.condition = cleanest(self.data)
        self.has_statistics = any(holds_statistics(module) for module in self.model.module.modules())
        self._evaluator = evaluator
        self._advance = advance
        self._shown: dict[Look, Shown] = {}
        self._trials: dict[Look, Trial] = {}
        self._explained: dict[Look, Trial] = {}
        self._fits: dict[Look, Fit | None] = {}

    @property
    def declared(self) -> Look:
        """The images as the model's preprocessing says."""
        return Look(self.model.preprocess)

    def trial(self, look: Look) -> Trial:
        """What the model says of the images when they are shown like this."""
        if look not in self._trials:
            self._trials[look] = self._try(look)
        return self._trials[look]

    def explained(self, look: Look) -> Trial:
        """The same, with labels read in the way that explains most of it."""
        if look not in self._explained:
            self._explained[look] = explained(self.trial(look), self.model.classes)
        return self._explained[look]

    def fit(self, look: Look) -> Fit | None:
        """How well the images fit what the first normalisation layer was trained on; None where there is no such."""
        if look not in self._fits:
            inputs = (images for images, _ in self._inputs(look))
            self._fits[look] = first_layer(self._seeing(look).module, inputs) if self.has_statistics else None
        return self._fits[look]

    def evaluate(self, method: Method, look: Look, indices: Sequence[int] | None = None) -> Rate:
        """The error of a method, on the subset or on other images."""
        selection = self.selection if indices is None else self._select(indices, look)
        shown = self._show(look) if indices is None else selection.show(self.condition)
        model, size = self._seeing(look), self._evaluator.batch_size
        errors, _ = Evaluator(model, selection, batch_size=size, advance=self._advance).run(shown, method)
        return rate(errors.top1, errors.images)

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of some images as they are stored."""
        some = stored_sizes(self.data, self.condition, self.selection.indices[:_SIZES])
        # All of these may be broken.
        return some or stored_sizes(self.data, self.condition, self.selection.indices)

    @property
    def broken(self) -> int:
        """How many images of the subset cannot be read."""
        return len(self.selection) - len(self.trial(self.declared).labels)

    def _try(self, look: Look) -> Trial:
        module = self._seeing(look).module
        predictions, labels = [], []
        with torch.inference_mode():
            for images, classes in self._inputs(look):
                logits = module(images)
                answers = restrict(logits, self.data.among).argmax(1)
                predictions.append(torch.where(logits.isfinite().all(1), answers, NO_CLASS).cpu().numpy())
                labels.append(classes)
                self._advance(len(classes))
        if not labels:
            raise CovshiftError(f"none of the {len(self.selection)} images looked at in {self.data.uri} can be read")
        return Trial(np.concatenate(predictions), np.concatenate(labels))

    def _inputs(self, look: Look) -> Iterator[tuple[Tensor, np.ndarray]]:
        preprocess = self._seeing(look).preprocess
        for batch in self._show(look).batches(self._evaluator.batch_size):
            yield preprocess.tensor(batch.images, self._evaluator.device), batch.labels

    def _show(self, look: Look) -> Shown:
        """The images, decoded once for all looks that differ in colours only."""
        shape = Look(look.preprocess.with_(mean=(0, 0, 0), std=(1, 1, 1)))
        if shape not in self._shown:
            self._shown[shape] = self._select(self.selection.indices, look).show(self.condition)
        return self._shown[shape]

    def _select(self, indices: Sequence[int], look: Look) -> Selection:
        return Selection(self.data, indices, look.preprocess.picture, making=self.settings.making, skip_broken=True)

    def _seeing(self, look: Look) -> Model:
        """The model with this look; swapping in the model keeps its mean and std, each with its own colour."""
        if not look.swapped:
            return Model(self.model.uri, self.model.module, look.preprocess)
        mean, std = (tuple(reversed(colour)) for colour in (look.preprocess.mean, look.preprocess.std))
        module = nn.Sequential(_Swap(), self.model.module).eval()
        return Model(self.model.uri, module, look.preprocess.with_(mean=mean, std=std))


class _Swap(nn.Module):
    """Red and blue change places."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1)


def cleanest(data: Data) -> Condition:
    """The clean images, or the mildest condition of a published set that has none."""
    if data.has(CLEAN):
        return CLEAN
    return min(data.stored, key=lambda condition: (condition.severity, condition.corruption))


def stored_sizes(data: Data, condition: Condition, indices: Sequence[int]) -> list[tuple[int, int]]:
    """Width and height of images as they are stored; for an array, which has one size, of one image."""
    found: list[tuple[int, int]] = []

    def note(picture: Image.Image) -> Array:
        found.append(picture.size)
        return np.asarray(picture)

    data.read(condition, indices, note)
    return found
