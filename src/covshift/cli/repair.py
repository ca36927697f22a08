"""`covshift repair`: from a folder of new images to a repaired model, where repairing is right."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covshift.cli import options
from covshift.cli.parser import FOUND
from covshift.support.errors import CovshiftError

if TYPE_CHECKING:
    from covshift.data import Data
    from covshift.shift.forecast.predictor import Predictor


def command(
    model: Annotated[str | None, typer.Option(help="Model, e.g. torchvision:resnet50.", show_default=False)] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Images of the new domain, without labels, e.g. folder:newcam.", show_default=False),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Clean labelled images, e.g. folder:val.", show_default=False)
    ] = None,
    predictor: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to keep what is learned from the source in, and to use it next time.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="New folder for the repaired model.", show_default="repaired")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Repair whatever the verdict is.")] = False,
    check: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Repaired folder to evaluate.", show_default=False)
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="Labelled images for --check, e.g. folder:newcam.", show_default=False)
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, metavar="NUMBER", help="Number of images to take of each set, spread evenly.")
    ] = 1000,
    skip_broken: options.SkipBroken = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Repair a model for images of a new domain, or explain why not.

    Examples:
    covshift repair --model torchvision:resnet50 --target folder:newcam --source folder:val --out repaired

    covshift repair --model torchvision:resnet50 --target 'video:drive.mp4?every=10'

    covshift repair --check repaired --labels folder:labelled
    """
    if check is not None:
        if labels is None:
            raise CovshiftError("expected labelled images with --check; name them: --labels folder:DIR")
        if any((model, target, source, predictor, out, force)):
            raise CovshiftError("expected --check with --labels alone: the folder of the repair knows its model")
        _check(check, labels, limit, skip_broken, device, as_json)
        return
    if labels is not None:
        raise CovshiftError("expected --labels with --check, which evaluates a repaired folder: --check repaired")
    if model is None or target is None:
        raise CovshiftError("expected a model and images; name them: --model torchvision:resnet50 --target folder:DIR")
    from covshift.data import open_data, open_unlabelled
    from covshift.models import open_model
    from covshift.repairs import repair
    from covshift.repairs.folder import check_new
    from covshift.repairs.verdict import check_enough
    from covshift.shift.forecast.assess import check_source, predictor_for
    from covshift.support.device import choose_device

    folder = check_new(out or Path("repaired"))
    check_source(source, predictor)
    opened = open_model(model)
    opened.module.to(choose_device(device))
    images = open_unlabelled(target)
    check_enough(min(len(images), limit))  # before a predictor is learned, which takes long
    clean: Data | Predictor | None = None if source is None else open_data(source)
    if predictor is not None:
        clean = predictor_for(opened, source, predictor, limit, skip_broken=skip_broken)
    made = repair(opened, images, source=clean, force=force, limit=limit, skip_broken=skip_broken)
    card = made.card if made.patch is None else made.save(folder)
    if as_json:
        typer.echo(card.as_json())
    else:
        options.write_text(card.as_text())
        if clean is None:
            options.write_text(
                "with --source, clean labelled images, covshift also predicts the errors, and judges by them"
            )
        done = "nothing was written; --force repairs anyway" if made.patch is None else f"wrote {folder}"
        options.write_text(done)
    if made.patch is None:
        raise typer.Exit(FOUND)


def _check(folder: Path, labels: str, limit: int, skip_broken: bool, device: str, as_json: bool) -> None:
    from covshift.data import open_data
    from covshift.repairs import check

    errors = check(folder, open_data(labels), device=device, limit=limit, skip_broken=skip_broken)
    if as_json:
        typer.echo(json.dumps(errors._asdict(), indent=2))
    else:
        typer.echo(f"error {errors.before:.1%} before, {errors.after:.1%} after, on {errors.images} images")
