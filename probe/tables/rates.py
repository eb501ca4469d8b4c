"""Gives rows equal terms: of several learning rates each row is shown at its best by dev, and unlike scales are named.

Rows need an equal tuning budget to be compared: one rate suits one width and scale of the input better than another.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from probe.conditions import MAIN
from probe.probes.scales import REMEDY, adds_unlike, unlike_layers
from probe.runs.records import RunRecord
from probe.system.format import percent
from probe.tables.row import Row

RATE = "learning_rate"


def best_rate(tried: Mapping[float, Sequence[RunRecord]]) -> float:
    """Chooses the rate with the highest dev mean, of those with the most seeds; of equal ones the lowest.

    A rate with fewer seeds than another is not chosen: a mean of few seeds is high by luck more often.
    """
    most = max(map(len, tried.values()))
    full = {rate: records for rate, records in sorted(tried.items()) if len(records) == most}
    if not most:
        return min(full)
    return max(full, key=lambda rate: statistics.fmean(record.scores.dev.headline for record in full[rate]))


def all_rates(row: Row) -> str:
    """Shows the dev mean at each rate, with its deviation, and with its seeds where they are fewer."""
    most = max((len(one.seeds) for one in row.rates), default=0)
    shown = []
    for one in row.rates:
        spread = "" if one.dev.std is None else f" ± {percent(one.dev.std)}"
        seeds = f" (n = {len(one.seeds)})" if len(one.seeds) < most else ""
        shown.append(f"{one.rate:g}: {'missing' if one.dev.mean is None else percent(one.dev.mean)}{spread}{seeds}")
    return ", ".join(shown)


def rate_notes(rows: Sequence[Row]) -> list[str]:
    """Notes what a choice among several rates means for a table; no note where no row was tried at several."""
    tuned = [row for row in rows if row.rates]
    if not tuned:
        return []
    most = max(len(row.rates) for row in tuned)
    note = (
        f"rate: each row is shown at the best of up to {most} learning rates by dev mean (--columns rates shows all). "
        "This choice makes the dev means too high, by the same for all rows that were tried at as many rates; "
        "it does not affect test."
    )
    if fewer := [row.title for row in rows if row.section == MAIN and row.n and len(row.rates) < most]:
        note += f" Fewer rates were tried of {', '.join(fewer)}."
    edges = [row.title for row in tuned if row.section == MAIN and _at_an_edge(row)]
    if edges:
        note += f" The best rate is the lowest or highest tried of {', '.join(edges)}: others may do better."
    if missing := sum(one.missing for row in tuned for one in row.rates):
        note += f" {missing} runs that were asked for are missing, and a rate without all its seeds is not chosen."
    return [note]


def scale_notes(rows: Sequence[Row]) -> list[str]:
    """Names the rows that add up layers of unlike scale, where their records know it."""
    found = {}
    for row in rows:
        for record in row.records.values():
            deviations = record.layers.deviations
            if deviations and adds_unlike(row.combine, row.normalize, deviations):
                found[row.title] = unlike_layers(row.title, row.combine, deviations)
    return [f"scale: {'; '.join(found.values())}: {REMEDY}."] if found else []


def _at_an_edge(row: Row) -> bool:
    rates = [one.rate for one in row.rates]
    return row.setting.probe[RATE] in (min(rates), max(rates))
