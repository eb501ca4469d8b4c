"""Loads the frozen encoder and computes the hidden states of a batch.

B windows in a batch, P pieces, H hidden size, layer 0 = the embedding output, 1..L = the encoder blocks.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from probe.config import UserError
from probe.encoders.checkpoint import Encoder, if_damaged
from probe.system.bfloat16 import kernels
from probe.system.format import reason_of

if TYPE_CHECKING:
    import torch


def load_model(encoder: Encoder, device: str, precision: str = "float32", keep_pooler: bool = False) -> torch.nn.Module:
    """Loads the encoder with its own or random weights, in evaluation mode (no dropout) and without gradients.

    precision: float32, or bfloat16 for both weights and arithmetic (every layer then differs by about a percent).
    keep_pooler: loads the pooler if the checkpoint has its weights; no hidden state depends on it.
    """
    import torch

    model: Any
    if encoder.weights == "pretrained":
        model, missing = _from_files(encoder, getattr(torch, precision))
        random_pooler = any("pooler" in key for key in missing)
    else:
        model, random_pooler = _random(encoder), True
        for parameter in model.parameters():  # buffers keep the dtype that the model creates them with
            parameter.data = parameter.data.to(getattr(torch, precision))
    if getattr(model, "pooler", None) is not None and (random_pooler or not keep_pooler):
        model.pooler = None
    return model.to(device).eval().requires_grad_(False)


def _from_files(encoder: Encoder, dtype: torch.dtype) -> tuple[Any, list[str]]:
    """Loads the encoder and the names of missing weights; no hidden state may depend on them."""
    import transformers

    try:
        model, loading = transformers.AutoModel.from_pretrained(
            encoder.folder,
            dtype=dtype,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:  # the library raises a dozen kinds
        damaged = if_damaged(encoder.folder, encoder.commit)
        raise UserError(f"{encoder.folder} cannot be loaded: {reason_of(error)}{damaged}") from None
    missing = [key for key in loading["missing_keys"] if "pooler" not in key and "position_ids" not in key]
    if missing:
        raise UserError(
            f"{encoder.folder}: {len(missing)} weights are missing ({missing[0]}, ...) and would be random. "
            "Is this a checkpoint of another kind of model?"
        )
    return _text_part(model, encoder), list(loading["missing_keys"])


def _text_part(model: Any, encoder: Encoder) -> Any:
    """Returns the text encoder within a model: the model, the encoder of two, or one of several parts."""
    if (encoder.outer_config or encoder.config).is_encoder_decoder:
        model = model.get_encoder()
    if encoder.outer_config is not None:
        kind = encoder.config.model_type
        parts = (part for part in model.modules() if getattr(getattr(part, "config", None), "model_type", "") == kind)
        model = next((part for part in parts if hasattr(part, "get_input_embeddings")), None)
    if model is None:
        raise UserError(f"{encoder.name}: its model has no text encoder of the kind {encoder.config.model_type}.")
    if getattr(model.config, "use_cache", False):
        model.config.use_cache = False  # keys and values of past pieces, which only generating text needs
    return model


def _random(encoder: Encoder) -> torch.nn.Module:
    """Initialises the encoder's architecture in float32, always on the CPU.

    `random_blocks` takes the checkpoint's weights for all parameters that layer 0 depends on. Its gradient finds them.
    """
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):  # so that these draws do not change those of a run
        torch.default_generator.manual_seed(encoder.weights_seed)
        config = encoder.outer_config or encoder.config
        model = transformers.AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
    model = _text_part(model, encoder)
    if encoder.weights == "random_blocks":
        special = encoder.special
        with torch.inference_mode(False), torch.enable_grad():
            trained = _from_files(encoder, torch.float32)[0].eval()
            ids = torch.tensor([[*special.prefix, encoder.tokenizer.unk_token_id or 0, *special.suffix]])
            hidden_states(trained, ids, torch.ones_like(ids), torch.zeros_like(ids))[0].sum().backward()
        of_layer_0 = {name: value.data for name, value in trained.named_parameters() if value.grad is not None}
        model.load_state_dict(of_layer_0, strict=False)
    return model


class Stopped(Exception):
    """Ends a forward pass at a layer (see features/depth.py). states: layers 0 up to that layer, each (B, P, H)."""

    def __init__(self, states: tuple[torch.Tensor, ...]) -> None:
        self.states = states


@functools.cache
def _takes_types(forward: Callable[..., Any]) -> bool:
    return "token_type_ids" in inspect.signature(forward).parameters


def hidden_states(
    model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """Returns all L + 1 hidden states of a batch, each (B, P, H), or those up to the layer where the model stops.

    ids, mask (1 = a piece, 0 = padding), types: (B, P).
    """
    try:
        return outputs(model, ids, mask, types).hidden_states
    except Stopped as stopped:
        return stopped.states


def outputs(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None) -> Any:
    """Returns the encoder's whole output for a batch, with transformers' names."""
    import torch

    inputs = {"input_ids": ids, "attention_mask": mask}
    if types is not None and _takes_types(type(model).forward):
        inputs["token_type_ids"] = types
    weights = next(model.parameters())
    precision = "bfloat16" if weights.dtype == torch.bfloat16 else "float32"
    with kernels(precision, weights.device.type, lstm=False):
        return model(**inputs, output_hidden_states=True, return_dict=True)
