"""Finds out by a trial whether an encoder is causal, and whether a final norm follows its last layer.

No list of names says either. One small forward pass shows both, from three texts that differ only in their last piece,
and from the output of each module.

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
NOISE = 16  # rounding errors by which a state may change although its inputs did not
SCALES = (1e2, 1e4)  # a norm's output does not change if its input is multiplied by such a factor


@dataclass(frozen=True)
class Traits:
    """Holds what a trial showed; None for what it could not show.

    causal: each piece attends only to pieces before it. final_norm: a norm was applied to hidden state L and not to the
    others.
    """

    causal: bool | None = None
    final_norm: bool | None = None


def describe(traits: Traits, num_layers: int) -> str:
    """Describes in one line what a trial showed."""
    sees = {True: "causal: a piece sees only those before it", False: "not causal: a piece sees all others"}
    norm = {
        True: f"a final norm follows layer {num_layers} only",
        False: "no final norm follows the last layer",
    }
    parts = [text for text in (sees.get(traits.causal), norm.get(traits.final_norm)) if text]  # type: ignore[arg-type]
    return f"trial: {'; '.join(parts)}" if parts else "a trial could not show whether it is causal or has a final norm"


def notes_on(encoder: Encoder, traits: Traits, subword: str) -> list[str]:
    """Says what a user of the vectors must know of their encoder: one line each, with what to type.

    subword: which piece represents a word.
    """
    notes = []
    if traits.causal:
        remedy = " Only a word's last piece depends on the whole word: features.subword=last."
        notes.append(
            f"{encoder.name} is causal: a word's vector depends only on the text before it."
            f"{'' if subword == 'last' else remedy}"
        )
    if traits.causal and getattr(encoder.config, "is_causal", None) is False:
        notes.append(f"{encoder.name}: config.json says is_causal=false, but a trial shows that it is causal.")
    if encoder.cut_otherwise:
        notes.append(
            f"{encoder.name}: its tokenizer cuts some words differently in running text (in a sample: "
            f"{', '.join(encoder.cut_otherwise)}). Here each word is cut on its own."
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
            return Traits()  # extraction refuses such an encoder
        changed = len(encoder.special.prefix) + min(PIECES, encoder.max_text_pieces) - 1
        return Traits(_is_causal(list(map(torch.Tensor.cpu, states)), changed), _has_final_norm(states[-1], calls))


def _texts(encoder: Encoder) -> torch.Tensor | None:
    """Returns (3, P), texts that differ only in their last piece; None if the encoder takes too few pieces."""
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
    """Returns whether no state before the changed piece differs; None if that piece's own states do not differ."""
    moved = [_moves(state) for state in states]  # each (P,)
    if not any(bool(one[changed]) for one in moved):
        return None
    return not any(bool(one[:changed].any()) for one in moved)


def _moves(state: torch.Tensor) -> torch.Tensor:
    """Returns (P,), whether the states of a position differ between texts by more than rounding. state: (B, P, H)."""
    import torch

    rounding = NOISE * torch.finfo(state.dtype).eps
    state = state.float()
    size = state.square().mean(-1).amax(0).sqrt()  # (P,)
    return (state - state[:1]).abs().amax((0, 2)) > rounding * size


def _has_final_norm(last: torch.Tensor, calls: list[tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]) -> bool:
    """Returns whether a module outside the blocks computed the last state from another state, as a norm does."""
    import torch

    for module, given, made in calls:
        if given.shape == made.shape == last.shape and torch.equal(made, last) and not torch.equal(given, last):
            small, large = (module(given * scale) for scale in SCALES)
            if torch.allclose(small, large, rtol=1e-2, atol=1e-2 * float(large.abs().max())):
                return True
    return False


def _outside_blocks(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the modules that have no submodules and are in no list of blocks."""
    import torch

    inside: set[int] = set()
    for blocks in (module for module in model.modules() if isinstance(module, torch.nn.ModuleList)):
        inside |= {id(module) for module in blocks.modules()}
    return [module for module in model.modules() if id(module) not in inside and not any(module.children())]


def _keep(calls: list[Any], module: torch.nn.Module, given: tuple[Any, ...], made: Any) -> None:
    import torch

    if given and isinstance(given[0], torch.Tensor) and isinstance(made, torch.Tensor):
        calls.append((module, given[0], made))
