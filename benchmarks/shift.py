"""What predicting the error and choosing N are worth on a model: the tables of predict.md and prior.md in docs/howto.

    python benchmarks/shift.py predict --model builtin:resnet20 --data builtin:cifar10 --rows runs/predict.jsonl
    python benchmarks/shift.py prior   --model builtin:resnet20 --data builtin:cifar10 --rows runs/prior.jsonl

Half of the images are for fitting, the others for testing. Every measurement is a row in the file, so a run that was
stopped goes on; the tables are made from the rows.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from estimators import Reference, aetta, cot, cott, mano, mano_score, refer, with_line

import covshift
from covshift import Batch, Statistics
from covshift.corruptions import category, names
from covshift.data import CLEAN, open_data
from covshift.data.selection import Selection, choose
from covshift.models import Model, open_model
from covshift.shift import Predictor, best_layer_prior
from covshift.shift.forecast.observe import Batches, Observation, observe
from covshift.shift.forecast.signals import METHODS
from covshift.shift.prior import search
from covshift.support.allocator import keep_freed_memory

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
PRIORS = (0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
RIVALS = ("COT", "COTT", "MaNo", "AETTA")
Row = dict[str, Any]


class Rows:
    """Measurements in a file, one a line; what is there of this model is not measured again."""

    def __init__(self, path: Path, model: str) -> None:
        self._path = path
        self._model = model
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # killed while it wrote the last row
            path.write_text(whole)
        self.rows: list[Row] = [json.loads(line) for line in whole.splitlines()]

    def measure(self, key: Row, how: Callable[[], Row]) -> Row:
        """The row with this key; `how` makes the rest of it where there is none."""
        key = {**key, "model": self._model}
        for row in self.rows:
            if all(row.get(name) == value for name, value in key.items()):
                return row
        row = {**key, **how()}
        self.rows.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        return row


def predict(opened: Model, images: Any, labels: torch.Tensor, severities: list[int], rows: Rows) -> None:
    """Fit on one half of the images, and predict the errors of the other half under the test corruptions."""
    half, model, preprocess = len(images) // 2, opened.module, opened.preprocess
    saved = rows._path.with_suffix(".predictor")
    if saved.exists():
        predictor = Predictor.load(saved, model, preprocess=preprocess)
    else:
        predictor = Predictor.fit(model, images[:half], labels[:half], preprocess=preprocess)
        predictor.save(saved)
    truth = labels[half:]
    rivals = partial(by_rivals, opened, references(opened, images[:half], labels[:half]))

    def forecasts(name: str, severity: int) -> Row:
        batches = Batches(covshift.corrupt(images[half:], name, severity), preprocess, 100)
        seen = predictor.observe(batches)
        row: Row = {"distance": seen.distance.average, **rivals(batches, seen)}
        for which in ("plain", "adapted"):
            row[which] = (seen.logits(which).argmax(1) != truth).double().mean().item()
            for method in METHODS:
                row[f"{which} {method}"] = getattr(predictor.predict_observed(seen, method=method), which)
            row["sure"] = predictor.predict_observed(seen).sure
            own = predictor.predict_observed(seen, method="distance", kind=category(name))
            row[f"{which} distance by kind"] = getattr(own, which)
        return row

    cells = [(name, severity) for severity in severities for name in names("all")]
    measured = [rows.measure({"corruption": name, "severity": s}, partial(forecasts, name, s)) for name, s in cells]
    found = [row for row in measured if row["corruption"] in names("test")]
    kinds = ("noise", "blur", "weather", "digital")
    print(f"mean absolute deviation in points over {len(found)} conditions, and how often the interval holds the error")
    print("| error of | method | all | " + " | ".join(kinds) + " | interval holds |")
    print("|---|---|--:|" + "--:|" * (len(kinds) + 1))
    for which in ("plain", "adapted"):
        for method in (*METHODS, "distance by kind", *RIVALS):
            if not all(f"{which} {method}" in row for row in found):
                continue  # rows of an older version, or AETTA, which is for adapted models
            key = f"{which} {method}"
            off = {row["corruption"] + str(row["severity"]): row[key][0] - row[which] for row in found}
            held = [row[key][1] <= row[which] <= row[key][2] for row in found if len(row[key]) > 1]
            by_kind = [np.mean([abs(e) for name, e in off.items() if category(name[:-1]) == kind]) for kind in kinds]
            cells_ = " | ".join(f"{100 * value:.2f}" for value in [np.mean(np.abs(list(off.values()))), *by_kind])
            print(f"| {which} | {method} | {cells_} | {f'{np.mean(held):.0%}' if held else ''} |")
    if all("sure" in row for row in found):
        print(f"sure of {sum(row['sure'] for row in found)} of {len(found)} conditions")
    for which in ("plain", "adapted"):
        line = np.corrcoef([row["distance"] for row in measured], [row[which] for row in measured])[0, 1]
        print(f"correlation of distance and error of the {which} model over {len(measured)} conditions: {line:.3f}")


def references(opened: Model, images: Any, labels: torch.Tensor) -> dict[str, Reference]:
    """What the rivals learn: thresholds on clean images, and MaNo's line on the holdout corruptions."""
    made: dict[str, Reference] = {}
    scores: dict[str, list[tuple[float, float]]] = {"plain": [], "adapted": []}
    for name, severity in [("clean", 0), *((name, s) for name in names("holdout") for s in (1, 3, 5))]:
        shown = images if name == "clean" else covshift.corrupt(images, name, severity)
        seen = observe(opened.module, Batches(shown, opened.preprocess, 100))
        for which in ("plain", "adapted"):
            logits = seen.logits(which)
            made.setdefault(which, refer(logits, labels))
            scores[which].append((mano_score(logits), (logits.argmax(1) != labels).double().mean().item()))
    return {which: with_line(made[which], pairs) for which, pairs in scores.items()}


def by_rivals(opened: Model, known: dict[str, Reference], batches: Batches, seen: Observation) -> Row:
    """The errors that the rivals predict; AETTA is for adapted models."""
    row: Row = {}
    for which in ("plain", "adapted"):
        for name, rival in (("COT", cot), ("COTT", cott), ("MaNo", mano)):
            row[f"{which} {name}"] = [rival(seen.logits(which), known[which])]
    applied = covshift.estimate(opened.module, batches, progress=False).apply(opened.module)
    row["adapted AETTA"] = [aetta(opened.module, batches)]
    applied.restore()
    return row


def prior(
    opened: Model, images: Any, labels: torch.Tensor, severities: list[int], rows: Rows, sizes: list[int]
) -> None:
    """The mean error over the test corruptions, by batch size and way to choose N."""
    half, model, preprocess = len(images) // 2, opened.module, opened.preprocess
    shown: dict[tuple[str, int], Any] = {}

    def corrupted(name: str, severity: int) -> Any:
        if (name, severity) not in shown:
            shown.clear()
            shown[name, severity] = covshift.corrupt(images[half:], name, severity)
        return shown[name, severity]

    def error(name: str, severity: int, size: int, value: Any) -> Row:
        batches = Batches(corrupted(name, severity), preprocess, size * max(1, 128 // size))
        with torch.inference_mode(), covshift.adapt(model, Batch(prior=value, size=size)):
            answers = torch.cat([model(batch).argmax(1) for batch in batches])
        return {"error": (answers != labels[half:]).double().mean().item()}

    def by_bounds(name: str, severity: int) -> Row:
        target = covshift.estimate(model, Batches(corrupted(name, severity), preprocess, 100), progress=False)
        source = Statistics.of(model)
        return {"priors": {str(n): min(1e6, best_layer_prior(n, source, target).prior) for n in SIZES}}

    def at(name: str, severity: int, size: int, value: Any) -> float:
        key = {"corruption": name, "severity": severity, "n": size, "N": value}
        return float(rows.measure(key, partial(error, name, severity, size, value))["error"])

    cells = [(name, severity) for severity in severities for name in names()]
    table: dict[str, list[float]] = {}
    for size in sizes:
        found = search(
            model,
            images[:half],
            labels[:half],
            size,
            grid=PRIORS[1:],
            severities=[3],
            preprocess=preprocess,
            cache=rows._path.with_suffix(".cache"),
        )
        columns: dict[str, list[float]] = {}
        for name, severity in cells:
            key = {"corruption": name, "severity": severity, "by": "bounds"}
            bound = rows.measure(key, partial(by_bounds, name, severity))["priors"][str(size)]
            tried = {N: at(name, severity, size, N) for N in PRIORS if N or size > 1}
            for N, value in tried.items():
                columns.setdefault(f"N = {N:g}", []).append(value)
            columns.setdefault("holdout", []).append(at(name, severity, size, found.prior))
            columns.setdefault("bounds", []).append(at(name, severity, size, bound))
            columns.setdefault("auto", []).append(at(name, severity, size, "auto"))
        means = {column: 100 * float(np.mean(values)) for column, values in columns.items()}
        fixed = {column: value for column, value in means.items() if column.startswith("N = ")}
        best = min(fixed, key=fixed.__getitem__)
        table[str(size)] = [means.get("N = 0", float("nan")), means["N = 16"], means["holdout"], means["bounds"]]
        table[str(size)] += [means["auto"], fixed[best], float(best[4:])]
        print(f"n = {size}: " + ", ".join(f"{column} {value:.2f}" for column, value in means.items()), flush=True)
    print(f"mean error in % over {len(cells)} conditions, {len(images) - half} images each")
    print("| n | N = 0 | N = 16 | N from holdout | N from bounds | auto | best N in hindsight | which is |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|")
    for n, values in table.items():
        errors = ["" if np.isnan(value) else f"{value:.1f}" for value in values[:-1]]
        print(f"| {n} | " + " | ".join(errors) + f" | {values[-1]:g} |")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["predict", "prior"])
    parser.add_argument("--model", required=True, help="as in covshift bench run")
    parser.add_argument("--data", required=True, help="as in covshift bench run")
    parser.add_argument("--rows", required=True, type=Path, help="where measurements are kept")
    parser.add_argument("--images", type=int, default=2000, help="how many to take, for both halves together")
    parser.add_argument("--severity", type=int, nargs="+", help="by default all for predict, and 3 for prior")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of batches, for prior")
    arguments = parser.parse_args()
    keep_freed_memory()
    model, data = open_model(arguments.model), open_data(arguments.data)
    model.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    chosen = Selection(data, choose(data.labels, limit=arguments.images), model.preprocess.picture)
    batches = list(chosen.make(CLEAN))
    images = np.concatenate([batch.images for batch in batches])
    labels = torch.from_numpy(np.concatenate([batch.labels for batch in batches]))
    severities = arguments.severity or ([1, 2, 3, 4, 5] if arguments.what == "predict" else [3])
    rows = Rows(arguments.rows, model.digest[:16])
    if arguments.what == "predict":
        predict(model, images, labels, severities, rows)
    else:
        prior(model, images, labels, severities, rows, arguments.sizes)


if __name__ == "__main__":
    main()
