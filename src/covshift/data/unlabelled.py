"""Images whose classes are not known."""

from covshift.data.base import Data, Labels
from covshift.support.errors import CovshiftError


class Unlabelled(Data):
    """Images without labels; a subclass says what to do where labels are needed.

    Attributes:
        remedy: the end of the error for those who ask for labels.
    """

    labelled = False
    remedy = "name labelled images"

    @property
    def labels(self) -> Labels:  # type: ignore[override]
        """Raise a `CovshiftError`: the classes are not known."""
        raise self._unlabelled()

    @property
    def classes(self) -> int:  # type: ignore[override]
        """Raise a `CovshiftError`: the classes are not known."""
        raise self._unlabelled()

    def _unlabelled(self) -> CovshiftError:
        return CovshiftError(f"expected labelled images, got {self.uri}, whose classes are not known; {self.remedy}")
