"""Draws `camera.svg`, the first picture of the README, from the stored rows: python docs/assets/camera.py."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from covshift.bench.results.over_time import errors_over_time
from covshift.data.condition import SEQUENCE
from covshift.report.gather import Result, gather

RUN = Path(__file__).parents[2] / "results" / "resnet20-camera"
LINES = {
    "none": ("the model as it is", "#7a7a7a", "--"),
    "batch:n=16,N=16": ("adapted batch by batch", "#d55e00", "-"),
    "live:n=1,memory=200,anchored": ("covshift Live", "#0072b2", "-"),
}
TOGETHER = 2  # pieces of 50 images in a point


def draw(result: Result) -> plt.Figure:
    """Return the error over the last 100 images of the model as it is, naively adapted, and followed by `Live`."""
    figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
    domains = result.run.settings.domains(result.image_count)
    for domain in domains:
        name = domain.condition.corruption.replace("_", " ")
        if name != "clean":
            axes.axvspan(domain.start, domain.stop, color="#eef3f8", zorder=0)
        axes.text((domain.start + domain.stop) / 2, 97, name, ha="center", va="top", color="#555555")
    for method, (label, colour, style) in LINES.items():
        counted = errors_over_time(result.table[method][SEQUENCE], result.run)
        errors = np.add.reduceat([each.errors for each in counted], range(0, len(counted), TOGETHER))
        stops = [each.piece.stop for each in counted][TOGETHER - 1 :: TOGETHER]
        sizes = np.diff([0, *stops])
        middles = np.array(stops) - sizes / 2
        axes.plot(middles, 100 * errors / sizes, style, color=colour, label=label, linewidth=2.2)
    axes.set(xlabel="images seen, in runs of twenty of a class", ylabel="error in %", ylim=(0, 100))
    axes.set_xlim(0, domains[-1].stop)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.9), frameon=False)
    return figure


if __name__ == "__main__":
    mpl.rcParams.update({"svg.hashsalt": "camera", "svg.fonttype": "none", "font.family": "sans-serif"})
    draw(gather([RUN]).results[0]).savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})
