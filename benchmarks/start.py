"""The start of the command and of the package, in CPU time, each in processes of its own: `make speed`."""

import resource
import subprocess
import sys

from subjects import Subject, report

NAMES = "import covshift; [getattr(covshift, name) for name in covshift.__all__]"


def cpu_seconds(*words: str) -> float:
    """The CPU time of one Python process, which a busy machine stretches less than the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def start(turns: int) -> Subject:
    """The best of several interleaved turns; the first one, which may compile bytecode, does not count."""
    ways = {
        "help": ("-m", "covshift", "--help"),
        "torch": ("-c", "import torch"),
        "covshift": ("-c", "import covshift"),
        "names": ("-c", NAMES),
    }
    runs = [{name: cpu_seconds(*words) for name, words in ways.items()} for _ in range(turns + 1)][1:]
    best = {name: min(run[name] for run in runs) for name in ways}
    subject = Subject("Start, CPU time")
    subject.add("covshift --help", best["help"], 0.3, unit="s")
    subject.add("import torch", best["torch"], unit="s")
    subject.add("import covshift", best["covshift"], best["torch"], unit="s")
    subject.add("all public names, against import torch", best["names"] / best["torch"], 1.25)
    return subject


if __name__ == "__main__":
    report(start(3))
