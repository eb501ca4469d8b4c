"""Draws a word's occurrences: how similar they are by layer, and their positions in a plane.

The colours are from Okabe and Ito's set, which can be distinguished with all common kinds of colour blindness. Line
style and marker repeat the information for grey print. The background is white and opaque, for dark pages.
"""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from probe.inspect.encoded_text import TextEncoder
from probe.inspect.similarity import Comparison
from probe.system.files import write_atomically
from probe.tables.figures import spread

WITHIN = {"color": "#0072B2", "linestyle": "-", "marker": "o"}
BETWEEN = {"color": "#D55E00", "linestyle": "--", "marker": "s"}
PANELS_IN_ROW = 7
LABELLED = 10  # pairs with their names at their lines' ends
LISTED = 12  # occurrences written out


def draw(comparison: Comparison, reader: TextEncoder, file: Path) -> None:
    """Writes the figure, as PNG or SVG by the file's name.

    Two occurrences get no PCA, because it would be the same line at each layer.
    """
    num_layers = reader.encoder.num_layers
    rows_of_panels = -(-(num_layers + 1) // PANELS_IN_ROW)
    listed = [
        f"{i + 1}   text {occurrence.text + 1}: {occurrence.around}"
        for i, occurrence in enumerate(comparison.occurrences[:LISTED])
    ]
    if len(comparison.occurrences) > LISTED:
        listed.append(f"and {len(comparison.occurrences) - LISTED} more")
    heights = [0.55 + 0.17 * len(listed), 3.9]
    if comparison.groups is not None:
        heights += [0.3, 1.55 * rows_of_panels]
    figure = Figure(figsize=(9.6, sum(heights)), layout="constrained", facecolor="white")
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    title, top, *below = parts

    title.text(
        0.015,
        1 - 0.05 / heights[0],
        f"“{comparison.word}” in {reader.encoder.name}",
        va="top",
        size=13,
        parse_math=False,
    )
    title.text(0.015, 1 - 0.45 / heights[0], "\n".join(listed), va="top", size=9, linespacing=1.35, parse_math=False)
    _cosines_by_layer(top, comparison, num_layers)
    if below:
        caption = (
            "The occurrences in each layer's plane of most variance (PCA), and the share of variance that it shows"
        )
        below[0].text(0.015, 0.5, caption, va="center", size=9)
        _places_by_layer(below[1], comparison, num_layers)

    content = io.BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(content, format=file.suffix[1:].lower(), dpi=160, bbox_inches="tight", pad_inches=0.2)
    for warning in caught:
        if "missing from font" not in str(warning.message):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    if any("missing from font" in str(warning.message) for warning in caught):
        print("The figure's font lacks some characters of the texts; they are drawn as boxes.", file=sys.stderr)
    write_atomically(file, content.getvalue())


def _cosines_by_layer(figure: Any, comparison: Comparison, num_layers: int) -> None:
    combinations = comparison.rows[num_layers + 1 :]
    axes, right = figure.subplots(1, 2, sharey=True, width_ratios=[max(num_layers + 1, 7), 1 + 0.6 * len(combinations)])
    pairs = comparison.pairs()
    ends = []
    for pair in pairs:
        style = WITHIN if comparison.is_within(pair) or comparison.groups is None else BETWEEN
        values = comparison.cosines[:, pair[0], pair[1]]
        faint = 1.0 if len(pairs) <= LABELLED else 0.35
        axes.plot(range(num_layers + 1), values[: num_layers + 1], markersize=4, linewidth=1.6, alpha=faint, **style)
        right.plot(range(len(combinations)), values[num_layers + 1 :], **{**style, "linestyle": ""}, alpha=faint)
        ends.append(values[num_layers])
    if len(pairs) <= LABELLED:
        low, high = axes.get_ylim()
        order = sorted(range(len(pairs)), key=ends.__getitem__)
        places = spread([(ends[i] - low) / (high - low) for i in order], 0.055)
        for (a, b), place in zip((pairs[i] for i in order), places, strict=True):
            axes.text(num_layers + 0.2, low + place * (high - low), f"{a + 1}–{b + 1}", va="center", size=9)
    axes.set_xlim(-0.4, num_layers + 1.1)
    axes.set_xticks(range(num_layers + 1))
    axes.set_xlabel("layer (0 = embedding output)")
    axes.set_ylabel("cosine")
    right.set_xticks(range(len(combinations)), [row.name for row in combinations], rotation=40, ha="right", size=8)
    right.set_xlim(-0.6, len(combinations) - 0.4)
    for panel in (axes, right):
        panel.grid(axis="y", color="#dddddd", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    if comparison.groups is not None:
        names = ["{" + ", ".join(str(i + 1) for i in group) + "}" for group in comparison.groups]
        if any(comparison.is_within(pair) for pair in pairs):
            axes.plot([], [], label="within a group", **WITHIN)
        axes.plot([], [], label=f"between {' and '.join(names)}" if len(pairs) <= LABELLED else "between", **BETWEEN)
        axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.2)


def _places_by_layer(figure: Any, comparison: Comparison, num_layers: int) -> None:
    rows = -(-(num_layers + 1) // PANELS_IN_ROW)
    panels = figure.subplots(rows, PANELS_IN_ROW, squeeze=False).flat
    before = None
    for layer, panel in enumerate(panels):
        if layer > num_layers:
            panel.set_visible(False)
            continue
        places, share = plane(comparison.vectors[:, layer].double().numpy())
        if before is not None:  # the sign of an axis is arbitrary, so it is chosen to match the previous layer
            places *= np.where((places * before).sum(0) < 0, -1, 1)
        before = places
        for i, (x, y) in enumerate(places):
            style = BETWEEN if comparison.groups is not None and i in comparison.groups[1] else WITHIN
            panel.plot(x, y, linestyle="", markersize=12, color=style["color"], marker=style["marker"], alpha=0.9)
            if len(places) <= 2 * LISTED:
                panel.text(x, y, str(i + 1), ha="center", va="center_baseline", size=8, color="white", weight="bold")
        reach = 1.35 * float(np.abs(places).max()) or 1.0
        panel.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
        panel.set_title(f"layer {layer} · {100 * share:.0f} %", size=9, pad=3)
        for spine in panel.spines.values():
            spine.set_color("#bbbbbb")


def plane(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Projects vectors (n, H) to coordinates (n, 2) on two components; also returns their share of variance."""
    centred = vectors - vectors.mean(0)
    axes, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    places = axes[:, :2] * lengths[:2]
    total = float((lengths**2).sum())
    return places, float((lengths[:2] ** 2).sum() / total) if total else 1.0
