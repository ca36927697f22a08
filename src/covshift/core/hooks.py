"""Hooks of ours on the modules of a model, and the models that hooks cannot serve."""

from collections.abc import Callable
from typing import Any, NoReturn

from torch import Tensor, nn

from covshift.support.errors import CovshiftError

Act = Callable[[Any, Any], Any]
"""What is done at a `Place`: called with it and with what passes there; returns a replacement for that, or None."""


class Hook:
    """A hook that covshift runs at a place; a type of its own, so that a second one is noticed.

    Attributes:
        owner: the object whose method the hook runs, if it runs a method.
    """

    def __init__(self, place: object, act: Act) -> None:
        self._place = place
        self._act = act
        self.owner: object = getattr(act, "__self__", None)

    def before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the hook before the module; torch calls this."""
        return self._act(self._place, (args, kwargs))

    def after(self, module: nn.Module, args: object, output: Any) -> Any:
        """Run the hook after the module; torch calls this."""
        return self._act(self._place, output)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse_to_copy()


class Shortcut:
    """Has a layer return its input as it is where that was made its output already; until `remove`.

    Attributes:
        done: the input that is an output already; None for none.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module, self._forward = module, module.forward
        self.done: object = None
        module.forward = self

    def __call__(self, x: Tensor) -> Tensor:
        """Return what the layer makes of its input."""
        if x is self.done:
            self.done = None
            return x
        return self._forward(x)  # type: ignore[no-any-return]

    def remove(self) -> None:
        """Give the layer back its own forward."""
        del self._module.forward


def refuse_to_copy() -> NoReturn:
    """Raise a `CovshiftError`: a model is copied or pickled with our hooks on it."""
    raise CovshiftError(
        "the model is being adapted or estimated, and a copy of it would keep hooks that nothing can remove; copy or "
        "pickle it before that, after remove(), or after covshift.release(model)"
    )


def hooks_on(module: nn.Module) -> list[Hook]:
    """Return the hooks of ours that are on a module."""
    registered = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    owners = (getattr(hook, "__self__", None) for hook in registered)
    return [owner for owner in owners if isinstance(owner, Hook)]


def check_not_compiled(model: nn.Module) -> None:
    """Raise a `CovshiftError` if calling `model` runs what `torch.compile` made of it or of a part of it."""
    for module in model.modules():
        if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None:
            # Seen with torch 2.13: hooks that come after compilation are silently ignored.
            raise CovshiftError(
                "code compiled by torch.compile ignores new hooks; adapt or estimate on the model before it is "
                "compiled (statistics can be applied to a compiled model)"
            )
