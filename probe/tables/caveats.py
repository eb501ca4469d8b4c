"""Warns, in notes below a table, of what does not compare because records of several versions are in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from probe.runs.records import RunRecord
from probe.system.format import first_few
from probe.tables.row import Row

OF_BITS = frozenset({"dev_bits", "test_bits", "information", "test_information", "conditional_gain"})  # columns
SHOWN = 6  # rows named in a note


def caveats(rows: Sequence[Row], columns: Collection[str]) -> list[str]:
    """Returns the notes. columns: those of the table."""
    lines = []
    if any(run.has_cased_control for row in rows for run in row.records.values()):
        lines.append(
            "control of older records: drawn by the mention as written, though the encoder drops case, so variants of "
            "one mention may have several types. Their selectivity is too high. A new run draws without case and is a "
            "row of its own."
        )
    return lines + (_of_bits(rows) if OF_BITS & set(columns) else [])


def _of_bits(rows: Sequence[Row]) -> list[str]:
    """Says which rows' bits older versions read at another kind of epoch."""
    kinds: dict[str, list[str]] = {"least": [], "best": [], "mixed": []}
    for row in rows:
        if runs := [run for run in row.records.values() if run.bits]:
            kinds[kind_of_bits(runs)].append(f"{row.title}, {row.condition}" if row.condition else row.title)
    lines = []
    if older := kinds["best"]:
        others = kinds["least"] or kinds["mixed"]
        which = f"of {first_few(older, SHOWN, '; ')}" if others else "here"
        lines.append(
            f"bits {which}: read at the epoch best by dev score, as older versions did, not at the one of "
            "least dev loss. There are too many of them, unevenly by row"
            + ("; they do not compare with those of other rows." if others else ".")
        )
    if mixed := kinds["mixed"]:
        names = first_few(mixed, SHOWN, "; ")
        lines.append(f"no bits of {names}: they were read at two kinds of epoch. Train the older runs again.")
    return lines


def kind_of_bits(runs: Sequence[RunRecord]) -> str:
    """Returns the epoch at which all of these runs' bits were read: `least` dev loss, `best` by score, or `mixed`."""
    if all(run.has_least_loss_bits for run in runs):
        return "least"
    return "best" if all(run.bits_epoch == run.best_epoch for run in runs) else "mixed"
