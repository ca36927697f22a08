"""Every script in examples/ runs as a user would start it, and prints what it is there for."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

EXAMPLES = Path(__file__).parents[2] / "examples"
CALLS = {
    "digits.py": (["--picture", "digits.png"], "faint ink"),
    "folder.py": (["night", "--model", "builtin:resnet20", "--out", "night.safetensors"], "12 pictures"),
    "timm_model.py": (["--model", "timm:resnet18/none"], "in fog, adapted"),
    "stream.py": (["--frames", "8"], "frame 8"),
    "benchmark.py": (["--data", "npz:some.npz", "--limit", "20"], "gaussian_noise"),
    "hugging_face.py": ([], "mean confidence"),
    "lightning_callback.py": ([], "mean confidence"),
}


def test_every_example_is_run():
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_example(name, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    np.savez(tmp_path / "some.npz", images=images, labels=np.arange(20) % 10)
    (tmp_path / "night").mkdir()
    for number, image in enumerate(images[:12]):
        Image.fromarray(image).save(tmp_path / "night" / f"{number}.png")
    arguments, words = CALLS[name]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        cwd=tmp_path, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
