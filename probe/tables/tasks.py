"""Compares several tasks on one encoder, a line per task: which layer is best for which task.

Scores of two tasks cannot be compared, so a line has its own score's name, its own floor, and the rows that its own
table does not call worse.
"""

from __future__ import annotations

from collections.abc import Sequence

from probe.conditions import MAIN
from probe.format import percent, short_name
from probe.system.grouping import group_by
from probe.tables.labels import BEST, label_rows
from probe.tables.notes import majority_accuracy
from probe.tables.row import Row, split_by_encoder


def tasks_of_one_encoder(rows: Sequence[Row]) -> list[list[list[Row]]]:
    """Groups the ranked rows of a folder by encoder, then by task; leaves out encoders with one task.

    Of several settings of one task, the first is taken. Rows are compared with those of their own encoder only.
    """
    ranked = [row for row in rows if row.section == MAIN and row.n and not row.unconverged]
    several = []
    for tables in group_by(split_by_encoder(ranked), lambda table: table[0].setting.encoder).values():
        of_tasks = group_by(tables, lambda table: (table[0].setting.data, table[0].identity.task))
        if len(of_tasks) > 1:
            one_each = [same[0] for same in of_tasks.values()]
            several.append([label_rows(table, table[0].margin) if table[0].encoder else table for table in one_each])
    return several


def compare_tasks(tables: Sequence[Sequence[Row]]) -> tuple[list[str], list[list[str]], str]:
    """Gives headers, lines and caption of a table: a line per task, with its dev score for each row's layers."""
    of_rows = sorted((row for table in tables for row in table), key=lambda row: (len(row.indices), row.indices))
    names = list(dict.fromkeys(row.name for row in of_rows))
    lines = []
    for table in tables:
        first, floor, means = table[0], majority_accuracy(table), {row.name: percent(row.dev_mean) for row in table}
        best = next((row.name for row in table if row.label == BEST), "not compared")
        close = [row.name for row in table if row.label != BEST and row.behind and row.behind[1] >= 0]
        of_task = [first.setting.data, first.task.headline.name, "" if floor is None else percent(floor)]
        lines.append([*of_task, *(means.get(name, "") for name in names), best, ", ".join(close)])
    caption = (
        f"Tasks by layer, {short_name(tables[0][0].setting.encoder)}. Dev scores in percent, means over seeds. "
        "Compare the layers of one task; scores of two tasks do not compare."
    )
    heads = [name.removeprefix("layer_") for name in names]
    return ["task", "score", "most frequent", *heads, "best", "not shown to be worse"], lines, caption
