"""Computes scores of a row relative to its control."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probe.conditions import LOWER_CASED
from probe.scoring.metrics import guess_floor
from probe.scoring.significance import Cell, interval, summary
from probe.tables.row import Row


def add_relative_scores(rows: Sequence[Row]) -> list[Row]:
    """Fills in `relative` in one table's rows, as far as the rows needed for it are there.

    selectivity: dev score minus that of the same row on a control task (Hewitt & Liang 2019). guess_floor: of a control
    of spans, what guessing each type by its frequency would score at the boundaries that were found.
    """
    return [replace(row, relative=_relative_scores(row, rows)) if row.n else row for row in rows]


def _relative_scores(row: Row, rows: Sequence[Row]) -> dict[str, Cell]:
    names, there = row.conditions, [other for other in rows if other.n]

    def like(names: frozenset[str]) -> list[Row]:
        """Returns the rows of these layers under these conditions: several where, say, the task has two controls."""
        same = (other for other in there if (other.indices, other.combine) == (row.indices, row.combine))
        same = (other for other in same if other.normalize == row.normalize)
        alike = (
            other for other in same if _settings(row).items() <= _settings(other).items()
        )  # the same random weights
        return [other for other in alike if other.conditions == names]

    found: dict[str, Cell] = {}
    if "control" not in names and (controls := _drawn_alike(like(names | {"control"}))):
        found["selectivity"] = difference(row.dev, [score for control in controls for score in control.dev])
    if "control" in names:
        floors = [guess_floor(record.scores.dev) for record in row.records.values()]
        if floors and None not in floors:
            found["guess_floor"] = summary([floor for floor in floors if floor is not None])
    return found


def _drawn_alike(controls: Sequence[Row]) -> list[Row]:
    """Returns the controls that were drawn by one rule: the newer, without case, where there are both."""
    newer = [row for row in controls if row.recorded_condition and row.recorded_condition.settings.get(LOWER_CASED)]
    return newer or list(controls)


def difference(a: Sequence[float], b: Sequence[float]) -> Cell:
    """Returns mean of a minus mean of b, each over its seeds, with their joint deviation and the 95 % interval."""
    one, other = summary(a), summary(b)
    assert one.mean is not None
    assert other.mean is not None
    if one.std is None or other.std is None:
        return Cell(one.mean - other.mean, None, None, None, None)
    return Cell(one.mean - other.mean, math.hypot(one.std, other.std), None, None, interval(a, b))


def _settings(row: Row) -> dict[str, Any]:
    """Returns the settings that the names of its conditions do not say."""
    return row.recorded_condition.settings if row.recorded_condition else {}
