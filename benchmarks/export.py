"""Speed of exported models: onnxruntime against eager PyTorch, and the time that it takes to swap a patch.

python benchmarks/export.py
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timing import best_seconds
from torch import nn

import covshift
from covshift.export.extra import need
from covshift.support.torchvision import torchvision

SIDE = 224


def session(path: Path, threads: int) -> Any:
    """A session on the CPU with as many threads as torch has."""
    onnxruntime = need("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def adapted(model: nn.Module, x: torch.Tensor) -> object:
    """What the adaptive graph does, by hooks."""
    with covshift.adapt(model, covshift.Batch(prior=16)):
        return model(x)


def compare(name: str, turns: int, folder: Path) -> None:
    """Print one row for each batch size."""
    torch.manual_seed(0)
    model: nn.Module = getattr(torchvision.models, name)().eval()
    threads = torch.get_num_threads()
    sessions = {}
    for form in ("folded", "swappable", "adaptive"):
        path = folder / f"{name}-{form}.onnx"
        covshift.export.save(model, path, size=SIDE, swappable=form == "swappable", adaptive=form == "adaptive")
        sessions[form] = session(path, threads)
    patch = covshift.Statistics.of(model)
    patch.save(folder / "patch.safetensors")
    swappable = sessions["swappable"]
    feeds = covshift.export.swap(swappable, patch)
    for size in (1, 32):
        x = torch.randn(size, 3, SIDE, SIDE)
        times = best_seconds(
            {
                "eager": partial(model, x),
                "folded": partial(sessions["folded"].run, None, {"images": x.numpy()}),
                "swappable": partial(swappable.run, None, {"images": x.numpy(), **feeds}),
                "adapt": partial(adapted, model, x),
                "adaptive": partial(sessions["adaptive"].run, None, {"images": x.numpy()}),
            },
            turns,
        )
        ratios = "".join(f"{times[one] / times[two]:>16.2f}" for one, two in RATIOS)
        print(f"{name:<14}{size:>6}{1000 * times['eager']:>12.1f}{ratios}", flush=True)
    swaps = best_seconds(
        {
            "kept": lambda: covshift.export.swap(swappable, patch),
            "file": lambda: covshift.export.swap(swappable, folder / "patch.safetensors"),
        },
        turns,
    )
    print(f"{name}: swap of a patch {1000 * swaps['kept']:.1f} ms, from its file {1000 * swaps['file']:.1f} ms")


RATIOS = (("eager", "folded"), ("eager", "swappable"), ("adapt", "adaptive"))

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    print(f"onnxruntime, {SIDE} px, {torch.get_num_threads()} threads; times as fast as PyTorch")
    heads = ("eager/folded", "eager/swappable", "adapt/adaptive")
    print(f"{'':<14}{'batch':>6}{'eager ms':>12}" + "".join(f"{head:>16}" for head in heads))
    with tempfile.TemporaryDirectory() as made, torch.inference_mode():
        for network in ("resnet50", "mobilenet_v2"):
            compare(network, options.turns, Path(made))
