"""What a race has answered, in sentences: the best row, what is tied with it, what it would take to tell them apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from probe.racing.telling import ending_line, round_lines
from probe.racing.terms import Decisions, read_decisions, read_terms
from probe.reporting.columns import COLUMNS
from probe.reporting.row import Row


def answer(folder: Path, rows: Sequence[Row]) -> list[str]:
    """The answer of a folder's race, given its rows; nothing where there is no race, or it goes on."""
    terms, decisions = read_terms(folder), read_decisions(folder)
    if terms is None or decisions is None or decisions.ended is None:
        return []
    cells = {entry.identity.cell for entry in terms.entries}
    own = [row for row in rows if any(record.identity.cell in cells for record in row.records.values())]
    return list(_sentences(decisions, own, len(terms.entries)))


def race_lines(folder: Path) -> list[str]:
    """A folder's race round by round; nothing where there is none."""
    decisions = read_decisions(folder)
    if decisions is None:
        return []
    lines = [line for done in decisions.rounds for line in round_lines(done, decisions.left)]
    return [*lines, ending_line(decisions.rounds, decisions.ended)]


def _sentences(decisions: Decisions, rows: Sequence[Row], num_rows: int) -> Iterator[str]:
    standing = sorted((row for row in rows if not row.left and row.n), key=lambda row: row.dev_mean, reverse=True)
    if not standing:
        yield "No row can be ranked."
        return
    best, *others = standing
    among = f"has the highest dev {best.task.score} of {num_rows} rows" if num_rows > 1 else "ran alone"
    yield (
        f"{best.name} (layers {COLUMNS['layers'].show(best)}, width {best.width}) {among}: "
        f"{COLUMNS['dev'].show(best)} over {best.n} seed{'s' * (best.n > 1)}, test {COLUMNS['test'].show(best)}."
    )
    if num_rows == 1:
        return
    tied = [row for row in others if row.order != "below"]
    if below := [row.name for row in others if row.order == "below"]:
        yield f"Below it, by the tests of the table: {', '.join(below)}."
    if not tied:
        yield "No other row is tied with it."
        return
    yield f"Tied with it: {', '.join(f'{row.name} ({100 * (row.dev_mean - best.dev_mean):+.2f})' for row in tied)}."
    if decisions.rounds[-1].spread is None:
        return
    told = [(row.name, decisions.needed.get(row.name)) for row in tied]
    parts = [f"{name} about {seeds} seeds of each" for name, seeds in told if seeds is not None]
    if parts:
        yield f"To tell them apart from it, should the differences stay: {', '.join(parts)}."
    if hopeless := [name for name, seeds in told if seeds is None]:
        names = ", ".join(hopeless)
        yield f"More seeds will not tell {names} apart from it: another dev text could turn the difference."
