"""Valid calls of the public functions, for `test_arguments` to spoil."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from runs import OPTIONS, a_row, a_run, workplace
from torch import nn

import covshift
import covshift.bench
import covshift.corruptions
import covshift.rivals
from covshift import Batch, Preprocess, Statistics, Stream, shift
from covshift.bench.engines.where import Where
from covshift.bench.results.store import Store
from covshift.bench.settings import Settings
from covshift.models.builtin import open_network
from covshift.serve.build import build
from covshift.serve.settings import Limits
from covshift.serve.settings import Settings as Serving
from covshift.shift.prior import search


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


def clean() -> torch.Tensor:
    """Enough images to know what classes do to the activations."""
    return torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0))


class Ready(NamedTuple):
    """What calls share, since it takes long to make."""

    source: Statistics
    target: Statistics
    anchor: covshift.Source
    predictor: shift.Predictor
    data: covshift.Data
    preprocess: Preprocess
    repair: covshift.Repair
    observed: Any


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
        **_anchored(net, batch, ready),
        **_fleets(net, batch, ready),
        **_repairs(net, ready),
        **_served(),
        **_rivals(net),
        **_documented(net, labels, half),
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
            | {"corruptions": ["fog", "contrast"], "severities": [1, 5], "imitations": [], "source": None, **quiet},
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


def _anchored(net: nn.Module, batch: torch.Tensor, ready: Ready) -> dict[str, Call]:
    """Calls about sources, and about streams that need one."""
    source, many = ready.anchor, clean()
    quiet = {"sync": True, "progress": False}
    return {
        "Live": Call(covshift.Live, {"memory": 200, "prior": 16, "sync": False}),
        "adapt to a source": Call(
            _adapted, {"model": net, "policy": Batch(), "layers": None, "only": None, "source": source}
        ),
        "adapt with a predictor": Call(
            _adapted,
            {"model": net, "policy": covshift.Live(), "layers": None, "only": None, "source": None}
            | {"predictor": ready.predictor},
        ),
        "Predictor.follow": Call(ready.predictor.follow, {"memory": 200}),
        "Predictor.observe": Call(ready.predictor.observe, {"batches": [many]}),
        "estimate from a source": Call(covshift.estimate, {"model": net, "loader": batch, "source": source, **quiet}),
        "estimate past classes": Call(
            covshift.estimate, {"model": net, "loader": batch, "source": source, "classes": [1 / 6] * 6, **quiet}
        ),
        "choose_source": Call(
            covshift.choose_source, {"model": net, "loader": many.split(4), "call": None, "progress": False}
        ),
        "Source": Call(
            covshift.Source,
            {"statistics": source.statistics, "spread": source.spread, "digest": source.digest, "measured": True}
            | {"classes": source.classes, "spread_std": source.spread_std},
        ),
        "Source.measure": Call(
            covshift.Source.measure, {"model": net, "loader": batch, "places": "auto", "call": None, **quiet}
        ),
        "Source.of": Call(covshift.Source.of, {"model": net}),
        "Source.anchors": Call(source.anchors, {"model": net}),
        "Source.save": Call(source.save, {"path": "saved.safetensors"}),
        "Source.load": Call(covshift.Source.load, {"path": "source.safetensors"}),
    }


def _fleets(net: nn.Module, batch: torch.Tensor, ready: Ready) -> dict[str, Call]:
    """Calls of a fleet and its cameras."""
    whole = {"model": net, "policy": covshift.Live(), "source": ready.anchor, "layers": None, "only": None, "passes": 2}
    cameras = {"gate": batch[:1], "yard": batch[1:]}
    return {
        "Fleet": Call(_served_by, whole),
        "Fleet.answer": Call(partial(_with_fleet, "answer"), {"batches": cameras}),
        "Fleet.answer one camera": Call(_answer_one, {"images": batch}),
        "Fleet.add": Call(partial(_with_fleet, "add"), {"name": "gate"}),
        "Fleet.forget": Call(partial(_with_fleet, "forget"), {"name": "gate"}),
        "Camera.state": Call(_camera_resumed, {"state": ready.target}),
    }


def _repairs(net: nn.Module, ready: Ready) -> dict[str, Call]:
    """Calls that write a corrected model, and that read it again."""
    written = {"path": "saved.safetensors", "to": "safetensors", "patch": ready.target, "swappable": False}
    seen = ready.observed
    return {
        "repair": Call(
            covshift.repair,
            {"model": net, "target": clean(), "source": None, "force": True, "limit": None}
            | {"skip_broken": False, "progress": False},
        ),
        "repair with data": Call(
            covshift.repair,
            {"model": covshift.Model("x", net, ready.preprocess), "target": ready.data, "source": ready.predictor}
            | {"force": True, "limit": 40}
            | {"skip_broken": False, "progress": False},
        ),
        "Repair.apply": Call(ready.repair.apply, {"model": network()}),
        "Repair.save": Call(ready.repair.save, {"folder": "repaired"}),
        "repairs.check": Call(
            covshift.repairs.check,
            {"folder": "mended", "labelled": ready.data, "device": "cpu", "limit": 8, "skip_broken": False},
        ),
        "repairs.judge": Call(
            covshift.repairs.judge,
            {"seen": seen, "half": seen.plain, "forecast": None, "clean": 0.1, "usual": None},
        ),
        "Predictor.predict_observed": Call(
            ready.predictor.predict_observed, {"seen": seen, "method": "best", "kind": None}
        ),
        "export.save": Call(
            covshift.export.save,
            {"model": net, **written, "adaptive": False, "prior": None, "with_preprocess": False, "frame": None}
            | {"preprocess": None, "size": 16},
        ),
        "export.swap": Call(covshift.export.swap, {"session": Session(ready.target), "patch": ready.target}),
    }


def _served() -> dict[str, Call]:
    """The settings of the server."""
    numbers = {"body": 1 << 20, "pixels": 10**6, "images": 8, "queue": 8, "cameras": 8, "resident": 4}
    return {
        "serve Limits": Call(Limits, {**numbers, "idle": 1.0, "rate": None, "patience": 1.0}),
        "serve Settings": Call(
            Serving,
            {"name": "model", "batch": 8, "delay": 0.01, "limits": Limits(), "token": None, "control": None}
            | {"hosts": None, "thumbnails": False},
        ),
        "serve build": Call(
            _built,
            {"uri": "py:nets:net", "settings": Serving(), "source": None, "policy": "live", "state": "memory"}
            | {"predictor": None, "shared": False},
        ),
    }


def _rivals(net: nn.Module) -> dict[str, Call]:
    """Published rules, with their own options."""
    made = {name: kind() for name, kind in covshift.rivals.RIVALS.items()}
    return {
        f"rival {name}": Call(partial(_answered, type(rival)), {"model": net} | vars(rival))
        for name, rival in made.items()
    }


def _documented(net: nn.Module, labels: np.ndarray, half: Preprocess) -> dict[str, Call]:
    """Calls of what the reference names besides what the package exports."""
    few = {"corruptions": ["fog"], "severities": [1], "seed": 0, "batch_size": 12, "progress": False}
    return {
        "prior.search": Call(
            search,
            {"model": net, "images": pixels(), "labels": labels, "size": 4, "grid": [1, 16], "preprocess": half}
            | {**few, "cache": None},
        ),
        "parse_condition": Call(covshift.data.parse_condition, {"text": "fog/3"}),
        "open_unlabelled": Call(covshift.data.open_unlabelled, {"uri": "npz:set.npz"}),
        "Store": Call(covshift.bench.Store, {"folder": "stored"}),
        "examine_run": Call(
            covshift.doctor.examine_run, {"folder": "whole", "limit": 8, "device": "cpu", "progress": False}
        ),
        "report": Call(
            covshift.report.report,
            {"runs": ["whole"], "out": "reported", "baseline": None, "compare": False, "images": False, "files": False}
            | {"readme": None, "measure_images": None, "plugins": [], "progress": False, "notify": str},
        ),
        "open_network": Call(open_network, {"name": "resnet20"}),
        "examine": Call(
            covshift.doctor.examine,
            {"model": "py:nets:net", "data": "npz:set.npz", "limit": 8, "device": "cpu", "progress": False},
        ),
    }


class Session(NamedTuple):
    """What `swap` asks of an ONNX session whose statistics can be swapped."""

    patch: Statistics

    def get_modelmeta(self) -> Any:
        notes = {"covshift.swappable": "[]", "covshift.fingerprint": self.patch.fingerprint}
        return SimpleNamespace(custom_metadata_map=notes)

    def get_overridable_initializers(self) -> list[Any]:
        return [SimpleNamespace(name="1.running_mean", type="tensor(float)")]


def _served_by(**values: Any) -> None:
    with covshift.Fleet(**values) as fleet:
        fleet.answer({"gate": torch.rand(2, 3, 16, 16)})


def _with_fleet(method: str, **values: Any) -> None:
    with covshift.Fleet(network(), Stream()) as fleet:
        getattr(fleet, method)(**values)


def _answer_one(images: Any) -> None:
    _with_fleet("answer", batches={"gate": torch.rand(2, 3, 16, 16), "yard": images})


def _camera_resumed(state: Any) -> None:
    with covshift.Fleet(network(), Stream()) as fleet:
        fleet.add("gate").state = state


def _built(**values: Any) -> None:
    build(**values).fleet.remove()


def _answered(kind: type, model: Any, **options: Any) -> None:
    with kind(**options).answering(model) as answer:
        answer(torch.rand(4, 3, 16, 16))


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


def _adapted(model: Any, policy: Any, layers: Any, only: Any, source: Any = None, predictor: Any = None) -> Any:
    given = {"layers": layers, "only": only, "source": source, "predictor": predictor}
    with covshift.adapt(model, policy, **given) as adapter, torch.no_grad():
        model(torch.rand(2, 3, 16, 16))
        return adapter.health


def _resumed(state: Any) -> None:
    with covshift.adapt(network(), Stream()) as adapter:
        adapter.state = state


def get_ready(folder: Path) -> Ready:
    """Make what calls share in a folder, which is the current one."""
    workplace(folder)
    net, half = network(), Preprocess(16, 16, "bilinear", (0.5,) * 3, (0.5,) * 3)
    source, target = Statistics.of(net), covshift.estimate(net, torch.rand(8, 3, 16, 16), progress=False)
    chosen = {"corruptions": ["fog", "contrast"], "severities": [1, 5], "progress": False}
    anchor = covshift.Source.measure(net, clean(), progress=False)
    predictor = shift.Predictor.fit(net, pixels(), np.arange(12) % 6, preprocess=half, **chosen)
    predictor.save("predictor.safetensors")
    target.save("target.safetensors")
    anchor.save("source.safetensors")
    Store.create(Path("stored"), a_run()).append([a_row()])
    covshift.bench.run({**OPTIONS, "corruptions": ["fog"], "severities": [1]}, "whole", progress=False)
    data = covshift.open_data("npz:set.npz")
    repair = covshift.repair(net, clean(), force=True, progress=False)
    covshift.repair(covshift.open_model("py:nets:net"), data, force=True, progress=False).save("mended")
    return Ready(source, target, anchor, predictor, data, half, repair, predictor.observe([clean()]))
