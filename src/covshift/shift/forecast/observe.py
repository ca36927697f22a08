"""`observe`: the answers of the plain and the adapted model to unlabelled images, and how far statistics have moved."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covshift.core.calling import call_model, logits_of
from covshift.core.estimate import estimate
from covshift.core.places import holds_statistics
from covshift.core.source import Source
from covshift.core.statistics import Statistics
from covshift.models import Preprocess
from covshift.shift.distance import Distance, wasserstein
from covshift.support.checks import brief, check_dense, check_number
from covshift.support.classes import select
from covshift.support.errors import CovshiftError
from covshift.support.pixels import Images, MakeInput, PixelBatches, check_pixels

WhichModel = Literal["plain", "adapted"]
LabelsLike = Sequence[int] | NDArray[Any] | Tensor


class Conditional(NamedTuple):
    """What the model answers when it is adapted to what classes do not explain.

    Attributes:
        rows: the positions of the images that it was shown, about half of all.
        logits: its logits, [rows, classes].
    """

    rows: Tensor
    logits: Tensor


class Observation(NamedTuple):
    """Everything that can be measured on some images without labels.

    Attributes:
        plain: the logits [images, classes] of the model as it is.
        adapted: the logits of the model fully adapted to these images; `plain` where there is nothing to adapt.
        distance: how far the statistics have moved from the source; without layers where there are none.
        conditional: the answers of the model adapted under the assumption that the images are of the classes that the
            plain model sees; None where that was not tried.
        classes: the classes that can be the answer, which the logits are of; None for all of them.
        firsts: the positions of the images that are not exact repeats of earlier ones; None where that is not known.
    """

    plain: Tensor
    adapted: Tensor
    distance: Distance
    conditional: Conditional | None = None
    classes: tuple[int, ...] | None = None
    firsts: Tensor | None = None

    @property
    def different(self) -> int:
        """The number of different images, which all that rests on chance goes by: repeats say nothing new."""
        return len(self.plain) if self.firsts is None else len(self.firsts)

    @property
    def repeats(self) -> float:
        """How often each different image was shown, on average."""
        return len(self.plain) / self.different

    def logits(self, which: WhichModel) -> Tensor:
        """Return the logits of the plain or of the adapted model."""
        return self.plain if which == "plain" else self.adapted

    def among(self, classes: Sequence[int]) -> "Observation":
        """Return the observation restricted to these classes as possible answers."""
        conditional = self.conditional
        if conditional is not None:
            conditional = conditional._replace(logits=select(conditional.logits, classes))
        plain, adapted = select(self.plain, classes), select(self.adapted, classes)
        return self._replace(plain=plain, adapted=adapted, conditional=conditional, classes=tuple(classes))


def observe(
    model: nn.Module, batches: Iterable[Any], source: Source | None = None, classes: Source | None = None
) -> Observation:
    """Run a module on images, as it is and fully adapted to them; goes through `batches` twice.

    Args:
        model: the module, in eval mode.
        batches: batches of its input.
        source: what clean images look like inside of it; by default the statistics that it holds.
        classes: a source that knows what classes do, to also adapt the module past the classes of the images, which
            takes half a pass more; None not to.
    """
    sums: list[Tensor] = []
    answers: list[Tensor] = []
    seen: dict[bytes, int] = {}
    with torch.inference_mode():
        for batch in batches:
            sums.append(_sums(batch))
            for position, image in enumerate(_images_of(batch), sum(map(len, answers))):
                seen.setdefault(_digest(image), position)
            answers.append(check_logits(call_model(model, batch)).float())
    if sum(map(len, answers)) < 2 or all(bool((each == answers[0][0]).all()) for each in answers):
        raise _same()
    again = partial(_once_more, batches, sums)
    plain, conditional, firsts = torch.cat(answers), None, torch.tensor(list(seen.values()))
    if source is None and not any(map(holds_statistics, model.modules())):
        return Observation(plain, plain, Distance({}), firsts=firsts)
    origin = Statistics.of(model) if source is None else source.statistics
    adapted, target = answer_adapted(model, again(), source=source)
    if classes is not None and classes.classes is not None:
        rows = torch.cat([part[::2] for part in torch.arange(len(plain)).split([len(each) for each in answers])])
        shares = plain[rows].double().softmax(1).mean(0)
        logits, _ = answer_adapted(model, (_half(batch) for batch in again()), source=classes, classes=shares)
        conditional = Conditional(rows, logits)
    distance = wasserstein(origin, target, normalized=True)
    return Observation(plain, adapted, distance, conditional, firsts=firsts)


def _once_more(batches: Iterable[Any], sums: Sequence[Tensor]) -> Iterator[Any]:
    """Yield every batch; raise a `CovshiftError` if it is not the one that came the first time."""
    # The two models' answers to an image are compared, so that a loader that shuffles would spoil everything.
    for position, batch in enumerate(batches):
        if position >= len(sums) or not torch.equal(_sums(batch), sums[position]):
            raise CovshiftError(
                "expected a loader that gives the same images in the same order each time, got others the second "
                "time; turn off shuffling and random augmentation"
            )
        yield batch


def _half(batch: Any) -> Any:
    """Return every other image of a batch; whole batches are not left out, since each may be of another class."""
    if isinstance(batch, Mapping):
        return {name: value[::2] if isinstance(value, Tensor) else value for name, value in batch.items()}
    return (batch[0] if isinstance(batch, tuple | list) else batch)[::2]


def answer_adapted(model: nn.Module, batches: Iterable[Any], **options: Any) -> tuple[Tensor, Statistics]:
    """Return the logits of the model adapted to some images, and the statistics of these images.

    Args:
        model: the module, in eval mode.
        batches: batches of its input.
        options: what `estimate` takes besides.
    """
    answers: dict[int, Tensor] = {}

    def keep(position: int, output: Any) -> None:
        answers[position] = check_logits(output).float()

    target = estimate(model, batches, collect=keep, progress=False, **options)
    return torch.cat([answers[position] for position in sorted(answers)]), target


class Batches(PixelBatches):
    """Images in memory as batches of the model's input, where they differ, so that a layer sees a variance.

    Args:
        images: uint8, NumPy NHWC or torch NCHW; or, as a torch tensor of floats, the model's input itself.
        preprocess: a function that turns uint8 images, torch NCHW, into the model's input; by default the model does.
        size: the number of images in a batch.
    """

    def __init__(self, images: Images, preprocess: MakeInput | None, size: int) -> None:
        super().__init__(images, preprocess, size)
        if len(images) < 2 or not (torch.as_tensor(images[1:]) != torch.as_tensor(images[:1])).any():
            raise _same()
        check_number(size, "batch_size", 1, whole=True, of="images")


def crop_for_model(images: Images, preprocess: MakeInput | None) -> Images:
    """Return images in the size of the model's input, where that is known: corruptions are made after the crop."""
    return preprocess.pixels(images) if isinstance(preprocess, Preprocess) else images


def check_takes_pixels(model: nn.Module, images: Images) -> None:
    """Raise a `CovshiftError` if a model cannot take uint8 images as they are."""
    few = next(iter(PixelBatches(images[:2], None, 2)))
    try:
        with torch.inference_mode():
            call_model(model, few)
    except (RuntimeError, TypeError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise CovshiftError(
            "the model cannot take uint8 images as they are; say preprocess=, a covshift.Preprocess or a function that "
            f"makes its input of them, or give what open_model returned ({problem})"
        ) from error


def as_labels(labels: LabelsLike, images: Images) -> Tensor:
    """Return the labels as int64 if there is a whole number from 0 for each image, else raise a `CovshiftError`."""
    check_pixels(images)
    try:
        tensor = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):
        raise CovshiftError(f"expected labels to be classes, whole numbers from 0, got {brief(labels)}") from None
    check_dense(tensor, "labels")
    if tensor.shape != (len(images),):
        raise CovshiftError(f"expected one label for each of {len(images)} images, got shape {tuple(tensor.shape)}")
    if tensor.is_floating_point() or tensor.is_complex() or bool((tensor < 0).any()):
        raise CovshiftError(
            f"expected labels to be classes, whole numbers from 0, got {tensor.dtype} from {tensor.min()}"
        )
    return tensor.long().cpu()


def check_logits(output: Any) -> Tensor:
    """Return the logits in a model's output, on the CPU; raise a `CovshiftError` unless all are finite numbers."""
    logits = logits_of(output)
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise CovshiftError(f"expected the model to return logits [images, classes], got shape {tuple(logits.shape)}")
    if not logits.isfinite().all():
        raise CovshiftError("the model's logits are NaN or infinite; check the images, its weights and its precision")
    return logits.cpu()


def _images_of(batch: Any) -> Tensor:
    images = next(iter(batch.values()), None) if isinstance(batch, Mapping) else batch
    images = images[0] if isinstance(images, tuple | list) and images else images
    if not isinstance(images, Tensor) or images.ndim < 2:
        raise CovshiftError(f"expected a loader of batches of images as tensors, got {type(images).__name__}")
    return images


def _sums(batch: Any) -> Tensor:
    """Return a number for each image of a batch, by which a batch that comes again is recognised."""
    return _images_of(batch).flatten(1).float().sum(1).nan_to_num().cpu()


def _digest(image: Tensor) -> bytes:
    """Return what no other image has: two that differ may well have the same sum."""
    return hashlib.blake2b(
        image.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), digest_size=16
    ).digest()


def _same() -> CovshiftError:
    return CovshiftError("expected several different images, got the same one over and over, or none")
