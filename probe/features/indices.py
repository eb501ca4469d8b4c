"""Turns typed layers into absolute indices.

Layer k is `hidden_states[k]`: 0 = the embedding output, 1..L = the encoder blocks. A typed index may count from the
end; inside the code every index is absolute.
"""

from __future__ import annotations

import re
from typing import Any

from probe.config import FeaturesConfig, UserError

SLICE = re.compile(r"\s*([+-]?\d+)?\s*:\s*([+-]?\d+)?\s*")


def stored_layers(cfg: FeaturesConfig, num_layers: int) -> tuple[int, ...]:
    """Returns the layers to extract and store, in ascending order: all L + 1, unless `features.layers` names some."""
    if cfg.layers is None:
        return tuple(range(num_layers + 1))
    return tuple(sorted(absolute(cfg.layers, num_layers, "features.layers")))


def absolute(wanted: Any, num_layers: int, setting: str) -> tuple[int, ...]:
    """Resolves a list of indices or a slice for an encoder of `num_layers` blocks, in the requested order.

    Raises UserError with the name of the setting and the valid range.
    """
    valid = f"layers are 0 (embeddings) to {num_layers}, or -1 to -{num_layers + 1} from the end"
    wanted = [wanted] if isinstance(wanted, int) else wanted
    if isinstance(wanted, list) and all(isinstance(k, int) and not isinstance(k, bool) for k in wanted):
        outside = [k for k in wanted if not -num_layers - 1 <= k <= num_layers]
        indices = [k % (num_layers + 1) for k in wanted]
    elif isinstance(wanted, str) and (found := SLICE.fullmatch(wanted)):
        start, stop = (int(end) if end else None for end in found.groups())
        outside = [end for end in (start, stop) if end is not None and not -num_layers - 1 <= end <= num_layers + 1]
        indices = list(range(num_layers + 1))[start:stop]
    else:
        raise UserError(f"{setting}={wanted!r} is neither a list like [9,10] nor a slice like '1:'; {valid}.")
    if outside:
        raise UserError(f"{setting}={wanted!r}: {outside[0]} is out of range; {valid}.")
    if not indices:
        raise UserError(f"{setting}={wanted!r} names no layer; {valid}.")
    doubled = next((k for k in indices if indices.count(k) > 1), None)
    if doubled is not None:
        raise UserError(f"{setting}={wanted!r} names layer {doubled} more than once; {valid}.")
    return tuple(indices)
