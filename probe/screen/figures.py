"""Draws a screen: dev score by layer."""

from __future__ import annotations

from matplotlib.figure import Figure

from probe.screen.report import Screens, caption, ranked_choices, score_of
from probe.system.format import with_encoder
from probe.tables.figures import INK, Numbers, Picture, draw_means, label_ends, label_layers, styles


def screen_picture(screens: Screens) -> Picture:
    """Gives the picture of a screen: each single layer of each encoder, and the first of all choices."""
    ranked, several = ranked_choices(screens), len(screens) > 1
    encoders = {}
    for encoder in screens:
        single = [one for one in ranked if one["encoder"] == encoder and len(one["indices"]) == 1]
        encoders[encoder if several else "single layers"] = sorted(single, key=lambda one: one["indices"])
    first = with_encoder(ranked[0]["name"], ranked[0]["encoder"] if several else None)
    numbers = {"encoders": encoders, "best": [first, ranked[0]["dev_f1"]], "score": score_of(screens)}
    shows = "Dev score of a linear readout by layer"
    return Picture("screen_by_layer", shows, None, numbers, draw_by_layer, caption(screens).split(". ")[0])


def draw_by_layer(figure: Figure, numbers: Numbers) -> None:
    axes = figure.add_subplot()
    labels = []
    for (name, own), (colour, marker, _) in zip(numbers["encoders"].items(), styles(), strict=False):
        layers, scores = [one["indices"][0] for one in own], [100 * one["dev_f1"] for one in own]
        draw_means(axes, layers, scores, [100 * one["spread"] for one in own], colour, marker=marker)
        labels.append((layers[-1], scores[-1], name, colour))
    last = max(at for at, *_ in labels)
    name, best = numbers["best"]
    axes.axhline(100 * best, color=INK, ls="--", lw=1.2)
    axes.set_xlim(-0.3, last + 0.3)
    label_ends(axes, [*labels, (last + 0.3, 100 * best, f"{name} {100 * best:.1f}", INK)])
    label_layers(axes, range(last + 1))
    axes.set_ylabel(f"dev {numbers['score']} of a linear readout, percent (± standard error)")
