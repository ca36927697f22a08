"""Checks that labels mean the same to the data and to the model."""

from covshift.data.base import Labels
from covshift.doctor.case import Case
from covshift.doctor.finding import Finding, percent_text
from covshift.doctor.formats import right
from covshift.doctor.readings import readings
from covshift.doctor.trial import Trial, better

_ENOUGH = 100  # images: guessing on this many is not an accident


def outputs(case: Case) -> Finding | None:
    """Check that the model's outputs are finite."""
    trial = case.trial(right(case))
    if not trial.silent:
        return None
    text = f"outputs for {trial.silent} of {len(trial.labels)} images are NaN or infinite"
    return Finding(
        "problem", text, "check the weights and their precision", {"share": trial.silent / len(trial.labels)}
    )


def labels(case: Case) -> Finding:
    """Check that no other reading of the labels fits the model's answers better."""
    trial = case.trial(right(case))
    ours, theirs = case.model.classes, case.data.classes
    figures: dict[str, float | str] = {"error": trial.error, "model_classes": ours, "data_classes": theirs}
    known = [(reading, Trial(trial.predictions, reading.classes)) for reading in readings(trial, ours)]
    found = [(reading, other) for reading, other in known if better(trial, other)]
    if found:
        best = min((other for _, other in found), key=lambda other: other.error)
        # The fitted reading comes last: one that has a name says more, if it explains as much.
        reading, other = next(pair for pair in found if not better(pair[1], best))
        text = f"error {percent_text(trial.error)} as labelled, {percent_text(other.error)} if {reading.name}"
        return Finding("problem", text, reading.remedy, figures | {"mended_error": other.error})
    if ours != theirs:
        text = f"the model distinguishes {ours} classes, the data have {theirs} (labels {_range(case.data.labels)})"
        return Finding(
            "problem", text, "take a model and data that belong together, or add ?classes= to npz: data", figures
        )
    if not trial.sees(ours):
        text = f"error {percent_text(trial.error)} on {len(trial.labels)} images, no better than guessing"
        remedy = "check that weights, classes and their order belong together"
        return Finding("problem" if len(trial.labels) >= _ENOUGH else "warning", text, remedy, figures)
    return Finding("ok", f"error {percent_text(trial.error)} as labelled, no other reading does better", "", figures)


def _range(given: Labels) -> str:
    return f"{given.min()} to {given.max()}"
