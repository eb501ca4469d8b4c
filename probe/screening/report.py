"""Says what a screen found: as a list of plain values, and as a table with its text."""

from __future__ import annotations

from typing import Any, NamedTuple

from probe.data.tasks import TASKS
from probe.format import first_few, format_count, format_layers, percent, pluralize, points, with_encoder
from probe.probes.candidates import Candidate
from probe.runs.screens import ScreenRecord
from probe.tables.formats import TextTable
from probe.tables.notes import how_read

# A difference between quick probes is so many times that after long training: typically, at least and at most
# (`tests/benchmarks/bakeoff.py table`, results/README.md).
TYPICAL, LEAST, MOST = 1.6, 1.25, 2.0
CHEAPEST = 5  # choices that are trained first, beside the best one of the screen


class Forecast(NamedTuple):
    """Says how far a choice is expected to lie behind the best one after long training: fractions."""

    behind: float
    low: float
    high: float


def forecast(choice: Candidate, first: Candidate) -> Forecast:
    """Forecasts how far a choice will lie behind the best one after long training. first: the best of the screen."""
    farthest, nearest = choice.behind
    return Forecast((first.mean - choice.mean) / TYPICAL, abs(nearest) / MOST, min(1.0, abs(farthest) / LEAST))


def worth_training(screen: ScreenRecord) -> list[Candidate]:
    """Returns the choices that may lie within the margin after long training, the cheapest first."""
    kept = [one for one in screen.ranked if forecast(one, screen.ranked[0]).low <= screen.margin / 100]
    return sorted(kept, key=lambda choice: choice.cost)


def to_train_first(screen: ScreenRecord) -> list[Candidate]:
    """Returns the cheapest choices that are expected to lie within the margin, and the best one of the screen.

    Most choices that may lie within do, on a text that shows small differences. So a few of them find the cheapest. One
    alone cannot be compared, so the second of the screen joins it.
    """
    best = screen.ranked[0]
    expected = [one for one in worth_training(screen) if forecast(one, best).behind <= screen.margin / 100]
    chosen = [*expected[:CHEAPEST], *([best] if best not in expected[:CHEAPEST] else [])]
    return chosen if len(chosen) > 1 else screen.ranked[:2]


def ranked_choices(screen: ScreenRecord) -> list[dict[str, Any]]:
    """Gives every choice of layers, best first. encoder_flops: operations per piece. behind: see `Candidate`."""
    return [
        {
            "place": place,
            "encoder": one.encoder,
            "name": one.name,
            "alike": one.alike,
            "indices": one.layers.indices,
            "combine": one.layers.combine,
            "width": one.width,
            "num_blocks": one.num_blocks,
            "encoder_flops": one.cost[0],
            "dev": one.mean,
            "spread": one.deviation,
            "behind": one.behind,
            **{f"forecast_{name}": value for name, value in forecast(one, screen.ranked[0])._asdict().items()},
        }
        for place, one in enumerate(screen.ranked, 1)
    ]


def score_of(screen: ScreenRecord) -> str:
    return TASKS[screen.identity.task].headline.name


def screen_table(screen: ScreenRecord) -> TextTable:
    first, score, several = screen.ranked[0], score_of(screen), len(screen.encoders) > 1
    kept, at_first, margin = worth_training(screen), to_train_first(screen), points(screen.margin)
    lines = []
    for one in screen.ranked:
        cells = {
            "encoder": one.encoder or "",
            "layers chosen": " = ".join([one.name, *one.alike]),
            "layers": format_layers(one.layers.indices),
            "width": str(one.width),
            "blocks": str(one.num_blocks),
            "operations": format_count(one.cost[0]),
            f"dev {score}": f"{percent(one.mean)} ± {percent(one.deviation)}",
            "expected behind": _behind(one, first),
            "train": "first" if one in at_first else "yes" if one in kept else "no",
        }
        lines.append({name: cell for name, cell in cells.items() if several or name not in ("encoder", "operations")})
    headers = list(lines[0])
    searched = [one.name for one in screen.ranked if one.searched]
    found = f" {first_few(searched, 3)} were chosen for the scores of their layers, on this dev text." * bool(searched)
    rests_on = f" This holds {screen.condition}." * bool(screen.condition)
    return TextTable(
        headers=headers,
        lines=[list(line.values()) for line in lines],
        align_left=[header in ("encoder", "layers chosen", "layers", "train") for header in headers],
        above=[caption(screen)],
        below=[
            "Expected behind: points behind the best choice after long training, a forecast. Quick probes differ "
            f"{LEAST:g} to {MOST:g} times as much. Train says yes where a choice may lie within {margin} of the "
            f"best, and first for what to train first: the best one, and the {CHEAPEST} cheapest that are expected to "
            f"lie within.{rests_on}{found} "
            "A quick probe sees no difference between sum, mean and mix of the same layers."
        ],
        bold=[0],
        emphasised=[k for k, header in enumerate(headers) if header in ("encoder", "layers chosen", f"dev {score}")],
        label="tab:screen",
        first=[_answer(screen, kept)],
    )


def _answer(screen: ScreenRecord, kept: list[Candidate]) -> str:
    first, several = screen.ranked[0], len(screen.encoders) > 1
    margin = points(screen.margin)
    likely = next(one for one in kept if forecast(one, first).behind <= screen.margin / 100)
    named, cheapest = (with_encoder(one.name, one.encoder if several else None) for one in (first, likely))
    text = f"Screened first: {named} (layers {format_layers(first.layers.indices)})."
    if len(screen.ranked) == 1:
        return f"{text} It is the only choice: there is nothing to compare."
    if len(kept) == len(screen.ranked):
        return f"{text} Each choice may lie within {margin} of the best: this text does not separate the layers."
    left_out = f"{len(screen.ranked) - len(kept)} of {pluralize(len(screen.ranked), 'choice')}"
    text += f" Shown to lie more than {margin} behind the best: {left_out}. The other {len(kept)} are worth training."
    if likely is first:
        return text
    return f"{text} The cheapest of them that is expected to lie within: {cheapest}, {_behind(likely, first)} behind."


def _behind(one: Candidate, first: Candidate) -> str:
    behind, low, high = (f"{100 * value:.1f}" for value in forecast(one, first))
    return f"{behind} ({low} to {high})"


def caption(screen: ScreenRecord) -> str:
    settings, task = screen.identity.screen, TASKS[screen.identity.task]
    window = settings["window"] * task.is_per_word
    reads = f"a {task.unit} and {window} to each side" if window else f"a {task.unit}"
    made_on = [screen.corpus, " and ".join(screen.encoders), *how_read(screen.features)]
    text = f" Dev is {screen.units}." if screen.units else ""
    return (
        f"{', '.join(made_on)}. A screen: each choice has {settings['seeds']} quick probes (a perceptron that reads "
        f"{reads}), trained on {pluralize(screen.words['train'], task.unit)} of train. {task.headline.title} on "
        f"{pluralize(screen.words['dev'], task.unit)} of dev in percent, mean ± standard deviation over seeds.{text}"
    )
