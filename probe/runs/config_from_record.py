"""Rebuilds a record's config from its settings, also that of a record in a folder that `probe export --model` wrote.

A setting that this version does not have is refused, and so are the folder of the feature store and how it is read: a
record comes from somebody else, and must not say whose features are trusted here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe.config import Config, UserError, setting_names
from probe.format import hydra_quoted
from probe.runs.records import RunRecord, load_json, refusal
from probe.system.files import to_jsonable

UNRECORDED = ("cache_dir", "placement", "layers")  # of `features`: where features are stored, and which
MODEL = "model.json"  # of an exported model: a results folder of one record, with its encoder in it


@dataclass(frozen=True)
class ExportedModel:
    """Holds the content of model.json. fingerprint: of the cut encoder. key: of the record."""

    fingerprint: dict[str, str]
    blocks: int
    key: str


def read_exported(folder: Path) -> ExportedModel | None:
    """Reads a folder's model.json; None if there is none. Raises UserError if it cannot be read."""
    return load_json(folder / MODEL, ExportedModel, refusal(folder / MODEL, "Export the model again."))


def config_of_record(
    file: Path, record: RunRecord, make_config: Callable[[list[str]], Config], overrides: list[str]
) -> Config:
    """Returns the config of a record's run; where the record lies in an export, with the encoder beside it.

    file: of the record. Raises UserError.
    """
    cfg, folder = config_from_record(record, make_config, overrides), file.parent.parent
    return of_export(cfg, folder) if read_exported(folder) else cfg


def of_export(cfg: Config, folder: Path) -> Config:
    """Returns a record's config with the encoder that lies in the folder of its export."""
    return replace(cfg, encoder=replace(cfg.encoder, path=str(folder), num_layers=None, weights="pretrained"))


def config_from_record(
    record: RunRecord, make_config: Callable[[list[str]], Config], overrides: list[str] | None = None
) -> Config:
    """Returns the config of a record's run, at its commits on the Hub. overrides: for paths that have changed.

    Raises UserError for settings that a record cannot have.
    """
    config = to_jsonable(record.config)
    kind = config["probe"].pop("kind")
    config["layers"] = {"normalize": "none"} | config["layers"]
    known = {*setting_names()} - {f"features.{name}" for name in UNRECORDED}
    typed = as_overrides(config)
    if others := [one for one in typed if one.partition("=")[0] not in known]:
        raise UserError(f"the record of {record.label} has settings that no record of this version has: {others[0]}.")
    return _at_commits(make_config([f"probe={kind}", *typed, *(overrides or [])]), record)


def _at_commits(cfg: Config, record: RunRecord) -> Config:
    """Sets the record's commits on the Hub if the config names the same data set and encoder."""
    recorded, data, encoder = record.config, cfg.data, cfg.encoder
    if record.data.commit and data.path is None and (data.hub, data.revision) == _named(recorded.data, "hub"):
        data = replace(data, revision=record.data.commit)
    if (
        record.encoder.commit
        and encoder.path is None
        and (encoder.name, encoder.revision) == _named(recorded.encoder, "name")
    ):
        encoder = replace(encoder, revision=record.encoder.commit)
    return replace(cfg, data=data, encoder=encoder)


def _named(recorded: dict[str, Any], name: str) -> tuple[Any, Any]:
    return recorded.get(name), recorded.get("revision")


def as_overrides(config: dict[str, Any], prefix: str = "") -> list[str]:
    """Returns a record's config as settings to type."""
    typed: list[str] = []
    for name, value in config.items():
        if isinstance(value, dict):
            typed += as_overrides(value, f"{prefix}{name}.")
        elif f"{prefix}{name}" != "layers.name":
            typed.append(f"{prefix}{name}={_written(value)}")
    return typed


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return hydra_quoted(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
