"""Stops an encoder at a layer, so that the blocks after it are not computed.

Layer k < L is the input of block k + 1, so the forward pass runs unchanged until it enters that block, and ends there.
Whatever a family does after its last block, such as a final norm, is never reached. A trial run finds which modules are
the blocks. If an encoder does not give the same bits when it is stopped, it is computed whole.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from probe.encoders.checkpoint import Encoder
from probe.encoders.encoder import Stopped, hidden_states
from probe.features.words import with_special_pieces


def stop_at(layer: int, model: torch.nn.Module, encoder: Encoder, device: str) -> list[Any]:
    """Makes the model's forward passes end with the states of layers 0..layer; prints a note if that fails.

    Returns the hooks that do so, or none if all blocks are computed; call `remove` on each to undo it. They are first
    tried on a sample, where the states must have the same bits as those of the whole forward pass.
    """
    if layer == encoder.num_layers:
        return []
    inputs = [None if part is None else part.to(device) for part in _sample(encoder)]
    whole = _run(model, inputs)
    for blocks in [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]:
        hooks = _end_at(layer, model, blocks)
        if _same(_run(model, inputs), whole[: layer + 1]):
            return hooks
        for hook in hooks:
            hook.remove()
    print(
        f"{encoder.name} cannot be stopped at layer {layer}; all its {encoder.num_layers} blocks are computed.",
        file=sys.stderr,
    )
    return []


def _sample(encoder: Encoder) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Returns ids, mask and segment ids of two short texts, one of them padded."""
    piece = encoder.tokenizer.unk_token_id or 0
    return with_special_pieces([[piece] * min(length, encoder.max_text_pieces) for length in (4, 1)], encoder)


@torch.inference_mode()
def _run(model: torch.nn.Module, inputs: list[Any]) -> tuple[torch.Tensor, ...]:
    return hidden_states(model, *inputs)


def _same(found: tuple[Any, ...], expected: tuple[torch.Tensor, ...]) -> bool:
    return len(found) == len(expected) and all(
        isinstance(a, torch.Tensor) and torch.equal(a, b) for a, b in zip(found, expected, strict=True)
    )


def _end_at(layer: int, model: torch.nn.Module, blocks: torch.nn.ModuleList) -> list[Any]:
    """Adds hooks that store the input of each block, and end the forward pass when block `layer` + 1 begins.

    They count calls and not modules, because ALBERT calls the same module repeatedly.
    """
    states: list[Any] = []

    def begin(*_: object) -> None:
        states.clear()

    def enter(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(args[0] if args else kwargs.get("hidden_states"))
        if len(states) > layer:
            raise Stopped(tuple(states))

    hooks = [block.register_forward_pre_hook(enter, with_kwargs=True) for block in dict.fromkeys(blocks)]
    return [*hooks, model.register_forward_pre_hook(begin)]
