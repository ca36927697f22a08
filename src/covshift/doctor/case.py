"""`Case`: the model, images and perhaps run that are examined, and the model's answers to the images."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from covshift.bench.evaluate import Evaluator
from covshift.bench.methods import Method
from covshift.bench.results.metrics import Rate, rate
from covshift.bench.results.store import Store
from covshift.bench.settings import Settings
from covshift.core.calling import logits_of
from covshift.core.estimate import estimate
from covshift.core.places import holds_statistics
from covshift.core.source import Source
from covshift.data import CLEAN, Condition
from covshift.data.readable import Readable
from covshift.data.selection import ConditionImages, Selection
from covshift.doctor.fit import Fit, first_layer
from covshift.doctor.readings import explained
from covshift.doctor.trial import NO_CLASS, InputFormat, Trial
from covshift.models import Model
from covshift.support.arrays import Array
from covshift.support.classes import restrict
from covshift.support.errors import CovshiftError

_SIZES = 64  # images whose size is checked


class Case:
    """The model and images that checks examine. A pass through the model is made once, when it is first needed.

    Args:
        evaluator: the model, and a class-balanced, shuffled subset of the images, without those that are broken.
        settings: the settings of the run, or the defaults.
        store: the run, if there is one.
        advance: called with the number of images that have just gone through the model.
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
        self._decoded: dict[InputFormat, ConditionImages] = {}
        self._trials: dict[InputFormat, Trial] = {}
        self._explained: dict[InputFormat, Trial] = {}
        self._fits: dict[InputFormat, Fit | None] = {}

    @property
    def declared(self) -> InputFormat:
        """The format that the model's preprocessing declares."""
        return InputFormat(self.model.preprocess)

    def trial(self, form: InputFormat) -> Trial:
        """Return the model's answers to the images in this format."""
        if form not in self._trials:
            self._trials[form] = self._try(form)
        return self._trials[form]

    def explained(self, form: InputFormat) -> Trial:
        """Return the model's answers with the labels read in the way that explains most of them."""
        if form not in self._explained:
            self._explained[form] = explained(self.trial(form), self.model.classes)
        return self._explained[form]

    def fit(self, form: InputFormat) -> Fit | None:
        """Return how well the images fit what the first normalisation layer was trained on, where there is one."""
        if form not in self._fits:
            inputs = (images for images, _ in self._inputs(form))
            self._fits[form] = first_layer(self._seeing(form).module, inputs) if self.has_statistics else None
        return self._fits[form]

    def evaluate(self, method: Method, form: InputFormat, indices: Sequence[int] | None = None) -> Rate:
        """Return the error of a method, on the subset or on other images."""
        selection = self.selection if indices is None else self._select(indices, form)
        images = self._images_in(form) if indices is None else selection.images_in(self.condition)
        model, size = self._seeing(form), self._evaluator.batch_size
        errors, _ = Evaluator(model, selection, batch_size=size, advance=self._advance).run(images, method)
        return rate(errors.top1, errors.images)

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """The width and height of some images as they are stored."""
        some = stored_sizes(self.data, self.condition, self.selection.indices[:_SIZES])
        # All of these may be broken.
        return some or stored_sizes(self.data, self.condition, self.selection.indices)

    @property
    def broken(self) -> int:
        """The number of images of the subset that cannot be read."""
        return len(self.selection) - len(self.trial(self.declared).labels)

    def _try(self, form: InputFormat) -> Trial:
        module = self._seeing(form).module
        predictions, labels = [], []
        with torch.inference_mode():
            for images, classes in self._inputs(form):
                predictions.append(self._answers(module(images)))
                labels.append(classes)
                self._advance(len(classes))
        if not labels:
            raise CovshiftError(f"none of the {len(self.selection)} images examined in {self.data.uri} can be read")
        return Trial(np.concatenate(predictions), np.concatenate(labels))

    def anchored(self, form: InputFormat) -> tuple[Trial, Trial] | None:
        """Return the answers to every second image, as they are and fully adapted, with the others as source.

        Returns:
            None where there are too few images, or no place in the model where it could be adapted.
        """
        module = self._seeing(form).module
        halves = [(images[::2], images[1::2], classes[1::2]) for images, classes in self._inputs(form)]
        tested = [(images, classes) for _, images, classes in halves if len(images)]
        outputs: dict[int, Any] = {}
        try:
            source = Source.measure(module, [clean for clean, _, _ in halves], progress=False)
            inputs = [images for images, _ in tested]
            estimate(module, inputs, source=source, collect=outputs.__setitem__, progress=False)
        except CovshiftError:
            return None
        labels = np.concatenate([classes for _, classes in tested])
        with torch.inference_mode():
            before = np.concatenate([self._answers(module(images)) for images, _ in tested])
        after = np.concatenate([self._answers(outputs[position]) for position in range(len(tested))])
        return Trial(before, labels), Trial(after, labels)

    def _answers(self, output: Any) -> np.ndarray:
        """Return the class that each output of the model names."""
        logits = logits_of(output)
        answers = restrict(logits, self.data.among).argmax(1)
        return torch.where(logits.isfinite().all(1), answers, NO_CLASS).cpu().numpy()

    def _inputs(self, form: InputFormat) -> Iterator[tuple[Tensor, np.ndarray]]:
        preprocess = self._seeing(form).preprocess
        for batch in self._images_in(form).batches(self._evaluator.batch_size):
            yield preprocess.tensor(batch.images, self._evaluator.device), batch.labels

    def _images_in(self, form: InputFormat) -> ConditionImages:
        """Return the images, decoded once for all formats that differ in colours only."""
        shape = InputFormat(form.preprocess.with_(mean=(0, 0, 0), std=(1, 1, 1)))
        if shape not in self._decoded:
            self._decoded[shape] = self._select(self.selection.indices, form).images_in(self.condition)
        return self._decoded[shape]

    def _select(self, indices: Sequence[int], form: InputFormat) -> Selection:
        return Selection(
            self.data,
            indices,
            form.preprocess.picture,
            corruption_settings=self.settings.corruption_settings,
            skip_broken=True,
        )

    def _seeing(self, form: InputFormat) -> Model:
        """Return the model for this format; swapping in the model keeps its mean and std, each with its own colour."""
        if not form.swapped:
            return Model(self.model.uri, self.model.module, form.preprocess)
        mean, std = (tuple(reversed(colour)) for colour in (form.preprocess.mean, form.preprocess.std))
        module = nn.Sequential(_Swap(), self.model.module).eval()
        return Model(self.model.uri, module, form.preprocess.with_(mean=mean, std=std))


class _Swap(nn.Module):
    """Swaps red and blue."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flip(1)


def cleanest(data: Readable) -> Condition:
    """Return the clean condition, or the mildest one of a published set that has no clean images."""
    if data.has(CLEAN):
        return CLEAN
    return min(data.stored, key=lambda condition: (condition.severity, condition.corruption))


def stored_sizes(data: Readable, condition: Condition, indices: Sequence[int]) -> list[tuple[int, int]]:
    """Return width and height of images as they are stored; for an array, which has one size, of one image."""
    found: list[tuple[int, int]] = []

    def note(picture: Image.Image) -> Array:
        found.append(picture.size)
        return np.asarray(picture)

    data.read(condition, indices, note)
    return found
