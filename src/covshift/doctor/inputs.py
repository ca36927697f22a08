"""Checks that images reach the model as in its training: normalisation, order of channels, and size."""

from dataclasses import replace
from statistics import median

from covshift.doctor.case import Case
from covshift.doctor.finding import Finding, percent_text
from covshift.doctor.formats import COMMON, distance, enlargement, judged, normalised, ordered, sized, with_colours
from covshift.doctor.trial import InputFormat
from covshift.models.preprocess import Colour

_BLURRED = 1.5  # times larger, and a picture is blurred for want of pixels


def normalisation(case: Case) -> Finding:
    """Check that no other common mean and std fit the weights better than those declared."""
    level, before, after = normalised(case)
    trials = judged(case, [before, after])
    errors = [trials[form].error for form in (before, after)]
    far = [distance(case, form) for form in (before, after)]
    figures = {"error": errors[0], "distance": far[0], "mended_error": errors[1], "mended_distance": far[1]}
    fit = case.fit(before)
    text = f"error {percent_text(errors[0])} with {_colours(before)}"
    off = f"; the input of layer {fit.layer!r} is {far[0]:.2f} σ off its training" if fit else ""
    if level == "ok":
        return Finding(level, text + off, "", figures)
    then = f", then {far[1]:.2f} σ" if fit else ""
    if trials[after] is not case.trial(after):
        then += " (with labels in the order that fits best)"
    mean, std = _numbers(after.preprocess.mean), _numbers(after.preprocess.std)
    return Finding(
        level,
        f"{text}; {percent_text(errors[1])} with {_colours(after)}{off}{then}",
        f"set `mean={mean}` and `std={std}`, or add ?mean={mean}&std={std} to the model's URI",
        figures,
    )


def channels(case: Case) -> Finding:
    """Check that red and blue have not changed places."""
    level, before, _ = ordered(case)
    formats = [before, replace(before, swapped=True)]
    trials = judged(case, formats)
    errors = [trials[form].error for form in formats]
    return Finding(
        level,
        f"error {percent_text(errors[0])} as RGB, {percent_text(errors[1])} as BGR",
        "" if level == "ok" else "OpenCV reads BGR: store images as RGB, or flip them in a py: model, x.flip(1)",
        {"error": errors[0], "mended_error": errors[1]},
    )


def size(case: Case) -> Finding:
    """Check that images which were cropped once are not resized again, enlarged, or framed in black."""
    level, before, after = sized(case)
    preprocess = before.preprocess
    times = median(enlargement(preprocess, *sides) for sides in case.sizes)
    width, height = case.sizes[0]
    what = f"images are {width} x {height} px" if len(set(case.sizes)) == 1 else "images have several sizes"
    what += " and taken as they are" if times == 1 else f" and resized {times:.2g} times"
    errors = [case.trial(form).error for form in (before, after)]
    figures = {"width": width, "height": height, "times": times, "error": errors[0], "mended_error": errors[1]}
    if level != "ok":
        as_they_are = f"; {percent_text(errors[1])} as they are" if after != before else ""
        text = f"{what}: error {percent_text(errors[0])}{as_they_are}"
        return Finding(level, text, f"set `size={width}` if the files are cropped already", figures)
    if times > _BLURRED:
        return Finding("warning", what, "show the model images as sharp as those of its training", figures)
    if times != 1 and preprocess.resize and preprocess.size and preprocess.resize < preprocess.size:
        text = f"{what}, to {preprocess.resize} px, and framed in black up to {preprocess.size} px"
        return Finding("warning", text, f"set `resize={preprocess.size}` or larger", figures)
    return Finding("ok", what, "", figures)


def _colours(form: InputFormat) -> str:
    name = next((f" ({each.name})" for each in COMMON if with_colours(form, each) == form), "")
    return f"mean {_numbers(form.preprocess.mean)} std {_numbers(form.preprocess.std)}{name}"


def _numbers(colour: Colour) -> str:
    return ",".join(f"{value:.6g}" for value in colour)
