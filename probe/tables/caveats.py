"""Warns, in notes below a table, of what does not compare because records of several versions are in it."""

from __future__ import annotations

from collections.abc import Sequence

from probe.tables.row import Row


def caveats(rows: Sequence[Row]) -> list[str]:
    """Returns the notes."""
    if any(run.has_cased_control for row in rows for run in row.records.values()):
        return [
            "control of older records: drawn by the mention as written, though the encoder drops case, so variants of "
            "one mention may have several types. Their selectivity is too high. A new run draws without case and is a "
            "row of its own."
        ]
    return []
