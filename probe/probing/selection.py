"""Which layers: presets and indices as they are typed, resolved against an encoder.

Layer k is `hidden_states[k]`: 0 = the embedding output, 1..L = the encoder blocks. Presets may count from the end;
from here on an index is absolute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from probe.config import LayersConfig, UserError


@dataclass(frozen=True)
class Selection:
    """A row of the table: absolute layer indices, in the order asked for, and how they are combined.

    No layer at all is the word memory, which needs no vectors.
    """

    name: str
    indices: tuple[int, ...]
    combine: str
    width: int

    @property
    def is_memory(self) -> bool:
        return not self.indices

    def as_text(self) -> str:
        if self.is_memory:
            return f"{self.name} = no layer: each word as train has it most often"
        return (
            f"{self.name} = {self.combine} of layers {', '.join(map(str, self.indices))}"
            if len(self.indices) > 1
            else f"{self.name} = layer {self.indices[0]}"
        )


def select(cfg: LayersConfig, num_layers: int, hidden_size: int) -> Selection:
    """Resolves what was asked for against an encoder of `num_layers` blocks. Raises UserError with the valid range."""
    if cfg.combine == "none":
        if cfg.indices != []:
            raise UserError(
                f"layers.combine=none is for no layer, not layers.indices={cfg.indices!r}. Type layers=word_memory."
            )
        return Selection(cfg.name or "word_memory", (), "none", 0)
    indices = _absolute(cfg.indices, num_layers, cfg.combine)
    name = cfg.name or (
        f"layer_{indices[0]}"
        if len(indices) == 1 and cfg.combine != "mix"
        else "_".join([cfg.combine, *map(str, indices)])
    )
    combine = "concat" if len(indices) == 1 and cfg.combine != "mix" else cfg.combine  # one layer: nothing to combine
    width = hidden_size * (len(indices) if combine == "concat" else 1)
    return Selection(name, indices, combine, width)


def _absolute(wanted: Any, num_layers: int, combine: str) -> tuple[int, ...]:
    valid = f"layers are 0 (embeddings) to {num_layers}, or -1 to -{num_layers + 1} from the end"
    wanted = [wanted] if isinstance(wanted, int) else wanted
    if isinstance(wanted, str):
        indices = _from_slice(wanted, num_layers, valid)
    elif isinstance(wanted, list) and all(isinstance(k, int) and not isinstance(k, bool) for k in wanted):
        outside = [k for k in wanted if not -num_layers - 1 <= k <= num_layers]
        if outside:
            raise UserError(f"layers.indices={wanted}: {outside[0]} is out of range; {valid}.")
        indices = [k % (num_layers + 1) for k in wanted]
    else:
        raise UserError(f"layers.indices={wanted!r} is neither a list like [9,10] nor a slice like '1:'; {valid}.")
    if not indices:
        raise UserError(f"layers.indices={wanted!r} names no layer; {valid}.")
    doubled = next((k for k in indices if indices.count(k) > 1), None)
    is_baseline = combine == "concat" and indices == [0, 0]  # what [0, k] is compared with in conditional probing
    if doubled is not None and not is_baseline:
        raise UserError(f"layers.indices={wanted!r} names layer {doubled} more than once; {valid}.")
    return tuple(indices)


def _from_slice(wanted: str, num_layers: int, valid: str) -> list[int]:
    start, colon, stop = wanted.partition(":")
    try:
        bounds = slice(int(start) if start.strip() else None, int(stop) if stop.strip() else None)
    except ValueError:
        colon = ""
        bounds = slice(None)
    if not colon:
        raise UserError(f"layers.indices={wanted!r} is neither a list like [9,10] nor a slice like '1:'; {valid}.")
    outside = [
        end for end in (bounds.start, bounds.stop) if end is not None and not -num_layers - 1 <= end <= num_layers + 1
    ]
    if outside:
        raise UserError(f"layers.indices={wanted!r}: {outside[0]} is out of range; {valid}.")
    return list(range(num_layers + 1))[bounds]
