"""Speed of anchored adaptation, as ratios against the plain eval-mode forward pass, on one thread of one process.

Seconds are those of the processor, so that other processes on the machine disturb little.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from subjects import Subject, report
from torch import Tensor, nn

import covshift
from covshift.support.torchvision import torchvision

GOALS = {"anchored Batch": 1.15, "exact estimate": 1.3, "folded": 1.005}  # 1.00, rounded


def networks() -> dict[str, nn.Module]:
    """A ResNet-18 and, where timm is installed, a tiny ViT, with random weights."""
    found: dict[str, nn.Module] = {"resnet18": torchvision.models.resnet18()}
    try:
        import timm
    except ModuleNotFoundError:
        return found
    return found | {"vit_tiny_patch16_224": timm.create_model("vit_tiny_patch16_224")}


def ratios(model: nn.Module, images: Tensor, turns: int) -> dict[str, float]:
    """The time of the model as it is in seconds, and the times of other ways to run it as multiples of that.

    All take turns. An adapter is put on, and weights are folded, before the clock starts: that is done once for many
    batches.
    """
    model = model.eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    source = covshift.Source.measure(model, images, progress=False)
    target = covshift.estimate(model, images, source=source, progress=False)
    parts = list(images.split(max(1, len(images) // 4)))
    ways: dict[str, tuple[Callable[[], AbstractContextManager[object]], Callable[[], object]]] = {
        "eval forward": (nullcontext, lambda: model(images)),
        "anchored Batch": (
            lambda: covshift.adapt(model, covshift.Batch(prior=16), source=source),
            lambda: model(images),
        ),
        "folded": (lambda: target.apply(model), lambda: model(images)),
        "in parts": (nullcontext, lambda: [model(part) for part in parts]),
        "exact estimate": (
            nullcontext,
            lambda: covshift.estimate(model, parts, source=source, progress=False),
        ),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(turns):
        for name, (block, run) in ways.items():
            with block():
                run()
                begun = time.process_time()
                run()
                best[name] = min(best[name], time.process_time() - begun)
    plain = best["eval forward"]
    return {
        "eval forward": plain,
        "anchored Batch": best["anchored Batch"] / plain,
        "folded": best["folded"] / plain,
        "exact estimate": best["exact estimate"] / best["in parts"],
    }


@torch.inference_mode()
def main() -> None:
    """Print the ratios of each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = torch.randn(options.images, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    subject = Subject(f"Anchored, {options.images} images, 224 px, channels_last, CPU time; times the eval forward")
    for name, model in networks().items():
        found = ratios(model, images, options.turns)
        subject.add(f"{name}: eval forward", found.pop("eval forward"), unit="s")
        for what, ratio in found.items():
            subject.add(f"{name}: {what}", ratio, GOALS[what])
    report(subject)


if __name__ == "__main__":
    main()
