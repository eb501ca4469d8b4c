"""Draws a screen: the best choices with their layers and scores, dev score by layer, and by width or operations."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from probe.screen.ranking import front
from probe.screen.report import RankedChoice, Screens, caption, rank_screens, score_of
from probe.tables.figures import COLOURS, GREY, INK, Numbers, Picture, draw_means, label_ends, label_layers, styles

SHOWS = {  # of each picture, what it shows
    "screen_by_layer": "Dev score of a linear readout by layer",
    "screen_by_width": "Dev score of a linear readout by width, for every choice of layers",
    "screen_by_operations": "Dev score of a linear readout by the encoder's operations, for every choice of layers",
}


def screen_pictures(screens: Screens) -> list[Picture]:
    """Gives the pictures of a screen. Of several encoders the last shows their cost, of one the width of its layers."""
    ranked, title = rank_screens(screens), caption(screens).split(". ")[0]
    if len(screens) > 1:
        last, numbers, make = "screen_by_operations", by_operations(ranked, screens), draw_by_operations
    else:
        last, numbers, make = "screen_by_width", by_width(ranked, screens), draw_by_width
    return [
        Picture("screen_by_layer", SHOWS["screen_by_layer"], None, by_layer(ranked, screens), draw_by_layer, title),
        Picture(last, SHOWS[last], None, numbers, make, title),
    ]


def by_layer(ranked: Sequence[RankedChoice], screens: Screens) -> Numbers:
    """Gives the score of each single layer of each encoder and its standard error, and the first of all choices."""
    encoders = {}
    for encoder in screens:
        single = [one.choice for one in ranked if one.encoder == encoder and len(one.choice.layers.indices) == 1]
        single.sort(key=lambda one: one.layers.indices[0])
        encoders[encoder if len(screens) > 1 else "single layers"] = {
            "layers": [one.layers.indices[0] for one in single],
            "dev": [one.dev_f1 for one in single],
            "spread": [one.spread for one in single],
        }
    return {"encoders": encoders, "best": [ranked[0].title, ranked[0].choice.dev_f1], "score": score_of(screens)}


def by_width(ranked: Sequence[RankedChoice], screens: Screens) -> Numbers:
    """Gives score and width of every choice, and of those that nothing as narrow beats."""
    points = [(one.choice.name, one.choice.width, one.choice.dev_f1) for one in ranked]
    return {"all": [list(point[1:]) for point in points], "front": front(points), "score": score_of(screens)}


def by_operations(ranked: Sequence[RankedChoice], screens: Screens) -> Numbers:
    """Gives score and operations of every choice by encoder, best first, and of those that nothing as cheap beats."""
    points: dict[str, list[tuple[str, float, float]]] = {encoder: [] for encoder in screens}
    for one in ranked:
        points[one.encoder].append((one.title, one.encoder_flops / 1e6, one.choice.dev_f1))
    every = [point for own in points.values() for point in own]
    return {"encoders": points, "front": [list(point[1:]) for point in front(every)], "score": score_of(screens)}


def draw_by_layer(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    labels = []
    for (name, own), (colour, marker, _) in zip(numbers["encoders"].items(), styles(), strict=False):
        layers, scores = own["layers"], [100 * f1 for f1 in own["dev"]]
        draw_means(axes, layers, scores, [100 * spread for spread in own["spread"]], colour, marker=marker)
        labels.append((layers[-1], scores[-1], name, colour))
    last = max(at for at, *_ in labels)
    name, best = numbers["best"]
    axes.axhline(100 * best, color=INK, ls="--", lw=1.2)
    axes.set_xlim(-0.3, last + 0.3)
    label_ends(axes, [*labels, (last + 0.3, 100 * best, f"{name} {100 * best:.1f}", INK)])
    label_layers(axes, range(last + 1))
    axes.set_ylabel(f"dev {numbers['score']} of a linear readout, percent (± standard error)")


def draw_by_width(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    axes.plot(*zip(*[(w, 100 * f1) for w, f1 in numbers["all"]], strict=True), ".", color="#999999", ms=4)
    widths = [width for _, width, _ in numbers["front"]]
    axes.plot(widths, [100 * f1 for _, _, f1 in numbers["front"]], color=COLOURS[0], marker="o")
    for name, width, f1 in numbers["front"]:
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


def draw_by_operations(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    labels = []
    costs, best = zip(*numbers["front"], strict=True)
    axes.plot(costs, [100 * f1 for f1 in best], color=INK, lw=1.2, zorder=1)
    for points, (colour, marker, _) in zip(numbers["encoders"].values(), styles(), strict=False):
        costs, scores = zip(*[(cost, 100 * f1) for _, cost, f1 in points], strict=True)
        axes.plot(costs, scores, marker, color=colour, ms=4, alpha=0.6)
        name, cost, f1 = points[0]  # the first of its encoder
        labels.append((cost, 100 * f1, f"{name} {100 * f1:.1f}", colour))
    label_ends(axes, labels)
    axes.set_xlabel("operations of the encoder per piece, millions (24 x blocks x width squared)")
    axes.set_ylabel(f"dev {numbers['score']} of a linear readout, percent")
    axes.text(0.99, 0.02, "line: no choice as cheap is better", fontsize=7.5, color=GREY, ha="right",
              transform=axes.transAxes)  # fmt: skip
