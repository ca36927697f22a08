"""Checks that two runs belong together: rows of one folder must come from the same settings, weights and images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covshift.bench.results.records import Run
from covshift.bench.settings import FREE, OF_A_SEQUENCE, PLANNED, Settings
from covshift.support.errors import CovshiftError


def check_same(folder: Path, held: Run, new: Run, extend: bool) -> None:
    """Raise a `CovshiftError` where rows of the two runs would not belong together."""
    check_settings(folder, held.settings, new.settings, extend)
    _check_values(folder, {name: (getattr(held, name), getattr(new, name)) for name in ("data_digest", "preprocess")})
    if held.source_digest is not None and new.source_digest is not None:
        _check_values(folder, {"source_digest": (held.source_digest, new.source_digest)})
    if held.model_digest != new.model_digest:
        raise CovshiftError(
            f"{folder} holds a run of other weights (model_digest differs); does the model have the same each time it "
            "is opened? Use another folder"
        )


def check_settings(folder: Path, held: Settings, new: Settings, extend: bool) -> None:
    """Raise a `CovshiftError` where the settings alone show that rows would not belong together."""
    before, now = _comparable(held), _comparable(new)
    free = {*FREE, *(PLANNED if extend else ())} - (set(OF_A_SEQUENCE) if held.sequence else set())
    _check_values(folder, {name: (before[name], now[name]) for name in now if name not in free})


def _check_values(folder: Path, values: Mapping[str, tuple[object, object]]) -> None:
    other = {name: pair for name, pair in values.items() if pair[0] != pair[1]}
    if other:
        name, (was, wants) = next(iter(other.items()))
        more = f" (and {len(other) - 1} more)" if len(other) > 1 else ""
        hint = ", or add to it with `extend=True`" if set(other) <= set(PLANNED) else ""
        raise CovshiftError(
            f"{folder} holds a run with other settings: {name} is {_short(was)} there and {_short(wants)} here{more}; "
            f"use another folder{hint}"
        )


def _comparable(settings: Settings) -> dict[str, Any]:
    return settings.model_dump() | {"methods": sorted(settings.methods)}


def join_settings(held: Settings, new: Settings) -> Settings:
    """Return settings with the conditions and methods of both."""
    update: dict[str, Any] = {}
    for name in PLANNED:
        before, now = getattr(held, name), getattr(new, name)
        update[name] = (before or now) if isinstance(now, bool) else tuple(dict.fromkeys([*before, *now]))
    return held.model_copy(update=update)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
