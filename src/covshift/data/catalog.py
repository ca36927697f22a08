"""The data sets of the paper: how large they are, whose, and where to get them."""

from typing import NamedTuple


class Archive(NamedTuple):
    """A published file; 0 bytes or an empty checksum where none was published."""

    url: str
    size: int = 0
    checksum: str = ""


class CatalogEntry(NamedTuple):
    """A data set of the paper, and where to get it.

    Attributes:
        uri: the URI that opens it.
        title: the name of the data set.
        images: the number of images in a condition.
        classes: the number of classes that have images.
        archives: the published files.
        licence: the terms of its authors.
        how: the steps to get it.
    """

    uri: str
    title: str
    images: int
    classes: int
    archives: tuple[Archive, ...]
    licence: str
    how: str

    @property
    def size(self) -> int:
        """The number of bytes to download, as far as it was published."""
        return sum(archive.size for archive in self.archives)


_C = {
    "noise": "e80562d7f6c3f8834afb1ecf27252745",
    "blur": "2d8e81fdd8e07fef67b9334fa635e45c",
    "weather": "33ffea4db4d93fe4a428c40a6ce0c25d",
    "digital": "89157860d7b10d5797849337ca2e5c03",
    "extra": "d492dfba5fc162d8ec2c3cd8ee672984",
}
_V2 = "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/imagenetv2-"
_HENDRYCKS = "https://people.eecs.berkeley.edu/~hendrycks"
_NO_TERMS = "none stated for the images"

CATALOG = (
    CatalogEntry(
        "builtin:cifar10",
        "CIFAR-10, test images",
        10_000,
        10,
        (
            Archive(
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 0, "MD5 c32a1d4ab5d03f1284b67883e8d87530"
            ),
        ),
        _NO_TERMS,
        "fetched by covshift when it is first opened",
    ),
    CatalogEntry(
        "cifar10-c:DIR",
        "CIFAR-10-C",
        10_000,
        10,
        (
            Archive(
                "https://zenodo.org/record/2535967/files/CIFAR-10-C.tar",
                2_918_471_680,
                "MD5 56bf5dcef84df0e2308c6dcbcbbd8499",
            ),
        ),
        "see the record at Zenodo",
        "download and unpack",
    ),
    CatalogEntry(
        "imagenet:DIR",
        "ImageNet, validation images",
        50_000,
        1000,
        (
            Archive(
                "https://image-net.org/challenges/LSVRC/2012/2012-downloads.php",
                6_744_924_160,
                "MD5 29b22e2961454d5413ddabcf34fc5622",
            ),
        ),
        "research and education, not for commercial use; its terms are to be accepted",
        "sign in; unpack ILSVRC2012_img_val.tar into class folders, or beside ILSVRC2012_devkit_t12",
    ),
    CatalogEntry(
        "imagenet-c:DIR",
        "ImageNet-C",
        50_000,
        1000,
        tuple(
            Archive(f"https://zenodo.org/record/2235448/files/{name}.tar", 0, f"MD5 {md5}") for name, md5 in _C.items()
        ),
        "Apache-2.0 (code); the images are ImageNet's",
        "download five archives, about 70 GB, and unpack; or make it: covshift corrupt val/ imagenet-c/ --all; "
        "mixed ImageNet-C needs no files of its own: covshift bench run --mixed",
    ),
    CatalogEntry(
        "imagenet-a:DIR",
        "ImageNet-A",
        7_500,
        200,
        (
            Archive(
                f"{_HENDRYCKS}/imagenet-a.tar",
                687_552_512,
                "SHA-256 3bb3632277e6ba6392ea64c02ddbf4dd2266c9caffd6bc09c9656d28f012589e",
            ),
        ),
        _NO_TERMS,
        "download and unpack",
    ),
    CatalogEntry(
        "imagenet-r:DIR",
        "ImageNet-R",
        30_000,
        200,
        (
            Archive(
                f"{_HENDRYCKS}/imagenet-r.tar",
                2_191_079_936,
                "SHA-256 18c6bf493b39a0d975d48e587437f562caab9c52ae6327dcfa9dd8eb54aa1b52",
            ),
        ),
        "MIT (code); " + _NO_TERMS,
        "download and unpack",
    ),
    CatalogEntry(
        "imagenet-v2:DIR",
        "ImageNet-V2, three variants",
        10_000,
        1000,
        (
            Archive(
                f"{_V2}matched-frequency.tar.gz",
                1_264_079_360,
                "SHA-256 f0c37fdf925916b19ea1323cd9a2208cdb6959ba2c32eef2a7fc393835c9ca7c",
            ),
            Archive(
                f"{_V2}threshold0.7.tar.gz",
                1_249_906_176,
                "SHA-256 32142bfe998f9cfa4141be691f6a80eeb1e27b24bd532a668eb08c26d98897a2",
            ),
            Archive(
                f"{_V2}top-images.tar.gz",
                1_245_927_936,
                "SHA-256 85e4ace30f3f0d660152062254b8759dda66267b27f7ec0fd8d5768f1073a04b",
            ),
        ),
        _NO_TERMS,
        "download and unpack; they are plain tar files, whatever their names say",
    ),
    CatalogEntry(
        "objectnet:DIR",
        "ObjectNet",
        0,
        104,
        (Archive("https://objectnet.dev/downloads/objectnet-1.0.zip"),),
        "CC-BY-4.0 with two more terms: no parameters may be tuned on it, images are shown with their red frame only",
        "accept the terms at https://objectnet.dev, which shows the password, and unpack",
    ),
)


def find_catalog_entry(source: str) -> CatalogEntry | None:
    """Return the entry of a URI's source, if it is in the catalog.

    >>> find_catalog_entry("imagenet-r").images
    30000
    """
    return next((entry for entry in CATALOG if entry.uri.partition(":")[0] == source), None)
