"""Checks of a run folder: the same model and data, all cells, and batches in random order."""

import math

import numpy as np

from covshift.bench.methods import PARTIAL_PRIOR, Method, Prior
from covshift.data.base import Labels
from covshift.data.orders import Order
from covshift.data.selection import choose
from covshift.doctor.case import Case
from covshift.doctor.finding import Finding, percent_text
from covshift.doctor.formats import right
from covshift.support.errors import plural

_SORTED = 0.8  # of the classes that a shuffled batch has; fewer, and batches are sorted


def changed(case: Case) -> Finding | None:
    """Check that model, data and preprocessing are still those of the run."""
    if case.store is None:
        return None
    run = case.store.run
    pairs = {
        "model": (run.model_digest, case.model.digest),
        "data": (run.data_digest, case.data.digest),
        "preprocessing": (str(run.preprocess), str(case.model.preprocess.as_dict())),
    }
    other = {name: f"{then[:12]} then, {now[:12]} now" for name, (then, now) in pairs.items() if then != now}
    if not other:
        return Finding("ok", f"model {run.model_digest[:12]} and data {run.data_digest[:12]} are those of the run")
    text = "; ".join(f"the {name} is another one: {digests}" for name, digests in other.items())
    return Finding("problem", text, "put back what the run was made with, or run it again into another folder")


def unfinished(case: Case) -> Finding | None:
    """Check that all cells are done."""
    if case.store is None:
        return None
    names = case.store.run.settings.plan.all_names()
    left = len(set(names) - case.store.done())
    text = f"{len(names) - left} of {plural(len(names), 'cell')} are done"
    return Finding(
        "warning" if left else "ok", text, "run it again with the same settings, which resumes it" if left else ""
    )


def order(case: Case) -> Finding | None:
    """Check that batches that statistics are taken from are not sorted by class."""
    method = _smallest_batch(case)
    if case.store is None or method is None or case.trial(right(case)).silent:
        return None
    settings, labels = case.store.run.settings, case.data.labels
    n = method.n or 1
    # A stream of single images is normalised by the last ones, too.
    window = max(n, 8)
    having = {
        each: variety(labels[choose(labels, limit=settings.limit, order=each, seed=settings.seed)], window)
        for each in (settings.order, "shuffled")
    }
    now, shuffled = having[settings.order], having["shuffled"]
    text = f"{window} images in a row hold {now:.1f} classes ({settings.order}), {shuffled:.1f} if shuffled"
    figures: dict[str, float | str] = {"classes": now, "shuffled": shuffled, "method": method.name}
    if now >= _SORTED * shuffled:
        return Finding("ok", text, "", figures)
    errors = [_error(case, method, each) for each in (settings.order, "shuffled")]
    text += f"; {method.name} has error {percent_text(errors[0])}, {percent_text(errors[1])} if shuffled"
    figures |= {"error": errors[0], "mended_error": errors[1]}
    return Finding("problem", text, "run it with `order=shuffled`, into another folder", figures)


def variety(labels: Labels, window: int) -> float:
    """Return the mean number of classes among a number of consecutive images.

    >>> variety(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 4), variety(np.array([0, 1, 0, 1]), 2)
    (1.0, 2.0)
    """
    starts = range(0, max(1, len(labels) - window + 1), window)
    return math.fsum(len(np.unique(labels[start : start + window])) for start in starts) / len(starts)


def _smallest_batch(case: Case) -> Method | None:
    """Return the method of the run that suffers most from sorted images, with N."""
    small = [method for method in case.settings.all_methods if method.adapts and method.n is not None]
    if not small:
        return None
    return min(small, key=lambda method: (method.n or 0, _weight(method.prior))).with_prior(PARTIAL_PRIOR)


def _weight(prior: Prior | None) -> float:
    """Return N as a number to sort by; one that each layer chooses counts as the usual one."""
    return PARTIAL_PRIOR if prior == "auto" else prior or 0


def _error(case: Case, method: Method, order: Order) -> float:
    labels, seed = case.data.labels, case.settings.seed
    indices = choose(labels, limit=len(case.selection), order=order, seed=seed)
    return case.evaluate(method, right(case), indices).value
