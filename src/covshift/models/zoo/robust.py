"""ResNets and ResNeXts trained for robustness, and those trained on Instagram: torchvision's architectures."""

from functools import partial

from torch import nn

from covshift.models.zoo.entry import Entry, File, on_drive, published
from covshift.models.zoo.torchvisions import HOST, build

_NOISE = "https://github.com/bethgelab/game-of-noise/releases/download/v1.0"
_SHAPE = "https://bitbucket.org/robert_geirhos/texture-vs-shape-pretrained-models/raw"
_MANY = "Hendrycks et al. 2020, The Many Faces of Robustness"


def wide_resnext(width: int) -> nn.Module:
    """Return a ResNeXt-101 with 32 groups of `width` channels; torchvision has it up to a width of 8."""
    from covshift.support.torchvision import torchvision

    resnet = torchvision.models.resnet
    network: nn.Module = resnet.ResNet(resnet.Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=width)
    return network


def _resnet50(name: str, file: File, licence: str, citation: str, note: str = "") -> Entry:
    return Entry(name, "resnet", partial(build, "resnet50"), licence, citation, (file,), note=note)


def _instagram(width: int, digits: str) -> Entry:
    return Entry(
        f"wsl-resnext101_32x{width}d",
        "resnext",
        partial(wide_resnext, width),
        licence="CC-BY-NC-4.0: not for commercial use",
        citation="Mahajan et al. 2018",
        files=(published(f"{HOST}/ig_resnext101_32x{width}-{digits}.pth", digits),),
        note="pre-trained on 3.5 billion images of Instagram, fine-tuned on ImageNet",
        pretraining="large-scale",
    )


ENTRIES = (
    _resnet50(
        "augmix",
        on_drive("1z-1V3rdFiwqSECz7Wkmn4VJVefJGJGiF", "augmix_checkpoint.pth.tar"),
        "Apache-2.0",
        "Hendrycks et al. 2020, AugMix",
    ),
    _resnet50(
        "sin",
        published(
            f"{_SHAPE}/60b770e128fffcbd8562a3ab3546c1a735432d03/"
            "resnet50_train_45_epochs_combined_IN_SF-2a0d100e.pth.tar",
            "2a0d100e",
        ),
        "none stated",
        "Geirhos et al. 2019",
        "trained on Stylized ImageNet and ImageNet together (SIN+IN): the paper's SIN",
    ),
    _resnet50(
        "ant",
        published(f"{_NOISE}/ANT3x3_Model.pth"),
        "MIT",
        "Rusak et al. 2020",
        "noise correlated over 3 x 3 pixels: the paper's ANT",
    ),
    _resnet50("ant-sin", published(f"{_NOISE}/ANT3x3_SIN_Model.pth"), "MIT", "Rusak et al. 2020"),
    _resnet50("deepaugment", on_drive("1DPRElQnBG66nd7GUphVm1t-5NroL7t7k", "deepaugment.pth.tar"), "MIT", _MANY),
    _resnet50(
        "deepaugment-augmix",
        on_drive("1QKmc_p6-qDkh51WvsaS9HKFv8bX5jLnP", "deepaugment_and_augmix.pth.tar"),
        "MIT",
        _MANY,
    ),
    Entry(
        "deepaugment-augmix-resnext101",
        "resnext",
        partial(build, "resnext101_32x8d"),
        licence="MIT",
        citation=_MANY,
        files=(on_drive("1U71SoHQjAkOOte4Uc0A4nh1JzRf9Ec8C", "resnext101_augmix_and_deepaugment.pth.tar"),),
    ),
    _instagram(8, "c38310e5"),
    _instagram(48, "3e41cc8a"),
)
