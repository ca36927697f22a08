"""The rows of a run as tables: by corruption with the paper's summary, and n against N."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table as RichTable

from covshift.bench.results import metrics
from covshift.bench.evaluation import TOP
from covshift.bench.methods import SCENARIOS, batch, grid, parse_method, value_text
from covshift.bench.results.metrics import AS_PUBLISHED, Baseline, Rate, mean_rate, rate
from covshift.bench.results.store import Row, Run
from covshift.corruptions import names
from covshift.data.condition import CLEAN, MIXED, SEVERITIES, Condition
from covshift.support.errors import plural, unknown


class Line(NamedTuple):
    """One line: what it is about, and in per cent what each method has there, with the interval where there is one."""

    label: str
    values: tuple[Rate | None, ...]
    change: float | None = None


class Table(NamedTuple):
    """Lines under columns, and what a reader has to know."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


def tables(rows: Sequence[Row], run: Run, baseline: Baseline | None = None) -> list[Table]:
    """The tables that a run gives: methods by corruption and, where it has a grid, n by N."""
    found = [methods_table(rows, run, baseline)]
    if run.settings.grid:
        found.append(grid_table(rows, run))
    return found


Rates = dict[str, dict[Condition, Rate]]
"""The error of each method in each condition."""


def overview(runs: Mapping[str, tuple[Sequence[Row], Run]], baseline: Baseline | None = None) -> Table:
    """A line for each run: the clean error as it is, the mean over its test corruptions by method, and mCE."""
    methods = [name for name in SCENARIOS if any(row.method == name for rows, _ in runs.values() for row in rows)]
    yardstick = baseline or AS_PUBLISHED
    measured = {name for name, (_, run) in runs.items() if why_no_mce(run, baseline) is None}
    lines = []
    for name, (rows, run) in runs.items():
        rates = _rates(rows, methods)
        tested = [each for each in run.settings.corruptions if each in names("test")]
        severities = run.settings.severities
        means = [_mean(rates[method], tested, severities) for method in methods]
        before, after = (means[methods.index(each)] if each in methods else None for each in ("none", "full"))
        images = max((row.images for row in rows), default=0)
        levels = f" × {len(severities)}" if len(severities) > 1 else f" at severity {severities[0]}"
        shown = f"{plural(len(tested), 'corruption')}{levels}, " if tested else ""
        scores = [_plain(metrics.mce(_errors(rates[m]), yardstick)) if name in measured else None for m in methods]
        lines.append(
            Line(
                f"{name}: {shown}{images} images",
                (rates.get("none", {}).get(CLEAN), *means, *(scores if measured else ())),
                after.value - before.value if before and after else None,
            )
        )
    title = f"mean error in % on {', '.join(dict.fromkeys(run.settings.data for _, run in runs.values()))}"
    scored = [f"mCE {name}" for name in methods] if measured else []
    notes = [f"mCE: {yardstick.name} = 100"] if measured else []
    return Table(title, ("clean", *methods, *scored), tuple(lines), tuple(notes))


def methods_table(rows: Sequence[Row], run: Run, baseline: Baseline | None = None) -> Table:
    """Top-1 error by method: clean, the means and mCE, and each corruption; Δ is the last method against `none`."""
    methods = [name for name in run.settings.methods if any(row.method == name for row in rows)]
    rates, top5 = _rates(rows, methods), _rates(rows, methods, top5=True)
    severities = run.settings.severities
    tested = [name for name in run.settings.corruptions if name in names("test")]
    held_out = [name for name in run.settings.corruptions if name in names("holdout")]

    def over(corruptions: Sequence[str], of: Rates = rates) -> list[Rate | None]:
        return [_mean(of[method], corruptions, severities) for method in methods]

    # Reverse is measured on clean images: a difference to errors on corrupted ones would mean nothing.
    compared = [name for name in methods if name not in ("none", "reverse")]
    last = methods.index(compared[-1]) if compared and "none" in methods else None

    def line(label: str, values: Sequence[Rate | None]) -> Line:
        first, best = (values[methods.index("none")], values[last]) if last is not None else (None, None)
        return Line(label, tuple(values), best.value - first.value if first and best else None)

    lines = [line("clean", [rates[m].get(CLEAN) for m in methods])]
    lines.append(line(f"mean of {plural(len(tested), 'corruption')}", over(tested)))
    if run.model_classes > TOP:
        lines.append(line("  its top-5 error", over(tested, top5)))
    why_not = why_no_mce(run, baseline)
    if why_not is None:
        yardstick = baseline or AS_PUBLISHED
        errors = [_errors(rates[m]) for m in methods]
        for label, metric in (("mCE", metrics.mce), ("relative mCE", metrics.relative_mce)):
            lines.append(line(f"{label} ({yardstick.name} = 100)", [_plain(metric(e, yardstick)) for e in errors]))
    lines.append(line("mean of holdout", over(held_out)))
    lines.append(line("mixed", [rates[m].get(MIXED) for m in methods]))
    own = [name for name in run.settings.corruptions if name not in names("all")]
    lines += [line(name, over([name])) for name in (*tested, *held_out, *own)]
    if why_not is None:
        found = [metrics.corruption_errors(each, yardstick) for each in errors]
        lines += [line(f"CE of {name}", [_plain(each.get(name)) for each in found]) for name in (*tested, *held_out)]
    shown = tuple(each for each in lines if any(each.values))
    columns = tuple(_column(name, rows) for name in methods)
    notes = [] if why_not is None else [f"no mCE: {why_not}"]
    if last is not None:
        notes.append(f"Δ: {methods[last]} against none")
    missing = len(set(run.settings.plan.all_names()) - {row.cell for row in rows})
    if missing:
        notes.append(f"{missing} cells are not done yet; lines that need them are empty")
    broken = max((row.broken for row in rows), default=0)
    if broken:
        notes.append(f"up to {broken} images of a condition could not be read and were left out")
    return Table(f"{run.settings.model} on {run.settings.data}: error in %", columns, shown, tuple(notes))


def _rates(rows: Sequence[Row], methods: Sequence[str], *, top5: bool = False) -> Rates:
    found: Rates = {name: {} for name in methods}
    for row in rows:
        if row.method in found:
            errors = row.top5_errors if top5 else row.top1_errors
            found[row.method][Condition(row.corruption, row.severity)] = rate(errors, row.images)
    return found


def _errors(rates: Mapping[Condition, Rate]) -> dict[Condition, float]:
    return {condition: each.value for condition, each in rates.items()}


def _mean(rates: Mapping[Condition, Rate], corruptions: Sequence[str], severities: Sequence[int]) -> Rate | None:
    """The mean over corruptions and severities; None where one is missing."""
    wanted = [Condition(name, severity) for name in corruptions for severity in severities]
    return mean_rate(rates[c] for c in wanted) if wanted and all(c in rates for c in wanted) else None


def grid_table(rows: Sequence[Row], run: Run) -> Table:
    """Mean error over the test corruptions for each n (lines) and N (columns)."""
    wanted = [Condition(c, s) for c in run.settings.corruptions if c in names("test") for s in run.settings.severities]
    found = {(row.method, Condition(row.corruption, row.severity)): rate(row.top1_errors, row.images) for row in rows}
    methods = grid()
    priors = sorted({float(method.prior or 0) for method in methods})

    def value(n: int, prior: float) -> Rate | None:
        name = batch(n, prior).name
        return mean_rate(found[name, c] for c in wanted) if wanted and all((name, c) in found for c in wanted) else None

    lines = [Line(f"n = {n}", tuple(value(n, prior) for prior in priors)) for n in sorted({m.n or 0 for m in methods})]
    shown = tuple(each for each in lines if any(each.values))
    return Table("mean error in % by batch size n and prior N", tuple(f"N = {p:g}" for p in priors), shown)


def why_no_mce(run: Run, baseline: Baseline | None) -> str | None:
    """Why a run has no mCE, however long it goes on; None where it has one."""
    settings = run.settings
    if baseline is None and not run.imagenet:
        return (
            "AlexNet's errors are a yardstick on all of ImageNet's classes only; the mean error stands in its place, "
            "or name a run to measure against with --baseline"
        )
    if not set(names("test")) <= set(settings.corruptions) or settings.severities != SEVERITIES:
        return "it takes all 15 test corruptions at all 5 severities"
    if baseline is not None and not set(names("test")) <= baseline.errors.keys():
        return f"the baseline {baseline.name} lacks some of the 15 test corruptions at all 5 severities"
    return None


def _plain(value: float | None) -> Rate | None:
    return None if value is None else Rate(value, value, value)


def _column(name: str, rows: Sequence[Row]) -> str:
    prior = next((row.prior for row in rows if row.method == name), None)
    return f"{name} (n={parse_method(name).n}, N={value_text(prior)})" if name == "partial" and prior is not None else name


def _values(line: Line) -> list[str]:
    return ["" if v is None else f"{100 * v.value:.1f}" for v in line.values]


def _change(table: Table, line: Line | None = None) -> list[str]:
    """What a line, or the head, has in the column of changes; nothing where the table has none."""
    if all(each.change is None for each in table.lines):
        return []
    if line is None:
        return ["Δ"]
    return ["" if line.change is None else f"{100 * line.change:+.1f}"]


def as_text(table: Table) -> str:
    """For a terminal, with the half-width of the interval where it is of use."""
    drawn = RichTable()
    drawn.add_column("")
    for name in (*table.columns, *_change(table)):
        drawn.add_column(name, justify="right")
    for line in table.lines:
        # Wilson's interval is longer on one side; the longer one is shown.
        halves = [
            f" ±{100 * max(v.high - v.value, v.value - v.low):.1f}" if v and v.high > v.low else "" for v in line.values
        ]
        shown = [value + half for value, half in zip(_values(line), halves, strict=True)]
        drawn.add_row(line.label, *shown, *_change(table, line))
    console = Console(file=io.StringIO(), width=200)
    console.print(drawn)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join([table.title, *(each.rstrip() for each in text.splitlines()), *table.notes])


def as_markdown(table: Table) -> str:
    """For a page."""
    head = ["", *table.columns, *_change(table)]
    lines = [[line.label.strip(), *_values(line), *_change(table, line)] for line in table.lines]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---", *["---:"] * (len(head) - 1)], *lines))
    return "\n\n".join([f"**{table.title}**", body, *table.notes])


def as_csv(table: Table) -> str:
    """For a spreadsheet: a line for each value, as shares from 0 to 1."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["line", "column", "value", "low", "high"])
    for line in table.lines:
        for column, value in zip(table.columns, line.values, strict=True):
            if value is not None:
                writer.writerow([line.label.strip(), column, *value])
    return file.getvalue().rstrip()


def as_json(table: Table) -> str:
    """For a program."""
    lines = [
        {
            "line": line.label.strip(),
            "values": {
                column: value and value._asdict() for column, value in zip(table.columns, line.values, strict=True)
            },
            "change": line.change,
        }
        for line in table.lines
    ]
    return json.dumps({"title": table.title, "columns": table.columns, "lines": lines, "notes": table.notes}, indent=1)


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "csv": as_csv,
    "json": as_json,
}


def write(found: Sequence[Table], kind: str = "text") -> str:
    """Tables as one text of this kind."""
    if kind not in FORMATS:
        raise unknown("kind of table", kind, FORMATS)
    if kind == "json" and len(found) > 1:
        return "[" + ",\n".join(as_json(table) for table in found) + "]"
    texts = [FORMATS[kind](table) for table in found]
    if kind == "csv":  # under one head
        return "\n".join([texts[0], *(text.partition("\n")[2] for text in texts[1:])])
    return "\n\n".join(texts)
