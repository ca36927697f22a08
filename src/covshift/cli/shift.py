"""`covshift shift`: how far images have moved, and the error to expect on them without and with adaptation."""

from pathlib import Path
from typing import Annotated

import typer

from covshift.cli import options
from covshift.cli.parser import FOUND, UNSURE
from covshift.support.errors import CovshiftError


def command(
    model: Annotated[str, typer.Option(help="Model, e.g. torchvision:resnet50.")],
    target: Annotated[str, typer.Option(help="Images that may have moved, e.g. folder:night; labels are not needed.")],
    source: Annotated[
        str | None, typer.Option(help="Clean labelled images to learn from, e.g. folder:val.", show_default=False)
    ] = None,
    condition: Annotated[str, typer.Option(help="Condition of the target, e.g. fog/3 to corrupt it.")] = "clean/0",
    limit: Annotated[
        int,
        options.like(
            options.LIMIT,
            min=2,
            help="Number of images of the target, spread evenly; of the source three times as many are taken.",
            show_default=True,
        ),
    ] = 1000,
    plugins: options.Plugin = None,
    predictor: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to keep what is learned in, and to use it next time.")
    ] = None,
    alarm: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="ERROR",
            help="Predicted error, e.g. 0.4, above which the exit code is 3; it is 4 where the error cannot be told. "
            "No error is above 1: --alarm 1 is for the latter alone.",
        ),
    ] = None,
    ignore_unsure: Annotated[
        bool, typer.Option("--ignore-unsure", help="Raise no alarm where the error cannot be told.")
    ] = False,
    skip_broken: options.SkipBroken = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Predict a model's error on images without labels, as it is and adapted to them.

    Says first what to expect, how sure that is and what to do. With --alarm the exit code is 3 above it, and 4 where
    the error cannot be told, because the images are unlike all that was learned from.

    Examples:
    covshift shift --model torchvision:resnet50 --target folder:night

    covshift shift --model torchvision:resnet50 --source folder:val --target folder:night --alarm 0.4
    """
    from covshift.shift.forecast.assess import assess
    from covshift.support.plugins import load_plugins

    load_plugins(options.split(plugins))
    if source is None and (predictor is None or not predictor.exists()):
        if predictor is not None:
            raise CovshiftError(
                f"there is no predictor at {predictor}; name clean labelled images to learn one: --source folder:val"
            )
        if alarm is not None:
            raise CovshiftError("expected --source or --predictor with --alarm: there is no predicted error without")
    found = assess(model, target, source, condition, limit, predictor, device, skip_broken=skip_broken)
    typer.echo(found.as_json() if as_json else found.as_text())
    if found.forecast is None and not as_json:
        typer.echo("with --source, clean labelled images, covshift also predicts the error")
    if found.unknown(alarm) and not ignore_unsure:
        raise typer.Exit(UNSURE)
    if found.above(alarm):
        raise typer.Exit(FOUND)
