"""`Card`: what was measured, on which images, and with what; as JSON for programs and as Markdown for people."""

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from covshift.core.statistics import Statistics
from covshift.data import Data
from covshift.repairs.verdict import Verdict, confidence, effective_classes
from covshift.shift.forecast.forecast import Forecast
from covshift.shift.forecast.observe import Observation
from covshift.support.errors import CovshiftError

FORMAT = "covshift repair 1"

_SIDES = {"before": "before", "half": "with half of the layers adapted", "after": "with all layers adapted"}
"""What answers are measured of, with its name on the page."""


@dataclass(frozen=True)
class Card:
    """All that was measured for a repair, as plain values.

    Attributes:
        format: the version of this card.
        verdict: "repair", "nothing to repair" or "cannot help".
        reason: the sentence that says why.
        forced: whether the model was repaired against the verdict.
        model: the URI of the model, or the name of its class.
        weights: the SHA-256 of all that the model held before.
        target: the images of the new domain: their URI and digest, where known, their number, and how many of them the
            verdict rests on.
        source: the clean images that the errors were predicted from: their URI and digest, where known, and the number
            of them that was taken; None where there were none.
        distance: the normalised Wasserstein distance of the target, averaged over layers.
        predicted: the predicted error before and after all layers are adapted, each with its interval, whether these
            can be relied on and why not, where there was a source.
        confidence: the model's average confidence: before, with the first half of the layers adapted, and after all
            are.
        effective_classes: the number of equally frequent classes that the answers are worth, in the same three cases.
        method: how the statistics were taken, and whether only of the first half of the layers.
        layers: the number of layers that were corrected.
        made: the date, and the versions of covshift, torch and Python.
        files: the SHA-256 of the patch and of the repaired weights, once they are written.
    """

    format: str
    verdict: str
    reason: str
    forced: bool
    model: str
    weights: str
    target: dict[str, Any]
    source: dict[str, Any] | None
    distance: float
    predicted: dict[str, Any] | None
    confidence: dict[str, float]
    effective_classes: dict[str, float]
    method: str
    layers: int
    made: dict[str, str]
    files: dict[str, str]

    @classmethod
    def of(
        cls,
        *,
        verdict: Verdict,
        seen: Observation,
        half: Tensor,
        forecast: Forecast | None,
        patch: Statistics | None,
        model: str,
        weights: str,
        target: Data | None,
        source: Data | None,
        source_images: int | None,
        method: str,
        forced: bool,
    ) -> Self:
        """Return the card of a repair."""
        sides = {"before": seen.plain, "half": half, "after": seen.adapted}
        predicted = None
        if forecast is not None:
            predicted = {
                "before": forecast.plain._asdict(),
                "after": forecast.adapted._asdict(),
                "sure": forecast.sure,
                "why": forecast.why,
            }
        return cls(
            format=FORMAT,
            verdict=verdict.word,
            reason=verdict.reason,
            forced=forced,
            model=model,
            weights=weights,
            target={
                **_named(target),
                "images": len(seen.plain) if patch is None else int(patch.images),
                "looked_at": len(seen.plain),
            },
            source=None if source_images is None else {**_named(source), "images": source_images},
            distance=seen.distance.average,
            predicted=predicted,
            confidence={side: confidence(logits) for side, logits in sides.items()},
            effective_classes={side: effective_classes(logits) for side, logits in sides.items()},
            method=method,
            layers=0 if patch is None else len(patch),
            made={
                "date": datetime.now(UTC).isoformat(timespec="seconds"),
                "covshift": version("covshift"),
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            files={},
        )

    def as_json(self) -> str:
        """Return all values, for programs."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a card that was written as JSON."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.get("format") != FORMAT:
                raise ValueError(f"its format is {values.get('format')!r}")
            return cls(**values)
        except OSError as error:
            raise CovshiftError(
                f"expected a folder of covshift repair, got {path.parent}, whose {path.name} cannot be read: "
                f"{error.strerror or error}"
            ) from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CovshiftError(f"expected a folder of covshift repair, with {path.name}, got: {error}") from error

    def as_text(self) -> str:
        """Return the verdict and the main figures, for people."""
        lines = [f"{self.verdict}: {self.reason}"]
        if self.forced:
            lines.append("repaired all the same, as asked for")
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """Return the card as a page."""
        rows = [("images", str(self.target["images"])), ("of these looked at", str(self.target["looked_at"]))]
        rows += [("distance, normalised", f"{self.distance:.2f}")]
        if self.predicted is not None:
            rows += [
                (f"predicted error {_SIDES[side]}", _percent(self.predicted[side])) for side in ("before", "after")
            ]
            if not self.predicted["sure"]:
                rows += [("predictions cannot be relied on", self.predicted["why"])]
        rows += [(f"average confidence {_SIDES[side]}", f"{value:.1%}") for side, value in self.confidence.items()]
        rows += [(f"effective classes {_SIDES[side]}", f"{each:.1f}") for side, each in self.effective_classes.items()]
        rows += [("method", f"{self.method}, {self.layers} layers")]
        target = {key: value for key, value in self.target.items() if key not in ("images", "looked_at")}
        origins = [("model", self.model), ("weights before", self.weights), *_origin("target", target)]
        origins += [*_origin("source", self.source or {}), *self.files.items(), *self.made.items()]
        forced = "\n\n**Repaired against this advice.**" if self.forced else ""
        return (
            f"# Repair\n\n**{self.verdict}**: {self.reason}.{forced}\n\n{table(('measured', ''), rows)}\n"
            f"{table(('made of', ''), origins)}"
        )


def _named(data: Data | None) -> dict[str, Any]:
    return {} if data is None else {"uri": data.uri, "digest": data.digest}


def _origin(name: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(f"{name} {key}".removesuffix(" uri"), str(value)) for key, value in values.items()]


def _percent(prediction: dict[str, float]) -> str:
    return f"{prediction['error']:.1%} ({prediction['low']:.1%} to {prediction['high']:.1%})"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, whatever characters its cells have."""
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [titles, ["---"] * len(titles), *cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
