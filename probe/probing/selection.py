"""Which layers a run takes, and how they are combined: what was chosen, resolved against an encoder."""

from __future__ import annotations

from dataclasses import dataclass

from probe.config import LayersConfig
from probe.features.indices import absolute


@dataclass(frozen=True)
class Selection:
    """A row of the table: absolute layer indices, in the order asked for, and how they are combined."""

    name: str
    indices: tuple[int, ...]
    combine: str
    width: int

    def as_text(self) -> str:
        return (
            f"{self.name} = {self.combine} of layers {', '.join(map(str, self.indices))}"
            if len(self.indices) > 1
            else f"{self.name} = layer {self.indices[0]}"
        )


def select(cfg: LayersConfig, num_layers: int, hidden_size: int) -> Selection:
    """Resolves what was asked for against an encoder of `num_layers` blocks. Raises UserError with the valid range."""
    indices = absolute(cfg.indices, num_layers, "layers.indices")
    name = cfg.name or (
        f"layer_{indices[0]}"
        if len(indices) == 1 and cfg.combine != "mix"
        else "_".join([cfg.combine, *map(str, indices)])
    )
    combine = "concat" if len(indices) == 1 and cfg.combine != "mix" else cfg.combine  # one layer: nothing to combine
    width = hidden_size * (len(indices) if combine == "concat" else 1)
    return Selection(name, indices, combine, width)
