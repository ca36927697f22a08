"""Networks for tests: random weights and randomised statistics, so that nothing holds by accident."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from covshift.support.torchvision import torchvision  # before timm, which imports torchvision too

import timm  # isort: skip

models = torchvision.models

# name: (maker, image size). One row a family that people adapt.
FAMILIES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet18": (models.resnet18, 48),
    "densenet121": (models.densenet121, 48),
    "mobilenet_v2": (models.mobilenet_v2, 48),
    "vgg11_bn": (models.vgg11_bn, 32),
    "googlenet": (lambda: models.googlenet(init_weights=False), 64),
    "inception_v3": (lambda: models.inception_v3(init_weights=False), 96),
    "shufflenet_v2": (models.shufflenet_v2_x0_5, 48),
    "efficientnet_b0": (lambda: timm.create_model("efficientnet_b0"), 48),
    "regnety_002": (lambda: timm.create_model("regnety_002"), 48),
    "mobilenetv3_small_100": (lambda: timm.create_model("mobilenetv3_small_100"), 48),
}


def norm_layers(model: nn.Module) -> dict[str, nn.Module]:
    return {path: m for path, m in model.named_modules() if isinstance(getattr(m, "running_mean", None), Tensor)}


def randomise(model: nn.Module, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Random statistics and affine parameters, eval mode, double precision."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in norm_layers(model).values():
            layer.running_mean.normal_(0, 0.5, generator=generator)
            layer.running_var.uniform_(0.5, 2, generator=generator)
            if isinstance(layer.weight, Tensor):
                layer.weight.uniform_(0.5, 1.5, generator=generator)
                layer.bias.normal_(0, 0.2, generator=generator)
        for layer in model.modules():
            if isinstance(layer, nn.Linear) and not layer.weight.any():  # torchvision's vit starts with such a head
                layer.weight.normal_(0, 0.1, generator=generator)
    return model.eval().to(dtype)


def family(name: str) -> tuple[nn.Module, Tensor]:
    """A network of the table and ten images for it."""
    torch.manual_seed(0)
    make, size = FAMILIES[name]
    return randomise(make()), images(10, size)


def images(number: int, size: int = 12, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Images with means and contrasts of their own, so that the order and the split of a batch matter."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(number, 3, size, size, generator=generator, dtype=torch.float64)
    contrast, mean = torch.rand(2, number, 3, 1, 1, generator=generator, dtype=torch.float64)
    return (noise * (0.2 + contrast) + 2 * mean - 0.7).to(dtype)


class Tiny(nn.Module):
    """A residual network of three layers, with a branch, for tests that need no known architecture."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.3)
        self.head = nn.Linear(channels, 4)
        self.last = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.norm(self.conv(x)).relu()
        return self.last(self.head(x.mean((2, 3))))


def tiny(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(seed)
    return randomise(Tiny(), seed, dtype)


def snapshot(model: nn.Module) -> dict[str, object]:
    """All that an adapter must leave as it was: every value, bit for bit, flags and hooks."""
    state = {name: tensor.clone() for name, tensor in model.state_dict(keep_vars=True).items()}
    flags = {path: m.training for path, m in model.named_modules()}
    kinds = [name for name in vars(model) if "hooks" in name]
    hooks = {path: {kind: dict(getattr(m, kind)) for kind in kinds} for path, m in model.named_modules()}
    modules = {path: id(m) for path, m in model.named_modules()}
    settings = {path: (m.eps, getattr(m, "momentum", None)) for path, m in norm_layers(model).items()}
    return {"state": state, "flags": flags, "hooks": hooks, "modules": modules, "settings": settings}


def assert_same(before: dict[str, object], model: nn.Module) -> None:
    after = snapshot(model)
    old, new = before.pop("state"), after.pop("state")
    assert before == after
    assert old.keys() == new.keys()
    for name in old:
        assert old[name].dtype == new[name].dtype
        assert torch.equal(old[name], new[name]), name
    before["state"] = old


def relative(a: Tensor, b: Tensor) -> float:
    return ((a - b).abs().max() / b.abs().max()).item()


def one_giant_batch(model: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
    """Torch's own answer: the logits with the norm layers in train mode, and the mean and variance each layer saw."""
    layers = norm_layers(model)
    saw: dict[str, tuple[Tensor, Tensor]] = {}

    def look(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            values = args[0].transpose(0, 1).flatten(1)
            saw[path] = (values.mean(1), values.var(1, correction=0))

        return hook

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    handles = [layer.register_forward_pre_hook(look(path)) for path, layer in layers.items()]
    for layer in layers.values():
        layer.train()
    with torch.no_grad():
        logits = model(x)
    for layer in layers.values():
        layer.eval()
    for handle in handles:
        handle.remove()
    model.load_state_dict(before)
    return logits, saw
