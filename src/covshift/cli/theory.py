"""What `covshift theory` does with its arguments."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from covshift.shift.simulation import Best, best_prior, simulate
from covshift.shift.theory import bounds, expected

_PRIORS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


def theory(n: float, shift: float, ratio: float, priors: Sequence[float], alpha: float, *, as_json: bool) -> str:
    """Bounds, expectation and best priors for one batch size and one shift, in units of the source's spread."""
    moved = (0.0, 1.0, shift, ratio**2)
    # A single image cannot be normalised by itself, so 0 is no choice of ours for it.
    chosen = list(priors) or [prior for prior in _PRIORS if prior > 0 or n > 1]
    lower, upper = bounds(n, chosen, *moved, alpha)
    value, error = expected(n, chosen, *moved)
    best = {
        "lower": best_prior(n, *moved),
        "upper": best_prior(n, *moved, by="upper", alpha=alpha),
        "expected": best_prior(n, *moved, by="expected"),
    }
    columns = {"N": chosen, "lower": lower, "expected": value, "error": error, "upper": upper}
    if as_json:
        given = {"n": n, "shift": shift, "ratio": ratio, "alpha": alpha}
        rows = [dict(zip(columns, map(_number, row), strict=True)) for row in zip(*columns.values(), strict=True)]
        found = {name: {key: _number(number) for key, number in each._asdict().items()} for name, each in best.items()}
        return json.dumps({**given, "rows": rows, "best": found}, indent=2)
    head = f"n = {n:g}, (μt - μs)/σs = {shift:g}, σt/σs = {ratio:g}, confidence {1 - alpha:g}"
    table = [f"{'N':>6}  {'L':>9}  {'E[W²]':>9}  {'U':>9}"]
    table += [f"{N:6g}  {L:9.4f}  {E:9.4f}  {U:9.4f}" for N, L, E, _, U in zip(*columns.values(), strict=True)]
    return "\n".join([head, *table, f"best N: {', '.join(_say(name, each) for name, each in best.items())}"])


def grid(alpha: float, *, as_json: bool) -> str:
    """The best N by the lower bound, over batch sizes and shifts: the paper's simulation."""
    result = simulate(alpha=alpha)
    if as_json:
        names = ("shifts", "ratios", "n", "N", "lower", "upper", "best")
        fields = {name: _nested(getattr(result, name).tolist()) for name in names}
        return json.dumps(fields)
    head = "best N by the lower bound, for ((μt - μs)/σs, σt/σs) and n"
    lines = [head, f"{'':>12}" + "".join(f"{n:>8g}" for n in result.n)]
    for shift, row in zip(result.shifts, result.best, strict=True):
        for ratio, best in zip(result.ratios, row, strict=True):
            name = f"({shift:g}, {ratio:g})"
            lines.append(f"{name:>12}" + "".join(f"{prior:>8.3g}" for prior in best))
    return "\n".join(lines)


def _say(name: str, best: Best) -> str:
    symbol = {"lower": "L", "upper": "U", "expected": "E[W²]"}[name]
    return f"{best.prior:.3g} by {symbol}"


def _number(value: float) -> float | str:
    """JSON knows no infinity."""
    return float(value) if np.isfinite(value) else "inf"


def _nested(values: Any) -> Any:
    return [_nested(each) for each in values] if isinstance(values, list) else _number(values)
