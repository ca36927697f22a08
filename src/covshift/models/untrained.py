"""Building models without their weights: the same random values every time, or no values at all."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


def untrained(build: Callable[[], nn.Module], *, shapes_only: bool = False) -> nn.Module:
    """Build a model with random values that do not depend on, and do not touch, the global generator.

    Args:
        build: a function that makes the model.
        shapes_only: whether the model is only inspected, not run, which takes neither memory nor much time.

    >>> untrained(lambda: nn.Linear(1000, 1000), shapes_only=True).weight.device
    device(type='meta')
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if not shapes_only:
            return build()
        with torch.no_grad(), _ShapesOnly():
            return build()


class _ShapesOnly(TorchFunctionMode):
    """Makes parameters and buffers without values, and leaves out what would fill them.

    `torch.device("meta")` would do the first, but also to the small tensors that some models compute their widths
    with; and drawing random values that are not kept takes most of the time.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.empty, torch.zeros, torch.ones):
            return func(*args, **(kwargs | {"device": "meta"}))
        if func.__name__.endswith("_") and not func.__name__.endswith("__"):
            target = args[0] if args else kwargs.get("tensor")
            if isinstance(target, Tensor) and target.is_meta:
                return target
        return func(*args, **kwargs)
