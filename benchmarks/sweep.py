"""The local sweep against the bare model and the machine, and how it grows: `python benchmarks/sweep.py`.

Parts can be named: `python benchmarks/sweep.py speed large engines memory growth`. `speed` and `large`, the same at 224
px, are in the CPU time of one thread; with `--threads 2` in the wall time of two, which needs a quiet machine.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench import METHODS, evaluator
from subjects import Subject, report
from timing import Clock, best_seconds, clock_for, extent
from torch.utils.flop_counter import FlopCounterMode

from covshift.bench.fold import Folding
from covshift.corruptions import names
from covshift.data import CLEAN, Condition
from covshift.support.allocator import keep_freed_memory

CONDITIONS = (CLEAN, *(Condition(name, 3) for name in names("all")))
"""Clean images and all 19 corruptions: 20 conditions."""

FACTORY = """
import torch
from adapt import ResNet20
from covshift.models import Preprocess

def net():
    torch.manual_seed(0)
    return ResNet20(), Preprocess(None, 32, "bilinear", (0.5,) * 3, (0.25,) * 3)
"""


def peak_flops(clock: Clock) -> float:
    """Floating-point operations a second that a large matrix product reaches on this machine."""
    a, b = torch.randn(2, 1024, 1024)
    return float(2 * 1024**3 / best_seconds({"matmul": lambda: a @ b}, 10, clock)["matmul"])


def flops_an_image(module: torch.nn.Module, images: torch.Tensor) -> float:
    """Floating-point operations of a forward pass of one image."""
    counter = FlopCounterMode(display=False)
    with counter, torch.inference_mode():
        module(images[:1])
    return float(counter.get_total_flops())


def speed(name: str, images: int, conditions: Sequence[Condition], turns: int, threads: int) -> None:
    """Conditions and methods against as many bare forward passes on ready tensors, and against a roofline."""
    clock = clock_for(threads)
    ours = evaluator(images, name=name)
    bare = ours.model.module
    ready = [ours.model.preprocess.tensor(batch.images) for batch in ours.images_in(CLEAN).batches(ours.batch_size)]
    folded = Folding(bare).fold(ready[0])

    def sweep(condition: Condition) -> Iterator[tuple[str, Callable[[], object]]]:
        images = ours.images_in(condition)  # corrupted anew
        yield "bare", lambda: [bare(x) for x in ready]
        yield "folded", lambda: [folded(x) for x in ready]
        yield "making", lambda: [None for _ in images.batches(ours.batch_size)]
        for method in METHODS:
            yield method.name, lambda method=method: ours.run(images, method)  # type: ignore[misc]

    few = evaluator(8, name=name)
    for condition in conditions:  # compiled or read from the cache before the clock runs
        assert list(few.images_in(condition).batches(8))
    parts = ("making", *(method.name for method in METHODS))
    least: dict[tuple[str, Condition], float] = {}
    for turn in range(-1, turns):
        # Bare passes between all conditions, so that what else the machine does meets both alike.
        for condition in conditions[:1] if turn < 0 else conditions:
            with torch.inference_mode():
                for part, run in sweep(condition):
                    begun = clock()
                    run()
                    seconds = clock() - begun
                    if turn >= 0:
                        least[part, condition] = min(seconds, least.get((part, condition), seconds))
    best: dict[str, float] = defaultdict(float)
    for (part, _), seconds in least.items():
        best[part] += seconds
    spent = {each: len(METHODS) * best[each] for each in ("bare", "folded")} | {
        "sweep": sum(best[part] for part in parts)
    }
    peak, each = peak_flops(clock), flops_an_image(bare, ready[0])
    about = f"{images} images of {ready[0].shape[-1]} px, {len(conditions)} conditions, none + partial + full"
    rates = f"{peak / 1e9:.0f} GFLOP/s by a matmul, {each / 1e6:.1f} MFLOP an image"
    subject = Subject(f"Sweep: {name}, {about}, {extent(threads)}; {rates}")
    for what, seconds in spent.items():
        rate = len(conditions) * len(METHODS) * images / seconds
        subject.add(f"{what} ({rate:.0f} images/s), of the roofline", 100 * rate * each / peak, unit="%")
    goal = 110 if name == "resnet20" else None
    subject.add("sweep, of bare", 100 * spent["bare"] / spent["sweep"], goal, higher=True, unit="%")
    for part in parts:
        subject.add(f"{part}, of one bare pass", best[part] / best["bare"])
    report(subject)


def run_cli(folder: Path, images: int, options: list[str], launch: tuple[str, ...] = ()) -> float:
    """Seconds of a whole command, its start included."""
    command = [sys.executable, *(launch or ("-m", "covshift")), "bench", "run", "--model", "py:nets:net", "--data"]
    command += [f"npz:set{images}.npz", *options]
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - begun


def run_apart(folder: Path, images: int, options: list[str]) -> tuple[float, float]:
    """The same and, in GiB, the most that a process of it held: the system tells that only of all children together."""
    command = [sys.executable, __file__, "--one", json.dumps([str(folder), images, options])]
    seconds, gib = json.loads(subprocess.check_output(command, text=True))
    return seconds, gib


def place(folder: Path, images: int) -> None:
    """What `run_cli` needs in its folder."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, 32, 32, 3), np.uint8)
    np.savez(folder / f"set{images}.npz", images=pixels, labels=np.arange(images) % 10)
    Path(folder, "nets.py").write_text(f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\n{FACTORY}")


def engines(images: int, turns: int) -> None:
    """The same sweep by this process, by Ray with two workers, and by two ranks: whole commands, start included."""
    options = ["--corruptions", "test,spatter", "--severities", "3", "--methods", "none,batch:n=8,N=16,full"]
    ways: dict[str, tuple[list[str], tuple[str, ...]]] = {
        "local, 2 threads": (["--threads", "2"], ()),
        "local, 1 thread": (["--threads", "1"], ()),
        "ray, 2 workers": (["--engine", "ray", "--workers", "2"], ()),
        "2 ranks": ([], ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "covshift")),
    }
    best: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        place(Path(name), images)
        for turn in range(turns):
            for way, (more, launch) in ways.items():
                out = f"{way.replace(' ', '-').replace(',', '')}-{turn}"
                seconds = run_cli(Path(name), images, [*options, *more, "--out", out], launch)
                busy = _span(Path(name, out))
                best[way] = min(best.get(way, (1e9, 1e9)), (busy, seconds))
    print(f"\n{images} images, 17 conditions, three methods; seconds of work, and with the start of the command:")
    for way, (busy, seconds) in best.items():
        print(f"  {way:<18}{busy:7.1f}{seconds:7.1f}")


def _span(folder: Path) -> float:
    """Seconds from the beginning of the first cell to the end of the last, by the clock of the files."""
    return (folder / "rows.jsonl").stat().st_mtime - (folder / "run.json").stat().st_mtime


def memory(images: int, budget: str) -> None:
    """Full adaptation of many images, exact, in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        place(Path(name), images)
        options = ["--corruptions", "fog", "--severities", "3", "--no-clean", "--methods", "full"]
        seconds, gib = run_apart(Path(name), images, [*options, "--memory", budget, "--out", "out"])
    print(f"\n{images} images of 32 px, full adaptation, --memory '{budget}': peak {gib:.2f} GiB, {seconds:.0f} s")


def growth(sizes: tuple[int, ...]) -> None:
    """Time, that of the whole command, and memory against images, conditions and workers."""
    methods = ["--methods", "none,batch:n=8,N=16,full", "--no-clean", "--memory", "2 GiB"]
    some = list(names("test"))
    print("\nimages  conditions  engine            seconds   peak GiB of a process")
    with tempfile.TemporaryDirectory() as name:
        cases: list[tuple[int, int, list[str]]] = [(size, 1, []) for size in sizes]
        cases += [(sizes[0], conditions, []) for conditions in (2, 4, 8)]
        cases += [(sizes[0], 8, ["--engine", "ray", "--workers", str(workers)]) for workers in (1, 2)]
        for number, (images, conditions, more) in enumerate(cases):
            place(Path(name), images)
            options = ["--corruptions", ",".join(some[:conditions]), "--severities", "3", *methods, *more]
            seconds, gib = run_apart(Path(name), images, [*options, "--out", str(number)])
            engine = f"ray, {more[-1]} workers" if more else "local"
            print(f"{images:6}  {conditions:10}  {engine:<16}{seconds:9.1f}{gib:11.2f}", flush=True)


def one(given: list[Any]) -> None:
    """What `run_apart` has a process of its own do, whose only child is the run."""
    folder, images, options = given
    seconds = run_cli(Path(folder), images, options)
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["speed", "large", "engines", "memory", "growth"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--images", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=1, help="with more than one, wall time is measured")
    parser.add_argument("--most", type=int, default=50_000, help="images of the largest run")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    told = parser.parse_args()
    keep_freed_memory()  # as the command does; the bare passes gain from it as well
    if told.one:
        one(told.one)
        sys.exit()
    if "speed" in told.parts:
        speed("resnet20", told.images, CONDITIONS, told.turns, told.threads)
    if "large" in told.parts:
        for name in ("resnet18", "mobilenet_v2"):
            speed(name, 32, CONDITIONS[:3], told.turns, told.threads)
    if "engines" in told.parts:
        engines(told.images, told.turns)
    if "memory" in told.parts:
        memory(told.most, "2 GiB")
    if "growth" in told.parts:
        growth((1_000, *(size for size in (2_000, 5_000, 10_000, 20_000, 50_000) if size <= told.most)))
