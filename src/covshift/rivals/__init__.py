"""What others do at test time: published rules, each a short module, to be compared with in one run on the same images.

>>> RIVALS["tent"]()
Tent(lr=0.001, episodic=False)
"""

from covshift.rivals.base import NormRival, Rival
from covshift.rivals.iabn import InstanceAwareNorm
from covshift.rivals.lame import Lame
from covshift.rivals.prior_correction import PriorCorrection
from covshift.rivals.running import AlphaNorm, RenormalisedNorm, RobustNorm
from covshift.rivals.tent import Tent
from covshift.rivals.unmix import UnmixedNorm

RIVALS: dict[str, type[Rival]] = {
    "alpha-bn": AlphaNorm,
    "robustbn": RobustNorm,
    "tbr": RenormalisedNorm,
    "iabn": InstanceAwareNorm,
    "unmix-tns": UnmixedNorm,
    "lame": Lame,
    "prior-correction": PriorCorrection,
    "tent": Tent,
}
"""The rivals by the names that methods of the benchmark have."""

__all__ = [
    "RIVALS",
    "AlphaNorm",
    "InstanceAwareNorm",
    "Lame",
    "NormRival",
    "PriorCorrection",
    "RenormalisedNorm",
    "Rival",
    "RobustNorm",
    "Tent",
    "UnmixedNorm",
]
