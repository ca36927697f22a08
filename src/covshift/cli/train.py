"""`covshift train`: a network of ours, by its recipe."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from covshift.cli import options
from covshift.support.errors import CovshiftError

_ITS_OWN = "the recipe's own"


def command(
    name: Annotated[str, typer.Argument(help="Recipe, e.g. resnet20 or resnet20-augmix.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for checkpoint, weights and card.", show_default="runs/NAME")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with CIFAR-10 or ImageNet.", show_default="CIFAR-10, fetched once"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, order and augmentation.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Number of passes over the data.", show_default=_ITS_OWN)
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Highest learning rate.", show_default=_ITS_OWN)] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="float32|bfloat16",
            help="Number format of layers in training; bfloat16 is faster where the processor has it.",
            show_default=_ITS_OWN,
        ),
    ] = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Train a network by a recipe; the same command resumes after an interruption.

    Examples:
    covshift train resnet20

    covshift train resnet20-augmix --seed 1 --out runs/augmix-1

    covshift train resnet50-fixup --data imagenet/ --device cuda
    """
    from covshift.training import session
    from covshift.training.recipe import find_recipe

    if not 0 <= seed < 2**63:
        raise CovshiftError(f"expected --seed from 0 to 2^63 - 1, got {seed}")
    recipe = find_recipe(name)
    chosen: dict[str, Any] = {"epochs": epochs, "rate": rate, "precision": precision}
    recipe = replace(recipe, **{key: value for key, value in chosen.items() if value is not None})
    if recipe.data != "cifar10" and data is None:
        raise CovshiftError(f"{name} needs an ImageNet folder with train/ and val/; name it: --data DIR")
    folder = out or Path("runs") / name
    typer.echo(
        session.train_and_export(
            recipe, folder, data=data, seed=seed, device=device, threads=threads, say=options.write_error
        )
    )
