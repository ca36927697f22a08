"""Models as files that are deployed: safetensors, `torch.export` and ONNX, also with statistics that can be swapped."""

from covshift.export.save import Exported, save
from covshift.export.swap import swap

__all__ = ["Exported", "save", "swap"]
