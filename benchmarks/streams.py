"""Methods by the order in which images come, with the worst cell and the time of each: `python benchmarks/streams.py`.

A run folder for each order is kept in `--out`, and the same command resumes it. Error in % is the mean over the
corrupted conditions. `worst` is the largest number of points by which a method is worse than the model as it is, in any
condition, the clean one included, and any order. Milliseconds are without the time that it takes to make the images.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from covshift.bench import run
from covshift.bench.methods import parse_methods
from covshift.bench.results.metrics import mean_rate, rate
from covshift.bench.results.records import Row
from covshift.support.tables import EMPTY, Notation, Table, TableCell, percent_cell, points_cell
from covshift.support.writers import format_tables

ORDERS = "shuffled dirichlet:0.1 runs:20 label"
RIVALS = "alpha-bn:n=1,robustbn,tbr,iabn,unmix-tns,lame,prior-correction,tent"
LIVE = "live:n=1,memory=200,anchored,live:n=16,memory=200,anchored"
METHODS = f"none,partial,full,batch:n=16,N=auto,{LIVE},{RIVALS}"
WARM_UP = "batch:n=64,N=inf"  # the first method of a condition waits for its images, so that its time says nothing
TIME = Notation("{:.2f}".format, "{:.2f}".format)


class Worst(NamedTuple):
    """The largest loss of a method against the model as it is, as a share, and the order and cell that it is in."""

    loss: float
    where: str


def main(given: argparse.Namespace) -> None:
    """Run what is left, and print the table."""
    rows = {order: run_order(order, given) for order in given.orders}
    names = [method.name for method in parse_methods(given.methods)]
    lines = []
    for name in names:
        of_method = {order: [row for row in found if row.method == name] for order, found in rows.items()}
        errors = [mean_error(each) for each in of_method.values()]
        worst = find_worst(of_method, rows)
        loss = EMPTY if worst is None else points_cell(worst.loss)
        where = TableCell("" if worst is None else worst.where)
        lines.append((TableCell(name), *errors, loss, where, milliseconds(of_method.values())))
    sequence = f" over the sequence {given.sequence}" if given.sequence else ""
    title = f"{given.model} on {given.data}, {given.images} images{sequence}: error in %"
    columns = ("method", *given.orders, "worst", "in", "ms an image")
    print(format_tables([Table("streams", title, columns, tuple(lines))], given.form))


def run_order(order: str, given: argparse.Namespace) -> list[Row]:
    """Return the rows of the run with this order."""
    settings = {
        "model": given.model,
        "data": given.data,
        "methods": f"{WARM_UP},{given.methods}",
        "prior": 16,
        "limit": given.images,
        "order": order,
        "seed": given.seed,
        "threads": given.threads,
    }
    if given.sequence:
        settings["sequence"] = given.sequence
    settings |= {"corruptions": given.corruptions, "severities": given.severity}
    return run(settings, Path(given.out) / order.replace(":", "-")).rows()


def mean_error(rows: list[Row]) -> TableCell:
    """Return the mean error over the corrupted conditions, or on clean images where there are no others."""
    counted = [row for row in rows if row.corruption != "clean"] or rows
    return percent_cell(mean_rate(rate(row.top1_errors, row.images) for row in counted))


def find_worst(of_method: dict[str, list[Row]], rows: dict[str, list[Row]]) -> Worst | None:
    """Return where a method loses most against the model as it is; None for that model itself."""
    plain = {(order, r.corruption, r.severity): r for order in rows for r in rows[order] if r.method == "none"}
    found = []
    for order, mine in of_method.items():
        for row in mine:
            own = plain.get((order, row.corruption, row.severity))
            if own is not None and row.method != "none":
                loss = (row.top1_errors - own.top1_errors) / row.images
                found.append(Worst(loss, f"{row.corruption}/{row.severity}, {order}"))
    return max(found, default=None)


def milliseconds(rows: Iterable[list[Row]]) -> TableCell:
    """Return the mean time for an image."""
    all_rows = [row for each in rows for row in each]
    return TableCell(1000 * sum(r.seconds for r in all_rows) / sum(r.images for r in all_rows), notation=TIME)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="builtin:resnet20")
    parser.add_argument("--data", default="builtin:cifar10")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--corruptions", default="test")
    parser.add_argument("--severity", default="5")
    parser.add_argument("--sequence", help="a sequence of conditions in the place of single ones")
    parser.add_argument("--orders", nargs="+", default=ORDERS.split())
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--form", default="markdown", help="text, markdown, latex or csv")
    parser.add_argument("--out", default="runs/streams")
    main(parser.parse_args())
