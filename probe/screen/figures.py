"""A screen as figures: dev score by layer, and by width with its Pareto front."""

from __future__ import annotations

from matplotlib.axes import Axes

from probe.config import layer_presets
from probe.data.task import TASKS
from probe.screen.ranking import Scored, front
from probe.screen.record import ScreenRecord
from probe.screen.report import caption
from probe.tables.figures import COLOURS, FORMS, Numbers, draw


def draw_screen(record: ScreenRecord) -> dict[str, bytes]:
    """The pictures of a screen: file name to content."""
    drawn = {}
    for name, numbers, make in (
        ("screen_by_layer", by_layer(record), draw_by_layer),
        ("screen_by_width", by_width(record), draw_by_width),
    ):
        for form in FORMS:
            drawn[f"{name}.{form}"] = draw(numbers, make, caption(record).split(". ")[0], form)
    return drawn


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
    presets = {preset.name for preset in layer_presets()}
    return {
        "all": [[one.width, one.dev_f1] for one in record.ranked],
        "front": [_point(one) for one in front(record.ranked)],
        "presets": [_point(one) for one in record.ranked if presets & {one.name, *one.alike}],
        "score": TASKS[record.identity.task].score,
    }


def _point(one: Scored) -> list[object]:
    return [one.name, one.width, one.dev_f1, one.spread]


def draw_by_layer(axes: Axes, numbers: Numbers) -> None:
    layers = numbers["layers"]
    axes.errorbar(
        layers,
        [100 * f1 for f1 in numbers["dev"]],
        yerr=[100 * spread for spread in numbers["spread"]],
        color=COLOURS[0],
        marker="o",
        capsize=3,
        label="one layer",
    )
    name, _, best, _ = numbers["best"]
    axes.axhline(100 * best, color=COLOURS[1], ls="--", lw=1.2, label=f"{name} {100 * best:.2f}")
    axes.set_xticks(layers, ["0\nembeddings" if k == 0 else str(k) for k in layers])
    axes.set_xlabel("layer (hidden_states index)")
    axes.set_ylabel(f"dev {numbers['score']} of a linear readout, percent (± standard error)")
    axes.figure.legend(loc="outside right center", fontsize=7)


def draw_by_width(axes: Axes, numbers: Numbers) -> None:
    axes.plot(
        *zip(*[(w, 100 * f1) for w, f1 in numbers["all"]], strict=True), ".", color="#999999", label="every choice"
    )
    axes.plot(
        [width for _, width, _, _ in numbers["front"]],
        [100 * f1 for _, _, f1, _ in numbers["front"]],
        color=COLOURS[0],
        marker="o",
        label="nothing as narrow is better",
    )
    for i, (name, width, f1, _) in enumerate(numbers["presets"]):
        axes.plot(width, 100 * f1, color=COLOURS[1 + i % (len(COLOURS) - 1)], marker="D", ls="", ms=5, label=name)
    for name, width, f1, _ in numbers["front"]:
        axes.annotate(name, (width, 100 * f1), textcoords="offset points", xytext=(3, 4), fontsize=6)
    axes.set_xlabel("width (values a word)")
    axes.set_ylabel(f"dev {numbers['score']} of a linear readout, percent")
    axes.figure.legend(loc="outside right center", fontsize=7)
