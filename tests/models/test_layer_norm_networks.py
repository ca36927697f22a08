"""The built-in transformer and ConvNeXt against definitions written down independently, and what hooks see of them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from covshift.models.architecture import family, norm_kind
from covshift.models.convnext import ConvNeXt
from covshift.models.transformer import VisionTransformer
from covshift.support.errors import CovshiftError
from covshift.support.torchvision import torchvision


def drawn(network):
    """In double precision, with no parameter left at a value where a mistake would not show."""
    torch.manual_seed(0)
    for tensor in network.double().parameters():
        tensor.data = torch.randn_like(tensor) * 0.1 + 0.05
    return network.eval()


def transformer(state, x, heads):
    """The reference transformer, with torch's own attention."""

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"])

    for name in ("stem1", "stem2"):
        x = F.gelu(F.conv2d(x, state[f"{name}.weight"], state[f"{name}.bias"], stride=2, padding=1))
    x = linear(torch.stack([x[:, :, row, column] for row in range(8) for column in range(8)], 1), "embed")
    x = x + state["position"]
    width = x.shape[2]
    for block in range(2):
        own = f"blocks.{block}"
        attention = nn.MultiheadAttention(width, heads, batch_first=True, dtype=x.dtype)
        for part in ("weight", "bias"):
            for theirs, ours in (("in_proj_", "qkv."), ("out_proj.", "out.")):
                attention.get_parameter(theirs + part).data = state[f"{own}.attention.{ours}{part}"]
        y = norm(x, f"{own}.norm1")
        x = x + attention(y, y, y, need_weights=False)[0]
        x = x + linear(F.gelu(linear(norm(x, f"{own}.norm2"), f"{own}.expand")), f"{own}.reduce")
    return linear(norm(x, "norm").mean(1), "head")


def test_the_transformer_equals_the_independent_definition():
    network, x = drawn(VisionTransformer(depth=2, width=96)), torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(network(x), transformer(network.state_dict(), x, heads=3), rtol=1e-9, atol=1e-9)


def convnext(network, x):
    """The reference ConvNeXt, of torchvision's blocks between convolutions and norms of ours."""

    def norm(layer, x):
        return F.layer_norm(x.movedim(1, 3), layer.normalized_shape, layer.weight, layer.bias).movedim(3, 1)

    state = network.state_dict()
    x = norm(network.stem_norm, F.conv2d(x, state["stem.weight"], state["stem.bias"], stride=2))
    for index, width in enumerate([8, None, 16, 16, None, 32]):
        if width is None:
            layer = network.blocks[index]
            x = F.conv2d(norm(layer.norm, x), layer.conv.weight, layer.conv.bias, stride=2)
            continue
        own = network.blocks[index].state_dict()
        block = torchvision.models.convnext.CNBlock(width, 1.0, 0.0).double()
        places = {"block.0": "conv", "block.2": "norm", "block.3": "expand", "block.5": "reduce"}
        values = {f"{a}.{part}": own[f"{b}.{part}"] for a, b in places.items() for part in ("weight", "bias")}
        block.load_state_dict(values | {"layer_scale": own["scale"].view(-1, 1, 1)})
        block.block[2].eps = 1e-5
        x = block(x)
    pooled = F.adaptive_avg_pool2d(x, 1)
    return norm(network.norm, pooled).flatten(1) @ state["head.weight"].T + state["head.bias"]


def test_the_convnext_equals_the_independent_definition():
    network, x = drawn(ConvNeXt(depth=4, width=8)), torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(network(x), convnext(network, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("network", "kind"),
    [(VisionTransformer(depth=2, width=32), "Vision Transformer"), (ConvNeXt(depth=4, width=8), "ConvNeXt")],
)
def test_hooks_see_every_layer_once(network, kind):
    seen = []
    layers = {name: layer for name, layer in network.named_modules() if not list(layer.children())}
    for name, layer in layers.items():
        layer.register_forward_hook(lambda layer, inputs, output, name=name: seen.append(name))
    with torch.inference_mode():
        network.eval()(torch.zeros(2, 3, 32, 32))
    assert sorted(seen) == sorted(layers)
    assert (family(network), norm_kind(network)) == (kind, "layer")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: VisionTransformer(depth=0), "expected at least one block"),
        (lambda: VisionTransformer(width=100), "multiple of 32, got 6 and 100"),
        (lambda: ConvNeXt(depth=6), "depth that is a multiple of 4"),
        (lambda: ConvNeXt(width=0), "at least one channel, got 8 and 0"),
    ],
)
def test_sizes_that_cannot_be(build, words):
    with pytest.raises(CovshiftError, match=words):
        build()
