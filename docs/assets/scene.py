"""Draws `scene.png`, the picture that the pages about corruptions show: python docs/assets/scene.py."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SIZE = 1024


def draw() -> Image.Image:
    """A house, a tree and a sun over hills; drawn large and shrunk, so that edges are smooth."""
    rng = np.random.default_rng(3)
    y = np.linspace(0, 1, SIZE)[:, None, None]
    sky = (1 - y) * np.array([70, 130, 220]) + y * np.array([225, 235, 250])
    image = Image.fromarray(np.broadcast_to(sky, (SIZE, SIZE, 3)).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    pen.ellipse((720, 90, 900, 270), (255, 225, 90))
    x = np.arange(SIZE)
    for height, swing, colour in ((560, 60, (95, 140, 110)), (650, 45, (85, 155, 70)), (760, 25, (120, 180, 75))):
        ridge = height + swing * np.sin(x / rng.uniform(120, 220) + rng.uniform(0, 6))
        pen.polygon([*zip(x.tolist(), ridge.tolist(), strict=True), (SIZE, SIZE), (0, SIZE)], colour)
    pen.rectangle((180, 520, 520, 800), (225, 205, 175))
    pen.polygon([(140, 530), (350, 370), (560, 530)], (175, 60, 45))
    pen.rectangle((300, 640, 400, 800), (110, 70, 45))
    for left in (210, 430):
        pen.rectangle((left, 590, left + 65, 660), (90, 150, 190), (250, 250, 245), 6)
    pen.rectangle((735, 600, 785, 830), (95, 65, 40))
    for _ in range(160):
        u, v = rng.normal(760, 70), rng.normal(500, 70)
        r = rng.uniform(12, 30)
        pen.ellipse((u - r, v - r, u + r, v + r), tuple(int(c) for c in rng.uniform((30, 90, 30), (90, 170, 60))))
    for _ in range(700):
        u, v, colour = rng.uniform(0, SIZE), rng.uniform(830, SIZE), rng.uniform(60, 200, 3)
        pen.line((u, v, u + rng.normal(0, 5), v - rng.uniform(10, 30)), tuple(int(c) for c in colour), 3)
    return image.resize((256, 256), Image.Resampling.BOX)


if __name__ == "__main__":
    draw().save(Path(__file__).with_name("scene.png"))
