"""Make all stored results, from one list: `python results/everything.py`; with `--plan` only print what is left of it.

What is there is not run again, and what was stopped is resumed. Steps whose data are not on this machine are named
and left out.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch

from covshift.bench.results.store import Store, holds_a_run
from covshift.bench.settings import Settings
from covshift.bench.suite import read_runs
from covshift.data.open import open_data
from covshift.models.open import open_model

ROOT = Path(__file__).resolve().parents[1]
SLOWER = 1.5
"""Time of a cell over that of a plain pass, about: images are made, and most methods adapt."""


class Step(NamedTuple):
    """One step of the list.

    Attributes:
        command: what follows `python`.
        config: the file of the benchmark's runs that it makes, in its folder of results; "" if it makes none.
        made: the file that it leaves, where it makes no runs; with neither it takes a minute or two, each time.
        hours: the time until that file is there, about.
        needs: what has to be in the clone's folder for it.
    """

    command: str
    config: str = ""
    made: str = ""
    hours: float = 0.0
    needs: str = ""


def bench(config: str, needs: str = "") -> Step:
    """Return the step that makes the runs of a configuration, beside it."""
    return Step(f"-m covshift bench run --config {config} --out {Path(config).parent}", config, needs=needs)


def forecasts(network: str) -> Step:
    """Return the step that measures the forecasts of a built-in network, and writes their tables."""
    rows = f"results/shift/forecasts-{network}.jsonl"
    command = f"benchmarks/forecasts.py --model builtin:{network} --data builtin:cifar10 --rows {rows}"
    return Step(command, made=rows, hours=0.5)


def made_up_shifts(network: str) -> Step:
    """Return the step that measures forecasts on made-up natural shifts, by the predictor of the step before."""
    rows, predictor = (
        f"results/shift/{name}" for name in (f"natural-{network}.jsonl", f"forecasts-{network}.predictor")
    )
    command = f"benchmarks/natural.py --model builtin:{network} --data builtin:cifar10 --predictor {predictor}"
    return Step(f"{command} --rows {rows}", made=rows, hours=0.1)


FORECAST = ("resnet20", "resnet20-augmix", "resnet20-fixup")
"""The built-in networks whose forecasts are measured; the last one has no BatchNorm."""

STEPS = [
    bench("results/suite.yaml"),
    bench("results/methods/suite.yaml"),
    bench("results/imagenet.yaml", needs="imagenet"),
    *map(forecasts, FORECAST),
    *map(made_up_shifts, FORECAST),
    Step("-m covshift report results --measure 1000 --readme results/tables.md"),
    Step("-m covshift report results/methods --readme results/methods/README.md --out report/methods"),
    Step("docs/claims.py"),
    Step("docs/assets/camera.py"),
]


def hours_left(step: Step) -> float | None:
    """Return the hours that a step takes on this machine, about; None if what it needs is not here."""
    if step.needs and not (ROOT / step.needs).exists():
        return None
    if not step.config:
        return 0.0 if step.made and (ROOT / step.made).exists() else step.hours
    config = ROOT / step.config
    return sum(hours_of_run(settings, config.parent / name) for name, settings in read_runs({}, config).items())


def hours_of_run(settings: Settings, folder: Path) -> float:
    """Return the hours that the cells take that are missing in the folder of a run."""
    done = Store(folder).done() if holds_a_run(folder) else set()
    left = sum(name not in done for name in settings.plan.all_names())
    if not left:
        return 0.0
    images = min(len(open_data(settings.data)), settings.limit or sys.maxsize)
    if settings.sequence:
        images = settings.domains(images)[-1].stop
    return left * images * SLOWER * seconds_per_image(settings.model) / 3600


def seconds_per_image(uri: str, images: int = 32) -> float:
    """Return the seconds of a plain pass for each of its images."""
    model = open_model(uri)
    batch, taken = torch.zeros(images, 3, model.side, model.side), []
    with torch.inference_mode():
        for _ in range(3):
            begun = time.perf_counter()
            model.module(batch)
            taken.append(time.perf_counter() - begun)
    return min(taken) / images


def main() -> None:
    """Print what is left, and make it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", action="store_true", help="only print what is left, and the hours that it takes")
    plan_only = parser.parse_args().plan
    os.chdir(ROOT)
    hours = {step: hours_left(step) for step in STEPS}
    for step, left in hours.items():
        print(f"{f'needs {step.needs}/' if left is None else f'{left:.1f} h':>16}  python {step.command}")
    print(f"{sum(filter(None, hours.values())):>14.1f} h  in all, about", flush=True)
    for step in STEPS:
        if not plan_only and hours[step] is not None:
            subprocess.run([sys.executable, *step.command.split()], check=True)


if __name__ == "__main__":
    main()
