"""The 19 common corruptions of ImageNet-C, CIFAR-10-C and Tiny-ImageNet-C: faithful, seeded, fast."""

from covshift.corruptions.apply import corrupt
from covshift.corruptions.registry import category, names, register
from covshift.corruptions.severity import SEVERITY
from covshift.corruptions.textures import frost_source

__all__ = ["SEVERITY", "category", "corrupt", "frost_source", "names", "register"]
