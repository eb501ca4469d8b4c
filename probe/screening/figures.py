"""Draws a screen: dev score by layer."""

from __future__ import annotations

from matplotlib.figure import Figure

from probe.format import with_encoder
from probe.screening.report import Screens, caption, ranked_choices, score_of
from probe.tables.figures import INK, Picture, label_layers, styles


def screen_picture(screens: Screens) -> Picture:
    """Gives the picture of a screen: each single layer of each encoder, and the first of all choices."""
    shows = "Dev score of a linear readout by layer"
    return Picture("screen_by_layer", shows, None, screens, draw_by_layer, caption(screens).split(". ")[0])


def draw_by_layer(figure: Figure, screens: Screens) -> None:
    """Draws each single layer with its standard error, and a line at the first choice."""
    axes, ranked = figure.add_subplot(), ranked_choices(screens)
    num_layers = 0
    for encoder, (colour, marker, _) in zip(screens, styles(), strict=False):
        single = [one for one in ranked if one["encoder"] == encoder and len(one["indices"]) == 1]
        single.sort(key=lambda one: one["indices"])
        layers, scores = [one["indices"][0] for one in single], [100 * one["dev_f1"] for one in single]
        errors = [100 * one["spread"] for one in single]
        axes.errorbar(layers, scores, errors, color=colour, marker=marker, capsize=3, label=encoder)
        num_layers = max(num_layers, *layers)
    first = with_encoder(ranked[0]["name"], ranked[0]["encoder"] if len(screens) > 1 else None)
    best = 100 * ranked[0]["dev_f1"]
    axes.axhline(best, color=INK, ls="--", lw=1.2, label=f"{first} {best:.1f}")
    label_layers(axes, range(num_layers + 1))
    axes.set_ylabel(f"dev {score_of(screens)} of a linear readout, percent (± standard error)")
    figure.legend(loc="outside lower left", ncols=4)
