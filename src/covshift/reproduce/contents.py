"""The tables and figures that can be reproduced, and how a user chooses among them."""

import json
from collections.abc import Sequence

from covshift.reproduce.miniature import miniature
from covshift.reproduce.paper_figures import FIGURES
from covshift.reproduce.paper_tables import TABLES
from covshift.reproduce.target import Target, join
from covshift.support.errors import CovshiftError, plural, unknown

ELSEWHERE = {
    "table6": "covshift.data.objectnet.mapping(): ObjectNet's ambiguous classes",
    "table7": "covshift models 'torchvision:*': parameters and BN parameters",
    "table11": "covshift shift, covshift.shift.Predictor: errors predicted from distances",
    "figure4": "covshift.shift.wasserstein, covshift shift: distances and errors",
    "figure6": "covshift theory --grid",
    "figure7": "covshift.shift.wasserstein: distances by layer",
    "figure8": "covshift.shift.wasserstein: distances by layer",
    "figure9": "figure3 with covshift models 'zoo:*'",
    "figure11": "covshift.shift.embed: the map of statistics",
    "figure12": "table12, which it shows",
    "figure13": "table12, which it shows",
    "figure14": "covshift theory",
}
"""Tables and figures that need no run of the benchmark, with what makes them."""


def targets(builtin: bool) -> dict[str, Target]:
    """Return all tables and figures that can be run, by name.

    Args:
        builtin: whether to return the miniature, on the built-in networks, in place of the paper.
    """
    if builtin:
        from covshift.models.builtin import names

        return {target.name: target for target in miniature(names())}
    return {target.name: target for target in (*TABLES, *FIGURES)}


def list_targets(builtin: bool, *, as_json: bool = False) -> str:
    """Return the list of what can be reproduced."""
    known = targets(builtin)
    if as_json:
        rows = [{"name": t.name, "title": t.title, "runs": [job.name for job in t.jobs]} for t in known.values()]
        return json.dumps(rows, indent=1)
    width = max(map(len, [*known, *ELSEWHERE]), default=0)
    lines = [
        f"{name:{width}}  {target.title} ({plural(len(join(target.jobs)), 'run')})" for name, target in known.items()
    ]
    return "\n".join([*lines, "", "By other means:", *(f"{name:{width}}  {how}" for name, how in ELSEWHERE.items())])


def choose_targets(name: str, rows: Sequence[str] = (), *, builtin: bool = False) -> list[Target]:
    """Return the table or figure of this name, or all of them.

    Args:
        name: e.g. "table1", or "all".
        rows: parts of the labels of the rows that are wanted; by default all rows are.
        builtin: whether to choose from the miniature.
    """
    known = targets(builtin)
    if builtin and not known:
        raise CovshiftError("expected built-in networks, found none; train one with covshift train resnet20")
    if name in ELSEWHERE:
        raise CovshiftError(f"{name} needs no benchmark: {ELSEWHERE[name]}")
    if name != "all" and name not in known:
        raise unknown("table or figure", name, ["all", *known])
    named = list(known.values()) if name == "all" else [known[name]]
    chosen = [target for each in named if (target := each.only(rows)).numbers]
    if not chosen:
        labels = dict.fromkeys(number.row for target in named for number in target.numbers)
        raise CovshiftError(
            f"expected a part of a label of {name}, got {', '.join(rows)}; its rows are {', '.join(labels)}"
        )
    return chosen
