"""What is kept of a race: its terms (race.json), fixed before the first run, and what was decided (decisions.json).

The decisions follow from terms and records alone. They are kept for tables and readers; `probe verify` decides again.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from probe.config import LayersConfig, UserError
from probe.race.dev_scores import DevScores
from probe.race.rule import Cell, Elimination, Race, Round, Rules, replay
from probe.runs.identity import RunIdentity
from probe.runs.records import decoded, json_of

RACE = "race.json"
DECISIONS = "decisions.json"

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """A row that takes part. layers: as configured, so that a race that continues writes the same records as one never
    stopped. identity: of its run with the first seed. width: values a word."""

    row: str
    width: int
    layers: LayersConfig
    identity: RunIdentity


@dataclass(frozen=True)
class RaceSpec:
    """What race.json holds: all that a race is, but for its runs. asked: what its rows came from, names and a number of
    candidates; a race is continued by asking for the same."""

    asked: dict[str, Any]
    entries: list[Entry]
    rules: Rules

    @property
    def rows(self) -> list[str]:
        return [entry.row for entry in self.entries]

    @property
    def runs(self) -> dict[Cell, RunIdentity]:
        """Every run that the race could ask for."""
        seeds = [*self.rules.seeds, *self.rules.spare_seeds]
        return {(entry.row, seed): replace(entry.identity, seed=seed) for entry in self.entries for seed in seeds}


@dataclass(frozen=True)
class Decisions:
    """What decisions.json holds. failed: why runs have no record, by row and seed, as there is no record to say it."""

    rounds: list[Round]
    left: dict[str, Elimination]
    standing: list[str]
    ended: str | None
    needed: dict[str, int | None]
    failed: dict[str, str]
    replaced: list[Cell] = field(default_factory=list)

    @classmethod
    def of(cls, race: Race, failed: dict[Cell, str]) -> Decisions:
        names = {f"{row} seed {seed}": why for (row, seed), why in failed.items()}
        return cls(race.rounds, race.left, race.standing, race.ended, race.needed, names, race.replaced)

    def text(self) -> str:
        """The file's content, rounded to six digits, as further ones differ from machine to machine."""
        return json.dumps(_rounded(asdict(self)), indent=1, ensure_ascii=False) + "\n"


def read_spec(folder: Path) -> RaceSpec | None:
    """What a folder's race.json says; None where there is none. Raises UserError for what cannot be understood."""
    return _read(folder / RACE, RaceSpec)


def read_decisions(folder: Path) -> Decisions | None:
    """What a folder's decisions.json says; None where there is none. Raises UserError for what cannot be understood."""
    return _read(folder / DECISIONS, Decisions)


def eliminated_rows(folder: Path) -> dict[str, Elimination]:
    """When and why rows left the folder's race, by their cells; nothing where there is none. Raises UserError."""
    terms, decisions = read_spec(folder), read_decisions(folder)
    if terms is None or decisions is None:
        return {}
    return {entry.identity.cell: decisions.left[entry.row] for entry in terms.entries if entry.row in decisions.left}


def replaced_runs(folder: Path) -> set[str]:
    """Keys of the runs of the folder's race that never learned, and whose place another seed took. Raises UserError."""
    terms, decisions = read_spec(folder), read_decisions(folder)
    if terms is None or decisions is None:
        return set()
    return {terms.runs[cell].key for cell in decisions.replaced if cell in terms.runs}


def _read(file: Path, kind: type[T]) -> T | None:
    def damaged(problem: str) -> UserError:
        return UserError(f"{file} is damaged ({problem}). Take it from where it was kept, or begin a race anew.")

    content = json_of(file, damaged)
    return None if content is None else decoded(content, kind, damaged)


def decide_again(folder: Path, terms: RaceSpec, failed: dict[str, str]) -> tuple[Race, Decisions]:
    """The race as the folder's records have it. failed: as decisions.json names them. Raises UserError."""
    cells = {f"{row} seed {seed}": (row, seed) for row, seed in terms.runs}
    known = {cells[name]: why for name, why in failed.items() if name in cells}
    evidence = DevScores(folder, terms.runs, known)
    state = replay(terms.rules, terms.rows, evidence.run)
    return state, Decisions.of(state, evidence.still_failed)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value
