"""Finds whether this machine has bfloat16 or must emulate it in float32.

A CPU without native support has no LSTM in bfloat16 at all, and matrix products many times slower than in float32.
There it is emulated: the inputs and outputs of a product are rounded, and the product is float32. Support is found by
trial: a list of CPU names would be wrong for the next CPU, and for one restricted by ONEDNN_MAX_CPU_ISA. The trial asks
whether oneDNN, to which PyTorch leaves products and LSTMs where they are fast, does them at all: unlike a timing, that
gives every process of a machine the same answer, however busy it is.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

Way = Literal["native", "emulated"]
EMULATED = {  # why, by device
    "cpu": "this CPU has none of its own; emulated in float32, at its speed",
    "cuda": "PyTorch gives a GPU's LSTM float16 instead; emulated in float32, at its speed",
}


def way(device: str, lstm: bool) -> Way:
    """Returns how a device computes products in bfloat16 (lstm: and LSTMs).

    A GPU has native products. Autocast would run its LSTM in float16, which is not what the settings and the key say.
    """
    native = not lstm if device != "cpu" else _product_works() and (not lstm or _lstm_works())
    return "native" if native else "emulated"


def settled(precision: str, device: str) -> str:
    """Returns float32 or bfloat16; auto becomes bfloat16 if the device has native products in it."""
    if precision != "auto":
        return precision
    return "bfloat16" if way(device, lstm=False) == "native" else "float32"


@functools.cache
def _product_works() -> bool:
    import torch

    ones = torch.ones(8, 8, dtype=torch.bfloat16)
    try:
        torch.nn.functional.linear(ones.to_mkldnn(), ones)
    except RuntimeError:
        return False
    return True


@functools.cache
def _lstm_works() -> bool:
    """Tries forward and backward. Restores the random state, because the bits of a run depend on it."""
    import torch

    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        try:
            with torch.autocast("cpu", torch.bfloat16):
                out, _ = torch.nn.LSTM(8, 8)(torch.ones(2, 2, 8))
            out.float().sum().backward()
        except RuntimeError:
            return False
    return True


def rounded(x: Tensor) -> Tensor:
    """Rounds to the nearest bfloat16 values, in float32; the gradient is rounded in the same manner."""
    return x.bfloat16().float()
