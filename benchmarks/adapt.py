"""Speed and memory of the adaptation core, as ratios against the plain eval-mode forward pass: `make speed`.

In the CPU time of one thread; with `--threads 2` in the wall time of two, which a quiet machine is needed for.
"""

import argparse
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from subjects import Subject, report
from timing import Clock, best_seconds, clock_for, extent
from torch import Tensor, nn

import covshift
from covshift.support.torchvision import torchvision

BUDGET = 4 * 2**30


def network(name: str) -> nn.Module:
    """A torchvision network with random weights, in eval mode, channels_last."""
    return channels_last(torchvision.models.get_model(name, weights=None).eval())


def channels_last(model: nn.Module) -> nn.Module:
    """The model in the layout that is fastest on CPUs."""
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


class ResNet20(nn.Module):
    """The small residual network for 32-pixel images; with 9 blocks a stage it is ResNet-56."""

    def __init__(self, blocks: int = 3) -> None:
        super().__init__()
        block = torchvision.models.resnet.BasicBlock

        def stage(before: int, width: int, stride: int) -> nn.Sequential:
            shortcut = nn.Conv2d(before, width, 1, stride) if before != width else None
            rest = (block(width, width) for _ in range(blocks - 1))
            return nn.Sequential(block(before, width, stride, shortcut), *rest)

        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Classify a batch."""
        out: Tensor = self.body(x)
        return out


def adapting(model: nn.Module, policy: covshift.Batch, images: Tensor) -> Callable[[], None]:
    """A turn that adapts, runs the model once and takes the adapter off."""

    def run() -> None:
        with covshift.adapt(model, policy):
            model(images)

    return run


def training(model: nn.Module, images: Tensor) -> Callable[[], None]:
    """A turn with the BN layers, and only those, in train mode: torch's own batch statistics."""
    layers = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]

    def run() -> None:
        for layer in layers:
            layer.train()
        model(images)
        for layer in layers:
            layer.eval()

    return run


def batch(turns: int, clock: Clock, how: str) -> None:
    """`Batch` and groups of 8 against torch's train mode, 16 images of 224 pixels."""
    subject = Subject(
        f"Batch(prior=16) and Batch(size=8), 16 images, 224 px, channels_last, {how}; times the eval forward"
    )
    images = torch.randn(16, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    for name in ("resnet50", "mobilenet_v2", "efficientnet_b0"):
        model = network(name)
        times = best_seconds(
            {
                "eval": lambda model=model: model(images),  # type: ignore[misc]
                "train": training(model, images),
                "batch": adapting(model, covshift.Batch(prior=16), images),
                "groups": adapting(model, covshift.Batch(size=8), images),
            },
            turns,
            clock,
        )
        plain = times["eval"]
        subject.add(f"{name}: eval forward", plain, unit="s")
        subject.add(f"{name}: BN in train mode", times["train"] / plain)
        subject.add(f"{name}: Batch(prior=16)", times["batch"] / plain)
        subject.add(f"{name}: Batch(size=8)", times["groups"] / plain, 1.15)
    report(subject)


def groups(turns: int, clock: Clock, how: str) -> None:
    """Small statistical batches in one compute batch of 256 images of 32 pixels."""
    model = channels_last(ResNet20().eval())
    images = torch.randn(256, 3, 32, 32).contiguous(memory_format=torch.channels_last)

    def one_by_one() -> None:
        with covshift.adapt(model, covshift.Batch(prior=16)):
            for group in images.split(8):
                model(group)

    times = best_seconds(
        {
            "eval": lambda: model(images),
            "Batch()": adapting(model, covshift.Batch(), images),
            "Batch(size=8)": adapting(model, covshift.Batch(size=8), images),
            "Batch(size=1)": adapting(model, covshift.Batch(size=1), images),
            "32 forwards of 8": one_by_one,
        },
        turns,
        clock,
    )
    subject = Subject(f"Batch(size=k), ResNet-20, compute batch 256, 32 px, {how}; times the eval forward")
    for name, seconds in times.items():
        subject.add(name, seconds / times["eval"])
    report(subject)


def full(name: str, turns: int, clock: Clock, how: str) -> None:
    """`estimate(exact=True)` against one plain pass over the same data, all of it in memory."""
    model = network(name)
    loader = list(torch.randn(32, 3, 224, 224).contiguous(memory_format=torch.channels_last).split(8))

    def plain() -> None:
        for images in loader:
            model(images)

    with watch_memory() as peak:
        times = best_seconds(
            {
                "plain": plain,
                "exact": lambda: covshift.estimate(model, loader, memory=BUDGET),
                "streaming": lambda: covshift.estimate(model, loader, exact=False),
            },
            turns,
            clock,
        )
    gib = BUDGET / 2**30
    subject = Subject(
        f"estimate(), {name}, 32 images, 224 px, batches of 8, budget {gib:.0f} GiB, {how}; times one plain pass"
    )
    subject.add("plain pass", times["plain"], unit="s")
    subject.add("exact", times["exact"] / times["plain"], 1.15)
    subject.add("streaming", times["streaming"] / times["plain"])
    subject.add("peak memory", peak() / 2**30, unit="GiB")
    report(subject)


def spill(clock: Clock, how: str) -> None:
    """`estimate(exact=True)` on far more than the memory budget."""
    budget = 600 * 2**20
    model = channels_last(ResNet20().eval())

    def loader() -> Iterator[Tensor]:
        for seed in range(40):
            generator = torch.Generator().manual_seed(seed)
            yield torch.randn(250, 3, 32, 32, generator=generator).contiguous(memory_format=torch.channels_last)

    begun = clock()
    for images in loader():
        model(images)
    plain = clock() - begun
    with watch_memory() as peak:
        begun = clock()
        covshift.estimate(model, loader(), memory=budget)
        exact = clock() - begun
    subject = Subject(
        f"estimate() with spilling: ResNet-20, 10,000 images, 32 px, budget {budget / 2**20:.0f} MiB, {how}"
    )
    subject.add("exact, times one plain pass", exact / plain, 1.8)
    subject.add("peak memory", peak() / 2**20, unit="MiB")
    report(subject)


@contextmanager
def watch_memory() -> Iterator[Callable[[], float]]:
    """How far the memory of this process rises in the block above where it began, in bytes."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    begun, most, done = resident(), resident(), threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: most - begun
    finally:
        done.set()
        thread.join()


def swap() -> None:
    """Two streams on one ResNet-50."""
    model = network("resnet50")
    adapter = covshift.adapt(model, covshift.Stream(prior=16))
    states = []
    for _ in range(2):
        adapter.reset()
        model(torch.randn(2, 3, 64, 64))
        states.append(adapter.state)

    def exchange() -> None:
        adapter.state = states[0]
        adapter.state = states[1]

    seconds = best_seconds({"swap": exchange}, 50)["swap"] / 2
    subject = Subject("Stream, resnet50")
    subject.add("swap of two states", 1000 * seconds, unit="ms")
    report(subject)
    adapter.remove()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="with more than one, wall time is measured")
    parser.add_argument("--full", help=argparse.SUPPRESS)
    parser.add_argument("--spill", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(0)
    timed = (clock_for(options.threads), extent(options.threads))
    with torch.inference_mode():
        if options.full or options.spill:
            spill(*timed) if options.spill else full(options.full, options.turns, *timed)
            sys.exit()
        batch(options.turns, *timed)
        groups(options.turns, *timed)
        swap()
    parts = [["--full", name] for name in ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "densenet121")]
    for part in [*parts, ["--spill"]]:  # a process each, so that the peak is its own
        turns = str(max(2, options.turns // 2))
        subprocess.run(
            [sys.executable, __file__, *part, "--turns", turns, "--threads", str(options.threads)], check=True
        )
