"""Reads a results folder as a flat list: a line per run, made or asked for, with the table and row it stands in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from probe.config import UserError, suggestion
from probe.format import short_name, with_encoder
from probe.runs.identity import RunIdentity, normalized_name
from probe.runs.records import Records, RunRecord, load_records
from probe.runs.sweep_plan import Setting, read_asked
from probe.system.files import canonical, sha256_of, short, to_jsonable

# Settings of the features that say how an encoder reads a text. The key of a store holds the encoder too.
READ = ("context", "subword", "stride", "precision", "dtype", "final_norm")


@dataclass(frozen=True)
class Run:
    """Holds a line of the frame.

    file, record: None for a run that was asked for and has no record. asked: when a sweep first asked for it; empty for
    a run of older sweeps, None if no sweep asked for it before it began.
    """

    name: str  # of its row
    identity: RunIdentity
    width: int
    setting: Setting
    file: Path | None = None
    record: RunRecord | None = None
    asked: str | None = None

    @property
    def encoder(self) -> str:
        """Returns a key of its encoder: that of the features of its main runs."""
        return str(self._base["features"])

    @property
    def input(self) -> str:
        """Returns a key of what its encoder reads, and which labels are to be found."""
        return canonical([*self.text, self.encoder])

    @cached_property
    def table(self) -> str:
        """Returns the key of its table, see `compared`."""
        return short(sha256_of(canonical(self.compared)))

    @property
    def compared(self) -> list[Any]:
        """Returns what the runs of a table have in common: the text, the labels, how they are read, and the probe.

        Encoders, learning rates, layers, seeds and conditions are compared within a table.
        """
        identity = self.identity
        read = [self.setting.features[name] for name in READ if name in self.setting.features]
        probe = {name: value for name, value in identity.probe.items() if name != "learning_rate"}
        return [*self.text, identity.version, read, probe]

    @property
    def text(self) -> list[Any]:
        """Returns what says which text and labels it has."""
        return [self._base["corpus"], self.identity.task, self.identity.sentence]

    @cached_property
    def row(self) -> str:
        """Returns a key of its row in a table. Runs of a row differ in their seed and their learning rate."""
        condition = self.identity.condition
        variant = [condition.ids, condition.settings] if condition else None
        rate = self.identity.probe.get("learning_rate") if self.identity.is_fine_tuned else None
        return canonical([self.table, self.encoder, to_jsonable(self.identity.layers), variant, rate])

    @property
    def _base(self) -> dict[str, Any]:
        """Returns corpus and features of its main runs."""
        base = self.identity.condition.base if self.identity.condition else {}
        return {"corpus": self.identity.corpus, "features": self.identity.features} | base


def run_of(file: Path, record: RunRecord) -> Run:
    """Returns the line of a run that is made."""
    config, order = record.config, record.config.data.get("order")
    setting = Setting(record.data.name, record.encoder.name, config.features, config.probe, order)
    return Run(record.row, record.identity, record.layers.width, setting, file, record)


def frame(folder: Path) -> list[Run]:
    runs = {record.key: run_of(file, record) for file, record in load_records(folder).items()}
    for wanted in read_asked(folder).runs:
        run = runs.get(wanted.key, Run(wanted.row, wanted.identity, wanted.width, wanted.setting))
        run = replace(run, setting=replace(run.setting, order=wanted.setting.order or run.setting.order))
        is_later = run.record is None or run.record.started >= wanted.asked
        runs[wanted.key] = replace(run, asked=wanted.asked) if is_later else run
    return list(runs.values())


def of_row(folder: Path, records: Records, row: str | None, seed: int | None) -> Records:
    """Returns the records of a row, by one of its names, and of a seed; None: any. Raises UserError without any."""
    names = dict(zip(records, names_of([*records.values()]), strict=True))
    chosen = {
        file: record for file, record in records.items() if row in (None, *names[file]) and seed in (None, record.seed)
    }
    if not chosen:
        known = sorted({aliases[-1] for aliases in names.values()})
        of_seed = "" if seed is None else f" with --seed {seed}"
        hint = suggestion(row, known) if row and row not in known else ""
        raise UserError(f"{folder} has no record of row {row or 'any'}{of_seed}.{hint} Rows: {'; '.join(known)}.")
    return chosen


def names_of(records: Sequence[RunRecord]) -> list[list[str]]:
    """Returns the names by which people may call each record's row; the last one as a table of all of them has it."""
    several = len({record.encoder.name for record in records}) > 1
    named = []
    for record in records:
        names = [record.row, normalized_name(record.row, record.identity.layers.normalize)]
        full = [with_encoder(name, short_name(record.encoder.name)) for name in names]
        named.append(names + full if several else full + names)
    return named
