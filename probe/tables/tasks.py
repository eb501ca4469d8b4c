"""Compares several tasks on the features of one text, row by row in one table: which layer is best for which task.

Scores of two tasks cannot be compared, so each also stands as a share of its own range: 0 for the task's lowest row
here, 100 for its highest.
"""

from __future__ import annotations

from collections.abc import Sequence

from probe.conditions import MAIN
from probe.scoring.significance import Cell
from probe.system.files import short
from probe.system.format import percent
from probe.tables.row import Row, by_encoder


def tasks_on_one_text(rows: Sequence[Row]) -> list[list[list[Row]]]:
    """Finds tables of several tasks on one text, by features (so by encoder) and probe. Those of one task are left out.

    So are rows that no table ranks: those without a run, baselines, variants, not converged or eliminated rows.
    """
    by_features: dict[str, list[list[Row]]] = {}
    for group in by_encoder(
        [row for row in rows if row.section == MAIN and row.n and not row.unconverged and not row.eliminated]
    ):
        features = next(iter(group[0].records.values())).identity.features
        probe = str(sorted(group[0].setting.probe.items()))
        by_features.setdefault(features + probe, []).append(group)
    return [groups for groups in by_features.values() if len(groups) > 1]


def task_names(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Names each task: by its corpus, and where others have the same name, also by its score and by what differs."""
    names = [group[0].setting.data for group in groups]
    by_score = [f"{name} ({group[0].task.score})" for name, group in zip(names, groups, strict=True)]
    return [
        name if names.count(name) == 1 else scored if by_score.count(scored) == 1 else f"{scored[:-1]}, {differs})"
        for name, scored, differs in zip(names, by_score, _differences(groups), strict=True)
    ]


def _differences(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Lists the settings of `data` that differ between groups, as one types them; the corpus's key where none do."""
    records = [next(iter(group[0].records.values())) for group in groups]
    settings = [record.config.data for record in records]
    keys = [key for key in settings[0] if len({str(each.get(key)) for each in settings}) > 1]
    typed = [" ".join(f"data.{key}={each.get(key)}" for key in keys) for each in settings]
    return [
        text if typed.count(text) == 1 else f"corpus {short(record.identity.corpus)}"
        for text, record in zip(typed, records, strict=True)
    ]


def scaled(group: Sequence[Row]) -> list[float | None]:
    """Gives each row's dev mean as a share of the range of all; None where all are equal."""
    means = [row.cells["dev_f1"].mean or 0.0 for row in group]
    low, high = min(means), max(means)
    return [None if high <= low else (mean - low) / (high - low) for mean in means]


def compare_tasks(groups: Sequence[Sequence[Row]]) -> tuple[list[str], list[list[str]], str]:
    """Gives headers, lines and caption of a table: a line per row, for each task its dev score and its place."""
    names = list(
        dict.fromkeys(row.name for row in sorted(_all(groups), key=lambda row: (len(row.indices), row.indices)))
    )
    headers, columns = ["row"], [names]
    for title, group in zip(task_names(groups), groups, strict=True):
        by_name = {row.name: (row, place) for row, place in zip(group, scaled(group), strict=True)}
        headers += [f"{title}: dev {group[0].task.score}", "of its range"]
        columns.append([_mean(by_name[name][0].cells["dev_f1"]) if name in by_name else "" for name in names])
        places = [by_name[name][1] if name in by_name else None for name in names]
        columns.append(["" if place is None else f"{100 * place:.0f}" for place in places])
    lines = [list(line) for line in zip(*columns, strict=True)]
    best = ", ".join(
        f"{title} {max(group, key=lambda row: row.cells['dev_f1'].mean or 0.0).name}"
        for title, group in zip(task_names(groups), groups, strict=True)
    )
    return (
        headers,
        lines,
        f"Tasks on one text{_encoder(groups)}, in percent; of its range: 0 a task's lowest row, 100 its highest "
        f"({best}).",
    )


def _encoder(groups: Sequence[Sequence[Row]]) -> str:
    return f", {encoder}" if (encoder := groups[0][0].encoder) else ""


def _all(groups: Sequence[Sequence[Row]]) -> list[Row]:
    return [row for group in groups for row in group]


def _mean(cell: Cell) -> str:
    assert cell.mean is not None
    return percent(cell.mean) if cell.std is None else f"{percent(cell.mean)} ± {percent(cell.std)}"
