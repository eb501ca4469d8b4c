"""Ranks the screens of one or several encoders together: as a list of plain values, and as a table with its text."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from probe.config import layer_presets
from probe.data.tasks import TASKS
from probe.format import format_count, format_layers, percent, pluralize, with_encoder
from probe.runs.screens import ScreenRecord
from probe.screening.ranking import jackknife, rank, selection_bias
from probe.tables.formats import TextTable
from probe.tables.notes import how_read

Screens = Mapping[str, ScreenRecord]  # by encoder, see `load_screens`
SHOWN = 3  # of each width; of several encoders, the best of each


def ranked_choices(screens: Screens) -> list[dict[str, Any]]:
    """Gives every choice of layers of all encoders, best first. encoder_flops: operations per piece."""
    choices = [replace(one, encoder=encoder) for encoder, record in screens.items() for one in record.ranked]
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
            "dev_f1": one.dev_f1,
            "spread": jackknife(one.f1),
            "error": statistics.fmean(one.error),
            "error_spread": jackknife(one.error),
            "tied": one.tied,
        }
        for place, one in enumerate(rank(choices) if len(screens) > 1 else choices, 1)
    ]


def score_of(screens: Screens) -> str:
    """Gives the name of the score that the screens are ranked by."""
    return TASKS[next(iter(screens.values())).identity.task].headline.name


def screen_table(screens: Screens) -> TextTable:
    """Makes the short table of the ranking: of each encoder the best of each width, and the presets."""
    ranked, score = ranked_choices(screens), score_of(screens)
    several = len(screens) > 1
    presets = {preset.name for preset in layer_presets()}
    seen: Counter[tuple[str, int]] = Counter()
    lines = []
    for one in ranked:
        seen[one["encoder"], one["width"]] += 1
        names = [one["name"], *one["alike"]]
        if seen[one["encoder"], one["width"]] > (1 if several else SHOWN) and not presets & {*names}:
            continue
        cells = {
            "place": str(one["place"]),
            "encoder": one["encoder"],
            "layers chosen": " = ".join(names),
            "layers": format_layers(one["indices"]),
            "width": str(one["width"]),
            "blocks": str(one["num_blocks"]),
            "operations": format_count(one["encoder_flops"]),
            f"dev {score}": f"{percent(one['dev_f1'])} ± {percent(one['spread'])}",
            "order": "first" if one is ranked[0] else "tied" if one["tied"] else "behind",
        }
        lines.append({name: cell for name, cell in cells.items() if several or name not in ("encoder", "operations")})
    headers = list(lines[0])
    first = with_encoder(ranked[0]["name"], ranked[0]["encoder"] if several else None)
    tied = sum(one["tied"] for one in ranked[1:])
    bias = selection_bias([choice for record in screens.values() for choice in record.ranked])
    return TextTable(
        headers=headers,
        lines=[list(line.values()) for line in lines],
        align_left=[header in ("encoder", "layers chosen", "layers", "order") for header in headers],
        above=[caption(screens)],
        below=[
            f"Of {len(ranked)} choices the table shows the presets and the best of each width. The first was chosen "
            f"for its score, so this score is up to {100 * bias:.1f} points too high. Tied speaks of "
            "these sentences of dev, not of other text. A linear readout sees no "
            "difference between sum, mean and mix of the same layers."
        ],
        bold=[0],
        emphasised=[k for k, header in enumerate(headers) if header in ("encoder", "layers chosen", f"dev {score}")],
        label="tab:screen",
        first=[
            f"The screen ranks {first} first (layers {format_layers(ranked[0]['indices'])}): dev {score} "
            f"{percent(ranked[0]['dev_f1'])} of a linear readout. "
            + (
                f"{tied} of the other {len(ranked) - 1} choices are tied: not significantly behind it."
                if tied < len(ranked) - 1
                else "No other choice is significantly behind it: this text does not separate the layers."
            )
        ],
    )


def caption(screens: Screens) -> str:
    """Says what was screened, and what the numbers are."""
    record = next(iter(screens.values()))
    setting, units, screen = record.setting, record.words, record.identity.screen
    task = TASKS[record.identity.task]
    window = f"a window ({screen['window']} to each side)" if task.is_per_word else f"a {task.unit}"
    made_on = [setting.data, " and ".join(screens), *how_read(setting.features)]
    return (
        f"{', '.join(made_on)}. A screen: nothing is trained. A linear readout of {window}, fitted to "
        f"{pluralize(units['train'], task.unit)} of train; {task.headline.title} on "
        f"{pluralize(units['dev'], task.unit)} of dev in percent, mean ± standard error over "
        f"{screen['samples']} samples."
    )
