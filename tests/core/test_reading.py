"""Reading the classes of a batch off its activations: the posterior of a linear model."""

from dataclasses import replace

import pytest
import torch

from covshift.core.classes import Classes, Slopes
from covshift.core.live.belief import belief
from covshift.core.live.order import Order, Recent
from covshift.core.live.outlook import Outlook
from covshift.core.moments import Moments
from covshift.core.policies import Memory
from covshift.core.reading import Reader
from covshift.core.source import Source
from covshift.core.statistics import Statistics

DIRECTIONS, CHANNELS = 3, 7


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear_model() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    root = numbers(DIRECTIONS, DIRECTIONS, seed=1)
    return numbers(DIRECTIONS, CHANNELS, seed=2), numbers(CHANNELS, seed=3).square() + 0.1, root @ root.mT


def test_what_is_read_is_the_mean_of_the_posterior():
    slopes, noise, covariance = linear_model()
    spread, chance = 0.5, 0.3
    difference = 0.1 * numbers(CHANNELS, seed=4)
    # Gaussian conditioning in the space of channels, with no eigenvalues: cov(e, d) cov(d)⁻¹ d.
    prior = spread * covariance
    of_difference = slopes.mT @ prior @ slopes + chance * noise.diag()
    expected = prior @ slopes @ torch.linalg.solve(of_difference, difference)
    left = slopes.mT @ (prior - prior @ slopes @ torch.linalg.solve(of_difference, slopes.mT @ prior)) @ slopes
    reader = Reader.of(slopes, noise, covariance)
    torch.testing.assert_close(reader.read(difference, spread, chance), expected)
    scale = torch.rand(CHANNELS, dtype=torch.float64)
    assert reader.unknown(scale, spread, chance) == pytest.approx(float((left.diagonal() * scale).mean()))


def test_a_difference_that_classes_cannot_make_is_read_as_little():
    slopes, noise, covariance = linear_model()
    reader = Reader.of(slopes, noise, covariance)
    difference = numbers(DIRECTIONS, seed=5) @ slopes
    plain, far = (reader.read(factor * difference, 0.5, 0.3) for factor in (1, 1000))
    assert far.norm() < plain.norm()


def test_constant_channels_are_no_division_by_zero():
    slopes, noise, covariance = linear_model()
    reader = Reader.of(slopes * 0, noise * 0, covariance)
    assert reader.read(torch.ones(CHANNELS).double(), 0.5, 0.3).isfinite().all()


@pytest.mark.parametrize(
    ("images", "batches", "directions", "reads"),
    [(16, 5, 4, True), (1, 5, 4, False), (16, 1, 4, False), (16, 5, 2, False)],
    ids=["a batch", "one image", "the start", "classes that share directions"],
)
def test_when_classes_are_read(images, batches, directions, reads):
    embedding = torch.eye(4).double()[:, :directions]
    slopes = Slopes(numbers(directions, CHANNELS), numbers(directions, CHANNELS), torch.ones(CHANNELS).double())
    classes = Classes(embedding, embedding.mean(0), {"a": slopes})
    order = Order(classes.centre, classes.centre, images=40.0, batches=batches)
    assert (Outlook.of(order, classes, images, 0.1).spread > 0) is reads


def test_after_a_change_the_last_answers_do_not_say_what_comes():
    embedding = torch.eye(4).double()
    classes = Classes(embedding, embedding.mean(0), {})
    steady = Order(classes.centre, classes.centre, images=40.0, along=1.0, across=1.0, batches=5)
    assert Outlook.of(steady, classes, 16, 0.1).doubt < 0.2
    assert Outlook.of(steady.anew(), classes, 16, 1.0).doubt == 1


def remembering(
    directions: int = 4, off: float = 0.0, images: float = 1e9, batches: float = 50, places: int = 12
) -> tuple[Memory, Order, Classes]:
    """What is remembered of a stream of the first of four classes, and lies off that class by `off` deviations."""
    embedding = torch.eye(4).double()[:, :directions]
    effects = numbers(directions, CHANNELS)
    # The last place but one tells most.
    scales = {f"place {i}": 2.0 if i == places - 2 else 0.1 for i in range(places)}
    slopes = {path: Slopes(scale * effects, effects, torch.ones(CHANNELS).double()) for path, scale in scales.items()}
    classes = Classes(embedding, embedding.mean(0), slopes)
    clean = Moments(1e9, 1e9, torch.zeros(CHANNELS).double(), torch.ones(CHANNELS).double())
    source = Source(Statistics(dict.fromkeys(slopes, clean), ""), {}, "", measured=True, classes=classes)
    mix = classes.apart[0]
    seen = {path: Moments(images, images, mix @ each.mean + off, clean.var) for path, each in slopes.items()}
    order = Order(mix, mix, images=images, along=1.0, across=1.0, batches=batches)
    # The last eight images are as far from the others at the first places as chance makes them.
    first = torch.cat([seen[path].mean - mix @ slopes[path].mean for path in list(seen)[:10]])
    notes = Recent(first + (1 / 8) ** 0.5, chance=1 / 8).notes()
    return Memory(seen, notes, source), order, classes


def test_answers_are_believed_the_less_the_more_is_left_over():
    def believed(off: float) -> float:
        memory, order, classes = remembering(off=off)
        return belief(memory, order, classes, share=0.0, prior=16)

    classes = remembering()[2]
    effects = classes.apart @ classes.slopes["place 10"].mean  # of a class, where noise is 1 in each channel
    half = (0.06 * float(effects.square().sum(0).mean()) / 4) ** 0.5
    assert believed(0.0) == pytest.approx(1)
    assert believed(half) == pytest.approx(1 / 2)
    assert believed(3 * half) < 0.02


@pytest.mark.parametrize(
    "told",
    [{"directions": 3}, {"batches": 3}, {"images": 2.0}, {"places": 10}],
    ids=[
        "classes that share directions",
        "the start",
        "chance",
        "first places only",
    ],
)
def test_answers_are_believed_where_what_is_left_over_says_nothing(told):
    memory, order, classes = remembering(off=0.7, **told)
    assert belief(memory, order, classes, share=0.0, prior=16) == 1


@pytest.mark.parametrize(("apart", "doubted"), [(1.0, True), (0.0, False)], ids=["as by chance", "images all alike"])
def test_images_that_are_alike_are_no_reason_for_doubt(apart, doubted):
    memory, order, classes = remembering(off=0.7)
    first = list(memory.seen)[:10]
    means = torch.cat([memory.seen[path].mean - order.mix @ classes.slopes[path].mean for path in first])
    notes = Recent(means + apart * (1 / 8) ** 0.5, chance=1 / 8).notes()
    assert (belief(replace(memory, notes=notes), order, classes, share=0.0, prior=16) < 0.5) is doubted


def test_more_may_be_left_over_where_less_was_corrected():
    memory, order, classes = remembering(off=0.7)
    few, many = (belief(memory, order._replace(images=images), classes, share=0.0, prior=16) for images in (30, 200))
    assert many < few


def test_the_more_classes_of_the_last_images_are_unknown_the_less_do_they_say():
    memory, order, classes = remembering(off=0.7)
    known, unknown = (belief(memory, each, classes, share=0.3, prior=16) for each in (order, order._replace(along=0.0)))
    assert known < unknown


def test_what_classes_are_not_believed_to_do_counts_as_chance():
    _, order, classes = remembering()
    sure, unsure = (Outlook.of(order, classes, 1, 0.1, believed) for believed in (1.0, 0.25))
    torch.testing.assert_close(unsure.offset, sure.offset / 4)
