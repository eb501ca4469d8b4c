"""Reads and writes the screen of a results folder, `screen.json`: the ranked layers, their scores, text and settings.

A folder has one screen, or one of each of several encoders that are ranked together (a list); a new one replaces it.
Like a record a screen has a key, the hash of its identity. Imports nothing slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.runs.records import decoded, json_of
from probe.runs.sweep_plan import Setting
from probe.screen.ranking import Scored
from probe.system.files import key_of, to_jsonable, write_json
from probe.system.format import encoder_labels
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

    @property
    def sentences(self) -> tuple[str | int, ...]:
        """Identifies the sentences that were scored, and their parts. Screens that agree in them can be compared."""
        return self.corpus, self.task, key_of(self.screen), self.seed, self.version


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
    """Reports a screen.json that cannot be understood."""


def load_screens(folder: Path) -> dict[str, ScreenRecord]:
    """Reads the screens of a results folder by their encoders' names, in their order; empty if there are none.

    Raises BadScreen with the field and the problem, and UserError if the file cannot be read.
    """
    path = folder / SCREEN

    def bad(problem: str) -> BadScreen:
        return BadScreen(f"{path}: {problem}. Move it away and screen again.")

    content = json_of(path, bad)
    if content is None:
        return {}
    records = [_screen(one, bad) for one in (content if isinstance(content, list) else [content])]
    screens = by_encoder(records)
    if not screens:
        raise bad("it holds no screen, or two of encoders of one name")
    if len({record.identity.sentences for record in records}) > 1:
        raise bad("its screens are of several texts or settings")
    return screens


def _screen(content: Any, bad: Callable[[str], BadScreen]) -> ScreenRecord:
    record = decoded(content, ScreenRecord, bad)
    if record.schema != SCHEMA:
        raise bad(f"schema {record.schema}, this version reads {SCHEMA}")
    if record.identity.key != record.key:
        raise bad("its key is not the hash of its identity; it was changed")
    if not record.ranked:
        raise bad("it ranks nothing")
    return record


def by_encoder(records: Sequence[ScreenRecord]) -> dict[str, ScreenRecord]:
    """Gives screens by their encoders' names; empty if two have one name."""
    labels = encoder_labels([record.setting.encoder for record in records])
    return dict(zip(labels, records, strict=True)) if labels else {}


def write_screens(folder: Path, records: Sequence[ScreenRecord]) -> None:
    """Writes screen.json, which holds these screens and no other. Raises UserError if it cannot be written."""
    try:
        write_json(folder / SCREEN, records[0] if len(records) == 1 else records)
    except OSError as error:
        raise UserError(f"{folder / SCREEN} cannot be written ({error.strerror}).") from None
