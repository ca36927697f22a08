"""The settings of the server: how it batches, what it limits, and who may use it."""

import math
from dataclasses import dataclass, field

from covshift.support.checks import brief, check_flags, check_kind, check_list, check_number
from covshift.support.errors import CovshiftError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits, above which requests are refused.

    Attributes:
        body: bytes of a request.
        pixels: pixels of a picture, before it is resized.
        images: images in one request.
        queue: images that wait for a forward pass, over all cameras.
        cameras: cameras that are known, in memory or in the store.
        resident: cameras in memory; those that were idle longest are kept in the store only.
        idle: seconds after which a camera is kept in the store only.
        rate: images per second of one client; None for no limit.
        patience: seconds in which a client must have sent its request.
    """

    body: int = 64 << 20
    pixels: int = 25_000_000
    images: int = 256
    queue: int = 1024
    cameras: int = 10_000
    resident: int = 1_000
    idle: float = 600.0
    rate: float | None = None
    patience: float = 30.0

    def __post_init__(self) -> None:
        for name in ("body", "pixels", "images", "queue", "cameras", "resident"):
            check_number(getattr(self, name), name, 1, whole=True)
        check_number(self.idle, "idle", 0)
        for name in ("rate", "patience"):
            value = getattr(self, name)
            if name == "patience" or value is not None:
                check_number(value, name)
                if not 0 < value < math.inf:
                    raise CovshiftError(f"expected {name} to be a number above 0, got {brief(value)}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a server.

    Attributes:
        name: the name of the model in the protocol.
        batch: images in a forward pass, at most; a larger request is a pass of its own.
        delay: seconds that a request waits for others to share its forward pass.
        limits: limits, above which requests are refused.
        token: the bearer token for inference; None if anybody may.
        control: the bearer token for the control of cameras; None for the one for inference.
        hosts: the names by which the server may be called; None for any.
        passes: forward passes that run at once; None for as many as there are cores, up to 4.
        threads: CPU threads of each of them; None for an equal share of all cores.
        thumbnails: whether the last picture of each camera is kept, for the live page.
    """

    name: str = "model"
    batch: int = 32
    delay: float = 0.005
    limits: Limits = field(default_factory=Limits)
    token: str | None = field(default=None, repr=False)
    control: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] | None = ("127.0.0.1", "localhost", "[::1]")
    passes: int | None = None
    threads: int | None = None
    thumbnails: bool = False

    def __post_init__(self) -> None:
        check_kind(self.name, str, "name", "the name of a model")
        if not self.name or "/" in self.name:
            raise CovshiftError(f"expected name to be a part of addresses, such as 'model', got {brief(self.name)}")
        check_number(self.batch, "batch", 1, whole=True, of="images")
        check_number(self.delay, "delay", 0)
        check_kind(self.limits, Limits, "limits", "Limits")
        for name in ("token", "control"):
            if not isinstance(getattr(self, name), str | None):
                raise CovshiftError(f"expected {name} to be a text")  # which is not for others to read
        if self.hosts is not None:
            for host in check_list(self.hosts, "hosts", "names"):
                check_kind(host, str, "hosts", "a list of names")
        for name in ("passes", "threads"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, 1, whole=True)
        check_flags(thumbnails=self.thumbnails)
