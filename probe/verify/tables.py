"""Checks the facts in table.json against the records. Prose and layout are not compared.

Text, Markdown, CSV, LaTeX, figures and the page have the same content in other forms; `probe report` writes them again.
Decisions of a statistic (order, differences, verdict) are compared if table.json was made with the same statistic.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.runs.records import json_of
from probe.system.format import first_few
from probe.tables.formats import FILES, render
from probe.tables.rows import build_rows
from probe.verify.check import Check
from probe.verify.compare import unequal_facts

TABLE = FILES["json"]
FACTS = ("row", "indices", "combine", "width", "n", "seeds", "keys", "missing")
SPLITS = ("dev_", "test_")  # how the names of scores begin
PARTS = ("mean", "std", "min", "max")  # of a score
COSTS = ("parameters", "seconds_per_epoch")
# Neither recomputed here nor decided by a statistic: `sha256` is checked with each record, the others are words.
OTHER = ("sha256", "failed", "group", "setting", "about", "condition", "cost", "statistic")
ROUNDING = 1e-9  # relative tolerance of sums
SIMULATED = 1e-4  # relative, of what follows from simulated quantiles: their last digits are each CPU's

JsonRow = dict[str, Any]


def stated_sha256(folder: Path) -> dict[str, str]:
    """Returns the sha256 of each record by its key, from table.json; empty if it cannot be read."""
    try:
        rows = json.loads((folder / TABLE).read_text(encoding="utf-8"))
        return {key: sha256 for row in rows for key, sha256 in zip(row["keys"], row["sha256"], strict=True)}
    except (OSError, LookupError, RecursionError, TypeError, ValueError):
        return {}


def check_table(folder: Path) -> Iterator[Check]:
    """Checks a folder's table.json against its records."""
    try:
        recorded = json_of(folder / TABLE, lambda problem: UserError(f"it cannot be read: {problem}"))
        rows = [replace(row, failed=0) for row in build_rows(folder, _margin(recorded))]
    except UserError as error:
        yield Check(TABLE, False, str(error))
        return
    if recorded is None:
        lost = "not there, and with it the sha256 of each record; the end of a sweep and `probe report` write it"
        yield Check(TABLE, None, lost)
        return
    yield from compare_tables(recorded, json.loads(render(rows, "json")))


def _margin(recorded: Any) -> float | None:
    """Returns the margin that a table's rows were labelled with; None if it does not say."""
    row = recorded[0] if isinstance(recorded, list) and recorded and isinstance(recorded[0], dict) else {}
    margin = row.get("margin")
    return float(margin) if isinstance(margin, int | float) and margin >= 0 else None


def compare_tables(recorded: Any, made: Sequence[JsonRow]) -> Iterator[Check]:
    """Compares the content of table.json with the rows that the records give. recorded: any JSON value."""
    if problem := _not_a_table(recorded):
        yield Check(TABLE, False, f"{problem}; `probe report` writes it again")
        return
    pairs, problems = _pairs(recorded, made)
    for there, row in pairs:
        problems += [f"{_name(row)} {problem}" for problem in _facts(there, row)]
    message = first_few(problems, 3, "; ")
    yield Check(TABLE, not problems, message or f"the runs, scores and costs of {len(made)} rows")
    if problems:
        return
    name = f"{TABLE}: decisions"
    apart = _groups_since_joined(pairs)
    decided = [
        (there, row)
        for there, row in pairs
        if there.get("statistic") == row.get("statistic") is not None and row.get("group") not in apart
    ]
    if not decided:
        yield Check(name, None, "decided by an earlier version; `probe report` decides anew")
        return
    wrong = next((f"{_name(row)} {problem}" for there, row in decided for problem in _decisions(there, row)), None)
    yield Check(name, wrong is None, wrong or "what the records give")


def _groups_since_joined(pairs: Sequence[tuple[JsonRow, JsonRow]]) -> set[Any]:
    """Returns the tables whose rows an older version wrote as several tables, one per encoder."""
    recorded: defaultdict[Any, set[Any]] = defaultdict(set)
    for there, row in pairs:
        recorded[row.get("group")].add(there.get("group"))
    return {group for group, of in recorded.items() if len(of) > 1}


def _not_a_table(recorded: Any) -> str | None:
    """Returns why this is not a table of any version; a table must name its runs and their sha256."""
    if not isinstance(recorded, list) or not all(isinstance(row, dict) for row in recorded):
        return "it is not a list of rows"
    for row in recorded:
        keys, sha256 = row.get("keys"), row.get("sha256")
        if not isinstance(keys, list) or not isinstance(sha256, list) or len(keys) != len(sha256):
            return f"{_name(row)} does not name its runs (keys) and their records (sha256)"
    return None


def _pairs(recorded: Sequence[JsonRow], made: Sequence[JsonRow]) -> tuple[list[tuple[JsonRow, JsonRow]], list[str]]:
    """Pairs each row with the recorded row of the same runs, and reports rows without a counterpart.

    Paired rows share a run, or have none and the same layers. A fine-tuned row is in each table of its input.
    """
    by_run: defaultdict[str, list[JsonRow]] = defaultdict(list)
    for row in recorded:
        for run in _runs(row):
            by_run[run].append(row)
    pairs: list[tuple[JsonRow, JsonRow]] = []
    used: set[int] = set()
    problems = []
    for row in made:
        candidates = [there for run in _runs(row) for there in by_run[run] if id(there) not in used]
        if not candidates:
            problems.append(f"{_name(row)} is not in it")
            continue
        there = next((one for one in candidates if one.get("group") == row.get("group")), candidates[0])
        used.add(id(there))
        pairs.append((there, row))
    return pairs, problems + [f"{_name(row)} is of no record" for row in recorded if id(row) not in used]


def _runs(row: JsonRow) -> list[str]:
    layers = json.dumps([row.get(name) for name in ("indices", "combine", "width")])
    return [str(key) for key in row["keys"]] or [layers]


def _name(row: JsonRow) -> str:
    return str(row.get("row", "a row"))


def _facts(recorded: JsonRow, made: JsonRow) -> Iterator[str]:
    for name in FACTS:
        if name in made and recorded.get(name) != made[name]:
            yield f"{name} is {recorded.get(name)}, the records give {made[name]}"
    for name, cell in made.items():
        if name.startswith(SPLITS) and isinstance(cell, dict):
            yield from _described(
                unequal_facts(_parts(recorded.get(name), PARTS), _parts(cell, PARTS), ROUNDING, name, True)
            )
    if "dev_f1" in made and not _parts(recorded.get("dev_f1"), PARTS):
        yield "has no dev_f1"
    there, again = _parts(recorded.get("cost"), COSTS), _parts(made.get("cost"), COSTS)
    yield from _described(unequal_facts(there, again, ROUNDING, "cost", in_common=True))


def _parts(value: Any, names: Sequence[str]) -> JsonRow:
    return {name: value[name] for name in names if name in value} if isinstance(value, dict) else {}


def _decisions(recorded: JsonRow, made: JsonRow) -> Iterator[str]:
    decided = {name: value for name, value in made.items() if name not in (*FACTS, *OTHER)}
    yield from _described(unequal_facts(recorded, decided, SIMULATED, in_common=True))


def _described(differences: Iterable[tuple[str, Any, Any]]) -> Iterator[str]:
    for place, there, again in differences:
        yield f"{place} is {there}, the records give {again}"
