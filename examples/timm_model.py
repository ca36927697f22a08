"""Adapt a model of timm, whose normalisation layers have their activation fused in, batch by batch.

python examples/timm_model.py --model timm:resnet18.a1_in1k
"""

import argparse

import numpy as np
import torch

import covshift


def main() -> None:
    """Compare the answers on foggy images with those on clean ones, before and after adapting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", default="timm:resnet18.a1_in1k", help="a model of timm; /none behind its name downloads no weights"
    )
    arguments = parser.parse_args()

    model = covshift.open_model(arguments.model)
    images = np.random.default_rng(0).integers(0, 256, (16, 64, 64, 3), dtype=np.uint8)  # put your own here

    def answers(pixels: np.ndarray) -> torch.Tensor:
        with torch.inference_mode():
            return model(pixels).argmax(1)

    foggy = covshift.corrupt(images, "fog", severity=3)
    clean = answers(images)
    print(f"same answer in fog, as it is: {(answers(foggy) == clean).float().mean():.0%}")
    with covshift.adapt(model, covshift.Batch(prior=16)):
        print(f"same answer in fog, adapted:  {(answers(foggy) == clean).float().mean():.0%}")


if __name__ == "__main__":
    main()
