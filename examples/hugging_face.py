"""Adapt a model as Hugging Face's transformers has them: it returns an object with `logits`.

With transformers installed, put `AutoModelForImageClassification.from_pretrained(...)` in the place of
`SmallForImages`, which has the same form and needs nothing. A pipeline calls the model in the same way, so that it
adapts inside of the same block: `with covshift.adapt(pipe.model, covshift.Batch(prior=16)): pipe(pictures)`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import covshift


@dataclass
class Output:
    """What such a model returns."""

    logits: Tensor


class SmallForImages(nn.Module):
    """A small residual network with the calling convention of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = covshift.open_model("builtin:resnet20").module

    def forward(self, pixel_values: Tensor) -> Output:
        """Return the logits of images as the processor has prepared them."""
        return Output(logits=self.backbone(pixel_values))


def main() -> None:
    """Adapt batch by batch, then for good: neither looks at what the model returns."""
    torch.manual_seed(0)
    model = SmallForImages().eval()
    shifted = 0.3 * torch.randn(64, 3, 32, 32) + 1
    with torch.inference_mode():
        before = model(pixel_values=shifted).logits.softmax(1).amax(1).mean()
        with covshift.adapt(model, covshift.Batch(prior=16, size=8)):
            partial = model(pixel_values=shifted).logits.softmax(1).amax(1).mean()
    covshift.estimate(model, list(shifted.split(16))).apply(model)
    with torch.inference_mode():
        full = model(pixel_values=shifted).logits.softmax(1).amax(1).mean()
    print(f"mean confidence: {before:.2f} as it is, {partial:.2f} partially, {full:.2f} fully adapted")


if __name__ == "__main__":
    main()
