"""Places at the outputs of layers that hold no statistics: convolutions, linear layers, GroupNorm, LayerNorm.

Corrected activations are y·g + h, a scale and a shift for each channel. So a correction that stays can be folded into
the weight and bias of the layer itself, and the repaired model is an ordinary one.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.utils.hooks import RemovableHandle

from covshift.core.hooks import Act, Hook
from covshift.core.moments import Moments, widen
from covshift.core.places import Only, Place, check_not_moved, unlocked
from covshift.support.errors import CovshiftError

_FLOOR = 1e-5  # of the mean variance: what is added to variances
_PARTS = ("weight", "bias")


class Output(Place):
    """The output of a layer with channels; its source statistics are measured on clean images."""

    def __init__(self, path: str, module: nn.Module, anchor: Moments, only: Only = None) -> None:
        weight = next(module.parameters(), anchor.mean)
        dtype = torch.float64 if weight.dtype is torch.float64 else torch.float32
        mean, var = (each.to(weight.device, dtype) for each in (anchor.mean, anchor.var))
        super().__init__(path, module, only, mean, var)
        self._eps = _FLOOR * float(widen(var).mean()) or _FLOOR
        self._scale = torch.ones_like(mean)
        self._shift = torch.zeros_like(mean)
        self._folded: dict[str, Tensor | None] = {}

    @property
    def eps(self) -> float:
        """A small part of the mean variance, so that it does not depend on the scale of the activations."""
        return self._eps

    def write(self, mean: Tensor, var: Tensor) -> None:
        """Shift and scale what passes from now on from these statistics to the source's."""
        mean, var = self._only(mean, var)
        source_mean, source_var = self.mean.to(mean), self.var.to(var)
        self._scale = ((source_var + self._eps) / (var + self._eps)).sqrt()
        self._shift = source_mean - mean * self._scale

    def keep(self, mean: Tensor, var: Tensor) -> None:
        """Fold the correction into the layer's weight and bias; a bias is made where there is none."""
        self.write(widen(mean).to(self.mean.device), widen(var).to(self.mean.device))
        self._folded = {name: self._copy(name) for name in _PARTS}
        weight, bias = (getattr(self.module, name) for name in _PARTS)
        if weight is None:
            self._make("weight", self._scale)
        else:
            with unlocked(weight):
                scale = self._scale.view(-1, *[1] * (weight.ndim - 1))
                weight.copy_(widen(weight) * scale)
        if bias is None:
            self._make("bias", self._shift)
        else:
            with unlocked(bias):
                bias.copy_(widen(bias) * self._scale + self._shift)

    def _copy(self, name: str) -> Tensor | None:
        part = getattr(self.module, name)
        return None if part is None else part.detach().clone()

    def _make(self, name: str, value: Tensor) -> None:
        given = next(self.module.parameters(), self.mean)
        setattr(self.module, name, nn.Parameter(value.to(given), requires_grad=given.requires_grad))

    def restore(self) -> None:
        """Put back the weight and bias that were there before a correction was folded in."""
        for name, before in self._folded.items():
            if before is None:
                setattr(self.module, name, None)
            else:
                part = getattr(self.module, name)
                with unlocked(part):
                    part.copy_(before)
        self._folded = {}
        self._scale, self._shift = torch.ones_like(self.mean), torch.zeros_like(self.mean)

    def hook(self, act: Act) -> list[RemovableHandle]:
        """Have `act(place, output)` called after every call of the layer."""
        return [self.module.register_forward_hook(Hook(self, act).after)]

    def read(self, passing: Any, images: int | None = None) -> Tensor:
        """Return the output of the layer, with its channels in dimension 1, or raise a `CovshiftError`."""
        channels = len(self.mean)
        if not isinstance(passing, Tensor) or passing.ndim < 2 or passing.shape[self._dim(passing)] != channels:
            got = f"shape {tuple(passing.shape)}" if isinstance(passing, Tensor) else type(passing).__name__
            raise CovshiftError(
                f"layer {self.path!r} expected to return a batch with {channels} channels, got {got}; "
                "give the model a whole batch, or leave this layer out with layers="
            )
        check_not_moved(passing, self)
        x = passing if self._dim(passing) == 1 else passing.movedim(-1, 1)
        # Some networks have the images of a sequence in dimension 1, after the tokens.
        turned = x.ndim == 3 and images is not None and x.shape[0] != images == x.shape[2]
        return x.transpose(0, 2) if turned else x

    def replaced(self, passing: Tensor, x: Tensor) -> Tensor:
        """Return `x` in the layout of the layer's output."""
        turned = x.ndim == 3 and self._dim(passing) != 1 and x.shape[0] != passing.shape[0]
        x = x.transpose(0, 2) if turned else x
        return x if self._dim(passing) == 1 else x.movedim(1, -1)

    def finish(self, passing: Tensor) -> Tensor:
        """Return the output, shifted and scaled."""
        behind = passing.ndim - 2 if self._dim(passing) == 1 else 0
        scale, shift = (each.view(-1, *[1] * behind) for each in (self._scale, self._shift))
        if passing.requires_grad or passing.dtype not in (torch.float32, torch.float64):
            return torch.addcmul(shift, passing.to(scale), scale).to(passing.dtype)
        return torch.addcmul(shift.to(passing), passing, scale.to(passing), out=passing)

    def _dim(self, output: Tensor) -> int:
        """Return the dimension of the channels in an output: 1, or -1 for the last."""
        if isinstance(self.module, nn.Linear):
            return -1
        if not isinstance(self.module, nn.LayerNorm):
            return 1
        if type(self.module).forward is nn.LayerNorm.forward or output.ndim != 4:
            return -1
        channels = len(self.mean)
        second, last = output.shape[1] == channels, output.shape[-1] == channels
        return 1 if second and (not last or "2d" in type(self.module).__name__.lower()) else -1


def output_channels(module: nn.Module) -> int | None:
    """Return the number of channels of a module whose output can be a place; None for all other modules.

    A layer is one if a scale and a shift of its output can be folded into its weight and bias.
    """
    if isinstance(module, _ConvNd) and not module.transposed:
        channels, size = module.out_channels, module.in_channels
        probe = torch.zeros(
            1, size, *((k - 1) * d + 1 for k, d in zip(module.kernel_size, module.dilation, strict=True))
        )
        plain = type(module).forward in (nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)
    elif isinstance(module, nn.Linear) and not isinstance(module, NonDynamicallyQuantizableLinear):
        # The other kind is a part of torch's attention, which uses its weight and never calls it.
        channels, plain = module.out_features, type(module).forward is nn.Linear.forward
        probe = torch.zeros(1, module.in_features)
    elif isinstance(module, nn.GroupNorm):
        channels, plain = module.num_channels, type(module).forward is nn.GroupNorm.forward
        probe = torch.zeros(1, channels, 2, 2)
    elif isinstance(module, _InstanceNorm):
        channels, plain = module.num_features, True
        probe = torch.zeros(1, channels, 2)
    elif isinstance(module, nn.LayerNorm) and len(module.normalized_shape) == 1:
        channels, plain = module.normalized_shape[0], type(module).forward is nn.LayerNorm.forward
        tokens, probe = torch.zeros(1, 2, channels), torch.zeros(1, channels, 2, 2)
        plain = plain or _folds(module, tokens, channels)  # else it takes its channels second, as LayerNorm2d does
    else:
        return None
    if any(name not in module._parameters for name in _PARTS):  # computed from others, such as by weight_norm
        return None
    return channels if plain or _folds(module, probe, channels) else None


@torch.no_grad()
def _folds(module: nn.Module, probe: Tensor, channels: int) -> bool:
    """Return whether scaling the weight and bias of a layer with a forward of its own scales its output."""
    given = next(module.parameters(), probe)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(probe.shape, generator=generator).to(given)
    scale, shift = (torch.rand(channels, generator=generator) + 0.5 for _ in range(2))
    place = Output("", module, Moments(0, 0, shift, scale.square()))
    try:
        before = module(images)
        place.keep(torch.zeros(channels), torch.ones(channels))
        wanted = place.finish(before.clone())
        return torch.allclose(module(images), wanted, rtol=1e-3, atol=1e-4)
    except (RuntimeError, ValueError, TypeError, NotImplementedError):
        return False  # it wants other arguments, or another input than its kind: not ours to correct
    finally:
        place.restore()
