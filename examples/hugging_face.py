"""Adapt a model as Hugging Face's transformers has them: it returns an object with `logits`.

With transformers installed, put `AutoModelForImageClassification.from_pretrained(...)` in the place of
`SmallForImages`, which has the same form and needs nothing. A pipeline calls the model in the same way, so that it
adapts inside of the same block; where transformers is installed, this script does that, too.
"""

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from PIL import Image
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


def ask_pipeline() -> None:
    """Adapt a network inside of a pipeline; its weights are random, so that nothing is downloaded."""
    from transformers import ConvNextImageProcessor, ResNetConfig, ResNetForImageClassification, pipeline

    sizes = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    network = ResNetForImageClassification(ResNetConfig(num_labels=4, **sizes)).eval()
    pipe = pipeline("image-classification", model=network, image_processor=ConvNextImageProcessor(), device="cpu")
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 99, (64, 64, 3), dtype=np.uint8)) for _ in range(8)]
    plain = pipe(pictures, batch_size=8)
    with covshift.adapt(pipe.model, covshift.Batch(prior=16)):
        adapted = pipe(pictures, batch_size=8)
    print(f"pipeline: {plain[0][0]['score']:.2f} as it is, {adapted[0][0]['score']:.2f} adapted")


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
    if find_spec("transformers"):
        ask_pipeline()


if __name__ == "__main__":
    main()
