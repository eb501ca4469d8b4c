"""Finds out whether this machine has fast kernels for bfloat16; if not, turns to PyTorch's own kernels.

On a CPU, PyTorch uses oneDNN for products and LSTMs. oneDNN computes in bfloat16 only on CPUs with such instructions.
On a GPU, cuDNN's LSTM would be float16 under autocast, which is not what the settings and the key say. PyTorch's own
kernels compute in bfloat16 on every device, several times slower. Support is found by a trial: a list of CPU names
would be wrong for the next CPU, and for one restricted by ONEDNN_MAX_CPU_ISA. Unlike a timing, a trial gives every
process of a machine the same answer, however busy the machine is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

Kernels = Literal["native", "pytorch"]
SLOW = {
    "cpu": "bfloat16 will be slow: oneDNN has no kernels for it on this CPU. float32 is several times as fast here",
    "cuda": "bfloat16 will be slow: cuDNN's LSTM would be float16, so PyTorch's own kernels are used",
}


def kernels_for(device: str, lstm: bool) -> Kernels:
    """Returns which kernels compute a device's products in bfloat16. lstm: LSTMs too."""
    native = not lstm if device != "cpu" else _product_works() and (not lstm or _lstm_works())
    return "native" if native else "pytorch"


def resolve_precision(precision: str, device: str) -> str:
    """Returns float32 or bfloat16; auto becomes bfloat16 if the device has native products in it."""
    if precision != "auto":
        return precision
    return "bfloat16" if kernels_for(device, lstm=False) == "native" else "float32"


@contextmanager
def kernels(precision: str, device: str, lstm: bool) -> Iterator[None]:
    """Turns oneDNN (on a GPU: cuDNN) off inside the block, if it has no kernels for the requested bfloat16."""
    if precision != "bfloat16" or kernels_for(device, lstm) == "native":
        yield
        return
    import torch

    library: Any = torch.backends.mkldnn if device == "cpu" else torch.backends.cudnn
    before = library.enabled
    library.enabled = False
    try:
        yield
    finally:
        library.enabled = before


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
