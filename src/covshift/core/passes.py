"""What an adapter keeps of a forward pass while it lasts."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from covshift.core.moments import Meter, Moments, merge
from covshift.core.places import Place
from covshift.core.policies import Memory


@dataclass
class Pass:
    """One forward pass: the number of its images, and what each layer saw."""

    memory: Memory  # what was known when it began
    outer: BaseException | None  # what the caller was handling when it began
    alone: Place | None  # the layer that was called by itself
    meter: Meter = field(default_factory=Meter)
    met: dict[str, Moments] = field(default_factory=dict)
    seen: dict[str, Moments] = field(default_factory=dict)
    weights: dict[str, float | Tensor] = field(default_factory=dict)
    variances: list[tuple[str, Tensor]] = field(default_factory=list)

    def meet(self, path: str, batch: Moments) -> tuple[Moments, Moments]:
        """Return the moments of a layer's input in this call, and over all calls of this pass on the same images."""
        met = merge(self.met[path], batch) if path in self.met else batch
        self.met[path] = met
        return replace(batch, images=met.images), met
