"""What is not comparable in a table because records of several versions stand in it, in notes below the table."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from probe.reporting.row import Row
from probe.runs.records import RunRecord

OF_BITS = frozenset({"bits", "test_bits", "information", "test_information", "beyond", "compression"})  # columns
SHOWN = 6  # rows named in a note


def caveats(rows: Sequence[Row], columns: Collection[str]) -> list[str]:
    """columns: those that are shown and not empty."""
    lines = []
    if any(run.has_cased_control for row in rows for run in row.records.values()):
        lines.append(
            "control of older records: drawn by the mention as written, though the encoder drops case, so that variants "
            "of one mention may have several types. Their selectivity is too high; a new run draws without case, and is "
            "a row of its own."
        )
    return lines + _of_bits(rows, columns)


def _of_bits(rows: Sequence[Row], columns: Collection[str]) -> list[str]:
    """That bits of older records were read at another kind of epoch, and of which rows."""
    kinds = {label(row): {run.has_least_loss_bits for run in _with_bits(row)} for row in rows}
    older = [name for name, kind in kinds.items() if kind == {False}]
    newer = [name for name, kind in kinds.items() if kind == {True}]
    mixed = [name for name, kind in kinds.items() if len(kind) == 2]
    lines = []
    if older and OF_BITS & set(columns):
        what = f"of {_some(older)}" if newer or mixed else "here"
        lines.append(
            f"bits {what} were read at the epoch best by dev score, as older versions did, not at the one of least dev "
            "loss: they are too many, unevenly by row"
            + (", and not comparable with the other rows'." if newer else ".")
        )
    if mixed:
        lines.append(
            f"no bits of {_some(mixed)}: its runs were read at two kinds of epoch. Train the older ones again."
        )
    return lines


def label(row: Row) -> str:
    return f"{row.name}, {row.treatment}" if row.treatment else row.name


def _with_bits(row: Row) -> list[RunRecord]:
    return [run for run in row.records.values() if run.bits or run.unseen]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return "; ".join(names[:SHOWN]) + more
