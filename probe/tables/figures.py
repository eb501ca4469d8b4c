"""Draws records, as PNG for pages and SVG for papers: F1 by layer over its baselines, by cost, by share of the text,
bits gained over the embeddings, the learned weights of mixes, learning curves.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish; markers and line styles differ too.
The background is white, so that a dark page shows what a light one does. The same records under the same matplotlib
give the same bytes.
"""

from __future__ import annotations

import io
import itertools
import statistics
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from probe.conditions import BASELINE, MAIN, UPPER_BOUND
from probe.system.files import plain
from probe.tables.columns import header
from probe.tables.decisions import ELIMINATED, UNCONVERGED, WORSE
from probe.tables.notes import SHOWN, caption
from probe.tables.row import Row, groups_of
from probe.tables.tasks import task_names, tasks_on_one_text

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vP*X"
BAND_COLOURS = ("#999999", "#E69F00", "#56B4E9", "#CC79A7")
DASHES = ("-", "--", "-.", ":")
HOLLOW = {WORSE: "worse than the best", ELIMINATED: "eliminated in the race", UNCONVERGED: "not converged"}  # by label
FORMS = ("png", "svg")
STYLE: Any = {
    "svg.hashsalt": "layer-probe",  # element names in SVG are otherwise random
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
Numbers = dict[str, Any]  # what is drawn, as plain values


def draw_all(rows: Sequence[Row]) -> dict[str, bytes]:
    """Draws every picture that rows and their records give: file name to content."""
    drawn: dict[str, bytes] = {}
    groups = groups_of([row for row in rows if row.n])
    for group in groups:
        suffix = f"-{group[0].group}" if len(groups) > 1 else ""
        makers: list[tuple[str, Numbers, Callable[[Axes, Numbers], None]]] = [
            ("f1_by_layer", by_layer(group), draw_by_layer),
            ("f1_by_cost", by_cost(group), draw_by_cost),
            ("f1_by_share", by_share(group), draw_by_share),
            ("beyond_embeddings", conditional_gain(group), draw_conditional_gain),
            ("learning_curves", curves(group), draw_curves),
            ("mix_weights", mix_weights(group), draw_mix_weights),
        ]
        title = title_of(caption(group).split(". ")[0], [legend_label(row) for row in group if row.unconverged])
        for name, numbers, make in makers:
            if numbers:
                for form in FORMS:
                    drawn[f"{name}{suffix}.{form}"] = draw(numbers, make, title, form)
    for number, tasks in enumerate(tasks_on_one_text(rows)):
        if task_numbers := by_task(tasks):
            left_out = [f"{row.name} of {row.setting.data}" for row in rows if row.unconverged and row.section == MAIN]
            title = title_of(caption(tasks[0]).split(". ")[0].partition(", ")[2], left_out)
            for form in FORMS:
                name = f"score_by_task{f'-{number + 1}' if number else ''}.{form}"
                drawn[name] = draw(task_numbers, draw_by_task, title, form)
    return drawn


def draw(numbers: Numbers, make: Callable[[Axes, Numbers], None], title: str, form: str) -> bytes:
    """Draws one picture in one form."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0), dpi=150, facecolor="white", layout="constrained")
        axes = figure.add_subplot()
        make(axes, numbers)
        figure.suptitle(title, fontsize=8, x=0.01, ha="left", color="#444444")
        out = io.BytesIO()
        metadata = {"Date": None} if form == "svg" else {}  # the same numbers give the same file
        figure.savefig(out, format=form, metadata=metadata)
    return out.getvalue()


def title_of(setting: str, unconverged: Sequence[str]) -> str:
    """Gives the title of a picture: the setting of its table, and which of the table's rows did not converge."""
    names = list(dict.fromkeys(unconverged))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    note = f"not converged: {'; '.join(names[:SHOWN])}{more}" if names else ""
    return "\n".join([setting, *textwrap.wrap(note, 110)])


def by_layer(rows: Sequence[Row]) -> Numbers:
    """Gives dev and test score of each single layer, and of the combinations. Nothing below two single layers.

    eliminated: rows that a race eliminated. They have fewer seeds, and no test score that a table shows.
    """
    bands, rows = baselines_and_bounds(rows), [row for row in rows if row.section == MAIN]
    single = sorted((row for row in rows if row.is_single), key=lambda row: row.indices[0])
    if len(single) < 2:
        return {}
    eliminated = [row.name for row in rows if row.eliminated]
    return (
        ({"bands": {name: _band(mine) for name, mine in bands.items()}} if bands else {})
        | ({"eliminated": eliminated} if eliminated else {})
        | {
            "layers": [row.indices[0] for row in single],
            "dev": [plain(row.cells["dev_f1"]) for row in single],
            "test": [None if row.eliminated else plain(row.cells["test_f1"]) for row in single],
            "combinations": {row.name: row.cells["dev_f1"].mean for row in rows if not row.is_single},
            "n": sorted({row.n for row in single} | {row.n for row in itertools.chain(*bands.values()) if row.n > 1}),
            "score": header("dev", rows).removeprefix("dev "),
        }
    )


def _band(rows: Sequence[Row]) -> Numbers:
    layers = [row.indices[0] for row in rows] if len(rows) > 1 else []
    return {"layers": layers, "dev": [plain(row.cells["dev_f1"]) for row in rows]}


def baselines_and_bounds(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Finds baselines and upper bounds: of each, the single layers where there are several, else its best row."""
    found: dict[str, list[Row]] = {}
    others = [row for row in rows if row.section in (BASELINE, UPPER_BOUND)]
    for name in dict.fromkeys(row.condition or row.name for row in others):
        mine = [row for row in others if (row.condition or row.name) == name and (row.indices or not row.condition)]
        single = sorted((row for row in mine if row.is_single), key=lambda row: row.indices[0])
        if len(single) < 2:
            single = sorted(mine, key=lambda row: -(row.cells["dev_f1"].mean or 0.0))[:1]
        if single:
            found[name] = single
    return found


def _is_whole(layers: Sequence[int]) -> bool:
    """Tells whether these are all layers from 0 to the last; across a gap, a line would show unmeasured scores."""
    return list(layers) == list(range(len(layers)))


def draw_bands(axes: Axes, numbers: Numbers) -> None:
    """Draws bands behind the rest: mean ± sd along the layers (error bars if some are missing), or across the plot."""
    styles = zip(itertools.cycle(BAND_COLOURS), itertools.cycle(DASHES[1:]), strict=False)
    for (name, band), (colour, dash) in zip(numbers.items(), styles, strict=False):
        means = [100 * part["mean"] for part in band["dev"]]
        spreads = [100 * (part["std"] or 0.0) for part in band["dev"]]
        low, high = ([m + sign * s for m, s in zip(means, spreads, strict=True)] for sign in (-1, 1))
        style: dict[str, Any] = {"color": colour, "zorder": 1}
        if band["layers"] and not _is_whole(band["layers"]):
            axes.errorbar(
                band["layers"], means, yerr=spreads, ls="", marker="_", ms=14, capsize=5, label=f"dev, {name}", **style
            )
        elif band["layers"]:
            axes.fill_between(band["layers"], low, high, alpha=0.35, lw=0, **style)
            axes.plot(band["layers"], means, ls=dash, lw=1, label=f"dev, {name}", **style)
        else:
            axes.axhspan(low[0], high[0], alpha=0.35, lw=0, **style)
            axes.axhline(means[0], ls=dash, lw=1, label=f"dev, {name} {means[0]:.2f}", **style)


def draw_by_layer(axes: Axes, numbers: Numbers) -> None:
    draw_bands(axes, numbers.get("bands", {}))
    for (split, colour), marker in zip((("dev", COLOURS[0]), ("test", COLOURS[1])), MARKERS, strict=False):
        parts = {k: part for k, part in zip(numbers["layers"], numbers[split], strict=True) if part}
        if not parts:
            continue
        axes.errorbar(
            list(parts),
            [100 * part["mean"] for part in parts.values()],
            yerr=[100 * (part["std"] or 0.0) for part in parts.values()],
            color=colour,
            marker=marker,
            ls="-" if _is_whole(list(parts)) else "",
            capsize=3,
            label=f"{split}, single",
        )
    styles = zip(itertools.cycle(DASHES[1:]), itertools.cycle(COLOURS[2:]), strict=False)
    best_first = sorted(numbers["combinations"].items(), key=lambda pair: -pair[1])
    for (name, mean), (dash, colour) in zip(best_first, styles, strict=False):
        eliminated = ", eliminated" if name in numbers.get("eliminated", []) else ""
        axes.axhline(
            100 * mean, color=colour, linestyle=dash, lw=1.2, label=f"dev, {name} {100 * mean:.2f}{eliminated}"
        )
    axes.set_xticks(numbers["layers"], ["0\nembeddings" if k == 0 else str(k) for k in numbers["layers"]])
    axes.set_xlabel("layer (hidden_states index)")
    spread = (
        f"mean ± sd of {' or '.join(map(str, numbers['n']))} seeds" if numbers["n"] != [1] else "one seed: no spread"
    )
    axes.set_ylabel(f"{numbers['score']} in percent ({spread})")
    axes.figure.legend(loc="outside right center", fontsize=7)


def by_share(rows: Sequence[Row]) -> Numbers:
    """Gives dev and test score of each row by the share of train that it learnt from. Nothing for one share."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        if row.indices and row.conditions <= {"share"}:
            parts.setdefault(row.name, []).append(row)
    found: Numbers = {}
    for name, mine in parts.items():
        ordered = sorted(mine, key=share_of)
        if len(ordered) > 1:
            scores = {split: [plain(row.cells[f"{split}_f1"]) for row in ordered] for split in ("dev", "test")}
            found[name] = {"shares": [share_of(row) for row in ordered], **scores}
    return {"rows": found, "score": header("dev", rows).removeprefix("dev ")} if found else {}


def share_of(row: Row) -> float:
    """Gives the share of train that its runs learnt from."""
    return row.of.settings.get("share", 1.0) if row.of else 1.0


def draw_by_share(axes: Axes, numbers: Numbers) -> None:
    styles = zip(itertools.cycle(COLOURS), itertools.cycle(MARKERS), strict=False)
    for (name, row), (colour, marker) in zip(numbers["rows"].items(), styles, strict=False):
        for split, line in (("dev", "-"), ("test", ":")):
            means = [100 * part["mean"] for part in row[split]]
            spreads = [100 * (part["std"] or 0.0) for part in row[split]] if split == "dev" else None
            shares = [100 * share for share in row["shares"]]
            axes.errorbar(
                shares, means, spreads, color=colour, marker=marker, ms=4, ls=line, capsize=3, label=f"{split}, {name}"
            )
    shares = sorted({share for row in numbers["rows"].values() for share in row["shares"]})
    axes.set_xscale("log")
    axes.set_xticks([100 * share for share in shares], [f"{100 * share:g}" for share in shares])
    axes.minorticks_off()
    axes.set_xlabel("share of train in percent")
    axes.set_ylabel(f"{numbers['score']} in percent (dev: mean ± sd over seeds)")
    axes.figure.legend(loc="outside right center", fontsize=7)


def conditional_gain(rows: Sequence[Row]) -> Numbers:
    """Gives the gain of layer k over layer 0, in bits per word. Nothing if there are not two such layers."""
    pairs = sorted(
        (row for row in rows if row.section == MAIN and "conditional_gain" in row.relative), key=lambda row: row.indices
    )
    if len(pairs) < 2:
        return {}
    gains = [plain(row.relative["conditional_gain"]) for row in pairs]
    return {"layers": [row.indices[1] for row in pairs], "bits": gains}


def draw_conditional_gain(axes: Axes, numbers: Numbers) -> None:
    means = [part["mean"] for part in numbers["bits"]]
    spreads = [part["std"] or 0.0 for part in numbers["bits"]]
    axes.axhline(0, color="black", lw=0.8)
    axes.errorbar(numbers["layers"], means, yerr=spreads, color=COLOURS[0], marker=MARKERS[0], capsize=3)
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
    return tasks if len(tasks) > 1 else {}


def draw_by_task(axes: Axes, numbers: Numbers) -> None:
    styles = zip(itertools.cycle(COLOURS), itertools.cycle(MARKERS), itertools.cycle(DASHES), strict=False)
    for (name, task), (colour, marker, dash) in zip(numbers.items(), styles, strict=False):
        low, high = min(task["dev"]), max(task["dev"])
        axes.errorbar(
            task["layers"], [100 * (mean - low) / (high - low) for mean in task["dev"]],
            yerr=[100 * std / (high - low) for std in task["std"]], color=colour, marker=marker, ls=dash, capsize=3,
            label=f"{name}\n{task['score']} {100 * low:.2f} to {100 * high:.2f}",
        )  # fmt: skip
    layers = sorted({layer for task in numbers.values() for layer in task["layers"]})
    axes.set_xticks(layers, ["0\nembeddings" if k == 0 else str(k) for k in layers])
    axes.set_xlabel("layer (hidden_states index)")
    axes.set_ylabel("dev score in percent of its range, mean ± sd")
    axes.figure.legend(loc="outside right center", fontsize=7)


def by_cost(rows: Sequence[Row]) -> Numbers:
    """Gives dev score of each row, the blocks of the encoder it needs, its width. Nothing if all need the same."""
    rows = [row for row in rows if row.section == MAIN]
    if len({(row.num_blocks, row.width) for row in rows}) < 2:
        return {}
    return {
        "rows": {
            row.name: {"blocks": row.num_blocks, "width": row.width, "label": row.label} | plain(row.cells["dev_f1"])
            for row in rows
        },
        "of_blocks": next(iter(rows[0].records.values())).encoder.num_layers,
        "score": header("dev", rows).removeprefix("dev "),
    }


def draw_by_cost(axes: Axes, numbers: Numbers) -> None:
    rows = sorted(numbers["rows"].items(), key=lambda pair: (pair[1]["blocks"], -pair[1]["mean"]))
    narrowest = min(row["width"] for _, row in rows)
    front: list[tuple[int, float]] = []
    for _, row in rows:
        if row["label"] != UNCONVERGED and (not front or row["mean"] > front[-1][1]):
            front.append((row["blocks"], row["mean"]))
    if front:
        axes.step(
            [*(blocks for blocks, _ in front), numbers["of_blocks"]], [100 * mean for _, mean in [*front, front[-1]]],
            where="post", color="#999999", lw=1.2, zorder=1, label="front: no cheaper row is better",
        )  # fmt: skip
    for i, (name, row) in enumerate(rows):
        better = sum(other["blocks"] == row["blocks"] for _, other in rows[:i])
        x = row["blocks"] + 0.02 * numbers["of_blocks"] * better  # of as many blocks: beside each other
        colour = COLOURS[i % len(COLOURS)]
        axes.errorbar(x, 100 * row["mean"], yerr=100 * (row["std"] or 0.0), color=colour, lw=0.8, capsize=2, zorder=2)
        axes.scatter(
            x, 100 * row["mean"], s=32 * row["width"] / narrowest, marker=MARKERS[i // len(COLOURS) % len(MARKERS)],
            facecolor="white" if row["label"] in HOLLOW else colour, edgecolor=colour, zorder=3,
        )  # fmt: skip
        axes.scatter([], [], s=32, marker=MARKERS[i // len(COLOURS) % len(MARKERS)], color=colour, label=name)
    axes.set_xticks(range(0, numbers["of_blocks"] + 1, 1 if numbers["of_blocks"] <= 12 else 2))
    labels = {row["label"] for _, row in rows}
    hollow = "\nor ".join(text for label, text in HOLLOW.items() if label in labels)  # as wide as the axes are
    hollow = f"; hollow: {hollow}" if hollow else ""
    axes.set_xlabel(f"blocks of the encoder (size of a point: width{hollow})")
    axes.set_ylabel(f"dev {numbers['score']} in percent, mean ± sd")
    axes.figure.legend(loc="outside right center", fontsize=7)


def curves(rows: Sequence[Row]) -> Numbers:
    """Gives dev score by epoch of every run, by row; of the rows proper where there are any."""
    trained = [row for row in rows if any(record.curve for record in row.records.values())]
    shown = [row for row in trained if row.section == MAIN] or trained
    return {
        legend_label(row): [[epoch.dev for epoch in record.curve] for record in row.records.values()] for row in shown
    }


def draw_curves(axes: Axes, numbers: Numbers) -> None:
    styles = zip(itertools.cycle(COLOURS), itertools.cycle(DASHES), strict=False)  # 7 and 4 are coprime: 28 pairs
    for i, ((name, runs), (colour, dash)) in enumerate(zip(numbers.items(), styles, strict=False)):
        for number, run in enumerate(runs):
            epochs = range(1, len(run) + 1)
            axes.plot(epochs, [100 * f for f in run], color=colour, ls=dash, lw=1, label=None if number else name)
            best = max(range(len(run)), key=run.__getitem__)
            axes.plot(best + 1, 100 * run[best], color=colour, marker=MARKERS[i % len(MARKERS)], ms=4)
    axes.set_xlabel("epoch (a marker: the best one, which is tested)")
    axes.set_ylabel("dev score in percent")
    scores = sorted(100 * f for runs in numbers.values() for run in runs for f in run)
    axes.set_ylim(bottom=max(0.0, scores[len(scores) // 10] - 2))  # the first epochs' climb would hide the rest
    axes.figure.legend(loc="outside right center", fontsize=7)


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
    """Names a row in a legend."""
    return f"{row.name}, {row.condition}" if row.condition else row.name


def draw_mix_weights(axes: Axes, numbers: Numbers) -> None:
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
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.16), fontsize=7)
