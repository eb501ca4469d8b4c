"""Summarises a race in sentences: the best row, which rows are not shown to be worse, and what would decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from probe.race.log import ending_line, round_lines
from probe.race.spec import Decisions, read_decisions, read_spec
from probe.tables.columns import COLUMNS
from probe.tables.decisions import WORSE
from probe.tables.row import Row


def answer(folder: Path, rows: Sequence[Row]) -> list[str]:
    """Returns the summary of a folder's finished race, given its rows. Empty if there is no race or it goes on."""
    spec, decisions = read_spec(folder), read_decisions(folder)
    if spec is None or decisions is None or decisions.ended is None:
        return []
    names = {entry.identity.cell: entry.row for entry in spec.entries}  # in the race; records may use another name
    own = {names[cell]: row for row in rows for cell in _cells(row) if cell in names}
    return list(_sentences(decisions, own, len(spec.entries)))


def race_lines(folder: Path) -> list[str]:
    """Describes a folder's race round by round. Empty if there is none."""
    decisions = read_decisions(folder)
    if decisions is None:
        return []
    lines = [line for done in decisions.rounds for line in round_lines(done, decisions.eliminated)]
    return [*lines, ending_line(decisions.rounds, decisions.ended)]


def _cells(row: Row) -> set[str]:
    return {record.identity.cell for record in row.records.values()}


def _sentences(decisions: Decisions, rows: Mapping[str, Row], num_rows: int) -> Iterator[str]:
    """Yields the sentences. rows: by their names in the race.

    The leader comes first, even if a row with a single seed has a higher score.
    """
    standing = {name: row for name, row in rows.items() if not row.eliminated}
    if not standing:
        yield "No row can be ranked."
        return
    leader = decisions.rounds[-1].leader
    first, *others = sorted(standing, key=lambda name: (name == leader, standing[name].dev_mean), reverse=True)
    best = standing[first]
    among = f"has the highest dev {best.task.score} of {num_rows} rows" if num_rows > 1 else "ran alone"
    yield (
        f"{best.title} (layers {best.layers_as_text}, width {best.width}) {among}: "
        f"{COLUMNS['dev'].text(best)} over {best.n} seed{'s' * (best.n > 1)}, test {COLUMNS['test'].text(best)}."
    )
    if num_rows == 1:
        return
    remaining = {name: standing[name] for name in others if standing[name].label != WORSE}
    if worse := [standing[name].title for name in others if name not in remaining]:
        yield f"Significantly worse in the table: {', '.join(worse)}."
    if not remaining:
        yield "Every other row is worse."
        return
    by = ", ".join(f"{row.title} ({100 * (row.dev_mean - best.dev_mean):+.2f})" for row in remaining.values())
    yield f"Not shown to be worse: {by}."
    if decisions.rounds[-1].spread is None:
        return
    needed = [(row.title, decisions.needed.get(name)) for name, row in remaining.items()]
    if parts := [f"{name} about {seeds} seeds of each" for name, seeds in needed if seeds is not None]:
        yield f"To separate them from it, if the differences stay: {', '.join(parts)}."
    if hopeless := [name for name, seeds in needed if seeds is None]:
        yield f"More seeds will not separate {', '.join(hopeless)} from it: another dev text could turn the difference."
