"""A screen as figures: the best choices with their layers and scores, dev score by layer, and by width."""

from __future__ import annotations

from matplotlib.figure import Figure

from probe.data.task import TASKS
from probe.screen.ranking import Scored, front
from probe.screen.record import ScreenRecord
from probe.screen.report import caption, select_shown
from probe.tables.dot_plot import DotPlot, Line, Score, Section, draw_dot_plot
from probe.tables.figures import COLOURS, GREY, INK, Numbers, Picture, label_ends

SHOWS = {  # of each picture, what it shows
    "screen_scores": "Dev scores of the screen's best choices, beside the layers that they use",
    "screen_by_layer": "Dev score of a linear readout by layer",
    "screen_by_width": "Dev score of a linear readout by width, for every choice of layers",
}


def screen_pictures(record: ScreenRecord) -> list[Picture]:
    """Gives the pictures of a screen."""
    title = caption(record).split(". ")[0]
    return [
        Picture("screen_scores", SHOWS["screen_scores"], None, best_choices(record, title), draw_dot_plot),
        Picture("screen_by_layer", SHOWS["screen_by_layer"], None, by_layer(record), draw_by_layer, title),
        Picture("screen_by_width", SHOWS["screen_by_width"], None, by_width(record), draw_by_width, title),
    ]


def best_choices(record: ScreenRecord, title: str) -> DotPlot:
    """Gives the dot plot of the choices that the screen's table shows."""
    lines = tuple(
        Line(
            name=" = ".join([one.name, *one.alike]),
            layers=tuple(one.layers.indices),
            dev=Score(100 * one.dev_f1, (100 * (one.dev_f1 - one.spread), 100 * (one.dev_f1 + one.spread))),
            test=None,
            columns=(str(one.num_blocks), str(one.width), order_of(record, one)),
            is_best=one is record.ranked[0],
            is_faint=not one.tied,
        )
        for one in select_shown(record.ranked)
    )
    return DotPlot(
        title=f"{title}. A screen: nothing is trained",
        sections=(Section("", lines),),
        num_layers=record.num_layers + 1,
        headers=("blocks", "width", "order"),
        align_left=(False, False, True),
        axis=f"dev {TASKS[record.identity.task].score} of a linear readout, percent",
        bars="± standard error over samples of train",
    )


def order_of(record: ScreenRecord, one: Scored) -> str:
    return "first" if one is record.ranked[0] else "tied" if one.tied else "behind"


def by_layer(record: ScreenRecord) -> Numbers:
    """The score of each single layer and its standard error, and the first of all."""
    single = [one for one in record.ranked if len(one.layers.indices) == 1]
    single.sort(key=lambda one: one.layers.indices[0])
    return {
        "layers": [one.layers.indices[0] for one in single],
        "dev": [one.dev_f1 for one in single],
        "spread": [one.spread for one in single],
        "best": _point(record.ranked[0]),
        "score": TASKS[record.identity.task].score,
    }


def by_width(record: ScreenRecord) -> Numbers:
    """The score and width of every candidate, and those that nothing as narrow beats."""
    return {
        "all": [[one.width, one.dev_f1] for one in record.ranked],
        "front": [_point(one) for one in front(record.ranked)],
        "score": TASKS[record.identity.task].score,
    }


def _point(one: Scored) -> list[object]:
    return [one.name, one.width, one.dev_f1, one.spread]


def draw_by_layer(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    layers, scores = numbers["layers"], [100 * f1 for f1 in numbers["dev"]]
    spreads = [100 * spread for spread in numbers["spread"]]
    axes.errorbar(layers, scores, yerr=spreads, color=COLOURS[0], marker="o", capsize=3)
    name, _, best, _ = numbers["best"]
    axes.axhline(100 * best, color=INK, ls="--", lw=1.2)
    axes.set_xlim(layers[0] - 0.3, layers[-1] + 0.3)
    best_at = (layers[-1] + 0.3, 100 * best, f"{name} {100 * best:.1f}", INK)
    label_ends(axes, [(layers[-1], scores[-1], "single layers", COLOURS[0]), best_at])
    axes.set_xticks(layers, ["0\nembeddings" if k == 0 else str(k) for k in layers])
    axes.set_xlabel("layer (hidden_states index)")
    axes.set_ylabel(f"dev {numbers['score']} of a linear readout, percent (± standard error)")


def draw_by_width(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    axes.plot(*zip(*[(w, 100 * f1) for w, f1 in numbers["all"]], strict=True), ".", color="#999999", ms=4)
    widths = [width for _, width, _, _ in numbers["front"]]
    axes.plot(widths, [100 * f1 for _, _, f1, _ in numbers["front"]], color=COLOURS[0], marker="o")
    for name, width, f1, _ in numbers["front"]:
        is_first = width == widths[0]
        axes.annotate(
            name, (width, 100 * f1), (7, -3) if is_first else (0, 7), textcoords="offset points", fontsize=7.5,
            color=COLOURS[0], ha="left" if is_first else "right", va="top" if is_first else "bottom",
        )  # fmt: skip
    axes.margins(y=0.1)
    axes.set_xlabel("width (values per word)")
    axes.set_ylabel(f"dev {numbers['score']} of a linear readout, percent")
    axes.text(0.99, 0.02, "line: no choice as narrow is better; grey: every other choice", fontsize=7.5, color=GREY,
              ha="right", transform=axes.transAxes)  # fmt: skip
