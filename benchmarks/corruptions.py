"""How fast the corruptions are: against imagecorruptions at 224 px, and alone at 32 px.

imagecorruptions does not run beside current packages, so it gets an environment of its own (Python 3.8 to 3.10 and the
packages of its time), made once in the user's cache folder. A worker in there answers timing requests in turn with
covshift, on the same images. Each is timed as it is used: imagecorruptions image by image, covshift batch by batch. On
a busy machine the CPU time of one thread says more, which a second table compares.

    python benchmarks/corruptions.py [--repeats 4] [--images 64]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from subjects import Subject, report

from covshift.corruptions import corrupt, names
from covshift.support.arrays import Array

OLD = [
    "imagecorruptions==1.1.2",
    "numpy==1.23.5",
    "scipy==1.10.1",
    "scikit-image==0.19.3",
    "opencv-python-headless==4.8.1.78",
    "numba==0.57.1",
    "pillow==9.5.0",
    "imageio==2.31.1",
    "networkx==2.8.8",
    "packaging",
    "tifffile==2023.4.12",
    "PyWavelets==1.4.1",
    "llvmlite==0.40.1",
    "setuptools<70",
]

WORKER = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from imagecorruptions import corrupt
images = np.load(sys.argv[1])
for line in sys.stdin:
    name, severity, count = json.loads(line)
    try:
        begun, used = time.perf_counter(), time.process_time()
        for image in images[:count]:
            corrupt(image, corruption_name=name, severity=severity)
        answer = {
            "wall": 1000 * (time.perf_counter() - begun) / count, "cpu": 1000 * (time.process_time() - used) / count
        }
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
"""


def photo(size: int, seed: int) -> Array:
    """A drawn image with smooth parts, edges and texture."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    waves = [np.sin(rng.uniform(3, 25) * x + rng.uniform(3, 25) * y + rng.uniform(0, 6)) for _ in range(3)]
    image = 128 + 70 * np.stack(waves, -1) + rng.normal(0, 8, (size, size, 3))
    image[size // 4 : size // 2, size // 3 : size // 2] = rng.uniform(0, 255, 3)
    return np.asarray(image.clip(0, 255).astype(np.uint8))


def old_python() -> str:
    """A Python that imagecorruptions' packages were built for, by name or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in (9, 10, 8):
        for candidate in (f"python3.{minor}", *map(str, pyenv.glob(f"3.{minor}.*/bin/python"))):
            # A name on the PATH may be a shim with nothing behind it.
            if shutil.which(candidate) and subprocess.run([candidate, "-V"], capture_output=True).returncode == 0:
                return candidate
    sys.exit("imagecorruptions needs Python 3.8, 3.9 or 3.10; install one of them, so that e.g. python3.9 starts it")


class Times(NamedTuple):
    """Milliseconds for one image."""

    wall: float
    cpu: float


class Old:
    """imagecorruptions, in its own process and environment."""

    def __init__(self, images: Array) -> None:
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "covshift"
        self._file = cache / "benchmark-images.npy"
        python = self._environment(cache / "imagecorruptions-1.1.2")
        np.save(self._file, images)
        command = [str(python), "-c", WORKER, str(self._file)]
        self._worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "Old":
        return self

    def __exit__(self, *reason: object) -> None:
        self._worker.terminate()
        self._worker.wait()
        self._file.unlink()

    @staticmethod
    def _environment(folder: Path) -> Path:
        python = folder / "bin" / "python"
        if (folder / "ready").exists():
            return python
        found = old_python()
        print(f"making an environment for imagecorruptions with {found}, once", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([found, "-m", "venv", folder], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        # imagecorruptions asks for opencv-python, which needs a display library; the headless one is the same code.
        subprocess.run([*pip, *OLD], check=True)
        (folder / "ready").touch()
        return python

    def milliseconds(self, name: str, severity: int, count: int) -> Times | None:
        """For one image, or None where it fails."""
        assert self._worker.stdin is not None
        assert self._worker.stdout is not None
        self._worker.stdin.write(json.dumps([name, severity, count]) + "\n")
        self._worker.stdin.flush()
        answer: dict[str, float] = json.loads(self._worker.stdout.readline())
        return None if "error" in answer else Times(**answer)


def ours(images: Array, name: str, severity: int, threads: int | None = None) -> Times:
    """Milliseconds for one image of a batch."""
    begun, used = time.perf_counter(), time.process_time()
    corrupt(images, name, severity, threads=threads)
    wall, cpu = time.perf_counter() - begun, time.process_time() - used
    return Times(1000 * wall / len(images), 1000 * cpu / len(images))


def compare(old: Old, images: Array, name: str, severity: int, repeats: int) -> tuple[Times, Times | None]:
    """The best of several interleaved runs of both: wall time on all cores, and CPU time on one thread."""
    ours(images, name, severity)
    old.milliseconds(name, severity, 1)
    mean, once = ours(images, name, severity), old.milliseconds(name, severity, 1)
    # Both are timed for about as long: on a busy machine a shorter run finds a quiet moment more easily.
    count = max(1, min(len(images), round(len(images) * mean.wall / once.wall))) if once else 1
    mine, theirs = [], []
    for _ in range(repeats if name != "glass_blur" else 1):
        mine.append(Times(ours(images, name, severity).wall, ours(images, name, severity, threads=1).cpu))
        theirs += [times for times in (old.milliseconds(name, severity, count),) if times is not None]
    return best(mine), best(theirs) if theirs else None


def best(times: list[Times]) -> Times:
    """The least of both kinds of time."""
    return Times(min(each.wall for each in times), min(each.cpu for each in times))


def against_imagecorruptions(images: Array, repeats: int) -> None:
    """A row for each corruption: the mean over severities of the best of several interleaved runs."""
    size = images.shape[1]
    wall = Subject(f"Corruptions, {size} px; times as fast as imagecorruptions")
    cpu = Subject(f"Corruptions, {size} px, CPU time of one thread; times as fast as imagecorruptions")
    ratios: dict[str, list[float]] = {"wall": [], "cpu": []}
    with Old(images) as old:
        for name in names("all"):
            pairs = [compare(old, images, name, severity, repeats) for severity in range(1, 6)]
            for subject, kind in ((wall, "wall"), (cpu, "cpu")):
                left = statistics.fmean(getattr(mine, kind) for mine, _ in pairs)
                right = [getattr(theirs, kind) for _, theirs in pairs if theirs is not None]
                if not right:
                    subject.add(f"{name}, where imagecorruptions fails", left, unit="ms")
                    continue
                ratios[kind].append(statistics.fmean(right) / left)
                label = f"{name} ({left:.3f} ms, was {statistics.fmean(right):.2f} ms)"
                subject.add(label, ratios[kind][-1], 4, higher=True)
    wall.add("geometric mean", statistics.geometric_mean(ratios["wall"]), 20, higher=True)
    cpu.add("geometric mean", statistics.geometric_mean(ratios["cpu"]), 20, higher=True)
    report(wall)
    report(cpu)


def alone(images: Array, repeats: int) -> None:
    """A row for each corruption, and the mean."""
    subject, means = Subject(f"Corruptions, {images.shape[1]} px, CPU time of an image"), []
    for name in names("all"):
        best = []
        for severity in range(1, 6):
            ours(images[:8], name, severity)
            best.append(min(ours(images, name, severity).cpu for _ in range(repeats)))
        means.append(statistics.fmean(best))
        subject.add(name, means[-1], unit="ms")
    subject.add("mean", statistics.fmean(means), 0.03, unit="ms")
    report(subject)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--images", type=int, default=64)
    arguments = parser.parse_args()
    against_imagecorruptions(np.stack([photo(224, seed) for seed in range(arguments.images)]), arguments.repeats)
    alone(np.stack([photo(32, seed) for seed in range(512)]), arguments.repeats)
