"""The options of `covshift bench run`: one for each setting of a run, in the groups of its help."""

from pathlib import Path
from typing import Annotated

import typer

from covshift.cli import options
from covshift.cli.options import like
from covshift.cli.parser import MistypedError
from covshift.support.errors import unknown

_WHAT, _IMAGES, _PREPROCESSING = "What to run", "Images", "Preprocessing"
_ITS_OWN = "the model's own"


ORDERS = ("shuffled", "label", "source", "dirichlet:0.1", "runs:20")
"""The orders of `covshift.data`, which are not imported here: help should not wait for torch."""


def parse_order(word: str) -> str:
    """Return the word if it names an order in which images come; its number is checked with the settings."""
    if word not in ORDERS and word.partition(":")[0] not in ("dirichlet", "runs"):
        raise MistypedError(str(unknown("order", word, ORDERS)))
    return word


Model = Annotated[str | None, typer.Option(help="Model, e.g. torchvision:resnet18.", rich_help_panel=_WHAT)]
Data = Annotated[str | None, typer.Option(help="Images, e.g. folder:val or imagenet-c:DIR.", rich_help_panel=_WHAT)]
Out = Annotated[
    Path | None,
    typer.Option(help="Run folder; the same command resumes a run that is there.", rich_help_panel=_WHAT),
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML file with settings of one run or several.", rich_help_panel=_WHAT),
]
Builtin = Annotated[
    bool, typer.Option("--builtin", help="Run the built-in networks on CIFAR-10.", rich_help_panel=_WHAT)
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        metavar="METHODS",
        help="Methods: none, partial, full, reverse, batch:n=8,N=16, stream:n=1,N=16, tent, lame and others.",
        show_default="none,partial,full",
        rich_help_panel=_WHAT,
    ),
]
Grid = Annotated[
    bool | None,
    typer.Option("--grid", help="Add batches of n = 1 to 512 with N = 1 to 256 each.", rich_help_panel=_WHAT),
]
Prior = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Prior N of the method partial; auto lets each layer choose.",
        show_default="the best on the holdout corruptions",
        rich_help_panel=_WHAT,
    ),
]
Plugins = Annotated[list[str] | None, like(options.PLUGIN, rich_help_panel=_WHAT)]
Source = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="Clean images that anchored methods, such as full:anchored, are anchored by.",
        show_default="a part of --data that is not tested on",
        rich_help_panel=_WHAT,
    ),
]
SourceLimit = Annotated[
    int | None,
    typer.Option(metavar="NUMBER", help="Number of images of the source.", show_default="500", rich_help_panel=_WHAT),
]
Extend = Annotated[
    bool, typer.Option("--extend", help="Add conditions and methods to the run in --out.", rich_help_panel=_WHAT)
]
Corruptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAMES",
        help="Corruptions by name, or test, holdout, all, none.",
        show_default="all 19",
        rich_help_panel=_IMAGES,
    ),
]
Severities = Annotated[list[str] | None, like(options.SEVERITIES, rich_help_panel=_IMAGES)]
Clean = Annotated[
    bool | None,
    typer.Option(
        "--clean/--no-clean", help="Include the clean images.", show_default="--clean", rich_help_panel=_IMAGES
    ),
]
Mixed = Annotated[
    bool | None,
    typer.Option("--mixed", help="Add images that each have another corruption.", rich_help_panel=_IMAGES),
]
Limit = Annotated[int | None, like(options.LIMIT, rich_help_panel=_IMAGES)]
Order = Annotated[
    str | None,
    typer.Option(
        parser=parse_order,
        metavar="ORDER",
        help="Order of the images: shuffled, label, source, dirichlet:0.1 or runs:20.",
        show_default="shuffled",
        rich_help_panel=_IMAGES,
    ),
]
Sequence = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="One stream through the conditions: continual, gradual, mixed, recurring, or a file.",
        show_default="each condition by itself",
        rich_help_panel=_IMAGES,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(help="Seed of subset, order and corruptions.", show_default="0", rich_help_panel=_IMAGES),
]
Frost = Annotated[str | None, like(options.FROST, rich_help_panel=_IMAGES)]
Jpeg = Annotated[
    int | None,
    typer.Option(
        help="JPEG quality to save corrupted images with first; ImageNet-C has 85.",
        show_default="no JPEG",
        rich_help_panel=_IMAGES,
    ),
]
SkipBroken = Annotated[bool | None, like(options.SKIP_BROKEN, rich_help_panel=_IMAGES)]
Mean = Annotated[
    list[str] | None,
    typer.Option(
        metavar="R,G,B",
        help="Mean to subtract, e.g. 0.485,0.456,0.406.",
        show_default=_ITS_OWN,
        rich_help_panel=_PREPROCESSING,
    ),
]
Std = Annotated[
    list[str] | None,
    typer.Option(
        metavar="R,G,B",
        help="Standard deviation to divide by.",
        show_default=_ITS_OWN,
        rich_help_panel=_PREPROCESSING,
    ),
]
Size = Annotated[
    int | None,
    typer.Option(help="Side of the crop in pixels.", show_default=_ITS_OWN, rich_help_panel=_PREPROCESSING),
]
Resize = Annotated[
    int | None,
    typer.Option(help="Shorter side before the crop in pixels.", show_default=_ITS_OWN, rich_help_panel=_PREPROCESSING),
]
Interpolation = Annotated[
    str | None,
    typer.Option(
        help="Interpolation of the resize, e.g. bilinear or bicubic.",
        show_default=_ITS_OWN,
        rich_help_panel=_PREPROCESSING,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        help="Number of images that the model gets at once; changes no result.",
        show_default="by their size",
        rich_help_panel=options.COMPUTING,
    ),
]
Device = Annotated[str | None, options.DEVICE]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Memory for images and waiting batches, e.g. '4 GiB'.",
        show_default="half of what is free",
        rich_help_panel=options.COMPUTING,
    ),
]
Answers = Annotated[
    bool | None,
    typer.Option(
        "--answers/--no-answers",
        help="Keep the answer to every image, a few bytes each.",
        show_default="--answers",
        rich_help_panel=_WHAT,
    ),
]
Baseline = Annotated[Path | None, like(options.BASELINE, rich_help_panel=_WHAT)]
