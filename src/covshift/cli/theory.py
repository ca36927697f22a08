"""`covshift theory`: the bounds of Proposition 1, and the N that they favour."""

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covshift.cli import options
from covshift.support.errors import CovshiftError

if TYPE_CHECKING:
    from covshift.shift.simulation import Best

_PRIORS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


def command(
    n: Annotated[float, typer.Option("--n", "-n", help="Number of images in a batch.")] = 8,
    shift: Annotated[float, typer.Option(help="Shift of the mean, (μt - μs)/σs.")] = 1.0,
    ratio: Annotated[float, typer.Option(help="Ratio of the standard deviations, σt/σs.")] = 1.0,
    prior: Annotated[
        list[str] | None, typer.Option(metavar="NUMBERS", help="Values of the prior N.", show_default="0 to 256")
    ] = None,
    alpha: Annotated[float, typer.Option(help="One minus the confidence level of the upper bound.")] = 0.05,
    grid: Annotated[
        bool, typer.Option("--grid", help="Print the best N over many shifts and batch sizes instead.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Bound the expected distance to the target for n images and a prior of N.

    The distance is E[W²], the bounds are those of the paper's Proposition 1.

    Examples:
    covshift theory -n 8 --shift 1 --ratio 1.5

    covshift theory -n 8 --prior 8,16,32

    covshift theory --grid
    """
    if grid:
        typer.echo(_grid(alpha, as_json=as_json))
        return
    if not ratio >= 0:
        raise CovshiftError(f"expected --ratio from 0, got {ratio:g}")
    typer.echo(_table(n, shift, ratio, options.numbers(prior, "--prior"), alpha, as_json=as_json))


def _table(n: float, shift: float, ratio: float, priors: Sequence[float], alpha: float, *, as_json: bool) -> str:
    """Return bounds, expectation and best priors for one batch size and one shift, in units of the source's spread."""
    from covshift.shift.simulation import best_prior
    from covshift.shift.theory import bounds, expected

    moved = (0.0, 1.0, shift, ratio**2)
    # A single image cannot be normalised by itself, so 0 is not offered for it.
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


def _grid(alpha: float, *, as_json: bool) -> str:
    """Return the best N by the lower bound, over batch sizes and shifts: the paper's simulation."""
    from covshift.shift.simulation import simulate

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


def _say(name: str, best: "Best") -> str:
    symbol = {"lower": "L", "upper": "U", "expected": "E[W²]"}[name]
    return f"{best.prior:.3g} by {symbol}"


def _number(value: float) -> float | str:
    """Return a number that JSON can hold: it knows no infinity."""
    return float(value) if math.isfinite(value) else "inf"


def _nested(values: Any) -> Any:
    return [_nested(each) for each in values] if isinstance(values, list) else _number(values)
