"""ImageNet and its relatives, in their published layouts."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from trees import SIDE, imagenet, objectnet, picture

from covshift import CovshiftError
from covshift.data import CLEAN, open_data
from covshift.data.folder import wnids
from covshift.data.objectnet import mapping, unambiguous
from covshift.data.subsets import IMAGENET_A, IMAGENET_R


def read(data):
    return data.read(CLEAN, range(len(data)), np.asarray)


def by_folder(data):
    return {path.parts[0]: int(label) for path, label in zip(data.paths, data.labels, strict=True)}


@pytest.mark.parametrize("nested", [True, False])
def test_imagenet_in_class_folders_with_odd_files(nested, tmp_path):
    imagenet(tmp_path / "val" if nested else tmp_path)
    data = open_data(f"imagenet:{tmp_path}")
    assert by_folder(data) == {"n01440764": 0, "n01443537": 1, "n15075141": 999}
    assert (data.classes, len(data), data.among) == (1000, 9, None)
    images = read(data)
    assert {image.shape for image in images} == {(SIDE, SIDE, 3)}
    grey = images[[path.name for path in data.paths].index("ILSVRC2012_val_00000101.JPEG")]
    assert np.array_equal(grey[..., 0], grey[..., 2])


def devkit(root):
    """ILSVRC's ids in an order that is not that of the names."""
    ids = {3: "n01440764", 1: "n01443537", 2: "n15075141"}
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    synsets = np.array([(number, name, "a, b") for number, name in ids.items()] + [(1001, "n00001740", "")], kind)
    (root / "ILSVRC2012_devkit_t12" / "data").mkdir(parents=True)
    savemat(root / "ILSVRC2012_devkit_t12" / "data" / "meta.mat", {"synsets": synsets.reshape(-1, 1)})
    truth = root / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("3\n1\n2\n3\n")


def test_imagenet_as_its_archive_holds_it(tmp_path):
    for number in (1, 2, 3, 4):
        picture(tmp_path / "val" / f"ILSVRC2012_val_{number:08d}.JPEG", number)
    picture(tmp_path / "val" / "ILSVRC2012_val_copy.JPEG")  # which no label is for
    with pytest.raises(CovshiftError, match="has no class folders; put the devkit beside it"):
        open_data(f"imagenet:{tmp_path}")
    devkit(tmp_path)
    data = open_data(f"imagenet:{tmp_path}")
    assert data.labels.tolist() == [0, 1, 999, 0]
    assert data.imagenet
    assert len(read(data)) == 4


def test_folders_that_are_not_imagenets(tmp_path):
    picture(tmp_path / "cat" / "a.jpg")
    with pytest.raises(CovshiftError, match="expected folders with ImageNet's names"):
        open_data(f"imagenet:{tmp_path}")
    for name in ("imagenet-a", "imagenet-r"):
        with pytest.raises(CovshiftError, match=f"expected folders of the 200 classes of {name}:.*, got cat"):
            open_data(f"{name}:{tmp_path}")
    with pytest.raises(CovshiftError, match=r"expected folders 0 to 999 in .*, got cat"):
        open_data(f"imagenet-v2:{tmp_path}")
    with pytest.raises(CovshiftError, match="expected folders such as banana"):
        open_data(f"objectnet:{tmp_path}")


@pytest.mark.parametrize(("name", "among"), [("imagenet-a", IMAGENET_A), ("imagenet-r", IMAGENET_R)])
def test_subsets_keep_imagenets_indices(name, among, tmp_path):
    by_index = list(wnids())
    for index in among[:3]:
        picture(tmp_path / name / by_index[index] / "a.jpg", index)
    (tmp_path / name / "README.txt").write_text("hello")
    data = open_data(f"{name}:{tmp_path}")
    assert data.labels.tolist() == list(among[:3])
    assert (data.classes, data.among) == (1000, among)
    assert not data.imagenet
    picture(tmp_path / name / by_index[0] / "a.jpg")  # tench is in neither
    with pytest.raises(CovshiftError, match="got n01440764"):
        open_data(f"{name}:{tmp_path}")


def test_the_subsets_are_those_of_their_authors():
    assert len(set(IMAGENET_A)) == len(set(IMAGENET_R)) == 200
    assert list(IMAGENET_A) == sorted(IMAGENET_A)
    assert list(IMAGENET_R) == sorted(IMAGENET_R)
    assert len(set(IMAGENET_A) & set(IMAGENET_R)) == 86


def test_imagenet_v2_is_sorted_by_number(tmp_path):
    folder = tmp_path / "imagenetv2-matched-frequency-format-val"
    for number in (0, 1, 2, 10, 100, 999):
        picture(folder / str(number) / "a.jpeg", number)
    for uri in (
        f"imagenet-v2:{tmp_path}",
        f"imagenet-v2:{folder}",
        f"imagenet-v2:{tmp_path}?variant=matched-frequency",
    ):
        data = open_data(uri)
        assert by_folder(data) == {str(number): number for number in (0, 1, 2, 10, 100, 999)}
        assert data.classes == 1000
    with pytest.raises(CovshiftError, match="expected a folder imagenetv2-top-images-format-val in"):
        open_data(f"imagenet-v2:{tmp_path}?variant=top-images")
    with pytest.raises(CovshiftError, match="unknown variant of ImageNet-V2 'top'"):
        open_data(f"imagenet-v2:{tmp_path}?variant=top")
    picture(tmp_path / "imagenetv2-top-images-format-val" / "7" / "a.jpeg")
    with pytest.raises(CovshiftError, match="holds matched-frequency, top-images; choose one"):
        open_data(f"imagenet-v2:{tmp_path}")
    assert open_data(f"imagenet-v2:{tmp_path}?variant=top-images").labels.tolist() == [7]


def test_objectnet_without_its_frame_and_its_ambiguous_classes(tmp_path):
    data = open_data(f"objectnet:{objectnet(tmp_path)}")
    assert by_folder(data) == {"banana": 954, "t-shirt": 610}
    assert data.classes == 1000
    assert data.among is None
    assert "2 of 104 classes that stand for one class of ImageNet, 4 images; 9 that stand for several" in data.remark
    for image in read(data):
        assert image.shape == (SIDE, SIDE, 3)
        assert image[..., 0].max() == 10
    picture(data.root / "banana" / "thin.png", side=4)
    assert "its 4 x 4 px are all frame" in str(read(open_data(f"objectnet:{tmp_path}"))[2])
    assert by_folder(open_data(f"objectnet:{tmp_path}?drop=banana")) == {"t-shirt": 610}
    assert len(open_data(f"objectnet:{tmp_path}?mask=yes").among) == 104
    assert len(open_data(f"objectnet:{tmp_path}?mask=yes&drop=banana").among) == 103
    with pytest.raises(CovshiftError, match="did you mean 'banana'"):
        open_data(f"objectnet:{tmp_path}?drop=bananas")
    with pytest.raises(CovshiftError, match="expected mask=yes or mask=no"):
        open_data(f"objectnet:{tmp_path}?mask=1")


def test_the_mapping_of_objectnet_has_the_papers_nine_ambiguous_classes():
    assert len(mapping()) == 113
    assert sum(map(len, mapping().values())) == len({i for indices in mapping().values() for i in indices}) == 125
    nine = {"wheel", "helmet", "chair", "still_camera", "alarm_clock", "tie", "pen", "bicycle", "skirt"}
    assert mapping().keys() - unambiguous().keys() == nine
    assert len(unambiguous()) == 104


def test_masked_logits_in_a_run(tmp_path, monkeypatch):
    """A model whose favourite is a class that ImageNet-R does not have: only masked it can be right."""
    first, second = IMAGENET_R[:2]
    (tmp_path / "masked_net.py").write_text(
        "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm2d(3)\n\n"
        "    def forward(self, x):\n        logits = 0 * self.norm(x).mean((1, 2, 3))[:, None] + torch.zeros(1000)\n"
        f"        logits[:, 0], logits[:, {first}], logits[:, {second}] = 9.0, 2.0, 1.0\n        return logits\n"
    )
    monkeypatch.chdir(tmp_path)
    by_index = list(wnids())
    for index in (first, second):
        for k in range(2):
            picture(tmp_path / "r" / by_index[index] / f"{k}.jpg", index + k)
    from covshift.bench import frame, run

    settings = {
        "model": "py:masked_net:Net",
        "data": "imagenet-r:r",
        "size": 16,
        "corruptions": "none",
        "methods": ["none"],
    }
    run(settings, "out", progress=False)
    assert frame("out").top1_errors.tolist() == [2]
    settings["data"] = "folder:r"
    run(settings, "plain", progress=False)
    assert frame("plain").top1_errors.tolist() == [4]


def test_a_run_says_what_objectnet_forbids_and_records_the_count(tmp_path, monkeypatch, capfd):
    objectnet(tmp_path)
    (tmp_path / "thousand.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), "
        "nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1000))\n"
    )
    monkeypatch.chdir(tmp_path)
    from covshift.bench import run

    settings = {"model": "py:thousand:net", "data": f"objectnet:{tmp_path}", "size": 16, "corruptions": "none"}
    torch.manual_seed(0)
    run(settings | {"methods": ["full"]}, "adapted")
    said = capfd.readouterr().err
    assert "forbid tuning any parameters on it" in said
    assert "2 of 104 classes" in said
    assert "104" in json.loads((tmp_path / "adapted" / "run.json").read_text())["data_remark"]
    torch.manual_seed(0)
    run(settings | {"methods": ["none"]}, "plain")
    assert "forbid" not in capfd.readouterr().err


def test_cmyk_is_read_as_torchvision_reads_it(tmp_path):
    path = picture(tmp_path / "n01440764" / "a.JPEG", 5, "CMYK")
    (image,) = read(open_data(f"imagenet:{tmp_path}"))
    assert np.array_equal(image, np.asarray(Image.open(path).convert("RGB")))
