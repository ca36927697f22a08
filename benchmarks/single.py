"""What adaptation costs one image at a time, where hooks weigh most, against the eval forward: `make speed`.

In the CPU time of one thread: a small network answers within milliseconds, and the clock of a busy machine blurs these.
"""

import argparse
import time
from collections.abc import Callable
from copy import deepcopy

import torch
from adapt import ResNet20, network
from subjects import Subject, report
from timing import best_seconds
from torch import Tensor, nn

import covshift

POLICIES = {
    "Batch(prior=16)": covshift.Batch(prior=16),
    "Stream(prior=16)": covshift.Stream(prior=16),
    'Batch(prior="auto")': covshift.Batch(prior="auto"),
    "Live()": covshift.Live(),
}


def showing(model: nn.Module, images: Tensor, times: int) -> Callable[[], None]:
    """A turn that gives a model some images, one by one."""

    def run() -> None:
        for _ in range(times):
            for image in images.split(1):
                model(image)

    return run


def one_by_one(name: str, model: nn.Module, side: int, times: int, goal: float, turns: int) -> None:
    """Report each policy against the plain model; each is on a copy of its own."""
    images = torch.randn(8, 3, side, side)
    source = covshift.Source.measure(model, torch.randn(64, 3, side, side), progress=False)
    contestants = {"eval forward": showing(model, images, times)}
    for label, policy in POLICIES.items():
        adapted = deepcopy(model)
        covshift.adapt(adapted, policy, source=source if label == "Live()" else None)
        contestants[label] = showing(adapted, images, times)
    seconds = best_seconds(contestants, turns, time.process_time)
    plain = seconds.pop("eval forward")
    subject = Subject(f"One image at a time, {name}, {side} px, CPU time of one thread; times the eval forward")
    subject.add("eval forward", 1000 * plain / (len(images) * times), unit="ms")
    for label, each in seconds.items():
        subject.add(label, each / plain, None if label == "Live()" else goal)
    report(subject)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with torch.inference_mode():
        one_by_one("ResNet-20", ResNet20().eval(), 32, 2, 1.5, options.turns)
        one_by_one("ResNet-56", ResNet20(9).eval(), 32, 1, 1.5, options.turns)
        one_by_one("resnet50", network("resnet50"), 224, 1, 1.15, max(3, options.turns // 3))
