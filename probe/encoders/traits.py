"""Finds out by a trial what an encoder is: causal or not, and whether its last layer is behind a final norm.

Neither can be read off a list of names. One small forward pass shows both: three texts that differ in their last piece
alone, and what each module gives.

B texts, P pieces, H hidden size, L encoder blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from probe.encoders.checkpoint import Encoder
from probe.encoders.encoder import hidden_states

if TYPE_CHECKING:
    import torch

PIECES = 4  # of text in the trial
NOISE = 16  # roundings that a state may move by although nothing it depends on has changed
SCALES = (1e2, 1e4)  # a norm gives the same for an input that is larger by such a factor


@dataclass(frozen=True)
class Traits:
    """Holds what a trial showed; None for what it could not show.

    causal: a piece sees only the pieces before it. final_norm: hidden state L is behind a norm that the others are not
    behind.
    """

    causal: bool | None = None
    final_norm: bool | None = None


def describe(traits: Traits, num_layers: int) -> str:
    """Says in a line what a trial showed."""
    sees = {True: "causal: a piece sees only those before it", False: "not causal: a piece sees all others"}
    norm = {
        True: f"layer {num_layers} is behind a final norm, the other layers are not",
        False: "no final norm behind the last layer",
    }
    parts = [text for text in (sees.get(traits.causal), norm.get(traits.final_norm)) if text]  # type: ignore[arg-type]
    return f"tried: {'; '.join(parts)}" if parts else "causal or not, final norm or not: a trial could not show it"


def notes_on(encoder: Encoder, traits: Traits, subword: str) -> list[str]:
    """Says what a reader of the vectors must know of their encoder, a line each, with what to type.

    subword: which piece stands for a word.
    """
    notes = []
    if traits.causal:
        remedy = " Of its pieces only the last knows the whole word: features.subword=last."
        notes.append(
            f"{encoder.name} is causal: a word's vector knows only what stands before it."
            f"{'' if subword == 'last' else remedy}"
        )
    if traits.causal and getattr(encoder.config, "is_causal", None) is False:
        notes.append(f"{encoder.name}: config.json says is_causal=false, but a trial shows that it is causal.")
    if encoder.cut_otherwise:
        notes.append(
            f"{encoder.name}: its tokenizer cuts some words otherwise within running text (of a sample: "
            f"{', '.join(encoder.cut_otherwise)}). Here each word is cut by itself."
        )
    return notes


def traits_of(model: torch.nn.Module, encoder: Encoder, device: str) -> Traits:
    """Runs the whole encoder once on a few pieces. The model must not stop at a layer (see features/depth.py)."""
    import torch

    ids = _texts(encoder)
    if ids is None:
        return Traits()
    ids = ids.to(device)
    types = torch.zeros_like(ids) if encoder.special.has_types else None
    calls: list[tuple[torch.nn.Module, torch.Tensor, torch.Tensor]] = []
    outside = _outside_blocks(model)
    hooks = [module.register_forward_hook(lambda *call: _keep(calls, *call)) for module in outside]
    with torch.inference_mode():
        try:
            states = hidden_states(model, ids, torch.ones_like(ids), types)
        finally:
            for hook in hooks:
                hook.remove()
        if len(states) != encoder.num_layers + 1 or any(state.shape[:2] != ids.shape for state in states):
            return Traits()  # which is refused where features are extracted
        changed = len(encoder.special.prefix) + min(PIECES, encoder.max_text_pieces) - 1
        return Traits(_is_causal(list(map(torch.Tensor.cpu, states)), changed), _has_final_norm(states[-1], calls))


def _texts(encoder: Encoder) -> torch.Tensor | None:
    """Returns (3, P), texts that differ in their last piece alone; None if the encoder takes too few pieces."""
    import torch

    length = min(PIECES, encoder.max_text_pieces)
    special = set(encoder.tokenizer.all_special_ids)
    rows = getattr(encoder.config, "vocab_size", None) or len(encoder.tokenizer)
    known = sorted(number for number in encoder.tokenizer.get_vocab().values() if number not in special)
    known = [number for number in known if number < rows]
    if length < 2 or len(known) < length + 2:
        return None
    step = len(known) // (length + 2)
    *same, first, second, third = known[:: max(step, 1)][: length + 2]
    prefix, suffix = encoder.special.prefix, encoder.special.suffix
    return torch.tensor([[*prefix, *same, last, *suffix] for last in (first, second, third)])


def _is_causal(states: list[torch.Tensor], changed: int) -> bool | None:
    """Returns whether no state before the changed piece has moved; None if its own have not either."""
    moved = [_moves(state) for state in states]  # each (P,)
    if not any(bool(one[changed]) for one in moved):
        return None
    return not any(bool(one[:changed].any()) for one in moved)


def _moves(state: torch.Tensor) -> torch.Tensor:
    """Returns (P,), whether the states of a place differ between texts by more than rounding. state: (B, P, H)."""
    import torch

    rounding = NOISE * torch.finfo(state.dtype).eps
    state = state.float()
    size = state.square().mean(-1).amax(0).sqrt()  # (P,)
    return (state - state[:1]).abs().amax((0, 2)) > rounding * size


def _has_final_norm(last: torch.Tensor, calls: list[tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]) -> bool:
    """Returns whether a module outside the blocks has made the last state from another, as a norm does."""
    import torch

    for module, given, made in calls:
        if given.shape == made.shape == last.shape and torch.equal(made, last) and not torch.equal(given, last):
            small, large = (module(given * scale) for scale in SCALES)
            if torch.allclose(small, large, rtol=1e-2, atol=1e-2 * float(large.abs().max())):
                return True
    return False


def _outside_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the modules that have no parts and are in no list of blocks."""
    import torch

    inside: set[int] = set()
    for blocks in (module for module in model.modules() if isinstance(module, torch.nn.ModuleList)):
        inside |= {id(module) for module in blocks.modules()}
    return [module for module in model.modules() if id(module) not in inside and not any(module.children())]


def _keep(calls: list[Any], module: torch.nn.Module, given: tuple[Any, ...], made: Any) -> None:
    import torch

    if given and isinstance(given[0], torch.Tensor) and isinstance(made, torch.Tensor):
        calls.append((module, given[0], made))
