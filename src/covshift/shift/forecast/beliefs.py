"""Beliefs: how likely each answer is wrong, from the probabilities that the plain and the adapted model give to it."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from covshift.shift.forecast.observe import Observation, WhichModel

_LEAST = 1e-3  # probability: beyond it a belief counts no more
_RIDGE = 1e-3
_STEPS = 30


class Beliefs(NamedTuple):
    """The weights of a logistic regression from two beliefs in an answer to the chance that it is wrong.

    Attributes:
        constant: the constant.
        adapted: the weight of the adapted model's belief, as a logit.
        plain: the weight of the plain model's.
    """

    constant: float
    adapted: float
    plain: float


def wrong_answers(seen: Observation, which: WhichModel, beliefs: Beliefs, temperature: float) -> Tensor:
    """Return the chance of each answer of the plain or the adapted model to be wrong, [images].

    The adapted model judges: its confidence goes with its error. Of the plain model's answers, the plain model's own
    belief says more where the two disagree.
    """
    answers = seen.logits(which).argmax(1)
    if which == "adapted":
        return 1 - belief(seen.adapted, answers, temperature)
    weights = torch.tensor(beliefs, dtype=torch.float64)
    return (_inputs(seen, answers, temperature) @ weights).sigmoid()


def fit_beliefs(seen: Sequence[Observation], labels: Sequence[Tensor], temperature: float) -> Beliefs:
    """Fit the weights on the answers of the plain model in several conditions, by Newton's method.

    Args:
        seen: the observations.
        labels: the labels of the images of each.
        temperature: divides the logits, so that probabilities are about right.
    """
    answers = [one.plain.argmax(1) for one in seen]
    inputs = torch.cat([_inputs(one, each, temperature) for one, each in zip(seen, answers, strict=True)])
    wrong = torch.cat([each != truth for each, truth in zip(answers, labels, strict=True)]).double()
    weights = torch.zeros(3, dtype=torch.float64)
    ridge = _RIDGE * len(wrong) * torch.eye(3, dtype=torch.float64)
    for _ in range(_STEPS):
        chance = (inputs @ weights).sigmoid()
        slope = inputs.mT @ (chance - wrong) + ridge @ weights
        curve = (inputs.mT * (chance * (1 - chance))) @ inputs + ridge
        weights = weights - torch.linalg.solve(curve, slope)
    return Beliefs(*weights.tolist())


def belief(logits: Tensor, answers: Tensor, temperature: float) -> Tensor:
    """Return the probability of each answer by these logits.

    >>> belief(torch.zeros(1, 4), torch.tensor([2]), 1.0)
    tensor([0.2500], dtype=torch.float64)
    """
    return (logits.double() / temperature).softmax(1).gather(1, answers.unsqueeze(1)).squeeze(1)


def counting(chances: Tensor) -> float:
    """Return the variance of the share of wrong answers, where these are the chances of each to be wrong."""
    return float((chances * (1 - chances)).mean()) / len(chances)


def _inputs(seen: Observation, answers: Tensor, temperature: float) -> Tensor:
    both = [belief(logits, answers, temperature) for logits in (seen.adapted, seen.plain)]
    return torch.stack([torch.ones_like(both[0]), *(torch.logit(each, eps=_LEAST) for each in both)], 1)
