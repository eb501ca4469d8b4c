"""Writes the caption of a table, and the notes below it that a reader must know, as pure functions of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from probe.conditions import CONDITIONS, MAIN
from probe.probes.kinds import PROBES, describe_probe
from probe.system.format import first_few, percent, short_name, with_encoder
from probe.tables.caveats import caveats
from probe.tables.columns import COLUMNS
from probe.tables.decisions import ELIMINATED
from probe.tables.published import PUBLISHED, setting_differences, tuning
from probe.tables.rates import rate_notes, scale_notes
from probe.tables.recommendation import recommend
from probe.tables.row import Row
from probe.tables.tasks import most_frequent

HOW_UNCONVERGED = {
    "hit_epoch_limit": "ended by probe.max_epochs. Raise it.",
    "never_learned": "no dev score above 0. More text, more epochs or another probe.learning_rate.",
}
SHOWN = 6  # runs named in a note


def caption(rows: Sequence[Row]) -> str:
    """Says what the rows of one table have in common, and what their numbers are."""
    setting = rows[0].setting
    encoders = " and ".join(_encoders(rows)) or short_name(setting.encoder)
    return (
        f"{setting.data}, {encoders}, {setting.features['context']} context, "
        f"{setting.features['subword']} piece{_pooled(setting.features)}, "
        f"{describe_probe(setting.probe)}{_normalized(rows)}. "
        f"{rows[0].task.title} in percent, mean ± standard deviation over n seeds.{_floor(rows)}"
    )


def _floor(rows: Sequence[Row]) -> str:
    """Says what a score of labels must exceed."""
    floor = most_frequent([row for row in rows if row.records])
    return "" if floor is None else f" Always dev's most frequent label: {percent(floor)}."


def _pooled(features: Mapping[str, Any]) -> str:
    """Says how the words of a text become one vector, if labels belong to whole texts."""
    return f", {features['sentence']} of a text's words" if "sentence" in features else ""


def _encoders(rows: Sequence[Row]) -> list[str]:
    """Names the encoders of a table of several; none where there is one."""
    return [name for name in dict.fromkeys(row.encoder for row in rows) if name]


def _normalized(rows: Sequence[Row]) -> str:
    """Says how the layers of all rows are normalized; where rows differ in it, their names say it."""
    kinds = {row.normalize for row in rows if row.indices and "fine_tuned" not in row.conditions}
    return f", layers.normalize={kind}" if len(kinds) == 1 and (kind := next(iter(kinds))) else ""


def above(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Gives the caption, and for each column of published numbers how its setting differs from this one."""
    about = next((row.about for row in sorted(rows, key=lambda row: row.section != MAIN) if row.about), None)
    lines = [caption(rows)]
    if about is None:
        return lines
    seeds = sorted({row.n for row in rows if row.n and row.section == MAIN})
    about = replace(about, seeds=" or ".join(map(str, seeds)) or about.seeds)
    if encoders := _encoders(rows):
        cases = dict.fromkeys(row.about.case for row in rows if row.about)
        about = replace(about, encoder=" and ".join(encoders), case=" and ".join(cases))
    return lines + [
        f"{name}: {next(iter(source.scores.values()))}, {source.source}. {source.note}{' ' if source.note else ''}"
        f"Here otherwise: {'; '.join(setting_differences(about, name))}."
        f"{tuning(name, [len(row.rates) for row in rows if row.n and row.section == MAIN])}"
        for name, source in PUBLISHED.items()
        if name in columns
    ]


def unconverged_notes(rows: Sequence[Row], consequence: str) -> list[str]:
    """Names the runs that did not converge, by cause, and says what happens to their rows: they are `consequence`."""
    lines = []
    for ending, remedy in HOW_UNCONVERGED.items():
        runs = [(record, row) for row in rows for record in row.unconverged if record.outcome == ending]
        if runs:
            labels = first_few([with_encoder(record.label, row.encoder) for record, row in runs], SHOWN)
            lines.append(f"not converged: {labels}: {remedy} Such rows are {consequence}.")
    return lines


def _epochs_of_fine_tuning(rows: Sequence[Row]) -> str:
    """Says after how many epochs fine-tuning ended, and in how many runs more epochs might score higher."""
    tuned = [record for row in rows if "fine_tuned" in row.conditions for record in row.records.values()]
    rising = sum(record.best_epoch == len(record.curve) for record in tuned)
    if not tuned:
        return ""
    epochs = " or ".join(map(str, sorted({len(record.curve) for record in tuned})))
    trained = f" Trained for {epochs} epoch{'' if epochs == '1' else 's'}, so it is no upper bound."
    runs = f" In {rising} of {len(tuned)} runs the best epoch is the last"
    return trained + (f"{runs}: more epochs (probe.max_epochs) may score higher." if rising else "")


def _encoder_notes(rows: Sequence[Row]) -> list[str]:
    """Says what compares between several encoders, and what does not; nothing where there is one."""
    if not _encoders(rows):
        return []
    return [
        "encoder: rows of several encoders. Their scores count the same words and tags, so they compare, and one "
        "statistic labels all rows. Cost is compared by the encoder's operations: blocks times width squared. Not "
        "comparable: layers of one number, and selectivity, which is relative to a row of the same encoder. One "
        "learning rate may suit one encoder's scale and width better than another's: a sweep over probe.learning_rate "
        "shows each row at its best."
    ]


def notes(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Gives the notes below a table. columns: those of the table."""
    lines = []
    if any(row.n == 1 and row.indices and not row.eliminated for row in rows):
        lines.append(
            "n = 1 has no spread, no rank and no bold: the seed alone moves a score by about a point, so the order of "
            "such rows may be the seed's."
        )
    lines += unconverged_notes(rows, "not ranked")
    lines += _encoder_notes(rows) + rate_notes(rows) + scale_notes(rows)
    if any(row.eliminated for row in rows) and "label" in columns:
        lines.append(
            f"{ELIMINATED}: a race gave the row no more seeds after that round, most often because it was "
            "significantly worse than the leader on dev; its test score is not in this table. decisions.json has the "
            "reasons."
        )
    shown = [COLUMNS[name] for name in columns if any(COLUMNS[name].text(row) for row in rows)]
    explained = [column.note if isinstance(column.note, str) else column.note(rows) for column in shown]
    lines += [note for note in dict.fromkeys(explained) if note]
    if any(not row.indices for row in rows):
        lines += [PROBES["majority_tag"].note or ""]
    there = {name for row in rows for name in row.conditions}
    lines += [
        condition.note + (_epochs_of_fine_tuning(rows) if name == "fine_tuned" else "")
        for name, condition in CONDITIONS.items()
        if name in there and condition.note
    ]
    return lines + caveats(rows)


def recommendation(rows: Sequence[Row]) -> list[str]:
    """Gives the sentence above a table, where there are runs to recommend from."""
    ranked = [row for row in rows if row.section == MAIN and row.n]
    return [recommend(rows).as_text()] if len(ranked) > 1 else []
