"""A probe's precision: float32, or bfloat16 for matrix products and LSTMs as in PyTorch's autocast.

Sums, the mix, the loss and the stored weights are float32 in both.
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
    """Emulates autocast to bfloat16, on a CPU without bfloat16 arithmetic and for LSTMs on a GPU.

    Inputs (weights too) and outputs of matrix products and LSTMs are rounded; what lies between is float32. Gradients
    are rounded on the way back, as by each cast of autocast. One exception: the hidden state passed from word to word
    inside nn.LSTM's kernel stays float32; natively it is bfloat16.
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
