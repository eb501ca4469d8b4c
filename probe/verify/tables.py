"""Checks the numbers of table.json against the records. Prose and layout are not compared.

Text, Markdown, CSV, LaTeX, figures and the page have the same content in other forms; `probe report` writes them again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.runs.records import json_of
from probe.system.format import first_few
from probe.tables.formats import FILES, render
from probe.tables.rows import build_rows
from probe.verify.check import Check

TABLE = FILES["json"]
SPLITS = ("dev_", "test_")  # how the names of scores begin
ROUNDING = 1e-9  # relative tolerance of sums
SIMULATED = 1e-4  # relative, of what follows from simulated quantiles: their last digits depend on the CPU


def check_table(folder: Path) -> Iterator[Check]:
    """Checks a folder's table.json against its records."""
    try:
        recorded = json_of(folder / TABLE, lambda problem: UserError(f"it cannot be read: {problem}"))
        rows = build_rows(folder, _margin(recorded))
    except UserError as error:
        yield Check(TABLE, False, str(error))
        return
    if recorded is None:
        yield Check(TABLE, None, "not there; the end of a sweep and `probe report` write it")
        return
    problems = list(compare_tables(recorded, json.loads(render(rows, "json"))))
    message = f"{first_few(problems, 3, '; ')}; `probe report` writes it again"
    yield Check(TABLE, not problems, message if problems else f"its {len(rows)} rows are what the records give")


def _margin(recorded: Any) -> float | None:
    """Returns the margin that a table's rows were labelled with; None if it does not say."""
    row = recorded[0] if isinstance(recorded, list) and recorded and isinstance(recorded[0], dict) else {}
    margin = row.get("margin")
    return float(margin) if isinstance(margin, int | float) and margin >= 0 else None


def compare_tables(recorded: Any, made: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Says where table.json differs from the rows that the records give. recorded: any JSON value."""
    if not isinstance(recorded, list) or len(recorded) != len(made):
        yield f"it does not hold the {len(made)} rows that the records give"
        return
    for there, row in zip(recorded, made, strict=True):
        for place, one, other in _differences(there, {name: row[name] for name in row if name != "failed"}):
            yield f"{row['row']} {place} is {one}, the records give {other}"


def _differences(recorded: Any, made: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields where two nested values differ: in numbers by more than rounding, in names, not in prose.

    A text with a blank in it is prose. Names that only the recorded value has are not compared.
    """
    if isinstance(recorded, dict) and isinstance(made, dict):
        for name in made:
            yield from _differences(recorded.get(name), made[name], f"{place}.{name}" if place else name)
    elif isinstance(recorded, list) and isinstance(made, list) and len(recorded) == len(made):
        for i, (one, other) in enumerate(zip(recorded, made, strict=True)):
            yield from _differences(one, other, f"{place}[{i}]")
    elif not _is_same(recorded, made, SIMULATED if "interval" in place or not place.startswith(SPLITS) else ROUNDING):
        yield place, recorded, made


def _is_same(recorded: Any, made: Any, tolerance: float) -> bool:
    if isinstance(recorded, int | float) and isinstance(made, int | float):
        return math.isclose(recorded, made, rel_tol=tolerance, abs_tol=tolerance / 1000)
    if isinstance(recorded, str) and isinstance(made, str) and " " in made:
        return " " in recorded
    return bool(recorded == made)
