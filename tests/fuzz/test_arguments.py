"""Wrong arguments: every public call gives a result or a `CovshiftError`, whatever it is given.

A table of valid calls; each of their arguments is replaced by each of many wrong values, one at a time, and in the slow
test several at once.
"""

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from runs import OPTIONS, a_row, a_run, workplace
from torch import nn

import covshift
import covshift.bench
import covshift.corruptions
from covshift import Batch, CovshiftError, Preprocess, Statistics, Stream, shift
from covshift.bench.engines.where import Where
from covshift.bench.results.store import Store
from covshift.bench.settings import Settings

# Said by torch to whoever asks for more workers than there are cores.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "3": lambda: 3,
    "-1": lambda: -1,
    "0": lambda: 0,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "a word": lambda: "x",
    "an empty word": lambda: "",
    "a zero byte": lambda: "a\0b",
    "bytes": lambda: b"x",
    "[]": list,
    "[None]": lambda: [None],
    "[1.5]": lambda: [1.5],
    "{}": dict,
    "{1: 2}": lambda: {1: 2},
    "a set": lambda: {1, 2},
    "an object": object,
    "a function": lambda: lambda *args: args,
    "a sparse tensor": lambda: torch.eye(4).to_sparse(),
    "a meta tensor": lambda: torch.zeros(4, 3, 16, 16, device="meta"),
    "a meta vector": lambda: torch.zeros(4, device="meta"),
    "a tensor of floats": lambda: torch.linspace(-1, 1, 4),
    "a complex tensor": lambda: torch.zeros(4, 3, 16, 16, dtype=torch.complex64),
    "an empty tensor": lambda: torch.zeros(0),
    "an array of objects": lambda: np.array([None, "x"], object),
    "an array of words": lambda: np.array(["x", "y"]),
    "an array of times": lambda: np.array(["2020"], "datetime64[s]"),
    "an array of floats": lambda: np.linspace(-1, 1, 4),
    "an array of numbers": lambda: np.arange(4),
    "a structured array": lambda: np.zeros(3, [("a", "i4")]),
}


class Call(NamedTuple):
    """A public function with valid arguments, which a function makes anew."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


class Network(nn.Sequential):
    """A network that also takes pixels as they are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.float())


def network() -> nn.Module:
    torch.manual_seed(0)
    head = (nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 6))
    return Network(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), *head).eval()


def pixels(images: int = 12) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (images, 16, 16, 3), np.uint8)


class Ready(NamedTuple):
    """What calls share, since it takes long to make."""

    source: Statistics
    target: Statistics
    predictor: shift.Predictor
    data: covshift.Data
    preprocess: Preprocess


def calls(ready: Ready) -> dict[str, Call]:
    """Valid calls of the public functions, by name, whose arguments nobody has used yet."""
    net, batch, source, target = network(), torch.rand(8, 3, 16, 16), ready.source, ready.target
    half, labels = ready.preprocess, np.arange(12) % 6
    moments = {"n": 8, "mu_s": 0.0, "var_s": 1.0, "mu_t": 1.0, "var_t": 1.0}
    shape = {"resize": 16, "size": 16, "interpolation": "bilinear", "mean": (0.5,) * 3, "std": (0.5,) * 3}
    quiet = {"progress": False}
    few = {"corruptions": ["fog"], "severities": [1], "methods": ["none"]}
    return {
        **_core(net, batch, source, target),
        **_anchored(net, batch, target),
        "corrupt": Call(
            covshift.corrupt,
            {"images": pixels(2), "name": "frost", "severity": 3, "seed": 0, "indices": [0, 1], "rng": None}
            | {"constants": 32, "frost": "procedural", "jpeg": None, "threads": 1},
        ),
        "names": Call(covshift.corruptions.names, {"which": "test"}),
        "category": Call(covshift.corruptions.category, {"name": "fog"}),
        "frost_source": Call(covshift.corruptions.frost_source, {"frost": "procedural"}),
        "corruptions.register": Call(
            covshift.corruptions.register,
            {"name": "fuzzed", "function": _same, "severities": range(1, 6), "category": "made up"},
        ),
        "open_model": Call(
            covshift.open_model,
            {"uri": "py:nets:net", "mean": (0.5,) * 3, "std": (0.5,) * 3, "size": 16, "resize": 16}
            | {"interpolation": "bilinear"},
        ),
        "open_data": Call(covshift.open_data, {"uri": "npz:set.npz"}),
        "Data.loader": Call(
            ready.data.loader,
            {"model": None, "preprocess": half, "condition": "fog/3", "batch_size": 4, "limit": 8, "order": "source"}
            | {"seed": 0, "workers": 0},
        ),
        "Preprocess": Call(Preprocess, {**shape, "squash": False}),
        "Preprocess.with_": Call(half.with_, shape),
        "Preprocess.picture": Call(half.picture, {"image": Image.fromarray(pixels(1)[0])}),
        "Preprocess.pixels": Call(half.pixels, {"images": pixels(2)}),
        "Preprocess.tensor": Call(half.tensor, {"images": pixels(2), "device": "cpu"}),
        "Preprocess.from_dict": Call(Preprocess.from_dict, {"values": half.as_dict()}),
        "wasserstein": Call(shift.wasserstein, {"source": source, "target": target, "normalized": True, "eps": 1e-5}),
        "jeffrey": Call(shift.jeffrey, {"source": source, "target": target, "eps": 1e-5}),
        "gaussian": Call(
            shift.gaussian,
            {"mean_s": torch.zeros(4), "cov_s": torch.eye(4), "mean_t": torch.ones(4), "cov_t": torch.eye(4)},
        ),
        "covariances": Call(shift.covariances, {"model": net, "loader": batch, "statistics": target, "layers": "1"}),
        "embed": Call(
            shift.embed,
            {"conditions": {"a": target, "b": target.mix(source, 1), "c": target.mix(source, 9)}, "source": source}
            | {"perplexity": 1.0, "seed": 0},
        ),
        "bounds": Call(shift.bounds, {**moments, "N": 4, "alpha": 0.05, "normalized": True, "eps": 1e-5}),
        "expected": Call(shift.expected, {**moments, "N": 4, "draws": 50, "seed": 0, "normalized": False, "eps": 1e-5}),
        "layer_bounds": Call(
            shift.layer_bounds,
            {"n": 8, "N": 4, "source": source, "target": target, "alpha": 0.05, "normalized": True},
        ),
        "best_prior": Call(shift.best_prior, {**moments, "by": "lower", "alpha": 0.05, "normalized": False}),
        "best_layer_prior": Call(
            shift.best_layer_prior,
            {"n": 8, "source": source, "target": target, "by": "lower", "alpha": 0.05, "normalized": True},
        ),
        "simulate": Call(shift.simulate, {"shifts": [0, 1], "ratios": [1], "n": [2], "N": [1, 2], "alpha": 0.05}),
        "Predictor.fit": Call(
            shift.Predictor.fit,
            {"model": net, "images": pixels(), "labels": labels, "preprocess": half, "batch_size": 12, "seed": 0}
            | {"corruptions": ["fog", "contrast"], "severities": [1, 5], **quiet},
        ),
        "Predictor.predict": Call(
            ready.predictor.predict, {"images": pixels(), "method": "judge", "kind": None, "among": [0, 1, 2]}
        ),
        "Predictor.line": Call(ready.predictor.line, {"which": "plain", "method": "judge", "kind": None}),
        "Predictor.save": Call(ready.predictor.save, {"path": "saved.safetensors"}),
        "Predictor.load": Call(
            shift.Predictor.load,
            {"path": "predictor.safetensors", "model": net, "preprocess": half, "batch_size": 12},
        ),
        "bench.register": Call(covshift.bench.register, {"name": "fuzzed", "what": Stream}),
        "bench.frame": Call(covshift.bench.frame, {"folder": "stored"}),
        "bench.run": Call(
            covshift.bench.run,
            {"settings": {**OPTIONS, **few}, "out": "run", "extend": False, "where": Where(), **quiet},
        ),
        "Where": Call(Where, {"engine": "ray", "address": None, "workers": 1, "cpus": 1, "gpus": None, "shard": None}),
        "Settings.read": Call(
            lambda **values: Settings.read(values),
            {**OPTIONS, **few, "plugins": [], "clean": True, "mixed": False, "grid": False, "prior": 4, "limit": 8}
            | {"order": "label", "seed": 0, "mean": None, "std": None, "resize": 16, "interpolation": "bilinear"}
            | {"frost": "procedural", "jpeg": None, "skip_broken": False, "batch_size": 8, "device": "cpu"}
            | {"memory": "1GB", "threads": 1},
        ),
        "Settings": Call(Settings, {**OPTIONS, **few, "plugins": (), "limit": 8, "order": "label", "seed": 0}),
        "Condition": Call(partial(_loaded, ready.data, half), {"corruption": "fog", "severity": 3}),
        "Model": Call(covshift.Model, {"uri": "py:nets:net", "module": net, "preprocess": half}),
        "Settings.read whole": Call(Settings.read, {"values": dict(OPTIONS)}),
    }


def _core(net: nn.Module, batch: torch.Tensor, source: Statistics, target: Statistics) -> dict[str, Call]:
    return {
        "adapt": Call(_adapted, {"model": net, "policy": Batch(prior=4), "layers": "1", "only": None}),
        "release": Call(covshift.release, {"model": net}),
        "Batch": Call(Batch, {"prior": 4, "size": 2, "sync": True}),
        "Stream": Call(Stream, {"prior": 4, "decay": 0.9, "sync": True}),
        "estimate": Call(
            covshift.estimate,
            {"model": net, "loader": batch.split(4), "exact": True, "prior": 0, "memory": "1GB", "scratch": None}
            | {"layers": ["1"], "only": None, "call": None, "collect": None, "sync": True, "progress": False},
        ),
        "Moments": Call(_moments, {"count": 8, "images": 8, "mean": torch.zeros(4), "var": torch.ones(4)}),
        "Statistics": Call(Statistics, {"layers": dict(target), "fingerprint": target.fingerprint, "notes": None}),
        "Statistics.of": Call(Statistics.of, {"model": net}),
        "Statistics.apply": Call(target.apply, {"model": net, "layers": "1", "only": "mean"}),
        "Statistics.merge": Call(target.merge, {"other": target}),
        "Statistics.mix": Call(target.mix, {"source": source, "prior": 4}),
        "Statistics.save": Call(target.save, {"path": "saved.safetensors"}),
        "Statistics.load": Call(Statistics.load, {"path": "target.safetensors"}),
        "Statistics.close_to": Call(target.close_to, {"other": target, "rtol": 1e-5, "atol": 1e-8}),
        "Statistics.check_fits": Call(target.check_fits, {"model": net}),
        "Statistics.check_same_layers": Call(target.check_same_layers, {"other": source}),
        "Adapter.state": Call(_resumed, {"state": target}),
    }


def _anchored(net: nn.Module, batch: torch.Tensor, target: Statistics) -> dict[str, Call]:
    """Calls about sources, and of what uses most of the package."""
    source = covshift.Source.measure(net, batch, progress=False)
    quiet = {"sync": True, "progress": False}
    return {
        "Live": Call(covshift.Live, {"memory": 200, "prior": 16, "sync": False}),
        "adapt to a source": Call(
            _adapted, {"model": net, "policy": Batch(), "layers": None, "only": None, "source": source}
        ),
        "estimate from a source": Call(covshift.estimate, {"model": net, "loader": batch, "source": source, **quiet}),
        "Source.measure": Call(
            covshift.Source.measure, {"model": net, "loader": batch, "places": "auto", "call": None, **quiet}
        ),
        "Source.of": Call(covshift.Source.of, {"model": net}),
        "Source.anchors": Call(source.anchors, {"model": net}),
        "Source.save": Call(source.save, {"path": "saved.safetensors"}),
        "Source.load": Call(covshift.Source.load, {"path": "source.safetensors"}),
        "repair": Call(
            covshift.repair,
            {"model": net, "target": batch.repeat(8, 1, 1, 1), "source": None, "force": True, "limit": None}
            | {"skip_broken": False, "progress": False},
        ),
        "export.save": Call(
            covshift.export.save,
            {"model": net, "path": "saved.safetensors", "to": "safetensors", "patch": target, "swappable": False}
            | {
                "adaptive": False,
                "prior": None,
                "with_preprocess": False,
                "frame": None,
                "preprocess": None,
                "size": 16,
            },
        ),
    }


def _same(image: np.ndarray, constant: object, rng: object) -> np.ndarray:
    return image


def _loaded(data: covshift.Data, preprocess: Preprocess, corruption: Any, severity: Any) -> None:
    """Make a condition and use it."""
    list(data.loader(preprocess=preprocess, condition=covshift.Condition(corruption, severity)))


def _moments(**values: Any) -> None:
    """Make moments and use them, as a state and as a patch."""
    net = network()
    patch = Statistics({"1": covshift.Moments(**values)}, Statistics.of(net).fingerprint)
    repr(patch), patch.close_to(patch)
    patch.merge(patch)
    patch.mix(patch, 4)
    patch.save("moments.safetensors")
    patch.apply(net)
    shift.wasserstein(patch, patch)
    _resumed(patch)


def _adapted(model: Any, policy: Any, layers: Any, only: Any, source: Any = None) -> Any:
    with covshift.adapt(model, policy, layers=layers, only=only, source=source), torch.no_grad():
        return model(torch.rand(2, 3, 16, 16))


def _resumed(state: Any) -> None:
    with covshift.adapt(network(), Stream()) as adapter:
        adapter.state = state


@pytest.fixture
def ready(tmp_path, monkeypatch) -> Ready:
    monkeypatch.chdir(workplace(tmp_path))
    net, half = network(), Preprocess(16, 16, "bilinear", (0.5,) * 3, (0.5,) * 3)
    source, target = Statistics.of(net), covshift.estimate(net, torch.rand(8, 3, 16, 16), progress=False)
    chosen = {"corruptions": ["fog", "contrast"], "severities": [1, 5], "progress": False}
    predictor = shift.Predictor.fit(net, pixels(), np.arange(12) % 6, preprocess=half, **chosen)
    predictor.save("predictor.safetensors")
    target.save("target.safetensors")
    covshift.Source.measure(net, torch.rand(8, 3, 16, 16), progress=False).save("source.safetensors")
    Store.create(Path("stored"), a_run()).append([a_row()])
    return Ready(source, target, predictor, covshift.open_data("npz:set.npz"), half)


def outcome(call: Call, changes: dict[str, Any]) -> str | None:
    """Return the error of a call with some arguments changed; None where it gives a result or a `CovshiftError`."""
    try:
        call.function(**call.arguments | changes)
    except CovshiftError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:150]
    return None


def test_the_calls_of_the_table_are_valid(ready):
    for name in calls(ready):
        call = calls(ready)[name]
        call.function(**call.arguments)


def failures(ready: Ready, tries: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Return what went wrong in calls with some arguments replaced, each by the wrong value that is named."""
    found = []
    for name, changes in tries:
        problem = outcome(calls(ready)[name], {argument: WRONG[value]() for argument, value in changes.items()})
        if problem:
            found.append(f"{name}({', '.join(f'{a}={v}' for a, v in changes.items())}): {problem}")
        shutil.rmtree("run", ignore_errors=True)
    return found


def one_wrong(ready: Ready) -> list[tuple[str, dict[str, str]]]:
    table = calls(ready)
    return [(name, {argument: value}) for name in table for argument in table[name].arguments for value in WRONG]


def test_a_wrong_argument_is_a_covshift_error(ready):
    tries = random.Random(0).sample(one_wrong(ready), 400)
    assert not failures(ready, tries)


@pytest.mark.slow
def test_every_wrong_argument_is_a_covshift_error(ready):
    tries = one_wrong(ready)
    assert len(tries) >= 3000
    assert not failures(ready, tries)


@pytest.mark.slow
def test_several_wrong_arguments_are_a_covshift_error(ready):
    choose, table, tries = random.Random(1), calls(ready), []
    for _ in range(1000):
        name = choose.choice(list(table))
        arguments = list(table[name].arguments)
        wrong = choose.sample(arguments, choose.randint(1, len(arguments)))
        tries.append((name, {argument: choose.choice(list(WRONG)) for argument in wrong}))
    assert not failures(ready, tries)
