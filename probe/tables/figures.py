"""Draws records as PNG: every row's scores beside its layers, F1 by layer, and the learned weights of mixes.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish; markers, line styles and labels say the
same. The background is white. The same records under the same matplotlib give the same bytes.
"""

from __future__ import annotations

import io
import itertools
import re
import statistics
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from probe.conditions import BASELINE, MAIN, UPPER_BOUND
from probe.scoring.significance import Cell
from probe.system.files import to_jsonable
from probe.system.format import first_few
from probe.system.grouping import group_by
from probe.tables.columns import COLUMNS, header
from probe.tables.decisions import BEST, ELIMINATED, UNCONVERGED, WORSE
from probe.tables.dot_plot import DotPlot, Line, Score, draw_dot_plot
from probe.tables.notes import SHOWN, caption
from probe.tables.recommendation import recommend
from probe.tables.row import Row, by_encoder, groups_of

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
BAND_COLOURS = ("#999999", "#E69F00", "#56B4E9", "#CC79A7")
DASHES = ("-", "--", "-.", ":")
HOLLOW = {WORSE: "worse than the best", ELIMINATED: "eliminated in the race", UNCONVERGED: "not converged"}  # by label
FEWEST_LAYERS = 4  # of a picture by layer, unless these are all that the encoder has
MOST_LINES = 80  # rows in the picture of a table: the best by dev
INK, GREY = "#222222", "#666666"
PALETTE = 64  # colours of a picture's file: the eight at most that mean something, and their soft edges
STYLE: Any = {
    "svg.hashsalt": "layer-probe",  # element names in SVG are otherwise random
    "font.size": 9,
    "axes.labelsize": 8,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
Numbers = dict[str, Any]  # what is drawn, as plain values
Make = Callable[[Figure, Any], None]


@dataclass(frozen=True)
class Picture:
    """Holds what a picture shows, before it is drawn.

    name: of its file, without the ending. alt: says in a sentence what it shows. group: the table that it belongs to;
    None: several. numbers: what `make` draws.
    """

    name: str
    alt: str
    group: str | None
    numbers: Any
    make: Make
    title: str = ""

    def render(self, form: str = "png") -> bytes:
        """Draws it as png or svg."""
        return draw(self.numbers, self.make, self.title, form)


def pictures(rows: Sequence[Row]) -> list[Picture]:
    """Gives every picture that rows and their records allow, the scores of each table first.

    Where a table has several encoders, its scores are one picture, and the others are drawn for each encoder.
    """
    found: list[Picture] = []
    groups = groups_of([row for row in rows if row.n])
    for group in groups:
        suffix = f"-{group[0].group}" if len(groups) > 1 else ""
        whole = [row for row in rows if row.group == group[0].group]  # with the rows that have no run
        plot = scores(whole, caption(group).split(". ")[0])
        found.append(Picture(f"scores{suffix}", SHOWS["scores"], group[0].group, plot, draw_dot_plot))
        for own in by_encoder(group):
            title = title_of(caption(own).split(". ")[0], [legend_label(row) for row in own if row.unconverged])
            encoder = own[0].encoder
            of = f" (of {encoder})" if encoder else ""
            for name, find, make in PICTURES:
                if numbers := find(own):
                    name_of_file = f"{name}{suffix}{_ending(encoder)}"
                    found.append(Picture(name_of_file, f"{SHOWS[name]}{of}", own[0].group, numbers, make, title))
    return found


def _ending(encoder: str | None) -> str:
    """Gives the end of the names of files about one of several encoders."""
    return "-" + re.sub(r"[^\w.-]", "-", encoder) if encoder else ""


def draw(numbers: Any, make: Make, title: str, form: str) -> bytes:
    """Draws one picture in one form."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # of a name; a box stands in its place
        figure = Figure(figsize=(7.4, 4.0), dpi=200, facecolor="white", layout="constrained")
        make(figure, numbers)
        if title:
            figure.suptitle(title, fontsize=7.5, x=0.01, ha="left", color="#666666")
        if form == "svg":
            out = io.BytesIO()
            figure.savefig(out, format=form, metadata={"Date": None})  # the same numbers give the same file
            return out.getvalue()
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return _png(canvas)


def _png(canvas: FigureCanvasAgg) -> bytes:
    """Returns a PNG of few colours: a third of the size, which counts in a page and in a repository."""
    out = io.BytesIO()
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    drawn.quantize(PALETTE, dither=Image.Dither.NONE).save(out, "png", optimize=True)
    return out.getvalue()


def title_of(setting: str, unconverged: Sequence[str]) -> str:
    """Gives the title of a picture: the setting of its table, and which of the table's rows did not converge."""
    names = list(dict.fromkeys(unconverged))
    note = f"not converged: {first_few(names, SHOWN, '; ')}" if names else ""
    return "\n".join([setting, *textwrap.wrap(note, 110)])


def label_ends(axes: Axes, labels: Sequence[tuple[float, float, str, str]], height: float = 1.0) -> None:
    """Writes labels to the right of the axes, each beside the end of its line, and moves them apart.

    labels: x and y of the end, text and colour. height: of a label, in lines.
    """
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    ordered = sorted(labels, key=lambda label: label[1])
    places = spread([(y - low) / (high - low) for _, y, _, _ in ordered], 0.048 * height)
    for (x, y, text, colour), place in zip(ordered, places, strict=True):
        axes.annotate(
            text, (x, y), (1.03, place), textcoords="axes fraction", fontsize=7.5, color=colour, va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.5, "shrinkA": 1, "shrinkB": 3, "relpos": (0, 0.5)},
        )  # fmt: skip


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Moves sorted places apart until all have this gap, as little as possible (in squares), and within 0 to 1."""
    pools: list[list[float]] = []  # isotonic regression of the places without their gaps
    for number, place in enumerate(places):
        pools.append([place - number * gap])
        while len(pools) > 1 and statistics.fmean(pools[-2]) > statistics.fmean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    most = max(0.0, 1 - (len(places) - 1) * gap)
    moved = [min(max(statistics.fmean(pool), 0.0), most) for pool in pools for _ in pool]
    return [place + number * gap for number, place in enumerate(moved)]


def scores(rows: Sequence[Row], title: str) -> DotPlot:
    """Gives the dot plot of one table: main rows by dev score.

    Baselines and fine-tuned rows are thin lines at the best dev score of each; they are lines of the plot if there are
    no others. Where the table has several encoders, a column names each row's, and its strip has that encoder's layers.
    """
    main = sorted((row for row in rows if row.section == MAIN), key=lambda row: (_is_unranked(row), -row.dev_mean))
    if len(main) > MOST_LINES:
        title, main = f"{title}; the best {MOST_LINES} of {len(main)} rows", main[:MOST_LINES]
    used = recommend(rows).use
    best = next((row for row in main if row.label == BEST), None)
    marks = [(name, 100 * max(row.dev_mean for row in mine)) for name, mine in _references(rows).items()]
    shown = main or list(rows)
    is_labelled = any(COLUMNS["label"].text(row) for row in shown)
    most_layers = {row.encoder: 1 + _num_blocks(row) for row in rows if row.records}  # of each encoder
    has_encoders = any(most_layers)
    lines = [_line(row, best, used.title if used else None, is_labelled, not main) for row in shown]
    if has_encoders:
        lines = [
            replace(line, columns=(row.encoder or "", *line.columns), num_layers=most_layers.get(row.encoder))
            for row, line in zip(shown, lines, strict=True)
        ]
    margin = best.margin or 0.0 if best else 0.0
    return DotPlot(
        title=title,
        lines=tuple(lines),
        num_layers=max(most_layers.values()),
        headers=(*["encoder"] * has_encoders, "blocks", "width", *["label"] * is_labelled),
        align_left=(*[True] * has_encoders, False, False, *[True] * is_labelled),
        axis=f"{header('dev', rows).removeprefix('dev ')} in percent",
        bars=_bars(shown),
        band=(100 * best.dev_mean - margin, 100 * best.dev_mean, f"within the margin of {margin:g}") if best else None,
        marks=tuple(marks if main else ()),
    )


def _bars(rows: Sequence[Row]) -> str:
    """Says what the intervals of these rows' means cover; rows that are not compared have them over seeds alone."""
    others = any(row.behind is None and row.cells["dev_f1"].interval for row in rows)
    if not any(row.over_text for row in rows):
        return "mean, 95 % over seeds"
    return f"mean, 95 % over seeds and text{' (not ranked: over seeds)' * others}"


def _is_unranked(row: Row) -> bool:
    return not row.n or row.label in (UNCONVERGED, ELIMINATED)


def _references(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Gives the rows of each baseline and of fine-tuning, but no majority tag of another condition.

    Several encoders have separate lines. Rows without layers use no encoder, so all encoders share them.
    """
    found: dict[str, list[Row]] = {}
    has_encoders = len({row.encoder for row in rows}) > 1
    for row in rows:
        if row.section in (BASELINE, UPPER_BOUND) and row.n and (row.indices or not row.condition):
            of = f" of {row.encoder}" if has_encoders and row.indices else ""
            found.setdefault((row.condition or row.name) + of, []).append(row)
    return found


def _line(row: Row, best: Row | None, used: str | None, is_labelled: bool, with_condition: bool) -> Line:
    label = COLUMNS["label"].text(row)
    is_hidden = row.eliminated is not None  # a race shows no test score of a row that it eliminated
    return Line(
        name=legend_label(row) if with_condition else row.name,
        layers=tuple(row.indices),
        dev=_score(row.cells["dev_f1"], row.behind, best.dev_mean if best else 0.0),
        test=None if is_hidden else _score(row.cells["test_f1"]),
        columns=(str(row.num_blocks), str(row.width), *[label] * is_labelled),
        note="" if row.n else COLUMNS["dev"].text(row),
        is_ranked=not _is_unranked(row),
        is_compared=row.behind is not None or best is None,
        is_used=row.section == MAIN and row.title == used,
        is_best=row.label == BEST,
        is_faint=row.label in HOLLOW,
    )


def _score(cell: Cell, behind: Sequence[float] | None = None, best: float = 0.0) -> Score | None:
    """Gives a score in percent. behind: how far it lies behind the best row, whose mean is `best`; both fractions."""
    if cell.mean is None:
        return None
    low, high = (100 * end for end in cell.interval or (0, 0))
    near, far = (100 * (best + end) for end in behind or (0, 0))
    return Score(100 * cell.mean, (low, high) if cell.interval else None, (near, far) if behind else None)


def by_layer(rows: Sequence[Row], fewest: int = FEWEST_LAYERS) -> Numbers:
    """Gives dev and test score of each single layer, and the best combination.

    fewest: single layers, below which there is nothing to draw, unless they are all that the encoder has. eliminated:
    layers that a race eliminated. They have fewer seeds, and no test score that a table shows.
    """
    bands, rows = baselines_and_bounds(rows), [row for row in rows if row.section == MAIN]
    single = _singles(rows)
    if len(single) < 2 or len(single) < min(fewest, 1 + _num_blocks(single[0])):
        return {}
    combined = [row for row in rows if not row.is_single and not _is_unranked(row)]
    best = max(combined, key=lambda row: row.dev_mean, default=None)
    return (
        ({"bands": {name: _band(mine) for name, mine in bands.items()}} if bands else {})
        | ({"combination": [best.name, best.dev_mean]} if best else {})
        | {
            "layers": [row.indices[0] for row in single],
            "dev": [to_jsonable(row.cells["dev_f1"]) for row in single],
            "test": [None if row.eliminated else to_jsonable(row.cells["test_f1"]) for row in single],
            "eliminated": [row.indices[0] for row in single if row.eliminated],
            "n": sorted({row.n for row in single} | {row.n for row in itertools.chain(*bands.values()) if row.n > 1}),
            "score": header("dev", rows).removeprefix("dev "),
        }
    )


def _singles(rows: Sequence[Row]) -> list[Row]:
    """Gives the single layers in their order; of rows that differ in how they are normalized, the larger set."""
    sets = group_by((row for row in rows if row.is_single), lambda row: row.normalize)
    most = max(sets.values(), key=len, default=[])
    return sorted(most, key=lambda row: row.indices[0])


def _num_blocks(row: Row) -> int:
    return next(iter(row.records.values())).encoder.num_layers


def _band(rows: Sequence[Row]) -> Numbers:
    layers = [row.indices[0] for row in rows] if len(rows) > 1 else []
    return {"layers": layers, "dev": [to_jsonable(row.cells["dev_f1"]) for row in rows]}


def baselines_and_bounds(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Finds baselines and upper bounds: of each, the single layers where there are several, else its best row."""
    found: dict[str, list[Row]] = {}
    for name, mine in _references(rows).items():
        single = _singles(mine)
        found[name] = single if len(single) > 1 else [max(mine, key=lambda row: row.dev_mean)]
    return found


def _is_whole(layers: Sequence[int]) -> bool:
    """Tells whether these are all layers from 0 to the last; across a gap, a line would show unmeasured scores."""
    return list(layers) == list(range(len(layers)))


def draw_bands(axes: Axes, numbers: Numbers, last: float) -> Iterator[tuple[float, float, str, str]]:
    """Draws mean ± sd along the layers (error bars if some are missing), or across the plot. Yields their labels.

    last: where lines across the plot end.
    """
    bands = zip(itertools.cycle(BAND_COLOURS), itertools.cycle(DASHES[1:]), strict=False)
    for (name, band), (colour, dash) in zip(numbers.items(), bands, strict=False):
        means, spreads = means_and_spreads(band["dev"])
        low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
        style: dict[str, Any] = {"color": colour, "zorder": 1}
        if band["layers"] and not _is_whole(band["layers"]):
            axes.errorbar(band["layers"], means, yerr=spreads, ls="", marker="_", ms=14, capsize=5, **style)
        elif band["layers"]:
            axes.fill_between(band["layers"], low, high, alpha=0.35, lw=0, **style)
            axes.plot(band["layers"], means, ls=dash, lw=1, **style)
        else:
            axes.axhspan(low[0], high[0], alpha=0.35, lw=0, **style)
            axes.axhline(means[0], ls=dash, lw=1, **style)
        yield (band["layers"] or [last])[-1], means[-1], f"{name} {means[-1]:.1f}" if not band["layers"] else name, GREY


def styles() -> Iterator[tuple[str, str, str]]:
    """Yields colour, marker and dash of one line after another, without end."""
    return zip(itertools.cycle(COLOURS), itertools.cycle(MARKERS), itertools.cycle(DASHES), strict=False)


def means_and_spreads(cells: Sequence[Numbers], scale: float = 100.0) -> tuple[list[float], list[float]]:
    """Gives the means of cells, in percent, and their deviations; 0 for a single run."""
    return [scale * cell["mean"] for cell in cells], [scale * (cell["std"] or 0.0) for cell in cells]


def draw_means(
    axes: Axes, x: Sequence[float], means: Sequence[float], spreads: Sequence[float] | None, colour: str, **style: Any
) -> None:
    """Draws a line of means with their spreads as error bars."""
    axes.errorbar(x, means, yerr=spreads, color=colour, capsize=3, **style)


def label_layers(axes: Axes, layers: Sequence[int], eliminated: Sequence[int] = ()) -> None:
    """Marks layers on the axis below, and which of them a race eliminated."""
    ticks = [[str(k), *["embeddings"] * (k == 0), *["eliminated"] * (k in eliminated)] for k in layers]
    axes.set_xticks(layers, ["\n".join(tick) for tick in ticks])
    axes.set_xlabel("layer (hidden_states index)")


def draw_by_layer(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    last = numbers["layers"][-1]
    labels = []
    for split, (colour, marker, _) in zip(("dev", "test"), styles(), strict=False):
        parts = {k: part for k, part in zip(numbers["layers"], numbers[split], strict=True) if part}
        if not parts:
            continue
        means, spreads = means_and_spreads(list(parts.values()))
        face, line = colour if split == "dev" else "white", "-" if _is_whole(list(parts)) else ""
        draw_means(axes, list(parts), means, spreads, colour, marker=marker, mfc=face, ls=line, label=split)
        labels.append((list(parts)[-1], means[-1], split, colour))
    if "combination" in numbers:
        name, mean = numbers["combination"]
        axes.axhline(100 * mean, color=INK, ls="--", lw=1.2)
        labels.append((last, 100 * mean, f"{name} {100 * mean:.1f}", INK))
    axes.set_xlim(numbers["layers"][0] - 0.3, last + 0.3)
    labels += draw_bands(axes, numbers.get("bands", {}), last + 0.3)
    label_ends(axes, labels)
    label_layers(axes, numbers["layers"], numbers["eliminated"])
    spread = (
        f"mean ± sd of {' or '.join(map(str, numbers['n']))} seeds" if numbers["n"] != [1] else "one seed: no spread"
    )
    axes.set_ylabel(f"{numbers['score']} in percent ({spread})")


def mix_weights(rows: Sequence[Row]) -> Numbers:
    """Gives the learned share of each layer in each mix, by seed, and the mixes' centres of gravity."""
    numbers: Numbers = {}
    for row in rows:
        shares = [record.mix.weights for record in row.records.values() if record.mix]
        if shares:
            centres = [sum(k * w for k, w in zip(row.indices, share, strict=True)) for share in shares]
            numbers[legend_label(row)] = {"layers": row.indices, "shares": shares, "centre": statistics.fmean(centres)}
    return numbers


def legend_label(row: Row) -> str:
    """Names a row in a picture."""
    return f"{row.name}, {row.condition}" if row.condition else row.name


def draw_mix_weights(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    width = 0.8 / len(numbers)
    hatches = ("", "///", "...", "xxx")
    for i, (name, mix) in enumerate(numbers.items()):
        columns = list(zip(*mix["shares"], strict=True))
        places = [k + (i - (len(numbers) - 1) / 2) * width for k in mix["layers"]]
        spread = [statistics.stdev(column) if len(column) > 1 else 0.0 for column in columns]
        axes.bar(
            places, [statistics.fmean(column) for column in columns], width, yerr=spread, capsize=2,
            color=COLOURS[i % len(COLOURS)], hatch=hatches[i % len(hatches)], edgecolor="white",
            label=f"{name}: centre of gravity at layer {mix['centre']:.2f}",
        )  # fmt: skip
        axes.axvline(mix["centre"], color=COLOURS[i % len(COLOURS)], ls=DASHES[1 + i % 3], lw=1.2)
    axes.set_xticks(sorted({k for mix in numbers.values() for k in mix["layers"]}))
    axes.set_xlabel("layer (hidden_states index)")
    axes.set_ylabel("learned share (mean ± sd over seeds)")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), fontsize=7.5)


SHOWS = {  # of each picture, what it shows
    "scores": "Dev and test scores of every row with their intervals, beside the layers that it uses",
    "f1_by_layer": "Dev and test score of every single layer",
    "mix_weights": "Learned share of each layer in the weighted sums",
}
PICTURES: tuple[tuple[str, Callable[[Sequence[Row]], Numbers], Make], ...] = (  # of one table, in the page's order
    ("f1_by_layer", by_layer, draw_by_layer),
    ("mix_weights", mix_weights, draw_mix_weights),
)
