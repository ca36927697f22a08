"""Speed of exported models: onnxruntime against eager PyTorch, swaps of a patch, and adapted models compiled.

python benchmarks/export.py
"""

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from subjects import Subject, report
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
    """Report three ratios for each batch size, and the swap of a patch."""
    subject = Subject(f"onnxruntime, {name}, {SIDE} px, {torch.get_num_threads()} threads; times as fast as PyTorch")
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
        subject.add(f"batch {size}: eager forward", 1000 * times["eager"], unit="ms")
        for one, two in RATIOS:
            subject.add(f"batch {size}: {two} against {one}", times[one] / times[two])
    swaps = best_seconds(
        {
            "kept": lambda: covshift.export.swap(swappable, patch),
            "file": lambda: covshift.export.swap(swappable, folder / "patch.safetensors"),
        },
        turns,
    )
    subject.add("swap of a patch", 1000 * swaps["kept"], unit="ms")
    subject.add("swap of a patch from its file", 1000 * swaps["file"], unit="ms")
    report(subject)


def compare_compiled(turns: int) -> None:
    """Report how much faster a small network is, adapted and repaired, once it is compiled."""
    subject = Subject("torch.compile, ResNet-20; times as fast as eager")
    batch = torch.randn(64, 3, 32, 32)
    repaired, compiled = (covshift.open_model("builtin:resnet20").module for _ in range(2))
    for model in (repaired, compiled):
        covshift.estimate(model, batch, progress=False).apply(model)
    compiled.compile()
    runs: dict[str, Callable[[], object]] = {"repaired": partial(repaired, batch), "compiled": partial(compiled, batch)}
    times = best_seconds(runs, turns)
    off = (repaired(batch) - compiled(batch)).abs().max() / repaired(batch).abs().max()
    subject.add(f"repaired model, off by {off:.0e}", times["repaired"] / times["compiled"])
    torch.compiler.reset()
    eager, compiled = (covshift.open_model("builtin:resnet20").module for _ in range(2))
    with covshift.adapt(eager, covshift.Batch(prior=16)), covshift.adapt(compiled, covshift.Batch(prior=16)):
        compiled.compile()
        times = best_seconds({"eager": partial(eager, batch), "compiled": partial(compiled, batch)}, turns)
        off = (eager(batch) - compiled(batch)).abs().max() / eager(batch).abs().max()
    subject.add(f"adapted model, off by {off:.0e}", times["eager"] / times["compiled"])
    report(subject)


RATIOS = (("eager", "folded"), ("eager", "swappable"), ("adapt", "adaptive"))

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, torch.inference_mode():
        for network in ("resnet50", "mobilenet_v2"):
            compare(network, options.turns, Path(made))
        compare_compiled(options.turns)
