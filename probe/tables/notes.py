"""Writes the caption of a table, and the notes below it, as pure functions of rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probe.conditions import CONDITIONS, MAIN
from probe.config import LINEAR
from probe.data.warnings import on_shared
from probe.format import first_few, percent, short_name, with_encoder
from probe.probes.kinds import PROBES, describe_probe
from probe.probes.selection import REMEDY, unlike_layers
from probe.runs.records import HOW_UNCONVERGED, remedy_of
from probe.scoring.detection import FEWEST_NEGATIVES, NEGATIVE
from probe.tables.columns import COLUMNS
from probe.tables.labels import BEST
from probe.tables.row import Row

MOST_NAMED = 6  # runs named in a note
RISING = 0.002  # gain of dev score in the last quarter of a training, from which on longer training may score higher
FAILED = 0.03  # a run so far below the median of its row's, and five deviations of those above it, is named


def main_row(rows: Sequence[Row]) -> Row:
    """Returns a row whose setting is that of its table: a fine-tuned row has another probe."""
    return next((row for row in rows if not row.identity.is_fine_tuned), rows[0])


def setting_of(rows: Sequence[Row]) -> str:
    """Says on which text and features, and with which probe, the rows of one table were made."""
    first = main_row(rows)
    encoders = sorted({row.encoder or short_name(row.setting.encoder) for row in rows})
    read = how_read(first.setting.features)
    return ", ".join([first.setting.data, " and ".join(encoders), *read, describe_probe(first.setting.probe)])


def how_read(features: Mapping[str, Any]) -> list[str]:
    """Says how words or texts were read, by the recorded settings of `features`; nothing where none says so."""
    if "sentence" in features:
        return [f"whole texts, features.sentence={features['sentence']}"]
    units = {"context": "context", "subword": "piece"}
    return [f"{features[name]} {unit}" for name, unit in units.items() if name in features]


def heading(rows: Sequence[Row]) -> str:
    """Says what the rows of one table have in common."""
    first = main_row(rows)
    scales = {row.identity.layers.normalize for row in rows if row.indices and not row.identity.is_fine_tuned}
    parts = [setting_of(rows), *first.differs_in]
    if len(scales) == 1 and None not in scales:
        parts.append(f"layers.normalize={next(iter(scales))}")
    return ", ".join(parts)


def table_caption(rows: Sequence[Row], seeds: int | str = "n") -> str:
    """Says what the rows of one table have in common, and what their numbers are. seeds: the number of all."""
    floor = majority_accuracy(rows)
    always = "" if floor is None else f" Always dev's most frequent label: {percent(floor)}."
    title = main_row(rows).task.headline.title
    if main_row(rows).n and (labels := main_row(rows).record.data.labels):
        title += f" of {labels[1]} against {labels[0]}"
    return f"{heading(rows)}. {title} in percent, mean ± standard deviation over {seeds} seeds.{always}"


def majority_accuracy(rows: Sequence[Row]) -> float | None:
    """Returns the accuracy of giving every word or sentence of dev its most frequent label; None for spans."""
    row = next((row for row in rows if row.n), None)
    if row is None or row.task.headline.name != "accuracy":
        return None
    gold = [score.gold for score in row.record.scores.dev.per_type.values()]
    return max(gold) / sum(gold) if any(gold) else None


def _unconverged_notes(rows: Sequence[Row]) -> Iterator[str]:
    for ending in HOW_UNCONVERGED:
        ended = [(row, record) for row in rows for record in row.unconverged if record.outcome == ending]
        if runs := [with_encoder(record.label, row.encoder) for row, record in ended]:
            remedy = remedy_of(*(record for _, record in ended))
            yield f"not converged: {first_few(runs, MOST_NAMED)}: {remedy} Such rows are not ranked."


def notes(rows: Sequence[Row], columns: Sequence[str]) -> Iterator[str]:
    """Gives the notes below a table: how its labels are meant, and what these rows are."""
    best = next((row for row in rows if row.label == BEST), None)
    if best and {"behind", "label"} & {*columns}:
        text = (
            "behind the best: the difference of dev means; in brackets how far the row lies behind the truly best one, "
            f"of these rows, over {covered(best)}; each end with 95 % confidence for all rows at once (Hsu 1984). "
            f"within the margin: all of it is above {0 - best.margin:g}; else worse: all of it is below 0; undecided: "
            "neither, and how likely the row is within the margin if nothing was known before."
        )
        if best.looks > 1:
            text += f" These scores may have been looked at {best.looks} times; all looks share the 5 % of errors."
        yield text
    if chosen := first_few([row.title for row in rows if row.screened], MOST_NAMED):
        yield f"chosen by the screen for the scores of their layers, on the same dev text: {chosen}."
    if "paper" in columns and any(COLUMNS["paper"].text(row) for row in rows):
        yield "paper: dev F1 of Devlin et al. 2019, Table 7, feature-based rows, of five runs."
    if (row := next((row for row in rows if row.n), None)) and row.task.is_ranked and row.record.threshold is None:
        others = row.record.scores.dev.per_type[NEGATIVE].gold
        yield (
            f"no threshold: to find the log-odds that 1 % of the other texts exceed, dev needs {FEWEST_NEGATIVES} of "
            f"these texts; it has {others}. So `probe tag` decides at log-odds of 0. Test recall at 1 % FP needs as "
            "many in test."
        )
    for encoder, names in {row.encoder: row.record.encoder.layer_names for row in rows if row.n}.items():
        if names:
            named = ", ".join(f"{k} is {name}" for k, name in enumerate(names))
            yield f"{with_encoder('layers', encoder)}: {named}."
    if any(not row.indices for row in rows):
        yield PROBES["majority_tag"].note or ""
    conditions = {name for row in rows for name in row.identity.conditions}
    yield from (condition.note for name, condition in CONDITIONS.items() if name in conditions and condition.note)


def covered(row: Row) -> str:
    """Says what a row's intervals are over."""
    units, condition = row.cover
    return (
        f"seeds and text ({units})" + f", {condition}" * bool(condition) if units else "seeds alone, on this dev text"
    )


def advice(rows: Sequence[Row]) -> list[str]:
    """Says what is wrong with a table or may be, to whoever made it, and what to type."""
    shared = next((row.record.data.shared for row in rows if row.n), None)
    return [
        *_unconverged_notes(rows),
        *_rising_notes(rows),
        *_failing_notes(rows),
        *(f"data: {text}." for text in on_shared(shared or {})),  # of dev or test in train, whose scores mean less
        *_rate_notes(rows),
        *_scale_notes(rows),
    ]


def rising(rows: Sequence[Row]) -> dict[str, int]:
    """Returns the rows that a fixed number of epochs ended while they were rising, and how many epochs these were.

    Narrow rows rise longer than wide ones.
    """
    epochs = {}
    for row in rows:
        curves = [[epoch.dev for epoch in record.curve] for record in row.records.values()]
        if row.section != MAIN or row.setting.probe.get("lr_decay") != LINEAR or min(map(len, curves), default=0) < 2:
            continue
        gains = [max(curve) - max(curve[: -max(1, len(curve) // 4)]) for curve in curves]
        if statistics.fmean(gains) > RISING or all(max(curve) > max(curve[:-1]) for curve in curves):
            epochs[row.title] = max(map(len, curves))
    return epochs


def _rising_notes(rows: Sequence[Row]) -> Iterator[str]:
    if epochs := rising(rows):
        yield (
            f"still rising: {first_few([*epochs], MOST_NAMED)}: longer training may change how far rows lie apart. "
            f"Type probe.max_epochs={2 * max(epochs.values())}."
        )


def _failing_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Names runs that failed to train where others of their row did not: no number of seeds makes up for these."""
    failing = []
    for row in (row for row in rows if row.section == MAIN and row.n > 2 and not row.unconverged):
        scores = {record.label: record.scores.dev.headline for record in row.records.values()}
        usual = statistics.median(scores.values())
        limit = max(FAILED, 5 * statistics.stdev(score for score in scores.values() if score >= usual))
        failing += [
            f"{with_encoder(name, row.encoder)} ({percent(score)}, usually {percent(usual)})"
            for name, score in scores.items()
            if usual - score > limit
        ]
    if failing:
        yield f"fails now and then: {first_few(failing, MOST_NAMED)}. The label of such a row is not reliable."


def _rate_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Says that each row is shown at its best learning rate, and where others may do better."""
    tuned = [row for row in rows if row.rates and row.section == MAIN]
    if not tuned:
        return
    most = max(len(row.rates) for row in tuned)
    note = f"rate: each row is shown at the best of {most} learning rates by dev mean (--columns default,rates)."
    if fewer := [row.title for row in rows if row.section == MAIN and row.n and len(row.rates) < most]:
        note += f" Fewer were tried of {', '.join(fewer)}."
    several = [row for row in tuned if len(row.rates) > 1]
    if ends := [row.title for row in several if row.setting.probe["learning_rate"] in (min(row.rates), max(row.rates))]:
        note += f" At the lowest or highest rate tried, others may do better: {', '.join(ends)}."
    yield note


def _scale_notes(rows: Sequence[Row]) -> Iterator[str]:
    """Names the rows that add up layers of unlike scale, where their records know it."""
    messages = {}
    for row in rows:
        for layers in (record.layers for record in row.records.values()):
            if layers.deviations and (message := unlike_layers(row.title, layers.combine, layers.deviations)):
                messages[row.title] = message
    if messages:
        yield f"scale: {'; '.join(messages.values())}: {REMEDY}."
