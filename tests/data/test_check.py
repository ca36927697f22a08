"""`covshift data`: the list, and whether a data set is whole."""

import json
import shutil

import numpy as np
from trees import imagenet, objectnet, picture
from typer.testing import CliRunner

from covshift.cli import app
from covshift.corruptions import names
from covshift.data.check import check, find_broken


def run(*words):
    return CliRunner().invoke(app, ["data", *words])


def test_the_list():
    rows = json.loads(run("list", "--json").stdout)
    assert {row["uri"].partition(":")[0] for row in rows} >= {
        "imagenet",
        "imagenet-c",
        "imagenet-a",
        "imagenet-r",
        "imagenet-v2",
        "objectnet",
        "cifar10-c",
    }
    for row in rows:
        assert row["licence"]
        assert row["how"]
        assert row["archives"]
    shown = run("list").stdout
    assert "objectnet:DIR" in shown
    assert "https://zenodo.org/record/2235448/files/blur.tar" in shown
    assert "no parameters may be tuned" in " ".join(shown.split())
    wrong = run("look", "x:y")
    assert wrong.exit_code == 2
    assert "No such command 'look'" in wrong.stderr


def tree(root):
    one = root / "one"
    for name in ("cat", "dog"):
        for k in range(3):
            picture(one / name / f"{k}.JPEG", k)
    for name in names("all"):
        for severity in range(1, 6):
            shutil.copytree(one, root / "c" / name / str(severity))
    return root / "c"


def test_a_whole_tree_and_what_can_be_wrong_with_it(tmp_path):
    root = tree(tmp_path)
    whole = run("check", f"imagenet-c:{root}")
    assert whole.exit_code == 0, whole.output
    assert "95 of 95 conditions" in whole.stdout
    assert "6 images of 2 classes, 3 to 3 of each in a condition" in whole.stdout
    shutil.rmtree(root / "fog" / "3")
    shutil.rmtree(root / "spatter" / "1")
    shutil.rmtree(root / "snow" / "5" / "cat")
    file = root / "frost" / "2" / "dog" / "1.JPEG"
    file.write_bytes(file.read_bytes()[:-200])
    (root / "contrast" / "1" / "dog" / "2.JPEG").write_bytes(b"")
    found = run("check", f"imagenet-c:{root}")
    assert found.exit_code == 3
    assert "problem: 1 test condition missing: fog/3" in found.stdout
    assert "1 holdout condition missing: spatter/1" in found.stdout
    assert "problem: snow/5 lacks 3 pictures that other conditions have, of cat (3)" in found.stdout
    assert f"2 files damaged: {file}, {root / 'contrast' / '1' / 'dog' / '2.JPEG'}" in found.stdout
    assert "3 problems" in found.stdout
    report = json.loads(run("check", f"imagenet-c:{root}", "--json").stdout)
    assert len(report["problems"]) == 3
    assert report["counts"] == {"cat": 3, "dog": 3}


def test_classes_that_are_missing_are_named(tmp_path):
    for severity in "12":
        picture(tmp_path / "c" / "fog" / severity / "n01440764" / "1.JPEG")
    problems = check(f"imagenet-c:{tmp_path / 'c'}").problems
    assert "expected 1000 classes, got 1" in problems
    assert "no images of n01443537, n01484850, n01491361, n01494475, n01496331 … 994 more" in problems
    picture(tmp_path / "c" / "fog" / "1" / "2.JPEG")
    problems = check(f"imagenet-c:{tmp_path / 'c'}").problems
    assert problems[-1] == "expected a folder for each class in each condition, but 2.JPEG is in none"
    report = check(f"objectnet:{objectnet(tmp_path / 'on')}")
    assert report.counts == {"banana": 2, "t-shirt": 2}
    assert "expected 104 classes, got 2" in report.problems
    assert "no images of backpack, band_aid, basket, beer_bottle, bench … 97 more" in report.problems
    picture(tmp_path / "v2" / "10" / "1.jpeg")
    assert "no images of 0, 1, 2, 3, 4 … 994 more" in check(f"imagenet-v2:{tmp_path / 'v2'}").problems


def test_counts_are_compared_with_the_published(tmp_path):
    report = check(f"imagenet:{imagenet(tmp_path)}")
    assert report.facts == ["9 images of 3 classes, 2 to 5 of each"]
    assert report.problems == [
        "expected 50000 images, got 9",
        "expected 1000 classes, got 3",
        "no images of n01484850, n01491361, n01494475, n01496331, n01498041 … 992 more",
    ]
    assert report.counts == {"n01440764": 2, "n01443537": 5, "n15075141": 2}
    assert check(f"imagenet-c:{tmp_path / 'none'}").problems
    assert "expected a folder" in check(f"imagenet-a:{tmp_path / 'none'}").problems[0]


def test_damage_in_the_middle_takes_decoding(tmp_path):
    good, bad = picture(tmp_path / "good.jpg", 1), picture(tmp_path / "bad.png", 2)
    content = bad.read_bytes()
    bad.write_bytes(content[:200] + bytes([content[200] ^ 255]) + content[201:])
    behind = picture(tmp_path / "behind.jpg", 3)
    behind.write_bytes(behind.read_bytes() + b"\0" * 500)  # what some cameras write after the end
    assert find_broken([good, bad, behind]) == []
    assert find_broken([good, bad, behind], decode=True) == [bad]


def test_files_of_cifar10_c_are_compared_with_their_checksums(tmp_path):
    np.save(tmp_path / "labels.npy", np.zeros(50, np.uint8))
    np.save(tmp_path / "fog.npy", np.zeros((50, 32, 32, 3), np.uint8))
    report = check(f"cifar10-c:{tmp_path}")
    assert "18 files missing: brightness, contrast, defocus_blur, elastic_transform, frost … 13 more" in report.problems
    assert "2 files not as published (MD5): fog, labels" in report.problems


def test_a_class_with_too_few_images_is_named(tmp_path):
    one = picture(tmp_path / "one.JPEG").read_bytes()
    for number in range(1000):
        for k in range(10 - (number == 7)):
            (tmp_path / "v2" / str(number)).mkdir(parents=True, exist_ok=True)
            (tmp_path / "v2" / str(number) / f"{k}.jpeg").write_bytes(one)
    report = check(f"imagenet-v2:{tmp_path / 'v2'}")
    assert report.problems == [
        "expected 10000 images, got 9999",
        "expected 10 images of each class, got others of 7 (9)",
    ]
