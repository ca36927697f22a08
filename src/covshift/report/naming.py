"""What names say: files, families of architectures, and how a model is normalised."""

import re

from covshift.report.gather import Result

_FAMILIES = {
    "wide_?resnet|wrn": "Wide ResNet",
    "resnext": "ResNeXt",
    "se_?resnet|resnest": "ResNet, attention",
    "resnet": "ResNet",
    "densenet": "DenseNet",
    "mnasnet": "MNASNet",
    "mobilenet": "MobileNet",
    "shufflenet": "ShuffleNet",
    "googlenet": "GoogLeNet",
    "inception": "Inception",
    "vgg": "VGG",
    "efficientnet": "EfficientNet",
    "regnet": "RegNet",
    "convnext": "ConvNeXt",
}
_NORMS = {"GN": r"([-_.]|(?<=\d))(gn|group_?norm)(?![a-z])", "Fixup": r"[-_.]?fixup"}
WITHOUT = tuple(_NORMS)
"""Ways to normalise that hold no statistics, so that there is nothing to adapt."""
_LARGE = r"(?<![a-z])(wsl|ig\d|ig-|instagram|swsl|ssl_yfcc|in2[12]k|laion|clip(?![a-z])|jft|noisy_?student)"


def file_name(result: Result) -> str:
    """The result's name, fit for a file; names that differ do so as files, too."""
    return re.sub(r"[^\w.-]", lambda odd: "-" if odd[0] == "/" else f"-{ord(odd[0]):x}-", result.name)


def model_name(result: Result) -> str:
    """The model without its source: `resnet20` of `builtin:resnet20`.

    A file or a function says less of itself than the run that someone named.
    """
    source, _, name = result.run.settings.model.partition(":")
    return result.name if source in ("file", "py") or not name else name.partition("?")[0]


def family(result: Result) -> str:
    """The architecture's family, else the model's own name."""
    name = model_name(result).lower()
    return next((word for pattern, word in _FAMILIES.items() if re.search(pattern, name)), model_name(result))


def norm(result: Result) -> str:
    """How the model is normalised: GN or Fixup by its name, BN where it was adapted or its family has it; else ""."""
    name = model_name(result).lower()
    found = next((word for word, pattern in _NORMS.items() if re.search(pattern, name)), "")
    usual = family(result) in {*_FAMILIES.values()} - {"VGG", "ConvNeXt"}
    return found or ("BN" if result.adaptable or usual or re.search(r"[-_.]bn(?![a-z])", name) else "")


def without_norm(result: Result) -> str:
    """The model's name without the word for its normalisation: what compares with each other."""
    name = model_name(result)
    for pattern in _NORMS.values():
        name = re.sub(pattern, "", name, flags=re.IGNORECASE)
    return name


def large_scale(result: Result) -> bool:
    """Whether the model was pre-trained on far more than ImageNet, by its name."""
    return re.search(_LARGE, model_name(result).lower()) is not None


def simclr(result: Result) -> bool:
    """Whether this is one of SimCLR's models, by its name."""
    return "simclr" in f"{model_name(result)} {result.name}".lower()
