"""Draws a screen: dev score by layer."""

from __future__ import annotations

from matplotlib.figure import Figure

from probe.format import percent, with_encoder
from probe.runs.screens import ScreenRecord
from probe.screening.report import caption, ranked_choices, score_of
from probe.tables.figures import INK, Picture, draw_legend, label_layers, styles


def screen_picture(screen: ScreenRecord) -> Picture:
    """Gives the picture of a screen: each single layer of each encoder, and the first of all choices."""
    shows = "Dev score of a quick probe by layer"
    return Picture("screen_by_layer", shows, None, screen, draw_by_layer, caption(screen).split(". ")[0])


def draw_by_layer(figure: Figure, screen: ScreenRecord) -> None:
    """Draws each single layer with its deviation over seeds, and a line at the first choice."""
    axes, ranked = figure.add_subplot(), ranked_choices(screen)
    single = sorted((one for one in ranked if len(one["indices"]) == 1), key=lambda one: one["indices"])
    for encoder, (colour, marker, _) in zip(screen.encoders, styles(), strict=False):
        of_encoder = [one for one in single if one["encoder"] == encoder]
        layers, scores = [one["indices"][0] for one in of_encoder], [100 * one["dev"] for one in of_encoder]
        errors = [100 * one["spread"] for one in of_encoder]
        axes.errorbar(layers, scores, errors, color=colour, marker=marker, capsize=3, label=encoder)
    first = with_encoder(ranked[0]["name"], ranked[0]["encoder"] if len(screen.encoders) > 1 else None)
    axes.axhline(100 * ranked[0]["dev"], color=INK, ls="--", lw=1.2, label=f"{first} {percent(ranked[0]['dev'])}")
    label_layers(axes, sorted({one["indices"][0] for one in single}))
    axes.set_ylabel(f"dev {score_of(screen)} of quick probes in percent (± deviation)")
    draw_legend(figure, axes)
