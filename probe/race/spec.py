"""Reads and writes a race: what is asked (race.json, before the first run) and what was decided (decisions.json).

The decisions follow from race.json and the records. They are stored for tables and readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from probe.config import LayersConfig, UserError
from probe.format import percent, pluralize
from probe.race.rule import Cell, Elimination, Race, Rules
from probe.runs.identity import RunIdentity
from probe.runs.records import damaged, load_json
from probe.system.files import write_json

RACE = "race.json"
DECISIONS = "decisions.json"
RESTORE = "Restore it from a copy, or start a new race."


@dataclass(frozen=True)
class Entrant:
    """Describes a row that takes part.

    layers: as configured, so that a race that continues writes the same records as one that never stopped. identity: of
    its run with the first seed. cost: encoder blocks, then values per word.
    """

    row: str
    cost: tuple[int, int]
    layers: LayersConfig
    identity: RunIdentity


@dataclass(frozen=True)
class RaceSpec:
    """Holds the content of race.json: everything about a race but its runs.

    asked: the names and the number of candidates that its rows came from. Asking for the same continues the race.
    choices: how many the screen ranked; its first ones are the candidates.
    started: when, in UTC; its rounds are one look at the scores, because its thresholds allow for all of them.
    """

    asked: dict[str, Any]
    entries: list[Entrant]
    rules: Rules
    started: str = ""
    choices: int = 0

    @property
    def costs(self) -> dict[str, tuple[int, int]]:
        return {entry.row: entry.cost for entry in self.entries}

    @property
    def screened(self) -> set[str]:
        """Returns the cells of the rows that a screen chose; nobody named these."""
        named = self.asked.get("named")
        return {entry.identity.cell for entry in self.entries if isinstance(named, list) and entry.row not in named}

    @property
    def runs(self) -> dict[Cell, RunIdentity]:
        """Returns every run that the race could ask for."""
        seeds = [*self.rules.seeds, *self.rules.spare_seeds]
        return {(entry.row, seed): replace(entry.identity, seed=seed) for entry in self.entries for seed in seeds}


def read_spec(folder: Path) -> RaceSpec | None:
    """Reads a folder's race.json; None if there is none. Raises UserError if it cannot be understood."""
    return load_json(folder / RACE, RaceSpec, damaged(folder / RACE, RESTORE))


def read_decisions(folder: Path) -> Race | None:
    """Reads a folder's decisions.json; None if there is none. Raises UserError if it cannot be understood."""
    race = load_json(folder / DECISIONS, Race, damaged(folder / DECISIONS, RESTORE))
    if race and not all(done.leader in (None, *done.means) for done in race.rounds):
        raise UserError(f"{folder / DECISIONS} has no mean of a row that leads. {RESTORE}")
    return race


def write_decisions(folder: Path, race: Race) -> None:
    """Writes decisions.json, rounded to six digits, because further digits differ between machines."""
    content = json.loads(
        json.dumps(asdict(race)),
        parse_float=lambda digits: float(f"{float(digits):.6g}"),
        parse_constant=lambda _infinity: None,
    )
    del content["todo"]
    write_json(folder / DECISIONS, content)


def read_outcome(folder: Path) -> tuple[dict[str, Elimination], set[str]]:
    """Returns when and why rows of the folder's race were eliminated, by cell, and the keys of replaced runs.

    A run that never learned is replaced by another seed. Raises UserError.
    """
    spec, decisions = read_spec(folder), read_decisions(folder)
    if spec is None or decisions is None:
        return {}, set()
    cells = {entry.row: entry.identity.cell for entry in spec.entries}
    try:
        eliminated = {cells[row]: why for row, why in decisions.eliminated.items()}
        return eliminated, {spec.runs[cell].key for cell in decisions.replaced}
    except (KeyError, ValueError):
        raise UserError(f"{folder / DECISIONS} names a row or a seed that {RACE} does not have. {RESTORE}") from None


def race_lines(race: Race, after: int = 0) -> Iterator[str]:
    """Yields a line per round and elimination, and why the race has ended. after: how many rounds are left out."""
    for done in race.rounds[after:]:
        lead = "no row can be ranked"
        if done.leader is not None:
            lead = f"{done.leader} leads with dev {percent(done.means[done.leader])}"
        yield f"Round {done.number} ({pluralize(len(done.runs), 'run')}): {lead}."
        for row, elimination in race.eliminated.items():
            if elimination.round == done.number:
                behind = "" if elimination.behind is None else f", {percent(elimination.behind)} behind"
                yield f"  {row} is eliminated: {elimination.why}{behind}."
    if race.ended:
        yield f"The race has ended after {pluralize(len(race.rounds), 'round')}: {race.ended}."
