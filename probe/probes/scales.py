"""Where layers that are added up differ in scale, so that the larger ones dominate. No torch: tables say it too."""

from __future__ import annotations

from collections.abc import Sequence

ADDED = ("sum", "mean", "mix")  # combinations in which a layer counts by its scale
UNLIKE = 2.0  # times that the deviations of such layers may differ before it is said
REMEDY = "layers.normalize=scale brings layers to one scale"


def ratio_of(deviations: Sequence[float]) -> float:
    """The largest deviation over the smallest."""
    return max(deviations) / max(min(deviations), 1e-12)


def adds_unlike(combine: str, normalize: str | None, deviations: Sequence[float] | None) -> bool:
    """Whether layers of such deviations are added up as they are though they differ much in scale."""
    return combine in ADDED and normalize is None and bool(deviations) and ratio_of(deviations or [1]) > UNLIKE


def unlike_layers(row: str, combine: str, deviations: Sequence[float]) -> str:
    """What is to be said of a row that adds up layers of such deviations."""
    return (
        f"{row}: layers whose deviations per feature differ {ratio_of(deviations):.1f} times ({min(deviations):.3g} to "
        f"{max(deviations):.3g}) go into one {combine}, which the larger ones dominate"
    )
