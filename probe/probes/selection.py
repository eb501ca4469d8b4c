"""Resolves which layers a run takes and how they are combined, for a given encoder. Imports no torch.

Rows that add up layers of different scale get a warning, since the larger layers dominate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from probe.config import LayersConfig, UserError, preset_names, preset_values
from probe.vectors.store import absolute

ADDED = ("sum", "mean", "mix")  # combinations in which a layer's weight depends on its scale
UNLIKE = 2.0  # ratio of deviations above which there is a warning
MIDDLE = "middle"  # of layers.indices: the block L // 2
REMEDY = "layers.normalize=scale brings layers to one scale"


@dataclass(frozen=True)
class Selection:
    """Describes a row of the table: absolute layer indices in the order asked for, and how they are combined.

    normalize: how they are normalized before; None: not. A row without layers is the majority-tag baseline, which needs
    no vectors.
    """

    name: str
    indices: tuple[int, ...]
    combine: str
    width: int
    normalize: str | None = None

    def as_text(self) -> str:
        if not self.indices:
            return f"{self.name} = no layer, a baseline from train alone"
        layers = ", ".join(map(str, self.indices))
        chosen = f"layer {layers}" if len(self.indices) == 1 else f"{self.combine} of layers {layers}"
        normalized = f", layers.normalize={self.normalize}" if self.normalize else ""
        return f"{self.name} = {chosen}{normalized}"


def encoder_flops(hidden_size: int, num_blocks: int) -> int:
    """Returns the operations of so many BERT blocks per piece, without products inside attention: 24 H^2 a block."""
    return 24 * hidden_size**2 * num_blocks


def select(cfg: LayersConfig, num_layers: int, hidden_size: int) -> Selection:
    """Resolves the layers for an encoder of `num_layers` blocks. Raises UserError with the valid range."""
    if cfg.is_empty:
        if cfg.indices != []:
            raise UserError(
                f"layers.combine={cfg.combine} takes no layers, not layers.indices={cfg.indices!r}. "
                "Type layers=majority_tag."
            )
        return Selection(cfg.name or "majority_tag", (), cfg.combine, 0)
    setting = f"layers={cfg.name}, which is layers.indices" if cfg.name else "layers.indices"
    indices = (num_layers // 2,) if cfg.indices == MIDDLE else absolute(cfg.indices, num_layers, setting)
    name = cfg.name or (
        f"layer_{indices[0]}"
        if len(indices) == 1 and cfg.combine != "mix"
        else "_".join([cfg.combine, *map(str, indices)])
    )
    combine = "concat" if len(indices) == 1 and cfg.combine != "mix" else cfg.combine  # one layer: nothing to combine
    width = hidden_size * (len(indices) if combine == "concat" else 1)
    return Selection(name, indices, combine, width, cfg.normalize)


def presets_of(num_layers: int, hidden_size: int) -> list[Selection]:
    """Resolves the presets of layers for an encoder of `num_layers` blocks, without those that it cannot have."""
    selections = []
    for name in preset_names("layers"):
        preset = preset_values("layers", name)
        with contextlib.suppress(UserError):  # such as the last four of three layers
            selections.append(select(LayersConfig(preset["indices"], preset["combine"], name), num_layers, hidden_size))
    return [selection for selection in selections if selection.indices]


def unlike_layers(row: str, combine: str, deviations: Sequence[float]) -> str | None:
    """Warns of a row that adds up layers of these deviations; None if they differ little in scale."""
    ratio = max(deviations) / max(min(deviations), 1e-12)
    if ratio <= UNLIKE:
        return None
    return (
        f"{row}: the {combine} adds layers whose deviations per feature differ by a factor of "
        f"{ratio:.1f} ({min(deviations):.3g} to {max(deviations):.3g}), so the larger ones dominate"
    )
