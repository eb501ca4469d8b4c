"""Draws records as PNG: every row's scores beside its layers, F1 by layer, by cost, by share of the text, bits gained
over the embeddings, learning curves, the learned weights of mixes.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish; markers, line styles and labels say the
same. The background is white. The same records under the same matplotlib give the same bytes.
"""

from __future__ import annotations

import io
import itertools
import math
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
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from probe.conditions import BASELINE, MAIN, UPPER_BOUND
from probe.scoring.significance import Cell
from probe.system.files import to_jsonable
from probe.system.format import first_few
from probe.system.grouping import group_by
from probe.tables.columns import COLUMNS, header
from probe.tables.decisions import BEST, ELIMINATED, UNCONVERGED, WORSE
from probe.tables.dot_plot import DotPlot, Line, Score, Section, draw_dot_plot
from probe.tables.notes import SHOWN, caption
from probe.tables.recommendation import recommend
from probe.tables.row import Row, by_encoder, groups_of
from probe.tables.tasks import most_frequent, setting_of_tasks, task_names, tasks_of_one_encoder

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
BAND_COLOURS = ("#999999", "#E69F00", "#56B4E9", "#CC79A7")
DASHES = ("-", "--", "-.", ":")
HOLLOW = {WORSE: "worse than the best", ELIMINATED: "eliminated in the race", UNCONVERGED: "not converged"}  # by label
FEWEST_LAYERS = 4  # of a picture by layer, unless these are all that the encoder has
PANELS = 5  # of learning curves, next to each other
MOST_LINES, MOST_PANELS = 80, 30  # rows in the picture of a table and in that of learning curves: the best by dev
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
    for number, tasks in enumerate(tasks_of_one_encoder(rows)):
        if numbers := by_task(tasks):
            left_out = [f"{row.name} of {row.setting.data}" for row in rows if row.unconverged and row.section == MAIN]
            title = title_of(setting_of_tasks(tasks), left_out)
            suffix = f"-{number + 1}" if number else ""
            name = f"score_by_task{suffix}"
            found.append(Picture(name, SHOWS["score_by_task"], None, numbers, draw_by_task, title))
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
    """Gives the dot plot of one table: main rows by dev score, then those trained on less text.

    Baselines and fine-tuned rows are thin lines at the best dev score of each; they are lines of the plot if there are
    no others. Where the table has several encoders, a column names each row's, and its strip has that encoder's layers.
    """
    main = sorted((row for row in rows if row.section == MAIN), key=lambda row: (_is_unranked(row), -row.dev_mean))
    others = [row for row in rows if row.section not in (MAIN, BASELINE, UPPER_BOUND)]
    if len(main) > MOST_LINES:
        title, main = f"{title}; the best {MOST_LINES} of {len(main)} rows", main[:MOST_LINES]
    shown = [("", main)] if main else []
    for condition in dict.fromkeys(row.condition or "" for row in others):
        shown.append((condition, [row for row in others if (row.condition or "") == condition]))
    used = recommend(rows).use
    best = next((row for row in main if row.label == BEST), None)
    marks = [(name, 100 * max(row.dev_mean for row in mine)) for name, mine in _references(rows).items()]
    if not shown:
        shown, marks = [("", list(rows))], []
    is_labelled = any(COLUMNS["label"].text(row) for _, mine in shown for row in mine)
    most_layers = {row.encoder: 1 + _num_blocks(row) for row in rows if row.records}  # of each encoder
    has_encoders = any(most_layers)
    sections = [
        Section(
            heading,
            tuple(
                replace(line, columns=(row.encoder or "", *line.columns), num_layers=most_layers.get(row.encoder))
                if has_encoders
                else line
                for row in mine
                for line in [_line(row, best, used.title if used else None, is_labelled, not main)]
            ),
        )
        for heading, mine in shown
    ]
    margin = best.margin or 0.0 if best else 0.0
    return DotPlot(
        title=title,
        sections=tuple(sections),
        num_layers=max(most_layers.values()),
        headers=(*["encoder"] * has_encoders, "blocks", "width", *["label"] * is_labelled),
        align_left=(*[True] * has_encoders, False, False, *[True] * is_labelled),
        axis=f"{header('dev', rows).removeprefix('dev ')} in percent",
        bars=_bars([row for _, mine in shown for row in mine]),
        band=(100 * best.dev_mean - margin, 100 * best.dev_mean, f"within the margin of {margin:g}") if best else None,
        marks=tuple(marks),
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


def by_share(rows: Sequence[Row]) -> Numbers:
    """Gives dev and test score of each row by the share of train that it learnt from. Nothing for one share."""
    parts = group_by((row for row in rows if row.indices and row.conditions <= {"share"}), lambda row: row.name)
    found: Numbers = {}
    for name, mine in parts.items():
        ordered = sorted(mine, key=share_of)
        if len(ordered) > 1:
            scores = {split: [to_jsonable(row.cells[f"{split}_f1"]) for row in ordered] for split in ("dev", "test")}
            found[name] = {"shares": [share_of(row) for row in ordered], **scores}
    return {"rows": found, "score": header("dev", rows).removeprefix("dev ")} if found else {}


def share_of(row: Row) -> float:
    """Gives the share of train that its runs learnt from."""
    return row.recorded_condition.settings.get("share", 1.0) if row.recorded_condition else 1.0


def draw_by_share(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    labels = []
    for (name, row), (colour, marker, _) in zip(numbers["rows"].items(), styles(), strict=False):
        shares = [100 * share for share in row["shares"]]
        for split, line in (("dev", "-"), ("test", ":")):
            means, spreads = means_and_spreads(row[split])
            bars, face = (spreads, colour) if split == "dev" else (None, "white")
            draw_means(axes, shares, means, bars, colour, marker=marker, mfc=face, ms=4, ls=line)
        labels.append((shares[-1], 100 * row["dev"][-1]["mean"], name, colour))
    shares = sorted({share for row in numbers["rows"].values() for share in row["shares"]})
    axes.set_xscale("log")
    axes.set_xticks([100 * share for share in shares], [f"{100 * share:g}" for share in shares])
    axes.minorticks_off()
    label_ends(axes, labels)
    axes.set_xlabel("share of train in percent (solid, filled: dev; dotted, hollow: test)")
    axes.set_ylabel(f"{numbers['score']} in percent, mean ± sd over seeds")


def conditional_gain(rows: Sequence[Row]) -> Numbers:
    """Gives the gain of layer k over layer 0, in bits per word. Nothing if there are not two such layers."""
    pairs = sorted(
        (row for row in rows if row.section == MAIN and "conditional_gain" in row.relative), key=lambda row: row.indices
    )
    if len(pairs) < 2:
        return {}
    return {
        "layers": [row.indices[1] for row in pairs],
        "bits": [to_jsonable(row.relative["conditional_gain"]) for row in pairs],
    }


def draw_conditional_gain(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    axes.axhline(0, color="black", lw=0.8)
    draw_means(axes, numbers["layers"], *means_and_spreads(numbers["bits"], 1), COLOURS[0], marker=MARKERS[0])
    axes.set_xticks(numbers["layers"])
    axes.set_xlabel("layer k (hidden_states index), concatenated with layer 0")
    axes.set_ylabel("bits per word gained over layer 0 (dev, mean ± sd)")


def by_task(groups: Sequence[Sequence[Row]]) -> Numbers:
    """Gives dev score by single layer of each task whose layers differ in score. Nothing below two such tasks."""
    tasks = {}
    for name, group in zip(task_names(groups), groups, strict=True):
        single = sorted((row for row in group if row.is_single), key=lambda row: row.indices[0])
        means = [row.cells["dev_f1"].mean or 0.0 for row in single]
        if len(set(means)) > 1:
            spreads = [row.cells["dev_f1"].std or 0.0 for row in single]
            layers = [row.indices[0] for row in single]
            tasks[name] = {"layers": layers, "dev": means, "std": spreads, "score": single[0].task.score}
            tasks[name] |= {"floor": most_frequent(group), "flat": _is_flat(group)}
    return tasks if len(tasks) > 1 else {}


def _is_flat(group: Sequence[Row]) -> bool:
    """Tells whether rows were compared, and none is worse than the best."""
    labels = {row.label for row in group}
    return BEST in labels and WORSE not in labels


def draw_by_task(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    labels = []
    for (name, task), (colour, marker, dash) in zip(numbers.items(), styles(), strict=False):
        low, high = min(task["dev"]), max(task["dev"])
        shares = [100 * (mean - low) / (high - low) for mean in task["dev"]]
        spreads = [100 * std / (high - low) for std in task["std"]]
        faint = {"alpha": 0.35} if task["flat"] else {}  # its range may be that of chance
        draw_means(axes, task["layers"], shares, spreads, colour, marker=marker, ls=dash, **faint)
        floor = "" if task["floor"] is None else f", floor {100 * task['floor']:.1f}"
        text = f"{name}\n{task['score']} {100 * low:.1f} to {100 * high:.1f}{floor}"
        labels.append((task["layers"][-1], shares[-1], text, colour))
    label_ends(axes, labels, height=2)
    label_layers(axes, sorted({layer for task in numbers.values() for layer in task["layers"]}))
    axes.set_ylabel("dev score in percent of its range, mean ± sd")
    if any(task["flat"] for task in numbers.values()):
        axes.set_title("faint: no layer is shown to be worse than the best", fontsize=7.5, color=GREY, loc="left")


def by_cost(rows: Sequence[Row]) -> Numbers:
    """Gives dev score of each row, the blocks of the encoder it needs, its width. Nothing if all need the same, or if
    all are single layers, which the picture by layer shows."""
    rows = [row for row in rows if row.section == MAIN]
    if len({(row.num_blocks, row.width) for row in rows}) < 2 or (
        all(row.is_single for row in rows) and by_layer(rows)
    ):
        return {}
    return {
        "rows": {
            row.name: {"blocks": row.num_blocks, "width": row.width, "label": row.label}
            | to_jsonable(row.cells["dev_f1"])
            for row in rows
        },
        "of_blocks": _num_blocks(rows[0]),
        "score": header("dev", rows).removeprefix("dev "),
    }


def draw_by_cost(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    rows = sorted(numbers["rows"].items(), key=lambda pair: (pair[1]["blocks"], -pair[1]["mean"]))
    narrowest = min(row["width"] for _, row in rows)
    front: dict[str, tuple[int, float]] = {}
    for name, row in rows:
        if row["label"] != UNCONVERGED and row["mean"] > max((mean for _, mean in front.values()), default=-1.0):
            front[name] = (row["blocks"], row["mean"])
    if front:
        last = max(mean for _, mean in front.values())
        axes.step(
            [*(blocks for blocks, _ in front.values()), numbers["of_blocks"]],
            [100 * mean for mean in [*(mean for _, mean in front.values()), last]],
            where="post", color="#999999", lw=1.2, zorder=1, label="front",
        )  # fmt: skip
    places: dict[str, float] = {}  # of as many blocks: next to each other, and nearer to them than to the next
    for blocks, alike in itertools.groupby(rows, key=lambda pair: pair[1]["blocks"]):
        names = [name for name, _ in alike]
        step = min(0.02 * numbers["of_blocks"], 0.5 / len(names))
        places |= {name: blocks + step * better for better, name in enumerate(names)}
    for name, row in rows:
        x, colour = places[name], COLOURS[0] if name in front else GREY
        axes.errorbar(x, 100 * row["mean"], yerr=100 * (row["std"] or 0.0), color=colour, lw=0.8, capsize=2, zorder=2)
        axes.scatter(
            x, 100 * row["mean"], s=24 * row["width"] / narrowest,
            facecolor="white" if row["label"] in HOLLOW else colour, edgecolor=colour, zorder=3,
        )  # fmt: skip
        if name in front:
            spread = 100 * (row["std"] or 0.0)
            raised = 9 * (list(front).index(name) % 2)  # next to a name that may be as high
            axes.annotate(
                name, (x, 100 * row["mean"] + spread), (0, 5 + raised), textcoords="offset points", fontsize=7.5,
                color=colour, ha="left" if row["blocks"] == 0 else "right",
            )  # fmt: skip
    axes.set_xticks(range(0, numbers["of_blocks"] + 1, 1 if numbers["of_blocks"] <= 12 else 2))
    axes.margins(y=0.1)
    labels = {row["label"] for _, row in rows}
    hollow = " or ".join(text for label, text in HOLLOW.items() if label in labels)
    hollow = f"; hollow: {hollow}" if hollow else ""
    axes.set_xlabel(f"blocks of the encoder (named: no cheaper row is better; size: width{hollow})")
    axes.set_ylabel(f"dev {numbers['score']} in percent, mean ± sd")


def curves(rows: Sequence[Row]) -> Numbers:
    """Gives dev score by epoch of every run, by row; of the rows proper where there are any. best: one of them."""
    trained = [row for row in rows if any(record.curve for record in row.records.values())]
    shown = [row for row in trained if row.section == MAIN] or trained
    if not shown:
        return {}
    if len(shown) > MOST_PANELS:
        shown = sorted(shown, key=lambda row: (_is_unranked(row), -row.dev_mean))[:MOST_PANELS]
    by_row = {
        legend_label(row): [[epoch.dev for epoch in record.curve] for record in row.records.values()] for row in shown
    }
    return {"rows": by_row, "best": legend_label(max(shown, key=lambda row: (not _is_unranked(row), row.dev_mean)))}


def draw_curves(figure: Figure, numbers: Numbers) -> None:
    """Draws a panel per row, with the runs of the best row, if there are others, in grey behind its own."""
    lines = {
        name: [[(epoch, 100 * score) for epoch, score in enumerate(run, 1)] for run in runs]
        for name, runs in numbers["rows"].items()
    }
    across = min(PANELS, len(lines))
    down = math.ceil(len(lines) / across)
    width, height, sides, gap = 7.4, 1.15 if down > 1 else 2.4, 0.62, 0.24
    whole = (height + gap) * down + 0.8
    figure.set_layout_engine("none")
    figure.set_size_inches(width, whole)
    scores = sorted(score for runs in lines.values() for run in runs for _, score in run)
    low = max(0.0, scores[len(scores) // 10] - 2)  # the first epochs' climb would hide the rest
    high = max(scores[-1] + 0.04 * (scores[-1] - low), low + 1)
    longest = max(len(run) for runs in lines.values() for run in runs)
    panel = (width - sides - 0.05) / across
    for number, (name, own) in enumerate(lines.items()):
        x, y = sides + panel * (number % across), 0.45 + (height + gap) * (down - 1 - number // across)
        axes = figure.add_axes((x / width, y / whole, (panel - 0.16) / width, height / whole))
        axes.set(xlim=(0, longest + 1), ylim=(low, high))
        axes.add_collection(LineCollection(lines[numbers["best"]], color="#aaaaaa", lw=1.0, zorder=1))
        axes.add_collection(LineCollection(own, color=COLOURS[0], lw=1.0, zorder=2))
        best = [max(run, key=lambda point: point[1]) for run in own]
        axes.plot(*zip(*best, strict=True), "o", color=COLOURS[1], ms=3, zorder=3)
        axes.set_title(name, fontsize=7.5, loc="left", pad=2)
        is_left, is_last = number % across == 0, number + across >= len(lines)
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.tick_params(labelsize=7, labelleft=is_left, labelbottom=is_last, length=2)
    grey = f"; grey: {numbers['best']}, the best row" if len(lines) > 1 else ""
    note = f"epoch (dot: the best one of a run, which is tested{grey})"
    figure.supxlabel(note, fontsize=8, y=0.06 / whole)
    figure.supylabel("dev score in percent", fontsize=8, x=0.01)


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
    "f1_by_cost": "Dev score of every row by the blocks of the encoder that it needs",
    "f1_by_share": "Dev and test score by the share of train",
    "beyond_embeddings": "Bits per word that each layer adds to the embeddings",
    "learning_curves": "Dev score by epoch, a panel per row",
    "mix_weights": "Learned share of each layer in the weighted sums",
    "score_by_task": "Dev score of every task by layer, in percent of the task's range",
}
PICTURES: tuple[tuple[str, Callable[[Sequence[Row]], Numbers], Make], ...] = (  # of one table, in the page's order
    ("f1_by_layer", by_layer, draw_by_layer),
    ("f1_by_cost", by_cost, draw_by_cost),
    ("f1_by_share", by_share, draw_by_share),
    ("beyond_embeddings", conditional_gain, draw_conditional_gain),
    ("learning_curves", curves, draw_curves),
    ("mix_weights", mix_weights, draw_mix_weights),
)
