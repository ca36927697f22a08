"""Fits the predictor of `covshift serve --demo` anew, on images that its cameras do not show; takes some minutes.

python benchmarks/demo_predictor.py
"""

import torch

import covshift
from covshift.serve import demo
from covshift.shift import Predictor

IMAGES = 600
"""Number of images that it is fitted on."""


def main() -> None:
    """Fit and save it."""
    model, data = covshift.open_model(demo.MODEL), covshift.open_data(demo.DATA)
    shown = {image.tobytes() for image in data.pixels(model, **demo.SHOWN).images}
    pixels = data.pixels(model, order="shuffled", seed=1)
    others = [place for place, image in enumerate(pixels.images) if image.tobytes() not in shown][:IMAGES]
    Predictor.fit(model, pixels.images[others], torch.as_tensor(pixels.labels)[others]).save(demo.PREDICTOR)


if __name__ == "__main__":
    main()
