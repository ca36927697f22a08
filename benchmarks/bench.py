"""What a benchmark run costs against the model alone: `make speed`."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from adapt import ResNet20, channels_last, network
from subjects import Subject, report
from timing import best_seconds, clock_for, extent

from covshift.bench.evaluate import Evaluator
from covshift.bench.methods import batch, parse_method
from covshift.data import Condition
from covshift.data.arrays import CleanArray
from covshift.data.selection import Selection
from covshift.models import Model, Preprocess
from covshift.support.allocator import keep_freed_memory
from covshift.support.memory import parse_bytes

METHODS = (parse_method("none"), batch(8, 16), parse_method("full"))
AT_ONCE = {32: 256, 224: 16}
"""Number of images that the model gets at once, by their size."""


def evaluator(images: int, memory: str | None = None, name: str = "resnet20") -> Evaluator:
    """A network and as many images: of 32 px for ResNet-20, of 224 px for torchvision's."""
    module, side = (ResNet20().eval(), 32) if name == "resnet20" else (network(name), 224)
    rng = np.random.default_rng(0)
    data = CleanArray("noise", rng.integers(0, 256, (images, side, side, 3), np.uint8), np.arange(images) % 10)
    preprocess = Preprocess(None, side, "bilinear", (0.5,) * 3, (0.25,) * 3)
    selection = Selection(data, range(images), preprocess.picture)
    budget = parse_bytes(memory) if memory else None
    model = Model(name, channels_last(module), preprocess)
    return Evaluator(model, selection, batch_size=AT_ONCE[side], memory=budget)


def speed(images: int, turns: int, threads: int) -> None:
    """One condition and three methods against three bare forward passes on ready tensors."""
    ours = evaluator(images)
    foggy = ours.selection.images_in(Condition("fog", 3))
    ready = [ours.model.preprocess.tensor(b.images) for b in foggy.batches(ours.batch_size)]

    def bare() -> None:
        with torch.inference_mode():
            for _ in METHODS:
                for x in ready:
                    ours.model.module(x)

    def run() -> None:
        fresh = ours.selection.images_in(Condition("fog", 3))  # corrupted anew
        for method in METHODS:
            ours.run(fresh, method)

    best = best_seconds({"bare": bare, "run": run}, turns, clock_for(threads))
    each = {name: len(METHODS) * images / seconds for name, seconds in best.items()}
    about = f"ResNet-20, {images} images of 32 px, fog 3, none + partial + full"
    subject = Subject(f"One condition: {about}, {extent(threads)}")
    for name, rate in each.items():
        subject.add(name, rate, unit="images/s")
    subject.add("of bare", 100 * each["run"] / each["bare"], 95, higher=True, unit="%")
    report(subject)


def memory(images: int, budget: str | None) -> None:
    """The most that a process has held for one condition and three methods, in GiB, and the seconds it took."""
    ours = evaluator(images, budget)
    foggy = ours.selection.images_in(Condition("fog", 3))
    begun = time.perf_counter()
    for method in METHODS:
        ours.run(foggy, method)
    seconds = time.perf_counter() - begun
    print(json.dumps([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, seconds]))


FACTORY = "from adapt import ResNet20\n\ndef net():\n    return ResNet20()\n"


def first_line(turns: int) -> float:
    """Seconds from the command to the first line of progress, best of several."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "nets.py").write_text(FACTORY)
        np.savez(Path(folder, "set.npz"), images=np.zeros((64, 32, 32, 3), np.uint8), labels=np.arange(64) % 10)
        command = [sys.executable, "-m", "covshift", "bench", "run", "--model", "py:nets:net", "--data", "npz:set.npz"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        for turn in range(turns):
            begun = time.perf_counter()
            process = subprocess.Popen(
                [*command, "--size", "32", "--out", f"run{turn}"], cwd=folder, env=environment, stderr=subprocess.PIPE
            )
            assert process.stderr is not None
            process.stderr.readline()
            found.append(time.perf_counter() - begun)
            process.kill()
            process.communicate()
    return min(found)


if __name__ == "__main__":
    keep_freed_memory()  # as the command does; the bare passes gain from it as well
    if sys.argv[1:2] == ["memory"]:
        memory(*json.loads(sys.argv[2]))
    else:
        speed(2_048, turns=3, threads=1)
        subject = Subject("Memory of a run, 10,000 images of 32 px, and its start")
        for budget in (None, "1.2 GiB"):
            command = [sys.executable, __file__, "memory", json.dumps([10_000, budget])]
            gib, seconds = json.loads(subprocess.check_output(command, text=True))
            subject.add(f"peak with --memory {budget} ({seconds:.0f} s)", gib, unit="GiB")
        subject.add("start to the first line of progress", first_line(3), unit="s")
        report(subject)
