"""Finds rows that add up layers of different scale, so that the larger layers dominate. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence

ADDED = ("sum", "mean", "mix")  # combinations in which a layer's weight depends on its scale
UNLIKE = 2.0  # ratio of deviations above which there is a warning
REMEDY = "layers.normalize=scale brings layers to one scale"


def ratio_of(deviations: Sequence[float]) -> float:
    """Returns the largest deviation divided by the smallest."""
    return max(deviations) / max(min(deviations), 1e-12)


def adds_unlike(combine: str, normalize: str | None, deviations: Sequence[float] | None) -> bool:
    """Returns whether layers of these deviations are added without normalization though they differ much in scale."""
    return combine in ADDED and normalize is None and bool(deviations) and ratio_of(deviations or [1]) > UNLIKE


def unlike_layers(row: str, combine: str, deviations: Sequence[float]) -> str:
    """Describes a row that adds up layers of these deviations, for a warning."""
    return (
        f"{row}: the {combine} adds layers whose deviations per feature differ by a factor of "
        f"{ratio_of(deviations):.1f} ({min(deviations):.3g} to {max(deviations):.3g}), so the larger ones dominate"
    )
