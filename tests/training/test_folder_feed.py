"""Training from an ImageNet folder."""

import numpy as np
import pytest
import torch
from PIL import Image

from covshift.support.errors import CovshiftError
from covshift.support.torchvision import torchvision
from covshift.training.folder_feed import FolderFeed, random_crop
from covshift.training.recipe import Recipe, find_recipe
from covshift.training.train import train


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("n02", "n01"):
            for i in range(3):
                file = tmp_path / split / name / f"{i}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (260, 300, 3), np.uint8)).save(file)
    return tmp_path


def test_test_images_are_torchvisions(folder):
    batches = list(FolderFeed(folder, threads=2).test(4))
    assert torch.cat([batch.labels for batch in batches]).tolist() == [0, 0, 0, 1, 1, 1]
    t = torchvision.transforms
    standard = t.Compose(
        [t.Resize(256), t.CenterCrop(224), t.ToTensor(), t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    )
    expected = torch.stack([standard(Image.open(file)) for file in sorted(folder.glob("val/*/*"))])
    torch.testing.assert_close(torch.cat([batch.images for batch in batches]), expected, rtol=1e-4, atol=1e-4)


def test_training_images_follow_from_the_generator_alone(folder):
    one, two = FolderFeed(folder, threads=1), FolderFeed(folder, threads=2)
    first, same = (feed.train(np.array([4, 0]), np.random.default_rng([0, 1])) for feed in (one, two))
    other = one.train(np.array([4, 0]), np.random.default_rng([0, 2]))
    assert torch.equal(first.images, same.images)
    assert not torch.equal(first.images, other.images)
    assert first.labels.tolist() == [1, 0]
    assert first.images.shape == (2, 3, 224, 224)


@pytest.mark.parametrize("shape", [(300, 400), (20, 2000), (224, 224)])
def test_a_random_crop_has_the_size(shape):
    image = np.zeros((*shape, 3), np.uint8)
    assert random_crop(image, np.random.default_rng(0)).shape == (224, 224, 3)


def test_the_loop_takes_a_folder(folder, tmp_path):
    recipe = Recipe("small", depth=8, width=4, epochs=1, batch=4)
    result = train(recipe, FolderFeed(folder), tmp_path / "run")
    assert result.done
    assert 0 <= result.history[-1].test_error <= 1


def test_the_papers_settings():
    recipe = find_recipe("resnet101-gn")
    assert (recipe.rate, recipe.momentum, recipe.batch, recipe.decay, recipe.epochs) == (0.1, 0.9, 256, 1e-4, 100)
    assert [round(recipe.rate_at(part), 6) for part in (0.1, 0.31, 0.61, 0.91)] == [0.1, 0.01, 0.001, 0.0001]
    assert (recipe.augment, find_recipe("resnet101-fixup").augment) == ("crop", "mixup")


def test_folders_that_do_not_fit(folder, tmp_path):
    with pytest.raises(CovshiftError, match="expected a folder"):
        FolderFeed(tmp_path / "nowhere")
    (folder / "val" / "n01").rename(folder / "val" / "n03")
    with pytest.raises(CovshiftError, match=r"same classes.*not in both: n01, n03"):
        FolderFeed(folder)
    (folder / "train" / "stray.png").write_bytes(next(folder.glob("train/*/*.png")).read_bytes())
    with pytest.raises(CovshiftError, match=r"expected .*CLASS/PICTURE"):
        FolderFeed(folder)
