"""Videos: the frames that were written come back, every so many of them, in any order of reading."""

import pickle

import cv2
import numpy as np
import pytest

import covshift
from covshift import CovshiftError
from covshift.models import IMAGENET

FRAMES, SIDE = 25, 64


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("video") / "drive.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (SIDE, SIDE))
    for number in range(FRAMES):
        writer.write(np.full((SIDE, SIDE, 3), (200, 100, 10 * number), np.uint8))  # BGR: red tells the frame
    writer.release()
    return path


def reds(images):
    return (images[:, SIDE // 2, SIDE // 2, 0] / 10).round().astype(int).tolist()


@pytest.mark.parametrize(("query", "frames"), [("", range(25)), ("?every=10", [0, 10, 20]), ("?every=24", [0, 24])])
def test_frames(file, query, frames):
    data = covshift.open_data(f"video:{file}{query}")
    assert (len(data), data.labelled) == (len(frames), False)
    images = data.pixels(preprocess=IMAGENET.with_(size=SIDE, resize=0)).images
    assert reds(images) == list(frames)
    assert np.abs(images[0, 0, 0].astype(int) - (0, 100, 200)).max() < 8


def test_going_back_and_in_another_process(file):
    data = covshift.open_data(f"video:{file}?every=5")
    for each in (data, pickle.loads(pickle.dumps(data))):
        read = each.read(covshift.Condition("clean", 0), [4, 0, 2, 2], np.asarray)
        assert reds(np.stack(read)) == [20, 0, 10, 10]
    assert data.digest == covshift.open_data(f"video:{file}?every=5").digest
    assert data.digest != covshift.open_data(f"video:{file}").digest


def test_estimate_streams_a_video(file):
    model = covshift.open_model("builtin:resnet20")
    assert covshift.estimate(model, covshift.open_data(f"video:{file}").loader(model, batch_size=8)).images == FRAMES


def test_what_is_not_a_video(file, tmp_path, capfd):
    (tmp_path / "text.mp4").write_text("not a video")
    for uri, message in {
        f"video:{tmp_path}/none.mp4": "there is no video at",
        f"video:{tmp_path}/text.mp4": "cannot read the video",
        f"video:{file}?every=0": "expected every as a number of frames from 1, got 0",
        f"video:{file}?each=2": "unknown setting of video: 'each'; known: every",
    }.items():
        with pytest.raises(CovshiftError, match=message):
            covshift.open_data(uri)
    with pytest.raises(CovshiftError, match="write its frames to a folder for each class"):
        _ = covshift.open_data(f"video:{file}").labels


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_an_array_without_labels(suffix, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (6, 20, 20, 3), dtype=np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.savez(tmp_path / "images.npz", images=images, others=images)
    data = covshift.open_data(f"npz:{tmp_path}/images.{suffix}")
    assert not data.labelled
    assert (data.pixels(preprocess=IMAGENET.with_(size=20, resize=0)).images == images).all()
    with pytest.raises(CovshiftError, match=r"name their labels: npz:IMAGES.npy\?labels=LABELS.npy"):
        _ = data.classes
