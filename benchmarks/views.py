"""Full adaptation by the images themselves, and by views of them as in training: `python benchmarks/views.py`.

Training showed the built-in ResNet-20 images that were shifted by up to 4 pixels and mirrored, so that its weights fit
the statistics of such views.
"""

import argparse

import numpy as np
import torch
from numpy.typing import NDArray

import covshift
from covshift.data import CLEAN, open_data
from covshift.data.selection import choose
from covshift.models import open_model
from covshift.training.augment import crop

CORRUPTIONS = (
    "gaussian_noise",
    "defocus_blur",
    "glass_blur",
    "snow",
    "fog",
    "contrast",
    "pixelate",
    "jpeg_compression",
)


def main(images: int, severity: int) -> None:
    """Print the errors of the model as it is and adapted in both ways."""
    model, data = open_model("builtin:resnet20"), open_data("builtin:cifar10")
    indices = choose(data.labels, limit=images)
    clean = np.stack([np.asarray(each) for each in data.read(CLEAN, indices, model.preprocess.picture)])
    labels = torch.from_numpy(data.labels[indices])
    net, source = model.module, covshift.Statistics.of(model.module)

    def batches(pixels: NDArray[np.uint8]) -> list[torch.Tensor]:
        return list(model.preprocess.tensor(pixels).split(250))

    def error(shown: list[torch.Tensor]) -> float:
        return 100 * (torch.cat([net(batch) for batch in shown]).argmax(1) != labels).double().mean().item()

    print(f"{images} images of CIFAR-10, ResNet-20, severity {severity}: error in %")
    print(f"{'':18}{'as it is':>9}{'by images':>11}{'by views':>10}")
    for name in ("clean", *CORRUPTIONS):
        pixels = clean if name == "clean" else covshift.corrupt(clean, name, severity)
        shown = batches(pixels)
        with torch.inference_mode():
            errors = [error(shown)]
            for seen in (shown, batches(crop(pixels, np.random.default_rng(0)))):
                covshift.estimate(net, seen, progress=False).apply(net)
                errors.append(error(shown))
                source.apply(net)
        print(f"{name:18}{errors[0]:9.1f}{errors[1]:11.1f}{errors[2]:10.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2_500)
    parser.add_argument("--severity", type=int, default=3)
    told = parser.parse_args()
    main(told.images, told.severity)
