"""Frozen statistics as part of the convolutions: the same outputs up to rounding, and less to do for each layer.

Which normalisation may be folded into which convolution is seen, not guessed: one pass of a few images shows what each
layer is called with, and what else looks at the output of a convolution. The model itself stays as it is.
"""

from collections import Counter
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from covshift.core.calling import logits_of

_CLOSE = 1e-3  # of the largest logit; rounding alone is a hundredth of this
_EXAMPLES = 4
_PRECISE = (torch.float32, torch.float64)


class Pair(NamedTuple):
    """The paths of a convolution and of the normalisation that alone gets its output."""

    convolution: str
    normalisation: str


class Folding:
    """Folds one model, with whatever statistics it holds at the time."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._pairs: list[Pair] | None = None

    def fold(self, images: Tensor) -> nn.Module:
        """Return a copy of the model with its statistics folded in, or where that is not possible the model itself.

        Args:
            images: a batch of the model's input, of which the first images check that the answers stay the same.
        """
        examples = images[:_EXAMPLES]
        with torch.inference_mode():
            if self._pairs is None:
                self._pairs = find_pairs(self._module, examples)
            if not self._pairs:
                return self._module
            try:
                folded = _folded(self._module, self._pairs)
                found, wanted = logits_of(folded(examples)), logits_of(self._module(examples))
            except (TypeError, RuntimeError, AttributeError, NotImplementedError):
                # A model that cannot be copied, or that reads its normalisation layers itself.
                self._pairs = []
                return self._module
        close = (found - wanted).abs().max() <= _CLOSE * wanted.abs().max()
        return folded if close else self._module


def find_pairs(module: nn.Module, images: Tensor) -> list[Pair]:
    """Return the convolutions whose output goes into one normalisation by running statistics, and nowhere else.

    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.BatchNorm2d(8)).eval()
    >>> find_pairs(net, torch.rand(1, 3, 8, 8))
    [Pair(convolution='0', normalisation='1')]
    """
    paths = {inner: path for path, inner in module.named_modules()}
    convolutions = [inner for inner in paths if type(inner) is nn.Conv2d and _is_plain(inner)]
    norms = [inner for inner in paths if type(inner) is nn.BatchNorm2d and _is_plain(inner) and _is_frozen(inner)]
    owners = Counter(id(tensor) for inner in paths for tensor in inner._parameters.values() if tensor is not None)
    watch = _Watch()
    handles = [inner.register_forward_hook(watch.after) for inner in convolutions]
    handles += [inner.register_forward_pre_hook(watch.before) for inner in norms]
    try:
        with watch:
            module(images)
    finally:
        for handle in handles:
            handle.remove()
    return [
        Pair(paths[convolution], paths[norm])
        for norm, convolution in watch.fed_by.items()
        if watch.calls[norm] == watch.calls[convolution] == watch.looks[convolution] == 1
        and owners[id(convolution.weight)] == 1
    ]


class _Watch(TorchDispatchMode):
    """Records which operators read the outputs of convolutions, and which normalisation is called with one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[nn.Module] = Counter()
        self.looks: Counter[nn.Module] = Counter()
        self.fed_by: dict[nn.Module, nn.Module] = {}
        self._made: dict[int, tuple[nn.Module, Tensor]] = {}  # with the tensor, so that its id stays its own

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and note what it is given."""
        for value in {id(leaf) for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)}:
            if value in self._made:
                self.looks[self._made[value][0]] += 1
        return func(*args, **(kwargs or {}))

    def after(self, convolution: nn.Module, args: object, output: Tensor) -> None:
        """Note the output of a convolution."""
        self.calls[convolution] += 1
        self._made[id(output)] = convolution, output

    def before(self, norm: nn.Module, args: tuple[Any, ...]) -> None:
        """Note what a normalisation is called with."""
        self.calls[norm] += 1
        if args and id(args[0]) in self._made:
            self.fed_by[norm] = self._made[id(args[0])][0]


def _folded(module: nn.Module, pairs: list[Pair]) -> nn.Module:
    copied = deepcopy(module)
    for pair in pairs:
        convolution: Any = copied.get_submodule(pair.convolution)
        norm: Any = copied.get_submodule(pair.normalisation)
        weight, bias = fuse_conv_bn_weights(
            *(convolution.weight, convolution.bias, norm.running_mean, norm.running_var),
            *(norm.eps, norm.weight, norm.bias),
        )
        last = convolution.weight.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last else torch.contiguous_format
        convolution.weight = nn.Parameter(weight.contiguous(memory_format=layout), requires_grad=False)
        convolution.bias = nn.Parameter(bias, requires_grad=False)
        parent, _, name = pair.normalisation.rpartition(".")
        setattr(copied.get_submodule(parent), name, nn.Identity())
    return copied


def _is_plain(module: nn.Module) -> bool:
    """Return whether a layer does no more than its class: it has no hooks, and numbers precise enough to multiply."""
    weight = module.weight
    hooked = any(getattr(module, name, None) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"))
    return not hooked and (weight is None or (isinstance(weight, Tensor) and weight.dtype in _PRECISE))


def _is_frozen(norm: nn.BatchNorm2d) -> bool:
    return not norm.training and norm.running_mean is not None and norm.running_var is not None
