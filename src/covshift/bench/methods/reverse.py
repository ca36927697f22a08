"""`reverse`: adapted to the condition, but evaluated on the clean images."""

from dataclasses import dataclass
from typing import ClassVar

from covshift.bench.evaluation import Evaluation
from covshift.bench.methods.base import Method
from covshift.core.statistics import Prior


@dataclass(frozen=True)
class Reverse(Method):
    """Statistics of the whole condition, evaluated on the clean images: what a wrong target costs."""

    needs_clean: ClassVar[bool] = True
    runs_late: ClassVar[bool] = True  # full has then estimated the same statistics

    prior: Prior | None = 0.0

    @classmethod
    def takes(cls) -> dict[str, str]:
        """Return nothing: it takes all images, and no prior."""
        return {}

    def run(self, on: Evaluation) -> None:
        """Apply the condition's statistics, and show the clean images."""
        with on.applied(on.estimate_target()):
            on.run_frozen(on.clean().batches(on.batch_size))
