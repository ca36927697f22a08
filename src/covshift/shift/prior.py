"""Choosing N on the holdout corruptions, as the paper does.

`Batch(prior="auto")` needs no choice; `covshift.shift.best_layer_prior` chooses by the bounds of Proposition 1.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from covshift.core.adapter import adapt
from covshift.core.calling import call_model
from covshift.core.identity import digest
from covshift.core.policies import Batch
from covshift.core.statistics import check_prior
from covshift.core.wrappers import AnyModel, module_of
from covshift.corruptions import category, corrupt, names
from covshift.corruptions.apply import check_severity
from covshift.models.base import preprocess_of
from covshift.shift.forecast.observe import Batches, LabelsLike, as_labels, check_logits, crop_for_model
from covshift.support.checks import check_flags, check_list, check_number, check_path, check_seed
from covshift.support.errors import CovshiftError
from covshift.support.files import replacing
from covshift.support.pixels import Images, MakeInput
from covshift.support.progress import progress_bar

PRIOR_GRID = tuple(2.0**power for power in range(11))
"""The values of N that are tried: 1, 2, 4 … 1024."""


def least_error_prior(errors: Mapping[float, float]) -> float:
    """Return the N with the least error; of those that tie, the smallest, which follows the images most.

    Args:
        errors: an error, or a sum of errors, for each N that was tried.

    >>> least_error_prior({4: 0.25, 1: 0.5, 2: 0.25})
    2
    """
    if not errors:
        raise CovshiftError("expected the error of one N or more to choose from, got none")
    return min(sorted(errors), key=errors.__getitem__)


@dataclass(frozen=True)
class Search:
    """The result of a grid search.

    Attributes:
        prior: the N with the least mean error over the holdout conditions; the smallest of those that tie.
        errors: the mean error for each N tried.
    """

    prior: float
    errors: dict[float, float]


def search(
    model: AnyModel,
    images: Images,
    labels: LabelsLike,
    size: int,
    *,
    grid: Sequence[float] = PRIOR_GRID,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = (1, 3, 5),
    preprocess: MakeInput | None = None,
    seed: int = 0,
    batch_size: int = 128,
    cache: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Search:
    """Return the best N for batches of `size` images on the holdout corruptions of labelled clean images.

    Args:
        model: what `open_model` returned, or any classifier in eval mode.
        images: clean images; uint8, NumPy NHWC or torch NCHW.
        labels: the classes of the images.
        size: n, the number of images in a statistical batch.
        grid: the values of N to try.
        corruptions: the corruptions to search on; by default the four that ImageNet-C holds out for this.
        severities: the severities of the corruptions.
        preprocess: the preprocessing, as for `Predictor.fit`; by default the model's own.
        seed: the seed of the noise.
        batch_size: the approximate number of images to run at a time.
        cache: a JSON file that remembers the errors of searches done, so that the same one is not done again.
        progress: whether to show a progress bar when this takes long.
    """
    check_flags(progress=progress)
    check_seed(seed)
    for name, value in (("size", size), ("batch_size", batch_size)):
        check_number(value, name, 1, whole=True, of="images")
    cache = None if cache is None else check_path(cache, "cache")
    grid = check_list(grid, "grid", "numbers of images")
    severities = check_list(severities, "severities", "numbers from 1 to 5")
    chosen = names("holdout") if corruptions is None else tuple(check_list(corruptions, "corruptions", "names"))
    for corruption in chosen:
        category(corruption)  # complains about a name that nobody knows
    for severity in severities:
        check_severity(severity)
    module, preprocess = module_of(model), preprocess_of(model, preprocess)
    images = crop_for_model(images, preprocess)
    truth = as_labels(labels, images)
    if not chosen or not severities or not grid:
        raise CovshiftError("expected at least one holdout corruption, severity and prior to try, got none")
    for prior in grid:
        check_prior(prior)
    policies = {float(prior): Batch(prior=prior, size=size) for prior in grid}
    at_once = size * max(1, batch_size // size)
    first = next(iter(Batches(images, preprocess, 2)))  # shows what preprocess returns
    settings = [digest(module), _digest(images, truth, first), size, sorted(policies), chosen, list(severities), seed]
    key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
    if (known := _read(cache).get(key)) is not None:
        return _found({float(prior): error for prior, error in known.items()})
    wrong = dict.fromkeys(policies, 0)
    cells = [(name, level) for name in chosen for level in severities]
    with progress_bar("searching N", len(cells) * len(policies), enabled=progress) as advance, torch.inference_mode():
        for name, level in cells:
            batches = Batches(corrupt(images, name, level, seed=seed), preprocess, at_once)
            for prior, policy in policies.items():
                with adapt(module, policy):
                    answers = torch.cat([check_logits(call_model(module, part)).argmax(1) for part in batches])
                wrong[prior] += int((answers != truth).sum())
                advance(1)
    errors = {prior: number / (len(cells) * len(truth)) for prior, number in wrong.items()}
    if cache is not None:
        with replacing(cache) as file:
            file.write_text(json.dumps({**_read(cache), key: errors}))
    return _found(errors)


def _found(errors: dict[float, float]) -> Search:
    return Search(least_error_prior(errors), errors)


def _read(cache: Path | None) -> dict[str, dict[str, float]]:
    if cache is None or not cache.exists():
        return {}
    try:
        found = json.loads(cache.read_text())
    except (OSError, ValueError) as error:
        raise CovshiftError(f"{cache} is not a cache of searches ({error}); remove it or name another file") from error
    if not isinstance(found, dict):
        raise CovshiftError(f"{cache} is not a cache of searches; remove it or name another file")
    return found


def _digest(*arrays: Images) -> str:
    total = hashlib.sha256()
    for array in arrays:
        held = torch.as_tensor(array).detach().cpu().contiguous()
        total.update(f"{held.dtype} {tuple(held.shape)}".encode())
        total.update(held.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
