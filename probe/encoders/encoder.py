"""Loads the frozen encoder and computes the hidden states of a batch.

B windows in a batch, P pieces, H hidden size, layer 0 = the embedding output, 1..L = the encoder blocks.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from probe.config import UserError
from probe.encoders.checkpoint import Encoder, if_damaged, weights_of
from probe.system.bfloat16 import kernels
from probe.system.format import first_few, reason_of

if TYPE_CHECKING:
    import torch

HARMLESS = re.compile(r"(position_ids|token_type_ids|inv_freq|masked_bias|\.attn(\.attention)?\.bias)$")  # no weights
TRIED_PIECES = 8  # in the trial of padding, as many as the encoder takes: half text, half padding


def load_model(encoder: Encoder, device: str, precision: str = "float32", keep_pooler: bool = False) -> torch.nn.Module:
    """Loads the encoder with its own or random weights, in evaluation mode (no dropout) and without gradients.

    A trial sets its `takes_padding`: whether padding leaves the vectors of a text as they are (see `outputs`).
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
    model = model.to(device).eval().requires_grad_(False)
    model.takes_padding = _takes_padding(model, encoder, device)
    return model


def _from_files(encoder: Encoder, dtype: torch.dtype) -> tuple[Any, list[str]]:
    """Loads the encoder and the names of missing weights; no hidden state may depend on them."""
    import transformers

    try:
        model, loading = transformers.AutoModel.from_pretrained(
            encoder.folder,
            config=encoder.outer_config or encoder.config,
            dtype=dtype,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except Exception as error:  # the library raises a dozen kinds
        if not str(error) or "weights_only" in str(error):  # torch.load advises to read it without its protection
            files = first_few([file.name for file in weights_of(encoder.folder)], 3)
            raise UserError(
                f"{encoder.folder}: torch refuses to read {files}: it holds more than weights, which could run "
                "code, or it is damaged. Use another encoder: encoder.name=OWNER/NAME or encoder.path=DIR."
            ) from None
        damaged = if_damaged(encoder.folder, encoder.commit)
        raise UserError(f"{encoder.folder} cannot be loaded: {reason_of(error)}{damaged}") from None
    missing = [key for key in loading["missing_keys"] if "pooler" not in key and "position_ids" not in key]
    if missing:
        raise UserError(
            f"{encoder.folder}: {len(missing)} weights are missing ({missing[0]}, ...) and would be random. "
            "Is this a checkpoint of another kind of model?"
        )
    part = _text_part(model, encoder)
    _refuse_unused(encoder, model, part, loading["unexpected_keys"])
    return part, list(loading["missing_keys"])


def _refuse_unused(encoder: Encoder, model: Any, part: Any, unexpected: Iterable[str]) -> None:
    """Raises UserError if a weight of the text encoder's embeddings or blocks is not used. Heads and poolers may be."""
    at = next((f"{name}." for name, module in model.named_modules() if module is part and name), "")
    own = tuple(f"{at}{name}." for name, _ in part.named_children() if "pooler" not in name)
    before = f"{model.base_model_prefix}."
    unused = [key for key in unexpected if key.removeprefix(before).startswith(own) and not HARMLESS.search(key)]
    if unused:
        raise UserError(
            f"{encoder.folder}: {len(unused)} weights have no place in the encoder that config.json describes: "
            f"{first_few(sorted(unused), 3)}. Its vectors would be wrong.\n"
            "Is this the config.json of these weights? Else use another encoder: encoder.name=OWNER/NAME."
        )


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
    """Initialises the encoder's architecture in float32, always on the CPU."""
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):  # so that these draws do not change those of a run
        torch.default_generator.manual_seed(encoder.weights_seed)
        config = encoder.outer_config or encoder.config
        model = transformers.AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)
    return _text_part(model, encoder)


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
    states: tuple[torch.Tensor, ...] = outputs(model, ids, mask, types).hidden_states
    return states


def outputs(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None) -> Any:
    """Returns the encoder's output for a batch, with transformers' names; only hidden states if the model stops.

    If padding would change vectors, texts of each length are computed without it. Zeros then stand at the padding.
    """
    import torch

    if getattr(model, "takes_padding", True) or bool(mask.all()):
        return _forward(model, ids, mask, types)[0]
    lengths = mask.sum(1)
    rows, parts = [], []
    for length in lengths.unique().tolist():
        rows.append((lengths == length).nonzero()[:, 0])
        inputs = [None if given is None else given[rows[-1], :length] for given in (ids, mask, types)]
        parts.append(_forward(model, *inputs)[0])
    order = torch.cat(rows).argsort()

    def whole(of_parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
        padded = [torch.nn.functional.pad(state, (0, 0, 0, ids.shape[1] - state.shape[1])) for state in of_parts]
        return torch.cat(padded)[order]

    pooled: list[Any] = [getattr(part, "pooler_output", None) for part in parts]
    return SimpleNamespace(
        hidden_states=tuple(map(whole, zip(*(part.hidden_states for part in parts), strict=True))),
        pooler_output=None if None in pooled else torch.cat(pooled)[order],
    )


def _forward(model: Any, ids: Any, mask: Any, types: Any) -> tuple[Any, bool]:
    """Returns the encoder's output, and whether the forward pass changed the model, which is undone."""
    import torch

    inputs = {"input_ids": ids, "attention_mask": mask}
    if types is not None and _takes_types(type(model).forward):
        inputs["token_type_ids"] = types
    weights = next(model.parameters())
    precision = "bfloat16" if weights.dtype == torch.bfloat16 else "float32"
    with _changes_undone(model) as changed, kernels(precision, weights.device.type, lstm=False):
        try:
            output = model(**inputs, output_hidden_states=True, return_dict=True)
        except Stopped as stopped:
            output = SimpleNamespace(hidden_states=stopped.states)
    if hasattr(model, "_pad_to_block_size"):  # BigBird removes the padding of its last block from the last layer only
        output.hidden_states = tuple(state[:, : ids.shape[1]] for state in output.hidden_states)
    return output, bool(changed)


@contextmanager
def _changes_undone(model: torch.nn.Module) -> Iterator[list[Any]]:
    """Undoes what happens inside the block to a model's modules, buffers and settings; lists what was undone.

    What is added stays, such as the library's own notes that its hooks are in place.
    BigBird replaces its sparse attention for good when it reads a short text. Long texts would then be read otherwise.
    """
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    parts = [part for module in model.modules() for part in (vars(module), module._modules, module._buffers)]
    kept = [(part, dict(part)) for part in [*parts, *map(vars, configs.values())]]
    changed: list[Any] = []
    try:
        yield changed
    finally:
        for part, before in kept:
            if any(part.get(name) is not value for name, value in before.items()):
                changed.append(part)
                part.update(before)


def _takes_padding(model: torch.nn.Module, encoder: Encoder, device: str) -> bool:
    """Returns whether a text has the same hidden states alone and padded, except for rounding errors.

    Convolutions, Fourier transforms, and embeddings of neighbouring pieces mix a text with its padding. An encoder that
    changes while it reads a short text reads texts of different lengths differently.
    """
    import torch

    special, width = encoder.special, min(TRIED_PIECES, encoder.max_text_pieces)
    text = [*special.prefix, *[encoder.tokenizer.unk_token_id or 0] * (width - width // 2), *special.suffix]
    ids = torch.tensor([text + [encoder.padding] * (width // 2)], device=device)
    mask = torch.zeros_like(ids)
    mask[:, : len(text)] = 1
    types = torch.zeros_like(ids) if special.has_types else None
    with torch.no_grad():
        cut = (None if given is None else given[:, : len(text)] for given in (ids, mask, types))
        alone, changed = _forward(model, *cut)
        padded, _ = _forward(model, ids, mask, types)
    if changed:
        return False
    for one, other in zip(alone.hidden_states, padded.hidden_states, strict=True):
        if one.shape[1] != len(text) or other.shape[1] != ids.shape[1]:
            return True  # extraction refuses such an encoder
        rounding = torch.finfo(one.dtype).eps ** 0.5 * one.float().norm(dim=-1)  # (1, P)
        if not ((one - other[:, : len(text)]).float().norm(dim=-1) <= rounding).all():
            return False
    return True
