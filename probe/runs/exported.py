"""Recognises a folder that `probe export --model` wrote: a results folder of one record, with its encoder in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from probe.config import Config
from probe.runs.config_from_record import config_from_record
from probe.runs.records import RunRecord, damaged, load_json

MODEL = "model.json"


@dataclass(frozen=True)
class ExportedModel:
    """Holds the content of model.json. fingerprint: of the cut encoder. key: of the record."""

    fingerprint: dict[str, str]
    blocks: int
    key: str


def read_exported(folder: Path) -> ExportedModel | None:
    """Reads a folder's model.json; None if there is none. Raises UserError if it cannot be read."""
    return load_json(folder / MODEL, ExportedModel, damaged(folder / MODEL, "Export the model again."))


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
