"""Forecasts in words for people, and as plain values for programs."""

from collections.abc import Sequence
from typing import Any

from covshift.shift.distance import Distance
from covshift.shift.forecast.forecast import ClassMix, Forecast, Prediction
from covshift.support.errors import printable

_NAMED = 12  # images to label that are named in text


def verdict(forecast: Forecast | None, names: Sequence[str] = ()) -> list[str]:
    """Return what to expect, how sure that is and what to do; nothing without a forecast.

    Args:
        forecast: the forecast.
        names: the names of the images that it is of; by default they are numbered from 0.
    """
    if forecast is None:
        return []
    advice = f"advice: {_advice(forecast, names)}"
    classes = forecast.classes
    mix = [] if classes is None or not classes.skewed else [f"classes: {_classes(classes)}"]
    if forecast.sure:
        expected = f"expect an error of {_percent(forecast.plain)}, 19 times out of 20"
        return [expected, advice, *mix, _of_adapting(forecast)]
    return [f"cannot tell the error: {forecast.why}", advice, *mix, _guess(forecast)]


def _of_adapting(forecast: Forecast) -> str:
    plain, adapted = forecast.plain, forecast.adapted
    if not forecast.distance.layers:
        return "there is nothing to adapt in this network"
    if (adapted.low, adapted.high) == (0, 1):
        return "what adapting would make of it cannot be told"
    return f"adapting would {'lower' if adapted.error <= plain.error else 'raise'} it to {_percent(adapted)}"


def _guess(forecast: Forecast) -> str:
    adapted = f", {100 * forecast.adapted.error:.1f} % if adapted" if forecast.distance.layers else ""
    return f"a guess, which may be off by any amount: {100 * forecast.plain.error:.1f} %{adapted}"


def distances(distance: Distance, images: int, forecast: Forecast | None, most: int) -> list[str]:
    """Return how far the images have moved, and the layers that have moved most, with what to compare these with."""
    scale = None if forecast is None else forecast.scale
    far = sorted(distance.layers.items(), key=lambda item: -item[1])[:most]
    if not far:
        return []
    whole = "" if scale is None else f" ({_compared(scale.chance.average, scale.share)})"
    lines = [f"normalised distance {distance.average:.2f} over {images} images{whole}, most of it in"]
    for path, value in far:
        beside = "" if scale is None else f"  ({_compared(scale.chance.layers[path], scale.below[path])})"
        lines.append(f"  {path}  {value:.2f}{beside}")
    return lines


def figures(distance: Distance, images: int, forecast: Forecast | None, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return all of it as plain values; the images to label by their names, too, where these are given."""
    values: dict[str, Any] = {"images": images, "distance": distance.average, "layers": dict(distance.layers)}
    if forecast is None:
        return values
    if (scale := forecast.scale) is not None:
        values |= {
            "chance": {"distance": scale.chance.average, "layers": dict(scale.chance.layers)},
            "below": {"distance": scale.share, "layers": dict(scale.below)},
        }
    return values | {
        "plain": forecast.plain._asdict(),
        "adapted": forecast.adapted._asdict(),
        "sure": forecast.sure,
        "why": forecast.why,
        "classes": None if forecast.classes is None else forecast.classes._asdict(),
        "advice": forecast.advice._asdict() | ({"names": _to_label(forecast, names)} if names else {}),
    }


def _advice(forecast: Forecast, names: Sequence[str]) -> str:
    advice = forecast.advice
    if advice.action == "adapt":
        return f"adapt to these images; {advice.reason}"
    if advice.action == "nothing":
        return f"leave the model as it is; {advice.reason}"
    first = ", ".join(map(printable, _to_label(forecast, names)[:_NAMED]))
    more = ", ..." if len(advice.label) > _NAMED else ""
    reason = "" if advice.reason == forecast.why else f"; {advice.reason}"
    return f"label {len(advice.label)} of the {forecast.images} images: {first}{more}{reason}"


def _to_label(forecast: Forecast, names: Sequence[str]) -> list[str]:
    return [names[position] if names else str(position) for position in forecast.advice.label]


def _classes(classes: ClassMix) -> str:
    ranked = sorted(enumerate(classes.shares), key=lambda item: -item[1])[:3]
    shares = ", ".join(f"{share:.0%} of class {name}" for name, share in ranked if share > 0.005)
    return f"{shares}, which is not the usual mix"


def _compared(chance: float, below: float) -> str:
    return f"clean images {chance:.2f}; less in {below:.0%} of the calibration"


def _percent(prediction: Prediction) -> str:
    error, low, high = (f"{100 * value:.1f}" for value in prediction)
    return f"{error} % ({low} to {high})"
