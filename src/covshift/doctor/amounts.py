"""Checks that there are enough images, of all classes, undamaged, and statistics that can be adapted to them."""

import numpy as np

from covshift.bench.methods import ANCHORED, FULL, NONE, parse_method
from covshift.bench.results.metrics import Rate, rate
from covshift.data import CLEAN
from covshift.doctor.case import Case
from covshift.doctor.finding import Finding, Level, percent_text
from covshift.doctor.formats import judged, right
from covshift.support.errors import plural

_ROUGH, _USELESS = 0.025, 0.05  # half-widths of an interval, against differences between methods of a few percent
_TOLERABLE = 0.01  # of images that are broken
_FEW = 100  # images, below which the paper counts on the source statistics, too


def images(case: Case) -> Finding:
    """Check that the error is known well enough on this number of images."""
    limit = case.settings.limit
    number = len(case.data) if limit is None else min(limit, len(case.data))
    form = right(case)
    error = judged(case, [form])[form].error
    low, high = rate(round(error * number), number)[1:]
    half = (high - low) / 2
    text = f"an error of {percent_text(error)} is known to ± {100 * half:.1f} on {plural(number, 'image')}"
    level: Level = "problem" if half > _USELESS else "warning" if half > _ROUGH or number < _FEW else "ok"
    if number < _FEW and case.has_statistics:
        text += ", few for statistics of their own, too"
    enough = max(_FEW, _needed(error))
    remedy = "" if level == "ok" else f"take more images: {enough:,} for ± {100 * _ROUGH:.1f}"
    return Finding(level, text, remedy, {"images": number, "error": error, "half_width": half})


def _needed(error: float) -> int:
    number = 16
    while (found := rate(round(error * number), number)).high - found.low > 2 * _ROUGH:
        number = int(number * 1.05) + 1
    return number


def broken(case: Case) -> Finding:
    """Check that all images can be read."""
    rows = [] if case.store is None else case.store.rows()
    worst = max(rows, key=lambda row: row.broken, default=None)
    number, looked_at, where = case.broken, len(case.selection), "examined"
    if worst is not None and worst.broken:
        number, looked_at, where = worst.broken, worst.broken + worst.images, f"of {worst.cell}"
    share = number / looked_at
    text = f"{number} of {plural(looked_at, 'image')} {where} cannot be read"
    level: Level = "problem" if share > _TOLERABLE else "warning" if number else "ok"
    return Finding(level, text, "fetch them again: errors are of the others only" if number else "", {"share": share})


def classes(case: Case) -> Finding | None:
    """Check that all classes that can be the answer have images."""
    if case.data.classes != case.model.classes:
        return None  # which the check `labels` reports
    there = len(np.unique(case.data.labels))
    possible = case.data.classes if case.data.among is None else len(case.data.among)
    text = f"{there} of {possible} classes have images"
    if there == possible:
        return Finding("ok", text, "", {"classes": there})
    remedy = "compare with results on the same classes only: fewer classes have statistics of their own, too"
    return Finding("warning", text, remedy, {"classes": there})


def statistics(case: Case) -> Finding | None:
    """Check that the model holds statistics that can be adapted; if not, try it with a source measured on images."""
    if case.has_statistics:
        return None
    text = "the model holds no statistics of its training data"
    anchored = None if case.condition != CLEAN or case.trial(right(case)).silent else case.anchored(right(case))
    if anchored is None:
        text += f": no method but {NONE} can be run"
        return Finding("warning", text, f"use `methods={NONE}`, or a model with batch normalisation")
    before, after = anchored
    number = len(before.labels)
    text += (
        f"; anchored by half of the clean images, full adaptation takes the error on {number} others from "
        f"{percent_text(before.error)} to {percent_text(after.error)}"
    )
    figures = {NONE: before.error, f"{FULL}:{ANCHORED}": after.error, "images": number}
    return Finding("warning", text, f"use anchored methods: `methods={NONE},{FULL}:{ANCHORED}`", figures)


def adaptation(case: Case) -> Finding | None:
    """Check that full adaptation leaves the clean error as it is, as it should where there is no shift."""
    if not case.has_statistics or case.condition != CLEAN or case.trial(right(case)).silent:
        return None
    none, full, number = _clean_errors(case)
    before, after = percent_text(none.value), percent_text(full.value)
    text = f"on {number} clean images full adaptation takes the error from {before} to {after}"
    figures = {NONE: none.value, FULL: full.value, "images": number}
    if full.low > none.high:
        remedy = "take more images, or keep source statistics with partial: batch:n=…,N=16"
        return Finding("problem" if number < _FEW else "warning", text, remedy, figures)
    if full.high < none.low:
        remedy = "there is a shift in the clean images already: check where they and their preprocessing come from"
        return Finding("warning", text, remedy, figures)
    return Finding("ok", text, "", figures)


def _clean_errors(case: Case) -> tuple[Rate, Rate, int]:
    """Return the errors of the run where it has them and its input format is right, else measure them."""
    form = right(case)
    rows = {} if case.store is None else {row.cell: row for row in case.store.rows()}
    found = [rows.get(f"{CLEAN}/{method}") for method in (NONE, FULL)]
    if form == case.declared and all(found):
        none, full = (rate(row.top1_errors, row.images) for row in found if row)
        return none, full, found[0].images if found[0] else 0
    full = case.evaluate(parse_method(FULL), form)
    return case.trial(form).rate, full, len(case.selection)
