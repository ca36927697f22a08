"""The one door to torchvision: `from covshift.support.torchvision import torchvision`.

A torchvision whose compiled operators do not fit the installed torch cannot even be imported ("operator
torchvision::nms does not exist"), although its models, transforms and data sets need none of them. Declaring the two
operators that its import looks for makes everything but detection post-processing work; timm imports it too.
"""

import torch

_library = None
try:
    import torchvision
except RuntimeError as error:
    if "torchvision::" not in str(error):
        raise
    _library = torch.library.Library("torchvision", "FRAGMENT")
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

__all__ = ["torchvision"]
