"""What others estimate errors by, without labels, by their published rules: COT, COTT, MaNo and AETTA."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

_NORM = 4  # MaNo's p
_PASSES, _RATE, _POWER = 10, 0.4, 3  # AETTA's passes, rate of dropout and exponent


class Reference(NamedTuple):
    """What these estimators learn on clean, labelled images.

    Attributes:
        usual: the share of each class.
        threshold: COTT's, which as many costs exceed as answers are wrong.
        slope, intercept: MaNo's line from its score to the error, over the calibration conditions.
    """

    usual: Tensor
    threshold: float
    slope: float = 0.0
    intercept: float = 0.0


def transport_costs(logits: Tensor, usual: Tensor) -> Tensor:
    """Each image's cost, half the L1 distance, in the cheapest transport from its probabilities to one-hot labels.

    The labels are as many of each class as its share among clean images asks for.
    """
    probabilities = logits.double().softmax(1)
    wanted = usual.double() * len(logits)
    counts = wanted.floor().long()
    missing = len(logits) - int(counts.sum())
    counts[(wanted - counts).argsort(descending=True)[:missing]] += 1
    costs = (1 - probabilities)[:, torch.repeat_interleave(torch.arange(len(usual)), counts)]
    rows, columns = linear_sum_assignment(costs.numpy())
    return costs[torch.from_numpy(rows), torch.from_numpy(columns)]


def refer(logits: Tensor, labels: Tensor) -> Reference:
    """COT's shares and COTT's threshold, from clean images."""
    usual = torch.bincount(labels, minlength=logits.shape[1]).double() / len(labels)
    right = (logits.argmax(1) == labels).double().mean().item()
    return Reference(usual, torch.quantile(transport_costs(logits, usual), right).item())


def cot(logits: Tensor, reference: Reference) -> float:
    """The error by COT: the mean cost."""
    return transport_costs(logits, reference.usual).mean().item()


def cott(logits: Tensor, reference: Reference) -> float:
    """The error by COTT: the share of costs above the threshold."""
    return (transport_costs(logits, reference.usual) > reference.threshold).double().mean().item()


def mano_score(logits: Tensor) -> float:
    """MaNo's score, ‖softmax(logits)‖₄ over (images · classes)^¼; an error needs a line, learned on other shifts."""
    return logits.double().softmax(1).pow(_NORM).mean().pow(1 / _NORM).item()


def with_line(reference: Reference, pairs: list[tuple[float, float]]) -> Reference:
    """The reference with MaNo's line through these scores and errors."""
    scores, errors = np.array(pairs).T
    slope, intercept = np.polyfit(scores, errors, 1)
    return reference._replace(slope=float(slope), intercept=float(intercept))


def mano(logits: Tensor, reference: Reference) -> float:
    """The error by MaNo's score and the line of the reference."""
    return float(np.clip(reference.intercept + reference.slope * mano_score(logits), 0, 1))


def aetta(model: nn.Module, batches: Iterable[Any], seed: int = 0) -> float:
    """The error of an adapted model by AETTA: how often dropout changes answers, over (E_avg / E_max)³.

    E_avg is the entropy of the mean answer, E_max the greatest there is. Networks without dropout get it in front of
    their last linear layer.
    """
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    generator = torch.Generator().manual_seed(seed)
    kept: list[Tensor] = []
    with torch.inference_mode(), _inputs_of(last, kept):
        logits = torch.cat([model(batch) for batch in batches])
        features = torch.cat(kept)
        answers, changed = logits.argmax(1), 0.0
        for _ in range(_PASSES):
            mask = torch.rand(features.shape, generator=generator) > _RATE
            changed += (last(features * mask / (1 - _RATE)).argmax(1) != answers).double().mean().item() / _PASSES
        mean = logits.double().softmax(1).mean(0)
        ratio = float(torch.special.entr(mean).sum()) / np.log(len(mean))
    return float(min(1.0, changed / max(ratio**_POWER, 1e-6)))


@contextmanager
def _inputs_of(layer: nn.Module, kept: list[Tensor]) -> Iterator[None]:
    handle = layer.register_forward_pre_hook(lambda module, args: kept.append(args[0].clone()))
    try:
        yield
    finally:
        handle.remove()
