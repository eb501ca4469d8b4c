"""Draws a table as a dot plot: a line per row, with the layers that it uses, its scores and what they cost.

Left are the names and a strip of cells, one per layer; a row's own layers are filled. In the middle are dev (filled
dots) and test (hollow squares) with their intervals. Right are short columns of text. Sizes are in inches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

DEV, TEST, INK, GREY, PALE, BAND, STRIPE = "#0072B2", "#D55E00", "#222222", "#666666", "#bbbbbb", "#bfdcee", "#f4f4f4"
WIDTH = 7.4  # of the figure, unless names and columns leave less than PLOT for the scores
PLOT = 2.7
LINE = 0.225  # height of a line
LEVEL = 0.15  # height of a line of small text above the scores
CELL, STRIP = 0.105, 1.5  # width of a layer's cell, and of all of them at most
KEY = 0.78  # height of what is below the lines: ticks, axis label and key
MARGIN, GAP = 0.14, 0.14
SIZE, SMALL = 8.5, 7.5  # of text, in points
THIN, THICK = 0.9, 3.2  # of bars, in points
USED = 3.6  # size of the mark of the row to use
LONGEST = 34  # characters of a name
STRETCH = 0.25  # baselines widen the range of the rows' scores by at most so much of it; the others stand at its edge
LEFT_OUT, RIGHT_OUT = "◂", "▸"  # a score lies further out


@dataclass(frozen=True)
class Score:
    """Holds a mean and its interval, in the unit of the axis.

    to_best: the interval of how far it lies behind the best, seen from the best row's mean. A row is significantly
    worse if this interval does not reach that mean, and within the margin if it lies inside the band.
    """

    mean: float
    interval: tuple[float, float] | None = None
    to_best: tuple[float, float] | None = None


@dataclass(frozen=True)
class Line:
    """Holds a line of the plot.

    columns: the texts to the right. note: shown in place of scores. is_ranked: its scores decide the range of the axis;
    is_compared: so do its intervals. is_used: the row to use. is_best, is_faint: how its last column is set.
    num_layers: of its encoder, where the plot has several; None: as many as the plot has.
    """

    name: str
    layers: tuple[int, ...]
    dev: Score | None
    test: Score | None
    columns: tuple[str, ...]
    note: str = ""
    is_ranked: bool = True
    is_compared: bool = True
    is_used: bool = False
    is_best: bool = False
    is_faint: bool = False
    num_layers: int | None = None


@dataclass(frozen=True)
class DotPlot:
    """Holds a dot plot's content.

    num_layers: the encoder's, with the embeddings; of several encoders the most. headers: of the columns. align_left:
    which of them are. axis: what the scores are. bars: what the thin intervals are. band: [low, high] that is shaded,
    and what it means. marks: thin vertical lines, by name.
    """

    title: str
    lines: tuple[Line, ...]
    num_layers: int
    headers: tuple[str, ...]
    align_left: tuple[bool, ...]
    axis: str
    bars: str
    band: tuple[float, float, str] | None = None
    marks: tuple[tuple[str, float], ...] = ()


def draw_dot_plot(figure: Figure, plot: DotPlot) -> None:
    """Draws a plot, and sets the size of its figure."""
    figure.set_layout_engine("none")
    sheet = _sheet(figure, plot)
    figure.set_size_inches(sheet.width, sheet.height)
    whole = figure.add_axes((0, 0, 1, 1), zorder=-1)
    whole.set(xlim=(0, sheet.width), ylim=(sheet.height, 0))
    whole.set_axis_off()
    bottom, high = sheet.height - sheet.top - LINE * len(plot.lines), LINE * len(plot.lines)
    box = (sheet.start, bottom, sheet.plot_width, high)
    sizes = (sheet.width, sheet.height, sheet.width, sheet.height)
    axes = figure.add_axes(tuple(part / size for part, size in zip(box, sizes, strict=True)))  # type: ignore[arg-type]
    axes.set(xlim=(sheet.low, sheet.high), ylim=(len(plot.lines), 0), yticks=[])
    axes.patch.set_alpha(0)
    axes.spines["left"].set_visible(False)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.tick_params(axis="x", labelsize=SMALL, length=3)
    axes.set_xlabel(plot.axis, fontsize=SMALL, labelpad=2)
    _draw_heads(whole, plot, sheet)
    _draw_lines(whole, plot, sheet)
    for place, line in enumerate(plot.lines):
        _draw_scores(axes, line, place + 0.5)
    if plot.band:
        axes.axvspan(plot.band[0], plot.band[1], color=BAND, lw=0, zorder=0)
        axes.axvline(plot.band[1], color=DEV, lw=0.8, zorder=0.5)
    _draw_marks(axes, whole, sheet)
    _draw_key(figure, plot, sheet.height)


@dataclass(frozen=True)
class Sheet:
    """Holds where everything stands, in inches from the left and from the top.

    cells: where the strip begins, and the width of a cell. start, plot_width: of the scores. low, high: their range.
    top: of the first line. columns: where each column's text is anchored.
    """

    width: float
    height: float
    cells: tuple[float, float]
    start: float
    plot_width: float
    low: float
    high: float
    top: float
    columns: list[float]
    marks: list[PlacedMark]

    def middle(self, place: float) -> float:
        """Returns the middle of the line at a place."""
        return self.top + LINE * (place + 0.5)


def _sheet(figure: Figure, plot: DotPlot) -> Sheet:
    texts = Texts(figure)
    name_width = max(texts.width(_shortened(line.name), bold=True) for line in plot.lines) + GAP
    cell = min(CELL, STRIP / plot.num_layers)
    widths = [
        max(texts.width(text, bold=True) for text in column)
        for column in zip(plot.headers, *(line.columns for line in plot.lines), strict=True)
    ]
    start = MARGIN + name_width + cell * plot.num_layers + GAP
    sides = start + GAP + sum(widths) + GAP * len(widths) + MARGIN
    width = max(WIDTH, sides + PLOT)
    low, high = _range(plot)
    marks = _placed_marks(plot, low, high, width - sides, texts)
    title = 0.15 * (plot.title.count("\n") + 1) + 0.1
    top = title + LEVEL * max((mark.level for mark in marks), default=0) + LINE
    columns = []
    for k, align_left in enumerate(plot.align_left):
        begin = width - MARGIN - sum(widths[k:]) - GAP * (len(widths) - k - 1)
        columns.append(begin if align_left else begin + widths[k])
    return Sheet(
        width, top + LINE * len(plot.lines) + KEY, (MARGIN + name_width, cell), start, width - sides, low, high, top,
        columns, marks,
    )  # fmt: skip


def _draw_heads(whole: Axes, plot: DotPlot, sheet: Sheet) -> None:
    """Draws the title, and what stands above columns and strips."""
    style: dict[str, Any] = {"fontsize": SMALL, "color": GREY, "va": "center_baseline"}
    whole.text(MARGIN, 0.07, plot.title, fontsize=SMALL, color=GREY, va="top", linespacing=1.3)
    head = sheet.middle(-1)
    for header, x, align_left in zip(plot.headers, sheet.columns, plot.align_left, strict=True):
        whole.text(x, head, header, ha="left" if align_left else "right", **style)
    begin, cell = sheet.cells
    for k in sorted({0, *((line.num_layers or plot.num_layers) - 1 for line in plot.lines)}):
        whole.text(begin + cell * (k + 0.5), head, str(k), ha="center", **style)
    whole.text(begin - GAP / 2, head, "layers", ha="right", **style)


def _draw_lines(whole: Axes, plot: DotPlot, sheet: Sheet) -> None:
    """Draws names, strips and columns of all lines."""
    stripes: list[Rectangle] = []
    used: list[Rectangle] = []
    unused: list[Rectangle] = []
    begin, cell = sheet.cells
    for number, line in enumerate(plot.lines):
        y = sheet.middle(number)
        style: dict[str, Any] = {"fontsize": SIZE, "va": "center_baseline"}
        if number % 2 == 0:
            stripes.append(Rectangle((0, y - LINE / 2), sheet.width, LINE))
        if line.is_used:
            whole.plot(MARGIN / 2 + 0.01, y, ">", color=INK, ms=USED)
        weight = "bold" if line.is_used else "normal"
        whole.text(MARGIN, y, _shortened(line.name), color=INK, weight=weight, **style)
        for k in range(line.num_layers or plot.num_layers):
            box = Rectangle((begin + cell * k, y - 0.06), 0.88 * cell, 0.12)
            (used if k in line.layers else unused).append(box)
        last = len(line.columns) - 1
        for at, (text, x, align_left) in enumerate(zip(line.columns, sheet.columns, plot.align_left, strict=True)):
            weight = "bold" if line.is_best and align_left and at == last else "normal"
            colour = GREY if line.is_faint and align_left and at == last else INK
            whole.text(x, y, text, color=colour, weight=weight, ha="left" if align_left else "right", **style)
    whole.add_collection(PatchCollection(stripes, facecolor=STRIPE, lw=0, zorder=0))
    whole.add_collection(PatchCollection(used, facecolor=INK, edgecolor=INK, lw=0.5, zorder=1))
    whole.add_collection(PatchCollection(unused, facecolor="white", edgecolor=PALE, lw=0.5, zorder=1))


class Texts:
    """Measures texts of a figure."""

    def __init__(self, figure: Figure) -> None:
        self._renderer = FigureCanvasAgg(figure).get_renderer()
        self._figure = figure

    def width(self, text: str, size: float = SIZE, bold: bool = False) -> float:
        """Returns a text's width in inches."""
        shown = self._figure.text(0, 0, text, fontsize=size, weight="bold" if bold else "normal")
        found = shown.get_window_extent(self._renderer).width / self._figure.dpi
        shown.remove()
        return float(found)


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _range(plot: DotPlot) -> tuple[float, float]:
    """Returns the range of the axis: all scores and intervals of ranked lines, and baselines that are not far away."""
    ranked = [line for line in plot.lines if line.is_ranked] or plot.lines
    values: list[float] = []
    for line in ranked:
        for score in (score for score in (line.dev, line.test) if score):
            intervals = [score.to_best, score.interval if line.is_compared else None]
            values += [score.mean, *(end for ends in intervals if ends for end in ends)]
    others = [score.mean for line in plot.lines for score in (line.dev, line.test) if score]
    values += plot.band[:2] if plot.band else ()
    if not values:
        return 0.0, 100.0
    low, high = min(values), max(values)
    reach = STRETCH * max(high - low, 1.0)
    for value in [*others, *(value for _, value in plot.marks)]:
        if min(values) - reach <= value <= max(values) + reach:
            low, high = min(low, value), max(high, value)
    pad = 0.04 * (high - low) or 1.0
    return low - pad, high + pad


@dataclass(frozen=True)
class PlacedMark:
    """Holds the label of a thin line: where the line and the label's text are, in inches from the left of the scores,
    and the label's level above them. at: None for a line outside the range."""

    label: str
    at: float | None
    begin: float
    end: float
    level: int = 0

    def is_clear_of(self, other: PlacedMark) -> bool:
        """Tells whether neither text nor leader of one runs through the text of the other."""
        if self.level == other.level:
            return self.end < other.begin or other.end < self.begin
        lower, higher = sorted((self, other), key=lambda mark: mark.level)
        return higher.at is None or not lower.begin <= higher.at <= lower.end


def _placed_marks(plot: DotPlot, low: float, high: float, width: float, texts: Texts) -> list[PlacedMark]:
    """Places the labels of the thin lines, those of lines outside the range at the edge.

    Labels begin at their lines and are placed from the right. If one then runs through another, they end at their lines
    where there is room, and are placed from the left.
    """
    placed: list[PlacedMark] = []
    for sign in (-1, 1):
        placed = []
        for name, value in sorted(plot.marks, key=lambda mark: sign * mark[1]):
            at = (value - low) / (high - low) * width if low <= value <= high else None
            label = f"{name} {value:.1f}"
            label = label if at is not None else f"{LEFT_OUT} {label}" if value < low else f"{label} {RIGHT_OUT}"
            size = texts.width(label, SMALL) + 0.08
            begins = [0.0 if value < low else width] if at is None else [at - 0.02, at + 0.02 - size][::-sign]
            spans = [(begin, begin + size) for begin in (max(0.0, min(one, width + 0.08 - size)) for one in begins)]
            levels = range(1, len(plot.marks) + 1)
            tries = [PlacedMark(label, at, *span, level) for span in spans for level in levels]
            above = PlacedMark(label, at, *spans[-1], max((one.level for one in placed), default=0) + 1)
            placed.append(next((one for one in tries if all(map(one.is_clear_of, placed))), above))
        if all(one.is_clear_of(other) for one, other in itertools.combinations(placed, 2)):
            break
    return placed


def _draw_marks(axes: Axes, whole: Axes, sheet: Sheet) -> None:
    """Draws the thin lines and their labels."""
    dashes: dict[str, Any] = {"color": GREY, "lw": 0.9, "ls": (0, (4, 2)), "zorder": 1}
    top = sheet.top - LINE
    for mark in sheet.marks:
        y = top - LEVEL * (mark.level - 0.5)
        whole.text(sheet.start + mark.begin, y, mark.label, fontsize=SMALL, color=GREY, va="center_baseline")
        if mark.at is not None:
            axes.axvline(sheet.low + mark.at / sheet.plot_width * (sheet.high - sheet.low), **dashes)
            whole.plot([sheet.start + mark.at] * 2, [y + LEVEL * 0.45, sheet.top], **dashes)


def _draw_scores(axes: Axes, line: Line, y: float) -> None:
    """Draws the scores of a line; what lies outside the range stands as a number at its left edge."""
    low, high = axes.get_xlim()
    if line.note:
        axes.text(low, y, f" {line.note}", fontsize=SMALL, color=GREY, va="center_baseline")
    shift = 0.15 if line.dev and line.test else 0.0
    for score, at, colour, marker, face in (
        (line.test, y + shift, TEST, "s", "white"),
        (line.dev, y - shift, DEV, "o", DEV),
    ):
        if score is None:
            continue
        if not low <= score.mean <= high:
            is_left = score.mean < low
            text = f" {LEFT_OUT} {score.mean:.1f}" if is_left else f"{score.mean:.1f} {RIGHT_OUT} "
            x, align = (low, "left") if is_left else (high, "right")
            axes.text(x, at, text, fontsize=SMALL - 1, color=colour, va="center_baseline", ha=align)
            continue
        for ends, weight in ((score.interval, THIN), (score.to_best, THICK)):
            if ends:
                axes.plot(ends, [at, at], color=colour, lw=weight, solid_capstyle="butt", zorder=2)
        axes.plot(score.mean, at, marker, ms=4.6, mfc=face, mec=colour, mew=1.1, zorder=3)


def _draw_key(figure: Figure, plot: DotPlot, height: float) -> None:
    handles = list(_key(plot))
    legend = figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.0, 0.02 / height), ncols=math.ceil(len(handles) / 2),
        fontsize=SMALL, handletextpad=0.6, columnspacing=1.6, borderaxespad=0.3, labelcolor=INK,
    )  # fmt: skip
    legend.set_zorder(5)


def _key(plot: DotPlot) -> Iterator[Line2D | Patch]:
    """Gives the entries of the key, those of one column after another: only what the plot shows."""
    shown = [score for line in plot.lines for score in (line.dev, line.test) if score]
    yield Line2D([], [], color=DEV, marker="o", ls="", ms=4.6, label="dev")
    if any(line.test for line in plot.lines):
        yield Line2D([], [], color=TEST, marker="s", ls="", mfc="white", ms=4.6, mew=1.1, label="test")
    if any(score.to_best for score in shown):
        yield Line2D([], [], color=DEV, lw=THICK, label="how far behind the best (95 %, all rows at once)")
    if any(score.interval for score in shown):
        yield Line2D([], [], color=INK, lw=THIN, label=plot.bars)
    if plot.band:
        yield Patch(facecolor=BAND, label=plot.band[2])
    if any(line.is_used for line in plot.lines):
        yield Line2D([], [], color=INK, marker=">", ls="", ms=USED, label="recommended")
