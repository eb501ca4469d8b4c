"""What a race has answered, in sentences: the best row, what is tied with it, what it would take to tell them apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    names = {entry.identity.cell: entry.row for entry in terms.entries}  # in the race; records may call a row otherwise
    own = {names[cell]: row for row in rows for cell in _cells(row) if cell in names}
    return list(_sentences(decisions, own, len(terms.entries)))


def race_lines(folder: Path) -> list[str]:
    """A folder's race round by round; nothing where there is none."""
    decisions = read_decisions(folder)
    if decisions is None:
        return []
    lines = [line for done in decisions.rounds for line in round_lines(done, decisions.left)]
    return [*lines, ending_line(decisions.rounds, decisions.ended)]


def _cells(row: Row) -> set[str]:
    return {record.identity.cell for record in row.records.values()}


def _sentences(decisions: Decisions, rows: Mapping[str, Row], num_rows: int) -> Iterator[str]:
    """rows: by their names in the race. Its leader is the best, even if a row that has one seed only is higher."""
    standing = {name: row for name, row in rows.items() if not row.left}
    if not standing:
        yield "No row can be ranked."
        return
    leader = decisions.rounds[-1].leader
    first, *others = sorted(standing, key=lambda name: (name == leader, standing[name].dev_mean), reverse=True)
    best = standing[first]
    among = f"has the highest dev {best.task.score} of {num_rows} rows" if num_rows > 1 else "ran alone"
    yield (
        f"{best.name} (layers {COLUMNS['layers'].show(best)}, width {best.width}) {among}: "
        f"{COLUMNS['dev'].show(best)} over {best.n} seed{'s' * (best.n > 1)}, test {COLUMNS['test'].show(best)}."
    )
    if num_rows == 1:
        return
    tied = {name: standing[name] for name in others if standing[name].order != "below"}
    if below := [standing[name].name for name in others if name not in tied]:
        yield f"Below it, by the tests of the table: {', '.join(below)}."
    if not tied:
        yield "No other row is tied with it."
        return
    tested = ("tied", "best")  # the table's best need not lead the race
    for is_tested, stands in ((True, "Tied with it"), (False, "Not tested against it, mostly for too few seeds")):
        if behind := [row for row in tied.values() if (row.order in tested) == is_tested]:
            by = ", ".join(f"{row.name} ({100 * (row.dev_mean - best.dev_mean):+.2f})" for row in behind)
            yield f"{stands}: {by}."
    if decisions.rounds[-1].spread is None:
        return
    told = [(row.name, decisions.needed.get(name)) for name, row in tied.items()]
    parts = [f"{name} about {seeds} seeds of each" for name, seeds in told if seeds is not None]
    if parts:
        yield f"To tell them apart from it, should the differences stay: {', '.join(parts)}."
    if hopeless := [name for name, seeds in told if seeds is None]:
        names = ", ".join(hopeless)
        yield f"More seeds will not tell {names} apart from it: another dev text could turn the difference."
