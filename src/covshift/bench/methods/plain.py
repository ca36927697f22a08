"""`none`: the model as it is."""

from dataclasses import dataclass
from typing import ClassVar

from covshift.bench.evaluation import Evaluation
from covshift.bench.methods.base import Method


@dataclass(frozen=True)
class NoAdaptation(Method):
    """The model as it is, which all other methods are compared with."""

    adapts: ClassVar[bool] = False

    def run(self, on: Evaluation) -> None:
        """Show all images to the model with its own statistics."""
        on.run_frozen(on.images.batches(on.batch_size), as_it_came=True)
