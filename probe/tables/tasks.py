"""Compares tasks of words and sentences on one encoder, a line per task: which layer is best for which task.

The tasks may have one text or several. Scores of two tasks cannot be compared, so a line has its own score's name, its
own floor, and the rows that its own table does not call worse.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from probe.conditions import MAIN
from probe.probes.kinds import describe_probe
from probe.runs.records import RunRecord
from probe.system.files import canonical, short
from probe.system.format import first_few, percent, short_name
from probe.system.grouping import group_by
from probe.tables.decisions import BEST, UNDECIDED, WITHIN
from probe.tables.row import Row, by_encoder

READ = ("context", "stride", "precision", "dtype")  # settings of features that tasks in one table share
BY_TEXT = ("max_epochs", "learning_rate")  # settings of a probe that may differ: they depend on the text or the row


def tasks_of_one_encoder(rows: Sequence[Row]) -> list[list[list[Row]]]:
    """Finds tables of several tasks on one encoder, read alike and with one kind of probe.

    Rows that no table ranks are left out: those without a run, baselines, variants, not converged or eliminated rows.
    Where one task would occur twice, only tables with the same features and the same probe to the letter are compared.
    """
    ranked = [row for row in rows if row.section == MAIN and row.n and not row.unconverged and not row.eliminated]
    found = []
    for groups in group_by(by_encoder(ranked), _alike).values():
        tasks = Counter(map(_task, groups))
        found += [groups] if max(tasks.values()) == 1 else [*group_by(groups, _same).values()]
    return [groups for groups in found if len(groups) > 1]


def _alike(group: Sequence[Row]) -> str:
    """Returns a key of what tables of tasks must share to be compared."""
    features, probe = group[0].setting.features, group[0].setting.probe
    subword = features.get("subword")
    if subword == "cls":  # of sentences: words are read as by any other task
        subword = "first"
    read = [features.get(name) for name in READ]
    shared = {name: value for name, value in probe.items() if name not in BY_TEXT}
    return canonical([_record(group).encoder.fingerprint, read, subword, shared])


def _task(group: Sequence[Row]) -> tuple[Any, ...]:
    identity = _record(group).identity
    return identity.corpus, identity.task, identity.sentence


def _same(group: Sequence[Row]) -> str:
    return canonical([_record(group).identity.features, group[0].setting.probe])


def _record(group: Sequence[Row]) -> RunRecord:
    return next(iter(group[0].records.values()))


def task_names(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Names each task: by its corpus, and where others have the same name, also by its score and by what differs."""
    names = [group[0].setting.data for group in groups]
    by_score = [f"{name} ({group[0].task.score})" for name, group in zip(names, groups, strict=True)]
    return [
        name if names.count(name) == 1 else scored if by_score.count(scored) == 1 else f"{scored[:-1]}, {differs})"
        for name, scored, differs in zip(names, by_score, _differences(groups), strict=True)
    ]


def _differences(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Lists the settings that differ between groups, as one types them; the corpus's key where none do."""
    records = [_record(group) for group in groups]
    settings = [_settings(record) for record in records]
    names = dict.fromkeys(name for each in settings for name in each)
    differ = [name for name in names if len({str(each.get(name)) for each in settings}) > 1]
    typed = [" ".join(f"{name}={each[name]}" for name in differ if name in each) for each in settings]
    return [
        text if typed.count(text) == 1 else f"corpus {short(record.identity.corpus)}"
        for text, record in zip(typed, records, strict=True)
    ]


def _settings(record: RunRecord) -> dict[str, Any]:
    """Returns the settings that say which task a record is of, by the names that one types."""
    pooled = {name: value for name, value in record.config.features.items() if name in ("subword", "sentence")}
    groups = {"data": record.config.data, "features": pooled}
    return {f"{group}.{name}": value for group, settings in groups.items() for name, value in settings.items()}


def setting_of_tasks(groups: Sequence[Sequence[Row]]) -> str:
    """Says what the tasks have in common: encoder, context and probe."""
    setting = groups[0][0].setting
    encoder = groups[0][0].encoder or short_name(setting.encoder)
    return f"{encoder}, {setting.features['context']} context, {describe_probe(setting.probe)}"


def most_frequent(group: Sequence[Row]) -> float | None:
    """Returns the accuracy of giving every word or sentence of dev its most frequent label; None for spans, and
    without a record.
    """
    if not group:
        return None
    gold = [score.gold for score in _record(group).scores.dev.per_type.values()]
    return max(gold) / sum(gold) if group[0].task.score == "accuracy" and any(gold) else None


def compare_tasks(groups: Sequence[Sequence[Row]]) -> tuple[list[str], list[list[str]], str, list[str]]:
    """Gives headers, lines, caption and notes of a table: a line per task, with its dev score for each row's layers.

    A column is named by its row, or by its layer if all rows are single layers.
    """
    of_rows = sorted((row for group in groups for row in group), key=lambda row: (len(row.indices), row.indices))
    names = list(dict.fromkeys(row.name for row in of_rows))
    heads = names
    if all(row.is_single and row.name == f"layer_{row.indices[0]}" for row in of_rows):
        heads = [name.removeprefix("layer_") for name in names]
    lines, titles = [], task_names(groups)
    for title, group in zip(titles, groups, strict=True):
        floor, means = most_frequent(group), {row.name: percent(row.dev_mean) for row in group}
        scores = [means.get(name, "") for name in names]
        lines.append([title, group[0].task.score, "" if floor is None else percent(floor), *scores, *_best(group)])
    notes = [
        "most frequent: the accuracy of always giving dev's most frequent label. best: by dev. not shown to be worse: "
        "undecided or within the margin, over seeds and text, as in the task's own table."
    ]
    texts: dict[str, list[str]] = {}
    for title, group in zip(titles, groups, strict=True):
        texts.setdefault(str(_record(group).features.identity.get("text")), []).append(title)
    if len(texts) > 1:
        notes.append(f"Tasks on one text: {'; '.join(first_few(of_text) for of_text in texts.values())}.")
    return (
        ["task", "score", "most frequent", *heads, "best", "not shown to be worse"],
        lines,
        f"Tasks by layer, {setting_of_tasks(groups)}. Dev scores in percent, means over seeds. Compare the layers "
        "(0: embeddings) of one task; scores of two tasks do not compare.",
        notes,
    )


def _best(group: Sequence[Row]) -> tuple[str, str]:
    """Gives the best row of a task, and the rows that its table does not call worse."""
    best = next((row for row in group if row.label == BEST), None)
    if best is None:  # nothing is compared, as with one seed
        return max(group, key=lambda row: row.dev_mean).name, "not compared"
    close = sorted((row for row in group if row.label in (UNDECIDED, WITHIN)), key=lambda row: -row.dev_mean)
    return best.name, ", ".join(row.name for row in close)
