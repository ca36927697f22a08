"""Preprocessing: the pixels and inputs of torchvision's and timm's own transforms, and what overrides them."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from covshift import CovshiftError
from covshift.models import IMAGENET, Preprocess
from covshift.models.from_timm import _preprocess as of_timm
from covshift.models.from_torchvision import _preprocess as of_torchvision
from covshift.models.from_torchvision import names
from covshift.support.torchvision import torchvision

import timm  # isort: skip

SIZES = [(500, 375), (333, 500), (224, 301), (97, 64), (31, 200), (1024, 225)]

# name: what is special about it
TIMM = {
    "resnet18.a1_in1k": "bicubic, a narrow margin",
    "efficientnet_b0.ra_in1k": "the usual margin",
    "mixer_b16_224.goog_in21k_ft_in1k": "mean and std of one half",
    "convnext_base.fb_in22k_ft_in1k_384": "squashes",
    "dm_nfnet_f0.dm_in1k": "squashes, then crops",
    "volo_d4_448.sail_in1k": "crops more than there is: a black border",
}


def scene(size, seed=0):
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 11, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    grain = rng.integers(-20, 21, (size[1], size[0], 3))
    return Image.fromarray((np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8))


def ours(how, image):
    return how.tensor(how.picture(image)[None])[0]


def every_torchvision_preprocessing():
    found = {}
    for name in names():
        for weights in torchvision.models.get_model_weights(name):
            found.setdefault(repr(weights.transforms()), weights)
    return list(found.values())


@pytest.mark.parametrize("weights", every_torchvision_preprocessing(), ids=str)
def test_torchvision_makes_the_same_of_it(weights):
    how = of_torchvision(weights)
    for seed, size in enumerate(SIZES):
        image = scene(size, seed)
        assert torch.equal(ours(how, image), weights.transforms()(image))


@pytest.mark.parametrize("name", TIMM)
def test_timm_makes_the_same_of_it(name):
    config = timm.get_pretrained_cfg(name)
    how = of_timm(name, config)
    theirs = timm.data.create_transform(**timm.data.resolve_data_config(pretrained_cfg=config.to_dict()))
    for seed, size in enumerate(SIZES):
        image = scene(size, seed)
        torch.testing.assert_close(ours(how, image), theirs(image), rtol=0, atol=1e-6)


def test_a_resize_below_the_crop_leaves_torchvisions_border():
    transforms = torchvision.transforms
    theirs = transforms.Compose([transforms.Resize(195), transforms.CenterCrop(224)])
    for size in SIZES:
        image = scene(size)
        pixels = Preprocess(195, 224, "bilinear", IMAGENET.mean, IMAGENET.std).picture(image)
        np.testing.assert_array_equal(pixels, np.asarray(theirs(image)))


def test_a_picture_that_has_its_size_is_left_alone():
    image = scene((224, 224))
    np.testing.assert_array_equal(IMAGENET.picture(image), np.asarray(image))
    assert not np.array_equal(IMAGENET.picture(image.resize((225, 225))), np.asarray(image))


def test_without_resizing_only_small_pictures_are_enlarged():
    how = IMAGENET.with_(resize=0)
    image = scene((300, 260))
    middle = np.asarray(torchvision.transforms.CenterCrop(224)(image))
    np.testing.assert_array_equal(how.picture(image), middle)
    small = np.asarray(torchvision.transforms.Resize(224)(scene((100, 60))))
    np.testing.assert_array_equal(how.picture(scene((100, 60))), small[:, 74:298])
    assert IMAGENET.with_(size=0, resize=0).picture(image).shape == (260, 300, 3)
    assert IMAGENET.with_(size=0).picture(image).shape == (256, 295, 3)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "LA"])
def test_any_kind_of_picture_becomes_rgb(mode):
    assert IMAGENET.picture(scene((80, 60)).convert(mode)).shape == (224, 224, 3)


def test_a_tensor_is_laid_out_for_speed_and_leaves_its_source_alone():
    images = np.random.default_rng(0).integers(0, 256, (5, 9, 7, 3), dtype=np.uint8)
    frozen = images.copy()
    frozen.flags.writeable = False
    tensor = IMAGENET.tensor(frozen)
    assert tensor.is_contiguous(memory_format=torch.channels_last)
    assert tensor.dtype == torch.float32
    expected = (images / 255 - np.array(IMAGENET.mean)) / np.array(IMAGENET.std)
    np.testing.assert_allclose(tensor.permute(0, 2, 3, 1).numpy(), expected, atol=1e-6)
    flipped = IMAGENET.tensor(images[:, :, ::-1])
    torch.testing.assert_close(flipped, tensor.flip(3), rtol=0, atol=0)


def test_it_goes_through_json():
    how = IMAGENET.with_(size=64, interpolation="lanczos", mean=[0.1, 0.2, 0.3], std=np.array([1, 2, 3]))
    assert Preprocess.from_dict(json.loads(json.dumps(how.as_dict()))) == how
    with pytest.raises(CovshiftError, match="expected interpolation, mean"):
        Preprocess.from_dict({"size": 3})


def test_size_alone_keeps_the_margin():
    assert IMAGENET.with_(size=299).resize == 342
    assert IMAGENET.with_(size=299, resize=299).resize == 299
    assert IMAGENET.with_(resize=232) == Preprocess(232, 224, "bilinear", IMAGENET.mean, IMAGENET.std)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": (0.5, 0.5)}, "expected mean as three numbers .* got 0.5, 0.5"),
        ({"mean": 0.5}, "expected mean as three numbers .* got 0.5"),
        ({"mean": "0.5"}, "expected mean as three numbers"),
        ({"mean": (0.5, float("nan"), 0.5)}, "expected mean as three numbers"),
        ({"mean": (123.7, 116.3, 103.5)}, "expected mean from 0 to 1, .* divide mean and std by 255"),
        ({"std": (1, 0, 1)}, "expected std above 0"),
        ({"std": (1, -1, 1)}, "expected std above 0"),
        ({"std": (1, 1, float("inf"))}, "expected std as three numbers"),
        ({"size": -1}, "expected size to be a number of pixels"),
        ({"size": 2.5}, "expected size to be a number of pixels"),
        ({"size": "64"}, "expected size to be a number of pixels"),
        ({"resize": True}, "expected resize to be a number of pixels"),
        ({"interpolation": "bicubik"}, "unknown interpolation 'bicubik'; did you mean 'bicubic'"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    with pytest.raises(CovshiftError, match=message):
        IMAGENET.with_(**change)
