"""The frozen encoder that runs: its weights, and the hidden states of a batch.

B windows in a batch, P pieces, H hidden size, layer 0 = the embedding output, 1..L = the encoder blocks.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from probe.config import UserError
from probe.features.checkpoint import Encoder
from probe.system.bfloat16 import rounded, way

if TYPE_CHECKING:
    import torch


def load_model(encoder: Encoder, device: str, precision: str = "float32", keep_pooler: bool = False) -> torch.nn.Module:
    """The encoder with its weights: in evaluation mode (no dropout), no gradients.

    precision: float32, or bfloat16 for weights and arithmetic alike (faster; every layer is off by about a percent),
    emulated on a CPU that has none: see `emulate`.
    keep_pooler: with the pooler, where the checkpoint has its weights; no hidden state depends on it.
    """
    import torch
    import transformers

    try:
        model, loading = transformers.AutoModel.from_pretrained(
            encoder.folder,
            dtype=getattr(torch, precision),
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # the library raises a dozen kinds
        raise UserError(f"{encoder.folder} cannot be loaded: {str(error).splitlines()[0]}") from None
    missing = [key for key in loading["missing_keys"] if "pooler" not in key and "position_ids" not in key]
    if missing:
        raise UserError(
            f"{encoder.folder}: {len(missing)} weights are missing ({missing[0]}, ...) and would be random. "
            "Is this a checkpoint of another kind of model?"
        )
    if encoder.config.is_encoder_decoder:
        model = model.get_encoder()
    random_pooler = any("pooler" in key for key in loading["missing_keys"])
    if getattr(model, "pooler", None) is not None and (random_pooler or not keep_pooler):
        model.pooler = None
    if precision == "bfloat16" and way(device, lstm=False) == "emulated":
        emulate(model)
    return model.to(device).eval().requires_grad_(False)


def emulate(model: torch.nn.Module) -> None:
    """Gives a model in bfloat16 float32's products and speed, keeping bfloat16's values.

    Weights stay the values they are; what goes into and comes out of each module with weights of its own is rounded.
    In between, inside attention and in the sums around it, is float32: less is rounded than where all is bfloat16.
    """
    import torch

    def rounding(x: Any) -> Any:
        return rounded(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    model.float()
    for module in model.modules():
        if any(True for _ in module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, inputs: tuple(map(rounding, inputs)))
            module.register_forward_hook(lambda _, inputs, output: rounding(output))


@functools.cache
def _takes_types(forward: Callable[..., Any]) -> bool:
    return "token_type_ids" in inspect.signature(forward).parameters


def hidden_states(
    model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """All L + 1 hidden states of a batch, each (B, P, H). ids, mask (1 = a piece, 0 = padding), types: (B, P)."""
    return outputs(model, ids, mask, types).hidden_states


class _Enough(Exception):
    """Ends a forward pass whose remaining blocks nobody needs."""


def states_up_to(
    model: torch.nn.Module,
    num_layers: int,
    deepest: int,
    ids: torch.Tensor,
    mask: torch.Tensor,
    types: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:
    """Hidden states 0 to `deepest`, each (B, P, H): the very values of `hidden_states`, without computing the rest.

    Hidden state k is what goes into block k + 1, so the pass ends there. Where blocks cannot be told (ALBERT has one,
    used many times), all are computed.
    """
    blocks = blocks_of(model, num_layers)
    if deepest >= num_layers or blocks is None:
        return hidden_states(model, ids, mask, types)[: deepest + 1]
    seen: list[torch.Tensor] = []

    def keep(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(args[0] if args else kwargs["hidden_states"])
        if len(seen) > deepest:
            raise _Enough

    hooks = [block.register_forward_pre_hook(keep, with_kwargs=True) for block in blocks[: deepest + 1]]
    try:
        outputs(model, ids, mask, types)
    except _Enough:
        return tuple(seen)
    finally:
        for hook in hooks:
            hook.remove()
    raise AssertionError("no block was reached")


def blocks_of(model: torch.nn.Module, num_layers: int) -> list[torch.nn.Module] | None:
    """The encoder's blocks in their order; None where there is no one list of so many alike."""
    import torch

    lists = [part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and len(part) == num_layers]
    alike = [part for part in lists if len({type(block) for block in part}) == 1]
    return list(alike[0]) if len(alike) == 1 else None


def outputs(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None) -> Any:
    """All that the encoder gives for a batch, as transformers names it."""
    inputs = {"input_ids": ids, "attention_mask": mask}
    if types is not None and _takes_types(type(model).forward):
        inputs["token_type_ids"] = types
    return model(**inputs, output_hidden_states=True, return_dict=True)
