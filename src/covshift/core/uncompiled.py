"""Functions that `torch.compile` leaves as they are."""

from collections.abc import Callable
from typing import Any

import torch


def leave_uncompiled(*functions: Callable[..., Any]) -> None:
    """Keep `torch.compile` from looking into functions, and from compiling them, or what they call, by themselves.

    This is `torch.compiler.disable` without importing the compiler, which takes about as long as importing torch.
    """
    frames: Any = torch._C._dynamo.eval_frame
    for function in functions:
        setattr(function, "_torchdynamo_disable", True)  # noqa: B010
        if hasattr(frames, "set_code_exec_strategy"):  # not in torch 2.6
            skip = frames._FrameAction.SKIP
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
