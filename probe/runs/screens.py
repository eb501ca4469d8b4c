"""Reads the screen of a results folder, `screen.json`: the ranked choices of layers, their scores, text and settings.

A folder has one screen, of one encoder or of several that are ranked together; a new one replaces it. Like a record a
screen has a key, the hash of its identity. Imports nothing slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.data.tasks import TASKS
from probe.probes.candidates import Candidate
from probe.runs.records import decoded, load_json, refusal
from probe.scoring.metrics import Count
from probe.system.files import key_of, to_jsonable
from probe.system.provenance import Hardware, Software

SCREEN = "screen.json"
SCHEMA = 3
VERSION = 3  # rises when the code that screens changes what comes out for the same settings


@dataclass(frozen=True)
class ScreenIdentity:
    """Holds the identity of a screen: its content, never names or paths. features: the key of each encoder's."""

    corpus: str
    task: str
    features: list[str]
    screen: dict[str, Any]
    seed: int
    version: int = VERSION

    @property
    def key(self) -> str:
        return key_of(to_jsonable(self))


@dataclass(frozen=True)
class ScreenedEncoder:
    """Describes an encoder. settings: of its config. features: what the feature key is the hash of."""

    settings: dict[str, Any]
    fingerprint: dict[str, str]
    num_layers: int
    hidden_size: int
    features: dict[str, Any]


@dataclass(frozen=True)
class ScreenRecord:
    """Holds the content of screen.json.

    corpus: its name. data, features: their settings. encoders: by name. words: used of train and dev. units: what the
    intervals know of other text; None if they hold over seeds alone. condition: what they rest on; empty: nothing.
    margin: points of the score after long training that do not matter. ranked: best first. peak_rss_mb: the most memory
    that the process took.
    """

    schema: int
    key: str
    identity: ScreenIdentity
    corpus: str
    data: dict[str, Any]
    features: dict[str, Any]
    encoders: dict[str, ScreenedEncoder]
    words: dict[str, int]
    units: str | None
    condition: str
    margin: float
    ranked: list[Candidate]
    seconds: float
    peak_rss_mb: int
    software: Software
    hardware: Hardware
    finished: str  # UTC


def load_screen(folder: Path) -> ScreenRecord | None:
    """Reads the screen of a results folder; None if there is none. Raises UserError with the field and the problem."""
    bad = refusal(folder / SCREEN, "Move it away and screen again.")
    record = load_json(folder / SCREEN, ScreenRecord, bad, SCHEMA)
    if record is None:
        return None
    if record.identity.key != record.key:
        raise bad("its key is not the hash of its identity; it was changed")
    if left_out := {"train", "dev", "window", "seeds"} - {*record.words, *record.identity.screen}:
        raise bad(f"{min(left_out)} is missing")
    if record.identity.task not in TASKS:
        raise bad(f"identity.task: {record.identity.task!r} is none of {', '.join(TASKS)}")
    if not record.ranked:
        raise bad("it ranks nothing")
    for choice in record.ranked:
        if choice.encoder not in record.encoders:
            raise bad(f"{choice.name} is of {choice.encoder!r}, which is none of its encoders")
        valid = range(record.encoders[choice.encoder].num_layers + 1)
        if max(decoded(choice.layers.indices, list[Count], bad), default=-1) not in valid:
            raise bad(f"{choice.name} has layers that are not 0 to {valid[-1]}")
        if not choice.scores or len(choice.behind) != 2:
            raise bad(f"{choice.name} lacks scores")
    return record
