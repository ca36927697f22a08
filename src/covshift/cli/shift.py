"""`covshift shift`: how far images have moved, what that costs, and what adapting would buy."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covshift.cli import options
from covshift.cli.parser import FOUND
from covshift.support.errors import CovshiftError

if TYPE_CHECKING:
    from covshift.shift.forecast.predictor import Prediction
    from covshift.shift.forecast.verdict import Verdict

_LAYERS = 5  # shown in text


def command(
    model: Annotated[str, typer.Option(help="Model, e.g. torchvision:resnet50.")],
    target: Annotated[str, typer.Option(help="Images that may have moved, e.g. folder:night; labels are not needed.")],
    source: Annotated[
        str | None, typer.Option(help="Clean labelled images to learn from, e.g. folder:val.", show_default=False)
    ] = None,
    condition: Annotated[str, typer.Option(help="Condition of the target, e.g. fog/3 to corrupt it.")] = "clean/0",
    limit: Annotated[
        int, typer.Option(min=2, metavar="NUMBER", help="Number of images to take of each set, spread evenly.")
    ] = 1000,
    predictor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to keep what is learned in, and to use it next time.")
    ] = None,
    alarm: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="ERROR", help="Predicted error, e.g. 0.4, above which the exit code is 3."),
    ] = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Predict without labels what images cost a model, and what adapting would buy.

    Examples:
    covshift shift --model torchvision:resnet50 --target folder:night

    covshift shift --model torchvision:resnet50 --source folder:val --target folder:night --alarm 0.4
    """
    from covshift.shift.forecast.verdict import judge

    if source is None and (predictor is None or not predictor.exists()):
        if predictor is not None:
            raise CovshiftError(
                f"there is no predictor at {predictor}; name clean labelled images to learn one: --source folder:val"
            )
        if alarm is not None:
            raise CovshiftError("expected --source or --predictor with --alarm: there is no predicted error without")
    verdict = judge(model, target, source, condition, limit, predictor, device)
    typer.echo(as_json_text(verdict) if as_json else as_text(verdict))
    if verdict.above(alarm):
        raise typer.Exit(FOUND)


def as_json_text(verdict: "Verdict") -> str:
    """Return all of it for programs."""
    values: dict[str, Any] = {
        "images": verdict.images,
        "distance": verdict.distance.average,
        "layers": verdict.distance.layers,
    }
    if verdict.forecast is not None:
        values |= {"plain": verdict.forecast.plain._asdict(), "adapted": verdict.forecast.adapted._asdict()}
    return json.dumps(values, indent=2)


def as_text(verdict: "Verdict") -> str:
    """Return the most of it for people."""
    far = sorted(verdict.distance.layers.items(), key=lambda item: -item[1])[:_LAYERS]
    lines = [f"normalised distance {verdict.distance.average:.2f} over {verdict.images} images, most of it in"]
    lines += [f"  {path}  {value:.2f}" for path, value in far]
    if verdict.forecast is None:
        return "\n".join([*lines, "with --source, clean labelled images, covshift also predicts the error"])
    plain, adapted = verdict.forecast.plain, verdict.forecast.adapted
    lines.append(f"predicted error {_percent(plain)}")
    verb = "lower" if adapted.error <= plain.error else "raise"
    return "\n".join([*lines, f"adapting would {verb} it to {_percent(adapted)}"])


def _percent(prediction: "Prediction") -> str:
    error, low, high = (f"{100 * value:.1f}" for value in prediction)
    return f"{error} % ({low} to {high})"
