"""Putting together what the parts of a run have computed, each in a folder of its own."""

from collections.abc import Sequence
from pathlib import Path

from covshift.bench.engines.where import Shard
from covshift.bench.methods import value_text
from covshift.bench.results.book import AnswerBook
from covshift.bench.results.store import Row, Store, check_same, holds_a_run
from covshift.support.errors import CovshiftError


def merge_runs(folders: Sequence[Path], out: Path | None = None) -> list[Path]:
    """Merge run folders into one, or the shards in folders, each into its own.

    Args:
        folders: run folders, and folders with shards in them; or, without `out`, folders of such folders.
        out: the folder for all rows; rows that it has are kept, and it may have other conditions and methods.

    Returns:
        The folders that were merged into.
    """
    if not folders:
        raise CovshiftError("expected one folder to merge or more, got none")
    if out is not None:
        _merge([part for folder in folders for part in _parts(folder)], out)
        return [out]
    sharded = [each for folder in folders for each in (folder, *_inside(folder)) if shards_in(each)]
    if not sharded:
        raise CovshiftError(
            f"expected shards, such as shard-0-of-4, in {', '.join(map(str, folders))}; to merge other runs, name a "
            "folder with `out=DIR`"
        )
    for folder in sharded:
        _merge(shards_in(folder), folder)
    return sharded


def _merge(parts: Sequence[Path], out: Path) -> None:
    stores = [Store(part) for part in parts]
    rows: dict[str, Row] = {}
    books: dict[str, AnswerBook] = {}
    for store in stores:
        try:
            check_same(stores[0].folder, stores[0].run, store.run, extend=False)
        except CovshiftError as error:
            raise CovshiftError(f"{store.folder} is not a part of the same run: {error}") from error
        for row in store.rows():
            _check_agree(rows.setdefault(row.cell, row), row, store.folder)
            books.setdefault(row.cell, store.book)
    merged = Store.create(out, stores[0].run, extend=True)
    for row in merged.rows():
        _check_agree(rows.get(row.cell, row), row, out)
    chosen = {method.name for method in merged.run.settings.plan.chosen}
    for method in chosen:
        priors = {row.prior for row in [*rows.values(), *merged.rows()] if row.method == method}
        if len(priors) > 1:
            ordered = sorted(priors, key=lambda prior: (prior == "auto", 0 if prior == "auto" else prior or 0))
            found = " and ".join(map(value_text, ordered))
            raise CovshiftError(
                f"{method} was run with N = {found}; the parts did not choose N on the same holdout corruptions, and "
                "their rows do not belong together"
            )
    # In the order of the plan, so that the merged file does not depend on which part was the fastest.
    names = [name for name in merged.run.settings.plan.all_names() if name in rows]
    answers = {name: kept for name in names if (kept := books[name].of(rows[name])) is not None}
    if images := next((books[name].images for name in answers), None):
        merged.keep_answers(images)
    merged.append([rows[name] for name in names], answers)


def _check_agree(first: Row, second: Row, folder: Path) -> None:
    counts = ("images", "top1_errors", "top5_errors", "prior", "n")
    for name in counts:
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            raise CovshiftError(
                f"{folder} has another result for {second.cell} than the parts before: {name} is {other}, not {one}; "
                "leave one of them out"
            )


def _parts(folder: Path) -> list[Path]:
    return shards_in(folder) or [folder]


def shards_in(folder: Path) -> list[Path]:
    """Return the folders of the shards of a run."""
    return [part for part in _inside(folder) if Shard.named(part) and holds_a_run(part)]


def _inside(folder: Path) -> list[Path]:
    return sorted(inner for inner in folder.iterdir() if inner.is_dir()) if folder.is_dir() else []
