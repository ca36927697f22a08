"""`covshift corrupt`: whole trees, resumed, sharded, with odd and broken pictures; and the contact sheet."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from covshift import corrupt
from covshift.cli import app
from covshift.corruptions import names
from covshift.support.images import read_image
from covshift.support.torchvision import torchvision


def run(*arguments):
    return CliRunner().invoke(app, ["corrupt", *map(str, arguments)])


def scene(width, height, seed=0):
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


@pytest.fixture
def folder(tmp_path):
    """Two classes, five pictures of different shapes."""
    source = tmp_path / "val"
    for i, size in enumerate([(300, 260), (260, 300), (500, 375), (64, 64), (256, 256)]):
        place = source / ("cat" if i < 3 else "dog") / f"val_{i}.JPEG"
        place.parent.mkdir(parents=True, exist_ok=True)
        scene(*size, seed=i).save(place, quality=95)
    return source


def contents(target):
    return {p.relative_to(target).as_posix(): p.read_bytes() for p in target.rglob("*") if p.is_file()}


def test_all_writes_the_imagenet_c_tree(folder, tmp_path):
    target = tmp_path / "c"
    result = run(folder, target, "--all")
    assert result.exit_code == 0, result.output
    assert f"{5 * 95} pictures written" in result.output
    for name in names("all"):
        for severity in range(1, 6):
            found = sorted(f"{p.parent.name}/{p.name}" for p in target.glob(f"{name}/{severity}/*/*"))
            assert found == ["cat/val_0.JPEG", "cat/val_1.JPEG", "cat/val_2.JPEG", "dog/val_3.JPEG", "dog/val_4.JPEG"]
    with Image.open(target / "fog" / "3" / "dog" / "val_3.JPEG") as picture:
        assert picture.size == (224, 224)
        assert picture.format == "JPEG"


def test_a_file_is_what_corrupt_makes_of_the_cropped_picture(folder, tmp_path):
    transforms = torchvision.transforms
    crop = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])
    run(folder, tmp_path / "png", "--corruptions", "snow", "--severities", 2, "--png", "--seed", 3)
    run(folder, tmp_path / "jpeg", "--corruptions", "snow", "--severities", 2, "--seed", 3)
    for index, file in enumerate(sorted(folder.rglob("*.JPEG"))):
        image = np.asarray(crop(Image.open(file).convert("RGB")))
        inside = f"snow/2/{file.parent.name}/{file.stem}"
        lossless = np.asarray(Image.open(tmp_path / "png" / f"{inside}.png"))
        np.testing.assert_array_equal(lossless, corrupt(image, "snow", 2, seed=3, indices=index))
        published = np.asarray(Image.open(tmp_path / "jpeg" / f"{inside}.JPEG"))
        np.testing.assert_array_equal(published, corrupt(image, "snow", 2, seed=3, indices=index, jpeg=85))


def test_shards_and_threads_end_with_the_same_bytes(folder, tmp_path):
    options = ("--corruptions", "gaussian_noise", "--corruptions", "frost", "--severities", 1)
    run(folder, tmp_path / "whole", *options, "--threads", 1)
    for shard in ("0/2", "1/2"):
        assert run(folder, tmp_path / "parts", *options, "--shard", shard).exit_code == 0
    assert contents(tmp_path / "whole") == contents(tmp_path / "parts")


def test_goes_on_after_a_kill(folder, tmp_path):
    target, whole = tmp_path / "killed", tmp_path / "whole"
    command = [sys.executable, "-m", "covshift", "corrupt", str(folder), str(target), "--all", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(list(target.glob("*/*/*/val*"))) < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    begun = contents(target)
    assert 20 <= len([name for name in begun if "/." not in name]) < 5 * 95
    for path in target.glob("*/*/*/val*"):
        Image.open(path).load()
    result = run(folder, target, "--all")
    assert result.exit_code == 0, result.output
    assert " 0 were there" not in result.output
    run(folder, whole, "--all")
    assert contents(target) == contents(whole)
    assert "0 pictures written" in run(folder, target, "--all").output


def test_half_a_picture_of_a_killed_run_is_removed(folder, tmp_path):
    """But not what another process is writing at this moment, nor what is of pictures of another shard."""
    run(folder, tmp_path / "c", "--corruptions", "fog", "--severities", 1)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    dog = tmp_path / "c" / "fog" / "1" / "dog"
    left, live, other = (
        dog / f".{name}.JPEG.{process}-1.part"
        for name, process in (("val_3", gone.pid), ("val_3", os.getpid()), ("val_9", gone.pid))
    )
    for part in (left, live, other):
        part.write_bytes(b"half")
    assert "0 pictures written" in run(folder, tmp_path / "c", "--corruptions", "fog", "--severities", 1).output
    assert [part.exists() for part in (left, live, other)] == [False, True, True]


def test_a_limit_spreads_over_the_folder(folder, tmp_path):
    options = ("--corruptions", "gaussian_noise", "--severities", 1)
    assert "2 pictures written" in run(folder, "--out", tmp_path / "few", *options, "--limit", 2).output
    assert "5 pictures written" in run(folder, tmp_path / "all", *options).output
    few, whole = contents(tmp_path / "few"), contents(tmp_path / "all")
    assert [Path(name).name for name in sorted(few) if "val" in name] == ["val_0.JPEG", "val_2.JPEG"]
    assert few.items() <= whole.items()
    both = run(folder, tmp_path / "one", *options, "--out", tmp_path / "two")
    assert "expected one target, got " in both.output


def test_refuses_to_mix_settings_in_one_tree(folder, tmp_path):
    run(folder, tmp_path / "c", "--corruptions", "fog", "--severities", 1)
    recorded = json.loads((tmp_path / "c" / "covshift-corrupt.json").read_text())
    assert recorded["seed"] == 0
    assert "frost" not in recorded
    result = run(folder, tmp_path / "c", "--corruptions", "fog", "--severities", 1, "--seed", 1)
    assert result.exit_code == 1
    assert "was begun with seed 0" in result.output
    assert run(folder, tmp_path / "c", "--corruptions", "frost", "--severities", 1).exit_code == 0
    assert "procedural" in json.loads((tmp_path / "c" / "covshift-corrupt.json").read_text())["frost"]


ODD = {
    "grey.png": Image.new("L", (300, 280), 90),
    "bilevel.png": Image.new("1", (300, 280), 1),
    "alpha.png": Image.new("RGBA", (300, 280), (10, 200, 30, 90)),
    "grey_alpha.png": Image.new("LA", (300, 280), (10, 90)),
    "palette.png": scene(300, 280).convert("P"),
    "cmyk.jpg": scene(300, 280).convert("CMYK"),
    "deep.png": Image.fromarray(np.full((280, 300), 40_000, np.uint16)),
    "dot.png": Image.new("RGB", (1, 1), (200, 100, 50)),
    "line.png": Image.new("RGB", (3, 4000), (200, 100, 50)),
    "hair.png": Image.new("RGB", (1, 30_000), (200, 100, 50)),
    "huge.jpg": Image.new("L", (9000, 5000), 7),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_pictures_are_read(name, tmp_path):
    ODD[name].save(tmp_path / name)
    image = read_image(tmp_path / name, crop=True)
    assert image.shape == (224, 224, 3)
    assert image.dtype == np.uint8
    if name == "deep.png":
        assert image[0, 0].tolist() == [40_000 // 257] * 3
    if name in ("dot.png", "line.png", "hair.png"):
        assert (image == [200, 100, 50]).all()


def test_broken_pictures_are_named_and_skipped_on_request(folder, tmp_path):
    (folder / "cat" / "cut.jpg").write_bytes((folder / "cat" / "val_2.JPEG").read_bytes()[:900])
    (folder / "dog" / "text.png").write_text("no picture")
    options = (folder, tmp_path / "c", "--corruptions", "contrast", "--severities", 1)
    result = run(*options)
    assert result.exit_code == 1
    assert "cut.jpg" in result.output
    assert "--skip-broken" in result.output
    result = run(*options, "--skip-broken")
    assert result.exit_code == 0
    assert "2 could not be read" in result.output
    assert "text.png" in result.output
    assert len(list((tmp_path / "c").glob("contrast/1/*/*"))) == 5


def test_one_picture(tmp_path):
    scene(300, 200).save(tmp_path / "cat.png")
    assert run(tmp_path / "cat.png", tmp_path / "out.png", "--corruptions", "fog", "--severities", 3).exit_code == 0
    expected = corrupt(np.asarray(scene(300, 200)), "fog", 3)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out.png")), expected)


def test_sheet(tmp_path):
    scene(300, 280).save(tmp_path / "cat.png")
    result = run("--sheet", tmp_path / "sheet.png", tmp_path / "cat.png")
    assert result.stdout == f"contact sheet written to {tmp_path / 'sheet.png'}\n"
    assert result.exit_code == 0, result.output
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    assert sheet.shape[0] > 19 * 112
    assert sheet.shape[1] > 5 * 112


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--corruptions", "frots", "--severities", "1"], "did you mean 'frost'"),
        (["--corruptions", "fog", "--severities", "9"], "severity from 1 to 5, got 9"),
        ([], "either --all or at least one of --corruptions"),
        (["--all", "--corruptions", "fog"], "either --all or"),
        (["--all", "--shard", "2/2"], "I/K with I from 0 to K - 1, e.g. 0/4, got '2/2'"),
        (["--all", "--jpeg", "0"], "quality from 1 to 100"),
        (["--corruptions", "frost", "--frost", "nowhere"], "is not a folder"),
    ],
)
def test_errors_are_one_line(folder, tmp_path, options, says):
    result = run(folder, tmp_path / "c", *options)
    assert result.exit_code == 1
    assert says in result.output
    assert "Traceback" not in result.output


def test_bad_places(folder, tmp_path):
    assert "expected a folder" in run(tmp_path / "none", tmp_path / "c", "--all").output
    (tmp_path / "empty").mkdir()
    assert "found none" in run(tmp_path / "empty", tmp_path / "c", "--all").output
    assert "outside the source" in run(folder, folder / "c", "--all").output
    assert "a source and a target" in run(folder, "--all").output
    scene(64, 64).save(folder / "cat" / "val_0.png")
    assert "same name" in run(folder, tmp_path / "c", "--all").output


def test_a_full_disk_leaves_no_half_picture(folder, tmp_path, monkeypatch):
    written = Path.write_bytes

    def full(self, data):
        written(self, bytes(data)[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    result = run(folder, tmp_path / "c", "--corruptions", "fog", "--severities", "1")
    assert result.exit_code == 1
    assert "No space left" in result.output
    assert [name for name in contents(tmp_path / "c") if not name.endswith(".json")] == []


def test_linked_class_folders_count(folder, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for place in folder.iterdir():
        (linked / place.name).symlink_to(place)
    run(folder, tmp_path / "a", "--corruptions", "fog", "--severities", "2")
    run(linked, tmp_path / "b", "--corruptions", "fog", "--severities", "2")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["x.jpg", "--png"], "expected a name that ends in"),
        (["x.webp"], "expected a name that ends in"),
        (["nosuffix"], "expected a name that ends in"),
        (["x.jpg", "--jpeg", "500"], "quality from 1 to 100"),
    ],
)
def test_one_picture_goes_to_a_name_that_says_its_form(folder, tmp_path, options, says):
    picture = folder / "cat" / "val_0.JPEG"
    result = run(picture, tmp_path / options[0], *options[1:], "--corruptions", "fog", "--severities", "1")
    assert result.exit_code == 1
    assert says in result.output


def test_small_pictures_and_damaged_settings_are_named(folder, tmp_path):
    scene(9, 20).save(folder / "cat" / "tiny.png")
    fog = ["--corruptions", "fog", "--severities", "1"]
    result = run(folder, tmp_path / "c", *fog, "--no-crop")
    assert result.exit_code == 1
    assert "tiny.png has 9 x 20 px" in result.output
    result = run(folder, tmp_path / "c", *fog, "--no-crop", "--skip-broken")
    assert result.exit_code == 0, result.output
    assert "5 pictures written" in result.output or "were there" in result.output
    (tmp_path / "c" / "covshift-corrupt.json").write_text("{")
    assert "is damaged" in run(folder, tmp_path / "c", *fog, "--no-crop", "--skip-broken").output


def test_transparent_palettes_bring_no_warning(tmp_path):
    picture = scene(40, 40).convert("P")
    picture.save(tmp_path / "p.png", transparency=bytes(range(256)))
    assert read_image(tmp_path / "p.png", crop=False).shape == (40, 40, 3)
