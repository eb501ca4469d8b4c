"""Reads the screen of a results folder, `screen.json`: the ranked layers, their scores, text and settings.

A folder has one screen, or one of each of several encoders that are ranked together (a list); a new one replaces it.
Like a record a screen has a key, the hash of its identity. Imports nothing slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.tasks import TASKS
from probe.format import encoder_labels
from probe.probes.candidates import Candidate
from probe.runs.records import decoded, json_of
from probe.runs.sweep_plan import Setting
from probe.scoring.metrics import Count
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
    ranked: list[Candidate]
    seconds: float
    peak_rss_mb: int
    software: Software
    hardware: Hardware
    finished: str  # UTC


def load_screens(folder: Path) -> dict[str, ScreenRecord]:
    """Reads the screens of a results folder by their encoders' names, in their order; empty if there are none.

    Raises UserError with the field and the problem.
    """

    def bad(problem: str) -> UserError:
        return UserError(f"{folder / SCREEN}: {problem}. Move it away and screen again.")

    content = json_of(folder / SCREEN, bad)
    if content is None:
        return {}
    records = [decoded(one, ScreenRecord, bad) for one in (content if isinstance(content, list) else [content])]
    for record in records:
        if record.schema != SCHEMA:
            raise bad(f"schema {record.schema}, this version reads {SCHEMA}")
        if record.identity.key != record.key:
            raise bad("its key is not the hash of its identity; it was changed")
        if left_out := {"train", "dev", "window", "samples"} - {*record.words, *record.identity.screen}:
            raise bad(f"{min(left_out)} is missing")
        if record.identity.task not in TASKS:
            raise bad(f"identity.task: {record.identity.task!r} is none of {', '.join(TASKS)}")
        for choice in record.ranked:
            if max(decoded(choice.layers.indices, list[Count], bad), default=-1) not in range(record.num_layers + 1):
                raise bad(f"{choice.name} has layers that are not 0 to {record.num_layers}")
            if len(choice.f1) < 2 or len(choice.error) != len(choice.f1):
                raise bad(f"{choice.name} lacks scores")
    if not all(record.ranked for record in records) or not by_encoder(records):
        raise bad("it ranks nothing, or two of its encoders have one name")
    return by_encoder(records)


def by_encoder(records: Sequence[ScreenRecord]) -> dict[str, ScreenRecord]:
    """Gives screens by their encoders' names; empty if two have one name."""
    labels = encoder_labels([record.setting.encoder for record in records])
    return dict(zip(labels, records, strict=True)) if labels else {}
