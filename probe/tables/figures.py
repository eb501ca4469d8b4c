"""Draws records as pictures: every row's scores beside its layers, F1 by layer, and the learned weights of mixes.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish; markers and line styles say the same.
The background is white. The same records under the same matplotlib give the same bytes.
"""

from __future__ import annotations

import io
import itertools
import re
import statistics
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from PIL import Image

from probe.conditions import MAIN
from probe.format import percent
from probe.system.grouping import group_by
from probe.tables.columns import COLUMNS, header
from probe.tables.labels import UNCONVERGED
from probe.tables.notes import heading
from probe.tables.recommendation import recommend
from probe.tables.row import Row, by_score, split_by_encoder, tables_of

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
DASHES = ("-", "--", "-.", ":")
DEV, TEST, INK, GREY, PALE, BAND, STRIPE = "#0072B2", "#D55E00", "#222222", "#666666", "#bbbbbb", "#bfdcee", "#f4f4f4"
FEWEST_LAYERS = 4  # of a picture by layer, unless these are all that the encoder has
OF_SPLITS = {"dev": (DEV, "o", DEV), "test": (TEST, "s", "white")}  # colour, marker, and what fills it
BEHIND = "behind the best (95 %, all rows at once)"
MOST_LINES = 80  # rows in the picture of a table: the best by dev
WIDE, NARROW = 7.4, 3.3  # widths of a picture in inches; the narrow one is for a phone
LINE = 0.235  # height of a line in the picture of a table, in inches; in a narrow one, the name stands above the scores
STRETCH = 0.5  # a baseline widens the range of the rows' scores by at most so much of it, else stands at its edge
PALETTE = 64  # colours of a picture's file: the eight at most that mean something, and their soft edges
STYLE: Any = {
    "svg.hashsalt": "layer-probe",  # element names in SVG are otherwise random
    "pdf.fonttype": 42,  # text of a PDF is text
    "font.size": 9,
    "axes.labelsize": 8,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
}
WITHOUT_DATE: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # so the same content gives the same file


@dataclass(frozen=True)
class Picture:
    """Holds what a picture shows, before it is drawn.

    name: of its file, without the ending. alt: says in a sentence what it shows. table: the key of the table with which
    it is shown; None: it is shown with other figures. content: what `make` draws.
    """

    name: str
    alt: str
    table: str | None
    content: Any
    make: Callable[[Figure, Any], None]
    title: str = ""

    def figure(self, width: float = WIDE) -> Figure:
        """Draws it. width: in inches, WIDE or NARROW."""
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(width, 4.0), dpi=200, facecolor="white", layout="constrained")
            self.make(figure, self.content)
            figure.suptitle(textwrap.fill(self.title, int(15.5 * width)), fontsize=7.5, x=0.01, ha="left", color=GREY)
            return figure

    def render(self, form: str = "png", width: float = WIDE) -> bytes:
        """Draws it as png, svg or pdf. width: see `figure`."""
        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # of a name; a box stands in its place
            figure, out = self.figure(width), io.BytesIO()
            if form in WITHOUT_DATE:
                figure.savefig(out, format=form, metadata=WITHOUT_DATE[form])
                return out.getvalue()
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
            # Few colours give a third of the size, which counts in a page and in a repository.
            drawn.quantize(PALETTE, dither=Image.Dither.NONE).save(out, "png", optimize=True)
            return out.getvalue()


def pictures(rows: Sequence[Row]) -> list[Picture]:
    """Gives every picture that rows and their records allow, the scores of each table first.

    Where a table has several encoders, its scores are one picture, and the others are drawn for each encoder.
    """
    shown: list[Picture] = []
    tables = tables_of([row for row in rows if row.n])
    for table in tables:
        key = table[0].table
        suffix = f"-{key}" if len(tables) > 1 else ""
        alt = "Dev and test scores of every row with their intervals, beside the layers that it uses"
        shown.append(Picture(f"scores{suffix}", alt, key, table, draw_scores, heading(table)))
        for part in split_by_encoder(table):
            encoder, title = part[0].encoder, heading(part)
            ending = suffix + ("-" + re.sub(r"[^\w.-]", "-", encoder) if encoder else "")
            if has_layers(part):
                alt = "Dev and test score of every single layer"
                shown.append(Picture(f"f1_by_layer{ending}", alt, None, part, draw_f1_by_layer, title))
            if any(record.mix for row in part for record in row.records.values()):
                alt = "Learned share of each layer in the weighted sums"
                shown.append(Picture(f"mix_weights{ending}", alt, None, part, draw_mix_weights, title))
    return shown


def draw_scores(figure: Figure, rows: Sequence[Row]) -> None:
    """Draws a line per row: its layers, its scores with their intervals, and what it costs.

    A narrow picture has the rows' names and scores alone.
    """
    rows, num_layers = by_score(rows)[:MOST_LINES], max(row.num_layers for row in rows) + 1
    recommended, is_narrow = recommend(rows), figure.get_figwidth() == NARROW
    beside: list[tuple[Axes, int, str, Callable[[Row], str]]] = []  # axes, offset, title and text of each column
    if is_narrow:
        figure.set_size_inches(NARROW, 1.9 + 1.8 * LINE * len(rows))
        axes = figure.add_subplot()
    else:
        figure.set_size_inches(WIDE, 1.35 + LINE * len(rows))
        strip, axes = figure.subplots(1, 2, sharey=True, width_ratios=[min(0.1 * num_layers, 1.4), 3.0])
        _draw_layers(strip, rows, num_layers)
        for label, row in zip(strip.get_yticklabels(), rows, strict=True):
            label.set_weight("bold" if row is recommended.use else "normal")
        beside += [
            (strip, 6, "label", COLUMNS["label"].text),
            (axes, 32, "blocks", lambda row: str(row.num_blocks)),
            (axes, 62, "width", lambda row: str(row.width)),
        ]
    values: list[float] = []
    for row in [row for row in rows if row.section == MAIN] or rows:
        for cell in (row.cell("dev"), row.cell("test")):
            values += [cell.mean or 0.0, *(cell.interval if cell.interval and row.behind else [])]
    low, high = _range(values, rows)
    axes.set(xlim=(low, high), ylim=(len(rows) - 0.5, -0.5), xlabel=f"{header('dev', rows)[4:]} in percent")
    axes.tick_params(axis="y", length=0, labelleft=False)
    axes.spines["left"].set_visible(False)
    axes.grid(False, axis="y")
    for panel, offset, title, _ in beside:
        _write(panel, -0.9, offset, title, color=GREY)
    best = recommended.best
    for y, row in enumerate(rows):
        weight = "bold" if row is recommended.use else "normal"
        if y % 2 == 0:
            axes.axhspan(y - 0.5, y + 0.5, color=STRIPE, lw=0, zorder=0)
        if is_narrow:
            axes.text(0, y - 0.25, row.full_name, transform=axes.get_yaxis_transform(), va="center", weight=weight)
        _draw_row(axes, y + 0.2 * is_narrow, row, best)
        for panel, offset, _, text in beside:
            _write(panel, y, offset, text(row), weight=weight)
    if best:
        top = 100 * best.dev_mean
        axes.axvspan(top - best.margin, top, color=BAND, lw=0, zorder=0.5, label=f"within {best.margin:g} of the best")
    draw_legend(figure, axes)


def _draw_layers(strip: Axes, rows: Sequence[Row], num_layers: int) -> None:
    """Draws the layers of each row as filled cells, and the rows' names beside them."""
    cells = np.full((len(rows), num_layers), 0.5)  # grey: its encoder has no such layer
    for y, row in enumerate(rows):
        cells[y, : row.num_layers + 1] = 0
        cells[y, row.indices] = 1
    strip.pcolormesh(
        np.arange(num_layers + 1) - 0.5, np.arange(len(rows) + 1) - 0.5, cells,
        cmap=ListedColormap(["white", PALE, INK]), vmin=0, vmax=1, edgecolors=PALE, lw=0.5,
    )  # fmt: skip
    strip.set_yticks(range(len(rows)), [row.full_name for row in rows])
    strip.set_xticks([0, num_layers - 1])
    strip.set_xlabel("layers")
    strip.tick_params(length=0)
    strip.grid(False)
    for spine in strip.spines.values():
        spine.set_visible(False)


def _range(values: Sequence[float], others: Sequence[Row]) -> tuple[float, float]:
    """Returns the range of an axis in percent: of these scores, and of those of others that are not far away."""
    low, high = min(values), max(values)
    reach = STRETCH * max(high - low, 0.01)
    near = [row.dev_mean for row in others if low - reach <= row.dev_mean <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    pad = 0.04 * (high - low) or 0.01
    return 100 * (low - pad), 100 * (high + pad)


def _draw_row(axes: Axes, y: float, row: Row, best: Row | None) -> None:
    """Draws a row's scores; one outside the range stands as a number at its edge."""
    low, high = axes.get_xlim()
    over = "seeds and text" if row.over_text else "seeds"
    for split, (colour, marker, face) in OF_SPLITS.items():
        cell, place = row.cell(split), y + (-0.15 if split == "dev" else 0.15)
        if cell.mean is None:
            continue
        mean = 100 * cell.mean
        if not low <= mean <= high:
            text, x, side = (f"◂ {mean:.2f}", low, "left") if mean < low else (f"{mean:.2f} ▸", high, "right")
            axes.text(x, place, text, fontsize=6.5, color=colour, va="center", ha=side)
            continue
        if cell.interval:
            ends = [100 * end for end in cell.interval]
            axes.plot(ends, [place] * 2, color=colour, lw=0.9, label=f"95 % over {over}", zorder=2)
        if split == "dev" and row.behind and best:
            ends = [100 * (best.dev_mean + end) for end in row.behind]
            axes.plot(ends, [place] * 2, color=colour, lw=3.2, label=BEHIND, solid_capstyle="butt", zorder=2)
        axes.plot(mean, place, marker, ms=4.6, mfc=face, mec=colour, mew=1.1, ls="", label=split, zorder=3)


def _write(axes: Axes, y: float, offset: int, text: str, **style: Any) -> None:
    """Writes a cell of a column to the right of a panel, so many points away: the labels' begin, or a number's end."""
    axes.annotate(
        text, (1, y), (offset, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points", fontsize=8,
        va="center", ha="left" if offset == 6 else "right", annotation_clip=False, **style,
    )  # fmt: skip


def draw_legend(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Draws the key of the axes below them. It has each label once: of lines that share one, the first."""
    first: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        first.setdefault(label, handle)
    ncols = 1 if figure.get_figwidth() == NARROW else columns
    figure.legend([*first.values()], [*first], loc="outside lower left", ncols=ncols, columnspacing=1.2)


def singles(rows: Sequence[Row]) -> list[Row]:
    """Gives the single layers in their order; of rows that differ in how they are normalized, the larger set."""
    sets = group_by((row for row in rows if row.is_single and row.n), lambda row: row.identity.layers.normalize)
    most: list[Row] = max(sets.values(), key=len, default=[])
    return sorted(most, key=lambda row: row.indices[0])


def has_layers(rows: Sequence[Row]) -> bool:
    """Tells whether main rows have enough single layers for a picture of them."""
    single = singles([row for row in rows if row.section == MAIN])
    return len(single) > 1 and len(single) >= min(FEWEST_LAYERS, 1 + single[0].num_layers)


def draw_f1_by_layer(figure: Figure, rows: Sequence[Row]) -> None:
    """Draws dev and test by layer, the best combination, and baselines and fine-tuned rows; names those far away."""
    axes = figure.add_subplot()
    main = [row for row in rows if row.section == MAIN]
    single = singles(main)
    for split, (colour, marker, face) in OF_SPLITS.items():
        if single:
            draw_means(axes, single, split, color=colour, marker=marker, mfc=face, label=split)
    combined = by_score(row for row in main if not row.is_single and row.n and row.label != UNCONVERGED)
    for best in combined[:1]:
        axes.axhline(100 * best.dev_mean, color=INK, ls="--", lw=1.2, label=f"{best.name} {percent(best.dev_mean)}")
    beside = [row for row in rows if row.section != MAIN and row.n]
    cells = [row.cell(split) for row in single for split in OF_SPLITS]
    values = [(cell.mean or 0.0) + sign * (cell.std or 0.0) for cell in cells for sign in (-1, 1)]
    low, high = _range(values + [row.dev_mean for row in combined[:1]], beside)
    axes.set_ylim(low, high)
    others = group_by(beside, lambda row: row.condition or row.name)
    for (name, same), (colour, marker, dash) in zip(others.items(), itertools.islice(styles(), 2, None), strict=False):
        lines, top = singles(same), 100 * max(row.dev_mean for row in same)
        label = f"{name} {top:.2f}" + (" (below)" if top < low else " (above)" if top > high else "")
        if len(lines) > 1:
            draw_means(axes, lines, "dev", color=colour, marker=marker, ls=dash, label=label)
        else:
            axes.axhline(top, color=colour, ls=dash, lw=1, label=label)
    label_layers(axes, [row.indices[0] for row in single])
    axes.set_ylabel(f"{header('dev', rows)[4:]} in percent (± standard deviation)")
    draw_legend(figure, axes)


def draw_means(axes: Axes, rows: Sequence[Row], split: str, **style: Any) -> None:
    """Draws the mean of each single layer with its deviation; a line joins neighbouring layers."""
    cells = {row.indices[0]: row.cell(split) for row in rows}
    layers = range(min(cells), max(cells) + 1)
    means, spreads = (
        [100 * (getattr(cells[layer], part) or 0.0) if layer in cells else np.nan for layer in layers]
        for part in ("mean", "std")
    )
    axes.errorbar(layers, means, spreads, capsize=3, **style)


def styles() -> Iterator[tuple[str, str, str]]:
    """Yields colour, marker and dash of one line after another, without end."""
    return zip(itertools.cycle(COLOURS), itertools.cycle(MARKERS), itertools.cycle(DASHES), strict=False)


def label_layers(axes: Axes, layers: Sequence[int]) -> None:
    axes.set_xticks(layers)
    axes.set_xlabel("layer (0: embeddings)")


def draw_mix_weights(figure: Figure, rows: Sequence[Row]) -> None:
    """Draws the learned share of each layer in each mix, and the mixes' centres of gravity."""
    axes = figure.add_subplot()
    mixes = {row: [record.mix.weights for record in row.records.values() if record.mix] for row in rows}
    mixes = {row: shares for row, shares in mixes.items() if shares}
    of_layer = {layer: [row for row in mixes if layer in row.indices] for row in mixes for layer in row.indices}
    width = 0.8 / len(mixes)
    for i, ((row, shares), hatch) in enumerate(zip(mixes.items(), itertools.cycle(("", "///", "...", "xxx")))):
        columns, colour = list(zip(*shares, strict=True)), COLOURS[i % len(COLOURS)]
        means = [statistics.fmean(column) for column in columns]
        spread = [statistics.stdev(column) if len(column) > 1 else 0.0 for column in columns]
        centre = sum(layer * mean for layer, mean in zip(row.indices, means, strict=True))
        offsets = [of_layer[layer].index(row) - (len(of_layer[layer]) - 1) / 2 for layer in row.indices]
        axes.bar(
            [layer + offset * width for layer, offset in zip(row.indices, offsets, strict=True)], means, width,
            yerr=spread, capsize=2, color=colour, hatch=hatch, edgecolor="white",
            label=f"{row.full_name}: centre of gravity {centre:.2f}",
        )  # fmt: skip
        axes.axvline(centre, color=colour, ls=DASHES[1 + i % 3], lw=1.2)
    label_layers(axes, sorted(of_layer))
    axes.set_ylabel("learned share (mean ± sd over seeds)")
    draw_legend(figure, axes, 1)
