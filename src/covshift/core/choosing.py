"""`choose_source`: whether a network is better corrected to its training statistics or to measured ones."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from covshift.core.calling import batches_of, call_model, logits_of
from covshift.core.estimate import estimate
from covshift.core.places import holds_statistics
from covshift.core.source import Source
from covshift.core.wrappers import AnyModel, unwrap
from covshift.support.checks import check_flags, check_function

TIMES = 2
"""How many times as many answers the training statistics must change as a measured source does, to be left for it."""

FEWEST = 100
"""The number of images that both are tried on, at least; with fewer, the measured source is taken."""


def choose_source(
    model: AnyModel,
    loader: Iterable[Any] | Tensor,
    *,
    call: Callable[[nn.Module, Any], Any] | None = None,
    progress: bool = True,
) -> Source:
    """Return the source that suits a model: the statistics that it holds, or those of clean images; without labels.

    Training statistics are of augmented images. For some networks that does not matter, and for others correcting to
    them costs several points. So every other batch is adapted to both, as to images of a new domain; the source is
    measured on the rest. Clean images should keep the answers that they have: if the training statistics change more
    than twice as many that the measured ones keep as the other way round, the measured ones are returned. So they are
    for a network that holds no statistics, and where there are fewer than 200 images to tell by, or only one batch.

    Args:
        model: a model in eval mode, or what `open_model` returns; it is as before when this returns or raises.
        loader: batches of clean images, some hundreds in all, in the forms that `estimate` takes; they
            are kept in memory meanwhile. About three passes are made over them.
        call: how to call the model on a batch, as for `estimate`.
        progress: whether to show progress bars when this takes long.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(288, 4)).eval()
    >>> choose_source(net, torch.rand(100, 3, 8, 8))
    Source(1 place, 8 channels, 100 images)
    """
    check_flags(progress=progress)
    check_function(call, "call")
    module, batches = unwrap(model), list(batches_of(model, loader))
    measure = partial(Source.measure, module, call=call, sync=False, progress=progress)
    tried = batches[1::2]
    if not any(map(holds_statistics, module.modules())) or not tried:
        return measure(batches)
    with torch.inference_mode():
        plain = torch.cat([_classes((call or call_model)(module, batch)) for batch in tried])
    if len(plain) < FEWEST:
        return measure(batches)

    def changed(source: Source) -> Tensor:
        answers: dict[int, Tensor] = {}

        def collect(position: int, output: Any) -> None:
            answers[position] = _classes(output)

        estimate(module, tried, source=source, call=call, collect=collect, sync=False, progress=progress)
        return torch.cat([answers[position] for position in sorted(answers)]) != plain

    held = Source.of(module)
    by_held, by_half = changed(held), changed(measure(batches[::2]))
    return measure(batches) if (by_held & ~by_half).sum() > TIMES * (by_half & ~by_held).sum() else held


def _classes(output: Any) -> Tensor:
    return logits_of(output).argmax(1)
