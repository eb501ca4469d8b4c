"""Reads and writes a race: its rules and rows (race.json, before the first run) and its decisions (decisions.json).

The decisions follow from race.json and the records. They are stored for tables and readers.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from probe.config import LayersConfig, UserError
from probe.race.rule import Cell, Elimination, Race, Round, Rules
from probe.runs.identity import RunIdentity
from probe.runs.records import decoded, json_of

RACE = "race.json"
DECISIONS = "decisions.json"

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """Describes a row that takes part.

    layers: as configured, so that a race that continues writes the same records as one that never stopped. identity: of
    its run with the first seed. width: values per word.
    """

    row: str
    width: int
    layers: LayersConfig
    identity: RunIdentity


@dataclass(frozen=True)
class RaceSpec:
    """Holds the content of race.json: everything about a race but its runs.

    asked: the names and the number of candidates that its rows came from. Asking for the same continues the race.
    """

    asked: dict[str, Any]
    entries: list[Entry]
    rules: Rules

    @property
    def rows(self) -> list[str]:
        return [entry.row for entry in self.entries]

    @property
    def runs(self) -> dict[Cell, RunIdentity]:
        """Returns every run that the race could ask for."""
        seeds = [*self.rules.seeds, *self.rules.spare_seeds]
        return {(entry.row, seed): replace(entry.identity, seed=seed) for entry in self.entries for seed in seeds}


@dataclass(frozen=True)
class Decisions:
    """Holds the content of decisions.json. failed: why runs have no record, by row and seed."""

    rounds: list[Round]
    eliminated: dict[str, Elimination]
    remaining: list[str]
    ended: str | None
    needed: dict[str, int | None]
    failed: dict[str, str]
    replaced: list[Cell]

    @classmethod
    def of(cls, race: Race, failed: dict[Cell, str]) -> Decisions:
        names = {f"{row} seed {seed}": why for (row, seed), why in failed.items()}
        return cls(race.rounds, race.eliminated, race.remaining, race.ended, race.needed, names, race.replaced)

    def text(self) -> str:
        """Returns the file's content, rounded to six digits, because further digits differ between machines."""
        return json.dumps(_rounded(asdict(self)), indent=1, ensure_ascii=False) + "\n"


def read_spec(folder: Path) -> RaceSpec | None:
    """Reads a folder's race.json; None if there is none. Raises UserError if it cannot be understood."""
    return _read(folder / RACE, RaceSpec)


def read_decisions(folder: Path) -> Decisions | None:
    """Reads a folder's decisions.json; None if there is none. Raises UserError if it cannot be understood."""
    return _read(folder / DECISIONS, Decisions)


def read_outcome(folder: Path) -> tuple[dict[str, Elimination], set[str]]:
    """Returns when and why rows of the folder's race were eliminated, by cell, and the keys of replaced runs.

    A run that never learned is replaced by another seed. Raises UserError.
    """
    spec, decisions = read_spec(folder), read_decisions(folder)
    if spec is None or decisions is None:
        return {}, set()
    cells = {entry.row: entry.identity.cell for entry in spec.entries}
    eliminated = {cells[row]: why for row, why in decisions.eliminated.items() if row in cells}
    return eliminated, {spec.runs[cell].key for cell in decisions.replaced if cell in spec.runs}


def _read(file: Path, kind: type[T]) -> T | None:
    def damaged(problem: str) -> UserError:
        return UserError(f"{file} is damaged ({problem}). Restore it from a copy, or start a new race.")

    content = json_of(file, damaged)
    return None if content is None else decoded(content, kind, damaged)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value
