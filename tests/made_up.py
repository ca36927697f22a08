"""Run folders with made-up rows, which look like results: errors rise with severity and fall with adaptation."""

import zlib
from pathlib import Path

import numpy as np
from runs import a_run

from covshift.bench.measure import Expected, Measured, Shift
from covshift.bench.methods import GRID_IMAGES, GRID_PRIORS, parse_method
from covshift.bench.results.store import Row, Store
from covshift.data.condition import CLEAN, MIXED, Condition

IMAGES = 1000


def error(condition: Condition, method: str, quality: float) -> float:
    """A share from 0 to 1: how hard the condition is, what the method leaves of that, how bad the model is."""
    if condition == CLEAN:
        hard = 0.0
    elif condition == MIXED:
        hard = 0.35
    else:
        hard = (0.2 + zlib.crc32(condition.corruption.encode()) % 60 / 100) * condition.severity / 5
    parsed = parse_method(method)
    kept = 0.45
    if not parsed.adapts:
        kept = 1.0
    elif parsed.n is not None:
        n, prior = parsed.n, 30.0 if parsed.prior is None else parsed.prior
        kept += 0.5 * prior / (prior + n) + 0.9 * n / (prior + n) / n**0.7
    return min(0.95, quality + kept * hard)


def make_run(folder: Path, quality: float = 0.08, keep: float = 1.0, imagenet: bool = False, **settings) -> Path:
    """A run folder; `keep` is the share of the cells that are done."""
    run = a_run(**{"model": f"m:{folder.name}", "data": "npz:nowhere.npz", **settings})
    params = 100_000 + zlib.crc32(folder.name.encode()) % 10**6
    update = {"imagenet": imagenet, "data_images": IMAGES, "versions": {"covshift": "0.1.0"}, "model_params": params}
    store = Store.create(folder, run.model_copy(update={**update, "model_digest": run.settings.model}))
    cells = run.settings.plan.all_names()
    rng = np.random.default_rng(zlib.crc32(folder.name.encode()))
    rows = []
    for cell in cells[: round(keep * len(cells))]:
        corruption, severity, method = cell.split("/")
        condition, parsed = Condition(corruption, int(severity)), parse_method(method)
        wrong = int(rng.binomial(IMAGES, error(condition, method, quality)))
        rows.append(
            Row(
                cell=cell,
                model=run.settings.model,
                data=run.settings.data,
                corruption=corruption,
                severity=int(severity),
                method=method,
                n=None if method == "none" else parsed.n or IMAGES,
                prior=None if method == "none" else 32.0 if parsed.prior is None else parsed.prior,
                images=IMAGES,
                top1_errors=wrong,
                top5_errors=wrong // 3,
                seconds=0.1,
            )
        )
    store.append(rows)
    return folder


def make_shift(folder: Path, layers: int = 6) -> None:
    """A measurement that goes with a made-up run: the harder a condition, the farther it is."""
    store = Store(folder)
    rng = np.random.default_rng(0)
    shape = rng.uniform(0.3, 1, layers)
    conditions = []
    for condition in store.run.settings.plan.conditions:
        if condition != MIXED:
            far = (0.1 + 3 * error(condition, "none", 0)) * shape * rng.uniform(0.9, 1.1, layers)
            values = {"normalised Wasserstein": far, "Wasserstein": far * [*range(1, layers + 1)], "Jeffrey": far**2}
            x, y = rng.normal(size=2) + np.array([zlib.crc32(condition.corruption.encode()) % 7, condition.severity])
            given = {name: [float(value) for value in row] for name, row in values.items()}
            conditions.append(Measured(**condition._asdict(), distances=given, x=float(x), y=float(y)))
    theory = [
        Expected(n=n, prior=prior, lower=float((prior / (prior + n)) ** 2 + n**0.3 / (prior + n)) ** 0.5)
        for n in GRID_IMAGES
        for prior in GRID_PRIORS
    ]
    shift = Shift(
        model_digest=store.run.model_digest,
        images=IMAGES,
        layers=[f"layer{place}.bn" for place in range(layers)],
        channels=[16] * layers,
        conditions=conditions,
        theory=theory,
    )
    (folder / "shift.json").write_text(shift.model_dump_json())
