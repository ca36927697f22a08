"""Models by URI: from torchvision, timm, checkpoints and your own code, each with its preprocessing."""

from covshift.models.base import Model
from covshift.models.open import open_model
from covshift.models.preprocess import IMAGENET, Preprocess

__all__ = ["IMAGENET", "Model", "Preprocess", "open_model"]
