"""The CIFAR networks against definitions written down independently, with torch's functions alone."""

import pytest
import torch
from torch.nn import functional as F

from covshift.models.cifar import FixupBlock, ResNet, deepen
from covshift.support.errors import CovshiftError


def network(norm, depth=20, width=16):
    """In double precision, with no parameter left at a value where a mistake would not show."""
    torch.manual_seed(0)
    net = ResNet(depth, width, norm).double().eval()
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.5 if "var" in name else torch.randn_like(tensor) * 0.2 + 0.1)
    return net


def widen(x, channels):
    """He et al., option A: subsample and add zero channels."""
    small = F.avg_pool2d(x, 1, stride=2)
    return torch.cat([small, torch.zeros(len(x), channels - x.shape[1], *small.shape[2:], dtype=x.dtype)], 1)


def normalised(state, x, groups):
    """The reference ResNet-20; groups=None normalises by running statistics."""

    def norm(x, name):
        weight, bias = state[f"{name}.weight"], state[f"{name}.bias"]
        if groups:
            return F.group_norm(x, groups, weight, bias)
        return F.batch_norm(x, state[f"{name}.running_mean"], state[f"{name}.running_var"], weight, bias)

    x = F.relu(norm(F.conv2d(x, state["stem.weight"], padding=1), "norm"))
    for block in range(9):
        stride = 2 if block in (3, 6) else 1
        y = F.conv2d(x, state[f"blocks.{block}.conv1.weight"], stride=stride, padding=1)
        y = F.conv2d(F.relu(norm(y, f"blocks.{block}.norm1")), state[f"blocks.{block}.conv2.weight"], padding=1)
        x = F.relu(norm(y, f"blocks.{block}.norm2") + (x if stride == 1 else widen(x, y.shape[1])))
    return F.adaptive_avg_pool2d(x, 1).flatten(1) @ state["head.weight"].T + state["head.bias"]


def fixup(state, x):
    """The reference Fixup-ResNet-20: Figure 1 (right) of Zhang et al. in each block."""
    x = F.relu(F.conv2d(x, state["stem.weight"], padding=1) + state["norm.bias"])
    for block in range(9):
        part = {name: state[f"blocks.{block}.{name}"] for name in ("bias1a", "bias1b", "bias2a", "bias2b", "scale")}
        stride = 2 if block in (3, 6) else 1
        y = F.conv2d(x + part["bias1a"], state[f"blocks.{block}.conv1.weight"], stride=stride, padding=1)
        y = F.relu(y + part["bias1b"]) + part["bias2a"]
        y = part["scale"] * F.conv2d(y, state[f"blocks.{block}.conv2.weight"], padding=1) + part["bias2b"]
        x = F.relu(y + (x if stride == 1 else widen(x + part["bias1a"], y.shape[1])))
    pooled = F.adaptive_avg_pool2d(x, 1).flatten(1) + state["bias.bias"]
    return pooled @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize(
    ("norm", "reference"),
    [
        ("batch", lambda state, x: normalised(state, x, None)),
        ("group", lambda state, x: normalised(state, x, 8)),
        ("fixup", fixup),
    ],
)
def test_equals_the_independent_definition(norm, reference):
    net, x = network(norm), torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(net(x), reference(net.state_dict(), x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    # Table 6 of He et al.: 0.27 M, 0.46 M and 0.85 M.
    ("depth", "parameters"),
    [(20, 269_722), (32, 464_154), (56, 853_018)],
)
def test_parameters_are_those_of_the_paper(depth, parameters):
    assert sum(p.numel() for p in ResNet(depth).parameters()) == parameters


def test_fixup_has_scalars_in_place_of_normalisation():
    convolutions = sum(p.numel() for p in ResNet(20).parameters() if p.dim() > 1)
    assert sum(p.numel() for p in ResNet(20, norm="fixup").parameters()) == convolutions + 10 + 9 * 5 + 2


def test_fixup_starts_as_the_identity_and_with_uniform_predictions():
    torch.manual_seed(0)
    net = ResNet(32, norm="fixup")
    x = torch.rand(2, 16, 8, 8)
    for block in net.blocks:
        if block.conv1.in_channels == 16 and block.conv1.stride == (1, 1):
            torch.testing.assert_close(block(x), x, rtol=0, atol=0)
        he = (2 / (9 * block.conv1.out_channels)) ** 0.5
        assert block.conv1.weight.std().item() == pytest.approx(he * 15**-0.5, rel=0.05)
        assert not block.conv2.weight.any()
    assert not net(torch.randn(2, 3, 32, 32)).any()
    assert all(isinstance(block, FixupBlock) for block in net.blocks)


def test_fixup_can_learn_from_there():
    net = ResNet(8, width=4, norm="fixup")
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    x, y = torch.randn(8, 3, 16, 16), torch.arange(8)
    for _ in range(3):
        optimiser.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimiser.step()
    assert all(p.grad.abs().sum() > 0 for name, p in net.named_parameters() if "conv2" in name or "head" in name)


@pytest.mark.parametrize("norm", ["batch", "group", "fixup"])
def test_width_and_classes(norm):
    net = ResNet(8, width=8, norm=norm, classes=7)
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert net.head.in_features == 32


def test_a_deeper_network_is_the_same_function_and_learns():
    shallow, x = network("batch").float(), torch.randn(3, 3, 32, 32)
    deeper = deepen(shallow, 32).eval()
    assert len(deeper.blocks) == 15
    assert torch.equal(deeper(x), shallow(x))
    deeper(x).sum().backward()
    assert all(block.norm2.weight.grad.any() for block in deeper.blocks)


def test_a_network_that_is_deep_enough_stays_as_it_is():
    shallow = ResNet(8, norm="group")
    assert deepen(shallow, 8) is shallow


def test_what_cannot_be_deepened():
    with pytest.raises(CovshiftError, match="at most 8 layers"):
        deepen(ResNet(14), 8)
    with pytest.raises(CovshiftError, match="batch normalisation"):
        deepen(ResNet(8, norm="group"), 14)


def test_bad_arguments():
    with pytest.raises(CovshiftError, match=r"6n \+ 2.*got 18"):
        ResNet(18)
    with pytest.raises(CovshiftError, match="did you mean 'batch'"):
        ResNet(20, norm="btch")
