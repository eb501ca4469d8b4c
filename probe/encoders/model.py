"""Loads the frozen encoder and computes the hidden states of a batch.

A trial on a few pieces shows what no list of names says: whether padding changes an encoder's vectors, whether it is
causal, and how to stop it at a layer.

B windows in a batch, P pieces, H hidden size, layer 0 = the embedding output, 1..L = the encoder blocks.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from probe.config import UserError
from probe.encoders.encoder import Encoder, text_part, weights_of
from probe.format import first_few, reason_of
from probe.system.bfloat16 import kernels

if TYPE_CHECKING:
    import torch

HARMLESS = re.compile(r"(position_ids|token_type_ids|inv_freq|masked_bias|\.attn(\.attention)?\.bias)$")  # no weights
TRIED_PIECES = 32  # in the trial, or as many as the encoder takes: half text, half padding
MOST_TRIED = 4096  # pieces; an attention mask has their square
CAUSAL = {
    True: "causal: a piece sees only those before it",
    False: "not causal: a piece sees all others",
    None: "a trial could not show whether it is causal",
}
ANOTHER = "Use another encoder: encoder.name=OWNER/NAME."


def load_model(
    encoder: Encoder, device: str, precision: str = "float32", deepest: int | None = None, final_norm: str = "last"
) -> torch.nn.Module:
    """Loads the encoder with its own or random weights, in evaluation mode (no dropout) and without gradients.

    Sets its `takes_padding`: whether padding leaves the vectors of a text as they are (see `hidden_states`); and its
    `is_causal`: whether each piece attends only to pieces before it (None: a trial could not show it).
    precision: float32, or bfloat16 for both weights and arithmetic (every layer then differs by about a percent).
    deepest: the layer at which forward passes end; None: the last. final_norm: as in the config. Raises UserError, for
    example if that is `each` and the encoder has no norm behind its last layer.
    """
    import torch

    dtype = getattr(torch, precision)
    deepest = encoder.num_layers if deepest is None else deepest
    model: Any
    if encoder.cfg.weights == "pretrained":
        model = _part_from_files(encoder, dtype, deepest) or _from_files(encoder, dtype)
    else:
        model = _random(encoder)
        for parameter in model.parameters():  # buffers keep the dtype that the model creates them with
            parameter.data = parameter.data.to(dtype)
    if getattr(model, "pooler", None) is not None:  # no hidden state depends on it
        model.pooler = torch.nn.Identity()  # not None: some models call it without asking
    model = model.to(device).eval().requires_grad_(False)
    for name, weights in model.named_parameters():
        if not weights.isfinite().all():
            raise UserError(
                f"{encoder.folder}: its weights {name} hold NaN or infinite values. Is the file damaged, or was it "
                f"converted to half precision? {ANOTHER}"
            )
    model.called = encoder.name  # in messages
    with torch.no_grad():
        texts = trial_texts(encoder, device)
        model.takes_padding, model.is_causal = _try(model, encoder, texts, deepest)
        if final_norm == "each":
            model.norm_of_each = _final_norm(model, encoder, texts), encoder.num_layers
        if deepest < encoder.num_layers and not _stops_at(deepest, model, texts, hidden_states(model, *texts)):
            blocks = f"all its {encoder.num_layers} blocks are computed"
            print(f"{encoder.name} cannot be stopped at layer {deepest}; {blocks}.", file=sys.stderr)
    return model


def notes_on(encoder: Encoder, model: Any, subword: str) -> list[str]:
    """Says what a user of the vectors must know of their encoder. subword: which piece represents a word."""
    notes = []
    if model.is_causal:
        remedy = " Only a word's last piece depends on the whole word: features.subword=last."
        note = f"{encoder.name} is causal: a word's vector depends only on the text before it."
        notes.append(note + remedy * (subword != "last"))
    if not model.takes_padding:
        notes.append(f"Padding would change the vectors of {encoder.name}: only texts of equal length share a batch.")
    return notes


def cut_config(config: Any, num_blocks: int) -> Any:
    """Returns the config of an encoder that ends behind so many blocks."""
    cut = copy.deepcopy(config)
    for name, value in vars(cut).items():
        if isinstance(value, list) and len(value) == config.num_hidden_layers:
            setattr(cut, name, value[:num_blocks])
    cut.num_hidden_layers = num_blocks
    return cut


def _part_from_files(encoder: Encoder, dtype: torch.dtype, deepest: int) -> Any:
    """Loads the blocks that layers 0 to `deepest` need, and the next one, before which a forward pass ends.

    The other blocks are not read. To try it, the whole encoder is built without memory for weights. Given those of the
    part, it must have the same states, or else None is returned.
    """
    import torch
    import transformers

    is_a_part = encoder.outer_config is not encoder.config
    if deepest + 1 >= encoder.num_layers or is_a_part or encoder.config.is_encoder_decoder:
        return None
    try:
        with torch.device("meta"), torch.no_grad():
            whole: Any = transformers.AutoModel.from_config(encoder.config, dtype=dtype, trust_remote_code=False)
        config = cut_config(encoder.config, deepest + 1)
        cut = replace(encoder, config=config, outer_config=config)
        part = _from_files(cut, dtype, elsewhere=set(whole.state_dict()))
        whole = whole.eval()
        whole.load_state_dict(part.state_dict(), strict=False, assign=True)
        for name, buffer in part.named_buffers():
            at, _, own = name.rpartition(".")
            whole.get_submodule(at)._buffers[own] = buffer
        texts = trial_texts(encoder, "cpu")
        with torch.no_grad():
            is_same = _stops_at(deepest, _without_cache(whole), texts, hidden_states(part.eval(), *texts))
    except Exception:  # whatever a model raises that cannot be made smaller; the whole is then loaded
        return None
    return part if is_same else None


def _from_files(encoder: Encoder, dtype: torch.dtype, elsewhere: Container[str] = ()) -> Any:
    """Loads the encoder. Weights that no hidden state depends on may be missing, and those `elsewhere` unused."""
    import transformers

    try:
        model, loading = transformers.AutoModel.from_pretrained(
            encoder.folder,
            config=encoder.outer_config,
            dtype=dtype,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, by name
        )
    except Exception as error:  # the library raises a dozen kinds
        reason = reason_of(error)
        if not str(error) or "weights_only" in str(error):  # torch.load advises to read it without its protection
            files = first_few([file.name for file in weights_of(encoder.folder)], 3)
            reason = f"torch refuses {files}, as it holds more than weights, which could run code, or is damaged"
        raise UserError(
            f"{encoder.folder} cannot be loaded: {reason}. Another: encoder.name=OWNER/NAME or encoder.path=DIR."
        ) from None
    part = _without_cache(text_part(model, encoder))
    if loading["mismatched_keys"]:
        name, *shapes = min(loading["mismatched_keys"])
        raise UserError(
            f"{encoder.folder}: {name} has shape {tuple(shapes[0])}, but {tuple(shapes[1])} by config.json. "
            "Is this the config.json of these weights? Else use another encoder: encoder.name=OWNER/NAME."
        )
    used = {id(tensor) for tensor in (*part.parameters(), *part.buffers())}  # no decoder, which a checkpoint may lack
    of_model = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}
    missing = [
        key
        for key in loading["missing_keys"]
        if "pooler" not in key and "position_ids" not in key and (key not in of_model or id(of_model[key]) in used)
    ]
    if missing:
        raise UserError(
            f"{encoder.folder}: {len(missing)} weights are missing ({missing[0]}, ...) and would be random. "
            "Is this a checkpoint of another kind of model?"
        )
    # A weight of the text encoder's embeddings or blocks must be used. Heads and poolers need not be.
    at = next((f"{name}." for name, module in model.named_modules() if module is part and name), "")
    own = tuple(f"{at}{name}." for name, _ in part.named_children() if "pooler" not in name)
    keys = {key: key.removeprefix(f"{model.base_model_prefix}.") for key in loading["unexpected_keys"]}
    needed = {key: name for key, name in keys.items() if name.startswith(own) and name not in elsewhere}
    if unused := [key for key in needed if not HARMLESS.search(key)]:
        raise UserError(
            f"{encoder.folder}: {len(unused)} weights have no place in the encoder that config.json describes: "
            f"{first_few(sorted(unused), 3)}. Its vectors would be wrong.\n"
            "Is this the config.json of these weights? Else use another encoder: encoder.name=OWNER/NAME."
        )
    return part


def _without_cache(model: Any) -> Any:
    if getattr(model.config, "use_cache", False):
        model.config.use_cache = False  # keys and values of past pieces, which only generating text needs
    return model


def _random(encoder: Encoder) -> torch.nn.Module:
    """Initialises the encoder's architecture in float32, always on the CPU."""
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):  # so that these draws do not change those of a run
        torch.default_generator.manual_seed(encoder.cfg.weights_seed)
        model = transformers.AutoModel.from_config(encoder.outer_config, dtype=torch.float32, trust_remote_code=False)
    return _without_cache(text_part(model, encoder))


def hidden_states(
    model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """Returns all L + 1 hidden states of a batch, each (B, P, H), or those up to the layer where the model stops.

    ids, mask (1 = a piece, 0 = padding), types: (B, P). If padding would change vectors, texts of each length are
    computed without it. Zeros then stand at the padding.
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

    return tuple(map(whole, zip(*parts, strict=True)))


def _forward(model: Any, *text: Any, remedy: str = ANOTHER) -> tuple[tuple[torch.Tensor, ...], bool]:
    """Returns the hidden states of a batch, and whether the forward pass changed the model, which is undone.

    text: ids, mask and segment ids. Raises UserError, with this remedy, for a model that fails.
    """
    import torch

    ids, mask, types = text
    inputs = {"input_ids": ids, "attention_mask": mask}
    if types is not None and "token_type_ids" in inspect.signature(type(model).forward).parameters:
        inputs["token_type_ids"] = types
    weights = next(model.parameters())
    precision = "bfloat16" if weights.dtype == torch.bfloat16 else "float32"
    with _changes_undone(model) as changed, kernels(precision, weights.device.type, lstm=False):
        try:
            output = model(**inputs, output_hidden_states=True, return_dict=True)
            states = getattr(output, "hidden_states", None) or ()
        except _Stopped as stopped:
            states = stopped.states
        except Exception as error:  # whatever a model raises that is no text encoder, or has too little memory
            reason = reason_of(error)
            if "memory" in reason:
                remedy = "Type a smaller features.batch_pieces or, where the encoder is trained, probe.batch_size."
            raise UserError(
                f"{getattr(model, 'called', 'The encoder')} cannot read {ids.shape[1]} pieces: {reason}. {remedy}"
            ) from error
    if hasattr(model, "norm_of_each"):
        norm, last = model.get_submodule(model.norm_of_each[0]), model.norm_of_each[1]
        states = tuple(norm(x) if k < last else x for k, x in enumerate(states))
    if hasattr(model, "_pad_to_block_size"):  # BigBird removes the padding of its last block from the last layer only
        states = tuple(state[:, : ids.shape[1]] for state in states)
    return states, bool(changed)


@contextmanager
def _changes_undone(model: torch.nn.Module) -> Iterator[list[Any]]:
    """Undoes what happens inside the block to a model's modules, buffers and settings; lists what was undone.

    What is added stays, such as the library's own notes that its hooks are in place.
    BigBird replaces its sparse attention for good when it reads a short text. Long texts would then be read otherwise.
    """
    configs = {
        id(found): found for module in model.modules() if hasattr(found := getattr(module, "config", 0), "__dict__")
    }
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


def trial_texts(encoder: Encoder, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Returns ids, mask and segment ids, each (3, P), of padded texts that differ only in their last piece."""
    import torch

    special, width = encoder.special, min(TRIED_PIECES, encoder.max_text_pieces)
    vocabulary = set(encoder.tokenizer.get_vocab().values()) - set(encoder.tokenizer.all_special_ids)
    rows = getattr(encoder.config, "vocab_size", None) or len(encoder.tokenizer)
    known = sorted(number for number in vocabulary if number < rows) or [0]
    length = width - width // 2
    pieces = [known[i * len(known) // (length + 2)] for i in range(length + 2)]
    texts = [[*special.prefix, *pieces[: length - 1], last, *special.suffix] for last in pieces[length - 1 :]]
    ids = torch.tensor([text + [encoder.padding] * (width // 2) for text in texts], device=device)
    mask = torch.zeros_like(ids)
    mask[:, : len(texts[0])] = 1
    return ids, mask, torch.zeros_like(ids) if special.has_types else None


def _try(model: torch.nn.Module, encoder: Encoder, texts: tuple[Any, ...], deepest: int) -> tuple[bool, bool | None]:
    """Returns whether a text has the same hidden states alone and padded, and whether the encoder is causal.

    Convolutions, Fourier transforms, and embeddings of neighbouring pieces mix a text with its padding. An encoder that
    changes while it reads a short text reads texts of different lengths differently. A causal encoder has the same
    states before a changed piece. Rounding errors do not count. Raises UserError for an encoder that fails.
    """
    import torch

    pieces = int(texts[1][0].sum())
    changed_piece = pieces - len(encoder.special.suffix) - 1
    alone, changed = _forward(model, *(None if given is None else given[:, :pieces] for given in texts))
    _try_longest(model, encoder, texts)
    padded, _ = _forward(model, *texts)
    for states, width in ((alone, pieces), (padded, texts[0].shape[1])):
        check_states(states, torch.Size([3, width]), encoder, deepest)
    for layer, state in enumerate(alone):
        if not state.isfinite().all():
            raise UserError(f"{encoder.name} gives NaN or infinite values at layer {layer} in {state.dtype}. {ANOTHER}")
    takes_padding, sees_after, is_seen = not changed, False, False
    for state, with_padding in zip(alone, padded, strict=True):
        rounding, state = torch.finfo(state.dtype).eps, state.float()
        off = (state - with_padding[:, :pieces].float()).norm(dim=-1)  # (3, P)
        takes_padding = takes_padding and bool((off <= rounding**0.5 * state.norm(dim=-1)).all())
        size = state.square().mean(-1).amax(0).sqrt()  # (P,)
        moved = (state - state[:1]).abs().amax((0, 2)) > rounding**0.5 * size
        sees_after = sees_after or bool(moved[:changed_piece].any())
        is_seen = is_seen or bool(moved[changed_piece])
    return takes_padding, not sees_after if is_seen and changed_piece else None


def _final_norm(model: torch.nn.Module, encoder: Encoder, texts: tuple[Any, ...]) -> str:
    """Returns the name of the module behind the last block whose output is the last hidden state.

    Raises UserError if there is none, as in BERT, whose last hidden state is the output of its last block.
    """
    import torch

    outputs: dict[str, torch.Tensor] = {}

    def keep(name: str, _: torch.nn.Module, given: tuple[Any, ...], output: Any) -> None:
        is_like_input = isinstance(output, torch.Tensor) and given and output.shape == getattr(given[0], "shape", None)
        if is_like_input and not torch.equal(given[0], output):  # equal: dropout, which does nothing here
            outputs[name] = output

    blocks = tuple(f"{name}." for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList))
    outside = {name: module for name, module in model.named_modules() if name and not name.startswith(blocks)}
    hooks = [module.register_forward_hook(functools.partial(keep, name)) for name, module in outside.items()]
    last = hidden_states(model, *texts)[-1]
    for hook in hooks:
        hook.remove()
    found = [name for name, output in outputs.items() if output.shape == last.shape and torch.equal(output, last)]
    if not found:
        raise UserError(f"{encoder.name} has no norm behind its last layer. Omit features.final_norm=each.")
    return found[0]


def _try_longest(model: torch.nn.Module, encoder: Encoder, texts: tuple[Any, ...]) -> None:
    """Raises UserError if the embeddings cannot read as many pieces as a window may have. Blocks are not computed."""
    import torch

    most = min(encoder.limit, MOST_TRIED)
    longest = (None if given is None else given[:1, :1].expand(1, most) for given in texts)
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module)]
    hooks = [hook for blocks in lists for hook in _end_at(0, model, blocks)]
    try:
        _forward(model, *longest, remedy="Type the number that it takes: encoder.max_pieces=N.")
    finally:
        for hook in hooks:
            hook.remove()


def check_states(states: tuple[torch.Tensor, ...], batch: torch.Size, encoder: Encoder, deepest: int) -> None:
    """Raises unless the encoder gives one hidden state per piece and layer, at least up to the deepest stored layer."""
    shapes = [tuple(getattr(state, "shape", ())) for state in states]
    are_right = all(shape == (*batch, encoder.hidden_size) for shape in shapes)
    if not are_right or not deepest < len(states) <= encoder.num_layers + 1:
        raise UserError(
            f"{encoder.name} gives hidden states {shapes} for a batch of {tuple(batch)}; {encoder.num_layers + 1} with "
            f"{encoder.hidden_size} values for each piece are needed. Use another encoder: encoder.name=OWNER/NAME."
        )


def _stops_at(layer: int, model: torch.nn.Module, texts: tuple[Any, ...], expected: tuple[torch.Tensor, ...]) -> bool:
    """Makes the model's forward passes end with the states of layers 0..layer, and tells whether that succeeded.

    Layer k < L is the input of block k + 1, so the forward pass runs unchanged until it enters that block, and ends
    there. It succeeded if it gives the first of the expected states of a sample, to the bit.
    """
    import torch

    for blocks in [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]:
        hooks = _end_at(layer, model, blocks)
        try:
            states = hidden_states(model, *texts)
        except UserError:  # other blocks than those of the encoder, and no weights for the others
            states = ()
        if len(states) == layer + 1 and all(
            isinstance(one, torch.Tensor) and torch.equal(one, other)
            for one, other in zip(states, expected, strict=False)
        ):
            return True
        for hook in hooks:
            hook.remove()
    return False


class _Stopped(Exception):
    """Ends a forward pass at a layer. states: layers 0 up to that layer, each (B, P, H)."""

    def __init__(self, states: tuple[torch.Tensor, ...]) -> None:
        self.states = states


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
            raise _Stopped(tuple(states))

    hooks = [block.register_forward_pre_hook(enter, with_kwargs=True) for block in dict.fromkeys(blocks)]
    return [*hooks, model.register_forward_pre_hook(begin)]
