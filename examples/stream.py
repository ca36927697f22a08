"""Follow a camera with one model: statistics move with the images, one by one, and are kept for the next day.

python examples/stream.py --frames 200
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import covshift


def camera(frames: int) -> Iterator[np.ndarray]:
    """Yield single images, uint8, while fog comes up; put your own camera here."""
    random = np.random.default_rng(0)
    scene = random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    for number in range(frames):
        noise = random.integers(-20, 20, scene.shape)
        frame = np.clip(scene.astype(int) + noise, 0, 255).astype(np.uint8)
        if number >= frames // 2:
            frame = covshift.corrupt(frame, "fog", severity=3)
        yield frame


def main() -> None:
    """Adapt to every frame, save the state at the end of the day and resume from it on the next."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200, help="number of images of a day")
    parser.add_argument("--state", type=Path, default=Path("camera.safetensors"), help="where to keep the statistics")
    arguments = parser.parse_args()

    model = covshift.open_model("builtin:resnet20")
    source = covshift.Statistics.of(model)
    adapter = covshift.adapt(model, covshift.Stream(prior=16, decay=0.99))
    if arguments.state.exists():
        adapter.state = covshift.Statistics.load(arguments.state)
    with torch.inference_mode():
        for number, frame in enumerate(camera(arguments.frames), 1):
            answer = model(frame[None]).argmax(1).item()
            if number % (arguments.frames // 4) == 0:
                moved = covshift.shift.wasserstein(source, adapter.state, normalized=True).average
                print(f"frame {number}: class {answer}, {moved:.2f} from the training data")
    adapter.state.save(arguments.state)
    adapter.remove()


if __name__ == "__main__":
    main()
