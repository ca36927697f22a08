"""The rows of a run as tables: by corruption with the paper's summary, and n against N."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from covshift.bench.evaluation import TOP
from covshift.bench.methods import NONE, SCENARIOS, batch, foremost, grid, stored_method, value_text
from covshift.bench.results import metrics
from covshift.bench.results.changes import Change, Side, change_of, kinds_of_intervals
from covshift.bench.results.metrics import AS_PUBLISHED, Baseline, Rate, mean_rate, rate
from covshift.bench.results.over_time import sequence_table
from covshift.bench.results.paired import ImageErrors, Weights, ce_weights, evenly, mce_weights
from covshift.bench.results.store import Row, Run
from covshift.corruptions import names
from covshift.data.condition import CLEAN, MIXED, SEQUENCE, SEVERITIES, Condition
from covshift.support.errors import plural
from covshift.support.tables import CHANGE, EMPTY, Table, TableCell, change_cell, percent_cell, tidy
from covshift.support.writers import format_tables


class CorruptionGroups(NamedTuple):
    """Corruptions by their part in the benchmark: `own` are those that users have registered themselves."""

    test: tuple[str, ...]
    holdout: tuple[str, ...]
    own: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All of them, in the order in which tables show them."""
        return (*self.test, *self.holdout, *self.own)


def grouped(corruptions: Iterable[str]) -> CorruptionGroups:
    """Return corruptions by their part in the benchmark; names that nobody knows are a user's own.

    >>> grouped(["my_rain", "spatter", "fog"])
    CorruptionGroups(test=('fog',), holdout=('spatter',), own=('my_rain',))
    """
    given = tuple(dict.fromkeys(corruptions))
    test, holdout = names("test"), names("holdout")
    return CorruptionGroups(
        tuple(name for name in given if name in test),
        tuple(name for name in given if name in holdout),
        tuple(name for name in given if name not in (*test, *holdout)),
    )


def tables(
    rows: Sequence[Row], run: Run, baseline: Baseline | None = None, errors: ImageErrors | None = None
) -> list[Table]:
    """Return the tables of a run: methods by corruption and, where it has a grid, n by N.

    Args:
        rows: the finished cells.
        run: the run that they belong to.
        baseline: the run to measure mCE against, in AlexNet's place.
        errors: the errors image by image, for intervals of differences.
    """
    if run.settings.sequence:
        return [sequence_table(rows, run)]
    by_method = methods_table(rows, run, baseline, errors)
    return [by_method, grid_table(rows, run)] if run.settings.grid else [by_method]


Rates = dict[str, dict[Condition, Rate]]
"""The error of each method in each condition."""


def overview(
    runs: Mapping[str, tuple[Sequence[Row], Run]],
    baseline: Baseline | None = None,
    errors: Mapping[str, ImageErrors] | None = None,
) -> Table:
    """Return a line for each run: the clean error as it is, the mean over its test corruptions by method, and mCE.

    Runs without test corruptions have the mean over those that users have registered. `errors` are those of the runs
    image by image, for intervals of differences. Δ is the method that stands for adaptation against the model as it is.
    """
    stand_ins = {name: foremost(dict.fromkeys(row.method for row in rows)) for name, (rows, _) in runs.items()}
    ran = {row.method for rows, _ in runs.values() for row in rows}
    methods = [each for each in dict.fromkeys([*SCENARIOS, *stand_ins.values()]) if each in ran]
    yardstick = baseline or AS_PUBLISHED
    measured = {name for name, (_, run) in runs.items() if why_no_mce(run, baseline) is None}
    lines = []
    changes: dict[str, Change | None] = {}
    for name, (rows, run) in runs.items():
        rates = _rates(rows, methods)
        groups = grouped(run.settings.corruptions)
        corruptions = groups.test or groups.own
        wanted = [Condition(each, severity) for each in corruptions for severity in run.settings.severities]
        wanted = [SEQUENCE] if run.settings.sequence else wanted
        scores = [metrics.mce(_errors(rates[m]), yardstick) if name in measured else None for m in methods]
        images = max((row.images for row in rows), default=0)
        adapted = stand_ins[name]
        changed = _changed((NONE, adapted), evenly(wanted), rates, (errors or {}).get(name)) if adapted else None
        changes[name] = changed
        lines.append(
            (
                TableCell(f"{name}: {_extent(corruptions, run.settings.severities)}{images} images"),
                percent_cell(rates.get(NONE, {}).get(CLEAN)),
                *(percent_cell(_mean(rates[method], wanted)) for method in methods),
                *(map(_exactly, scores) if measured else ()),
                change_cell(changed.difference if changed else None),
            )
        )
    title = f"mean error in % on {', '.join(dict.fromkeys(run.settings.data for _, run in runs.values()))}"
    scored = [f"mCE {name}" for name in methods] if measured else []
    notes = [f"mCE: {yardstick.name} = 100"] if measured else []
    return _table(
        "overview", title, ("clean", *methods, *scored), lines, [*notes, *kinds_of_intervals(changes, CHANGE)]
    )


def _extent(corruptions: Sequence[str], severities: Sequence[int]) -> str:
    levels = f" × {len(severities)}" if len(severities) > 1 else f" at severity {severities[0]}"
    return f"{plural(len(corruptions), 'corruption')}{levels}, " if corruptions else ""


def methods_table(
    rows: Sequence[Row], run: Run, baseline: Baseline | None = None, errors: ImageErrors | None = None
) -> Table:
    """Return the top-1 error by method: clean, the means and mCE, and each corruption.

    Δ is the last method that adapts against the model as it is; see `tables` for the arguments.
    """
    methods = [name for name in run.settings.methods if any(row.method == name for row in rows)]
    rates, top5 = _rates(rows, methods), _rates(rows, methods, top5=True)
    groups = grouped(run.settings.corruptions)
    compared = [name for name in methods if stored_method(name).repairs]
    last = compared[-1] if compared and NONE in methods else None

    changes: dict[str, Change | None] = {}

    def line(
        label: str, values: Mapping[str, Rate | float | None], weights: Weights, *, in_top5: bool = False
    ) -> tuple[TableCell, ...]:
        cells = [_exactly(each) if isinstance(each, float) else percent_cell(each) for each in values.values()]
        of = top5 if in_top5 else rates
        changed = _changed((NONE, last), weights, of, errors, top5=in_top5) if last else None
        changes[label.strip()] = changed
        return (TableCell(label), *cells, change_cell(changed.difference if changed else None))

    def mean(label: str, corruptions: Sequence[str], *, in_top5: bool = False) -> tuple[TableCell, ...]:
        of, wanted = top5 if in_top5 else rates, [Condition(c, s) for c in corruptions for s in run.settings.severities]
        return line(label, {method: _mean(of[method], wanted) for method in methods}, evenly(wanted), in_top5=in_top5)

    def control(condition: Condition) -> tuple[TableCell, ...]:
        return line(condition.corruption, {m: rates[m].get(condition) for m in methods}, {condition: 1.0})

    lines = [control(CLEAN), mean(f"mean of {plural(len(groups.test), 'corruption')}", groups.test)]
    if run.model_classes > TOP:
        lines.append(mean("  its top-5 error", groups.test, in_top5=True))
    why_not = why_no_mce(run, baseline)
    yardstick, shares = baseline or AS_PUBLISHED, {m: _errors(rates[m]) for m in methods}
    if why_not is None:
        for label, metric in (("mCE", metrics.mce), ("relative mCE", metrics.relative_mce)):
            weights = mce_weights(yardstick, relative=metric is metrics.relative_mce)
            scores = {m: metric(shares[m], yardstick) for m in methods}
            lines.append(line(f"{label} ({yardstick.name} = 100)", scores, weights))
    lines.append(mean("mean of holdout", groups.holdout))
    lines.append(mean(f"mean of {plural(len(groups.own), 'corruption')} of your own", groups.own))
    lines.append(control(MIXED))
    lines += [mean(name, [name]) for name in groups.all]
    if why_not is None:
        ces = {m: metrics.corruption_errors(shares[m], yardstick) for m in methods}
        for name in groups.all:
            weights = ce_weights(name, yardstick)
            lines.append(line(f"CE of {name}", {m: ces[m].get(name) for m in methods}, weights))
    notes = [] if why_not is None else [f"no mCE: {why_not}"]
    notes += [f"{CHANGE}: {last} against {NONE}", *kinds_of_intervals(changes, CHANGE)] if last else []
    columns = [_column(name, rows) for name in methods]
    title = f"{run.settings.model} on {run.settings.data}: error in %"
    return _table("methods", title, columns, lines, [*notes, *_shortfalls(rows, run)])


def _changed(
    methods: tuple[str, str], weights: Weights, rates: Rates, errors: ImageErrors | None, *, top5: bool = False
) -> Change | None:
    def rate_of(method: str, condition: Condition) -> Rate | None:
        return rates.get(method, {}).get(condition)

    before, after = (Side(method, rate_of, errors) for method in methods)
    return change_of(before, after, weights, top5=top5)


def _shortfalls(rows: Sequence[Row], run: Run) -> list[str]:
    """Return notes on cells and images that are missing."""
    notes = []
    missing = len(set(run.settings.plan.all_names()) - {row.cell for row in rows})
    if missing:
        notes.append(f"{missing} cells are not done yet; lines that need them are empty")
    broken = max((row.broken for row in rows), default=0)
    if broken:
        notes.append(f"up to {broken} images of a condition could not be read and were left out")
    return notes


def _rates(rows: Sequence[Row], methods: Sequence[str], *, top5: bool = False) -> Rates:
    rates: Rates = {name: {} for name in methods}
    for row in rows:
        if row.method in rates:
            errors = row.top5_errors if top5 else row.top1_errors
            rates[row.method][Condition(row.corruption, row.severity)] = rate(errors, row.images)
    return rates


def _errors(rates: Mapping[Condition, Rate]) -> dict[Condition, float]:
    return {condition: each.value for condition, each in rates.items()}


def _mean(rates: Mapping[Condition, Rate], wanted: Sequence[Condition]) -> Rate | None:
    """Return the mean over conditions; None where one is missing."""
    return mean_rate(rates[c] for c in wanted) if wanted and all(c in rates for c in wanted) else None


def grid_table(rows: Sequence[Row], run: Run) -> Table:
    """Return the mean error over the test corruptions, else over users' own, for each n (lines) and N (columns)."""
    groups = grouped(run.settings.corruptions)
    wanted = [Condition(c, s) for c in groups.test or groups.own for s in run.settings.severities]
    rates = {(row.method, Condition(row.corruption, row.severity)): rate(row.top1_errors, row.images) for row in rows}
    methods = grid()
    priors = sorted({float(method.prior or 0) for method in methods})

    def mean(n: int, prior: float) -> Rate | None:
        name = batch(n, prior).name
        return mean_rate(rates[name, c] for c in wanted) if wanted and all((name, c) in rates for c in wanted) else None

    lines = [
        (TableCell(f"n = {n}"), *(percent_cell(mean(n, prior)) for prior in priors), EMPTY)
        for n in sorted({method.n or 0 for method in methods})
    ]
    return _table("grid", "mean error in % by batch size n and prior N", [f"N = {p:g}" for p in priors], lines)


def why_no_mce(run: Run, baseline: Baseline | None) -> str | None:
    """Return why a run has no mCE even when it is complete; None where it has one."""
    settings = run.settings
    if baseline is None and not run.imagenet:
        return (
            "AlexNet's errors are a yardstick on all of ImageNet's classes only; the mean error stands in its place, "
            "or name a run to measure against: `--baseline RUN`, in Python `baseline=`"
        )
    if not set(names("test")) <= set(settings.corruptions) or settings.severities != SEVERITIES:
        return "it takes all 15 test corruptions at all 5 severities"
    if baseline is not None and not set(names("test")) <= baseline.errors.keys():
        return f"the baseline {baseline.name} lacks some of the 15 test corruptions at all 5 severities"
    return None


def _exactly(share: float | None) -> TableCell:
    """Return the cell of a share whose interval has no width."""
    return EMPTY if share is None else percent_cell((share, share, share))


def _column(name: str, rows: Sequence[Row]) -> str:
    """Return the head of a method's column, with the N that was chosen for it."""
    method, prior = stored_method(name), next((row.prior for row in rows if row.method == name), None)
    return f"{name} (n={method.n}, N={value_text(prior)})" if method.needs_choice and prior is not None else name


def _table(
    name: str, title: str, columns: Sequence[str], lines: Sequence[tuple[TableCell, ...]], notes: Sequence[str] = ()
) -> Table:
    """Return a table without the lines that are empty and, where nothing has changed, without the column of changes."""
    filled = [line for line in lines if any(cell.value is not None for cell in line[1:])]
    if any(line[-1].value is not None for line in filled):
        return Table(name, title, ("", *columns, CHANGE), tuple(filled), tuple(notes))
    return Table(name, title, ("", *columns), tuple(line[:-1] for line in filled), tuple(notes))


def format_run_tables(tables: Sequence[Table], form: str = "text") -> str:
    """Return tables as one text; as CSV, with a line for each number, as a share from 0 to 1."""
    return format_tables([tidy(table) for table in tables] if form == "csv" else tables, form)
