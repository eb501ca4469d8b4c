"""Reads and writes the screen of a results folder, `screen.json`: the ranked layers, their scores, text and settings.

A folder has one screen; a new one replaces it. Like a record it has a key, the hash of its identity. Imports nothing
slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.runs.records import decoded, json_of
from probe.runs.sweep_plan import Setting
from probe.screen.ranking import Scored
from probe.system.files import key_of, to_jsonable
from probe.system.provenance import Hardware, Software

SCREEN = "screen.json"
SCHEMA = 2
VERSION = 2  # rises when the code that screens changes what comes out for the same settings


@dataclass(frozen=True)
class ScreenIdentity:
    """Holds the identity of a screen: its content, never names or paths."""

    corpus: str
    task: str
    features: str
    screen: dict[str, Any]
    seed: int
    version: int = VERSION

    @property
    def key(self) -> str:
        return key_of(to_jsonable(self))


@dataclass(frozen=True)
class ScreenRecord:
    """Holds the content of screen.json.

    ranked: best first. words: used of train and dev. pca_components: principal components per layer; variance_kept: the
    least share of a layer's variance along them. ridge_alphas: ridge penalties, by the number of concatenated layers.
    beam_sizes: numbers of layers for which not every concatenation was tried. data, encoder: their settings.
    fingerprint: the encoder's. features: what the feature key is the hash of. peak_rss_mb: the most memory that the
    process took.
    """

    schema: int
    key: str
    identity: ScreenIdentity
    setting: Setting
    data: dict[str, Any]
    encoder: dict[str, Any]
    fingerprint: dict[str, str]
    num_layers: int
    hidden_size: int
    features: dict[str, Any]
    words: dict[str, int]
    pca_components: int
    variance_kept: float
    ridge_alphas: dict[str, float]
    beam_sizes: list[int]
    ranked: list[Scored]
    seconds: float
    peak_rss_mb: int
    software: Software
    hardware: Hardware
    finished: str  # UTC
    ties: int  # which version of the rule decided `tied`


class BadScreen(UserError):
    """Raised for a screen.json that cannot be understood."""


def load_screen(folder: Path) -> ScreenRecord | None:
    """Reads a results folder's screen; None if there is none.

    Raises BadScreen with the field and the problem, and UserError if the file cannot be read.
    """
    path = folder / SCREEN

    def bad(problem: str) -> BadScreen:
        return BadScreen(f"{path}: {problem}. Move it away and screen again.")

    content = json_of(path, bad)
    if content is None:
        return None
    record = decoded(content, ScreenRecord, bad)
    if record.schema != SCHEMA:
        raise bad(f"schema {record.schema}, this version reads {SCHEMA}")
    if record.identity.key != record.key:
        raise bad("its key is not the hash of its identity; it was changed")
    if not record.ranked:
        raise bad("it ranks nothing")
    return record
