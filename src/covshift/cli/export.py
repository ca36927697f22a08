"""`covshift export`: a model, repaired or as it is, as one file to deploy."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from covshift.cli import options
from covshift.support.errors import CovshiftError


def command(
    model: Annotated[str, typer.Option(help="Model, e.g. torchvision:resnet50.")],
    patch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Statistics to write into the model first.", show_default=False)
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="onnx|pt2|safetensors", help="Kind of file.", show_default="the suffix of --out, or onnx"),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File to write.", show_default="model.onnx")] = None,
    swappable: Annotated[bool, typer.Option("--swappable", help="Statistics as inputs that may be given.")] = False,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Adaptation to each batch in the ONNX graph.")] = False,
    prior: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Number N of images that the source counts for, with --adaptive.",
            show_default="16",
        ),
    ] = None,
    with_preprocess: Annotated[
        bool, typer.Option("--with-preprocess", help="Pictures as uint8 NHWC in, probabilities out.")
    ] = False,
    frame: Annotated[
        str | None,
        typer.Option(
            metavar="HEIGHTxWIDTH",
            help="Size of the pictures for --with-preprocess.",
            show_default="that of the model's input",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write a model to one file that runs elsewhere: ONNX, torch.export or its weights.

    Examples:
    covshift export --model torchvision:resnet50 --patch night.safetensors --out night.onnx

    covshift export --model torchvision:resnet50 --to onnx --swappable

    covshift export --model torchvision:resnet50 --with-preprocess --frame 720x1280 --out camera.onnx
    """
    from covshift.export import save
    from covshift.models import open_model

    made = save(
        open_model(model),
        out or Path(f"model.{to or 'onnx'}"),
        to=to,  # type: ignore[arg-type]
        patch=patch,
        swappable=swappable,
        adaptive=adaptive,
        prior=prior,
        with_preprocess=with_preprocess,
        frame=None if frame is None else _frame(frame),
    )
    if as_json:
        typer.echo(json.dumps(made._asdict(), indent=2))
    else:
        options.write_text(
            f"{made.path}: {made.size:,} bytes; its answers are off by {made.difference:.1g} of the largest at most"
        )


def _frame(text: str) -> tuple[int, int]:
    sides = re.fullmatch(r"(\d+)x(\d+)", text)
    if sides is None:
        raise CovshiftError(f"expected --frame as HEIGHTxWIDTH in pixels, e.g. 720x1280, got {text!r}")
    return int(sides[1]), int(sides[2])
