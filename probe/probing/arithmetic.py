"""The arithmetic of a probe: float32, or bfloat16 where products and LSTMs are concerned, as PyTorch's autocast has it.

Sums, the mix, the loss and the weights themselves stay float32 in either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from probe.system.bfloat16 import rounded, way


class Rounding(TorchFunctionMode):
    """What autocast to bfloat16 does, for a CPU without such arithmetic, and for a GPU's LSTM.

    What goes into a product or an LSTM (weights too) and what comes out is rounded, in between is float32; so are the
    gradients on their way back, as each cast of autocast's rounds them. One thing is not: the hidden state from word
    to word, which nn.LSTM hands on inside one fast kernel; natively it is bfloat16 there.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.linear or func is torch.lstm:
            return _rounded(func(*_rounded(args), **(kwargs or {})))
        return func(*args, **(kwargs or {}))


def _rounded(values: Any) -> Any:
    """Every tensor in nested sequences rounded, the rest as it is."""
    if isinstance(values, Tensor):
        return rounded(values)
    return tuple(map(_rounded, values)) if isinstance(values, list | tuple) else values


def arithmetic(precision: str, device: str, lstm: bool) -> AbstractContextManager[Any]:
    """What a forward pass on the device runs under. lstm: whether the probe has LSTMs."""
    if precision == "bfloat16" and way(device, lstm) == "emulated":
        return Rounding()
    return torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")
