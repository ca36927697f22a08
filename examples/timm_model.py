"""Adapt a model of timm, whose normalisation layers have their activation fused in, batch by batch.

python examples/timm_model.py --model resnet18.a1_in1k
"""

import argparse

import numpy as np
import timm
import torch

import covshift


def main() -> None:
    """Compare the answers on foggy images with those on clean ones, before and after adapting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18.a1_in1k", help="name of a model of timm")
    parser.add_argument("--untrained", action="store_true", help="download no weights")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = timm.create_model(arguments.model, pretrained=not arguments.untrained).eval()
    images = np.random.default_rng(0).integers(0, 256, (16, 64, 64, 3), dtype=np.uint8)  # put your own here

    def answers(pixels: np.ndarray) -> torch.Tensor:
        inputs = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
        with torch.inference_mode():
            return torch.as_tensor(model(inputs)).argmax(1)

    foggy = covshift.corrupt(images, "fog", severity=3)
    clean = answers(images)
    print(f"same answer in fog, as it is: {(answers(foggy) == clean).float().mean():.0%}")
    with covshift.adapt(model, covshift.Batch(prior=16)):
        print(f"same answer in fog, adapted:  {(answers(foggy) == clean).float().mean():.0%}")


if __name__ == "__main__":
    main()
