"""Defines one JSON record per run: what was run, on what, with what, and what came out. Present means finished.

    records/<row>-seed<seed>-<key>.json         the record
    counts/<...>.json.xz                        counts for each sentence of dev and test: the scores, without the text
    predictions/<...>.dev.conll, .test.conll    word, gold tag, predicted tag
    weights/<...>.safetensors                   the probe's weights, where save_probe=true

The record names the sha256 of the other files and is written last. The dataclasses of this module are the schema: what
does not fit them is refused with the field's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from probe.config import UserError
from probe.data.split import SplitCounts
from probe.data.task import Task
from probe.data.tasks import SPANS, TASKS
from probe.probes.fitting import Epoch, Mix
from probe.probes.schedule import Outcome
from probe.probes.selection import Selection
from probe.runs.identity import RunIdentity, Scalars, label_of
from probe.scoring.metrics import Count, Scores
from probe.system.files import canonical, names_in, read_regular, short
from probe.system.provenance import Hardware, Software

SCHEMA = 5
LONGEST_ROW = 100  # characters of a row's name in those of files, which have 255 with all that is put around them
HOW_UNCONVERGED = {
    "hit_epoch_limit": "ended by probe.max_epochs. Type probe.max_epochs=auto, or {} and more.",
    "never_learned": "no dev score above 0. More text, more epochs or another probe.learning_rate.",
}
DEEPEST = 50  # levels of lists and objects in each other: what is written has 6

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """Holds the config of a run as `plan.settings_of` returns it. probe: the settings that its kind has."""

    data: dict[str, Any]
    encoder: dict[str, Any]
    features: Scalars
    layers: dict[str, Any]
    probe: Scalars
    seed: int
    device: str


@dataclass(frozen=True)
class CorpusCounts:
    train: SplitCounts
    dev: SplitCounts
    test: SplitCounts


@dataclass(frozen=True)
class RecordedData:
    """Describes the corpus: its counts, and how its tags were read.

    neighbours: what neighbouring sentences have in common, by splits without marked documents (see `data.order`).
    labels: of a detection, the other one and the one that is detected.
    commit: the commit of the Hub data set that was read; None for files.
    """

    name: str
    task: str
    splits: CorpusCounts
    scheme: str | None = None
    asked_scheme: str | None = None
    ill_formed: dict[str, int] | None = None
    taken_from_train: dict[str, dict[str, Any]] | None = None
    skipped: dict[str, dict[str, int]] | None = None
    not_in_train: dict[str, dict[str, int]] | None = None
    shared: dict[str, dict[str, int]] | None = None
    neighbours: dict[str, float] | None = None
    labels: list[str] | None = None
    commit: str | None = None


@dataclass(frozen=True)
class RecordedEncoder:
    name: str
    source: str
    fingerprint: dict[str, str]  # sha256 of weights, config and tokenizer
    lower_cases: bool
    num_layers: Annotated[int, msgspec.Meta(ge=0, le=1000)]
    hidden_size: Count
    commit: str | None = None  # of the Hub's model that it is
    layer_names: list[str] | None = None  # of vectors of another program


@dataclass(frozen=True)
class RecordedFeatures:
    """Describes the features that were read; for the majority tag, which reads none, those of its table's others."""

    key: str
    identity: dict[str, Any]
    placement: str
    words_without_pieces: dict[str, int] | None  # none where nothing was extracted yet


@dataclass(frozen=True)
class RecordedLayers:
    """Describes the layers. deviations: per feature on train, of each layer that is added up as it is, else None."""

    indices: list[int]
    combine: str
    width: Count
    deviations: list[float] | None = None


@dataclass(frozen=True)
class SplitScores:
    dev: Scores
    test: Scores


@dataclass(frozen=True)
class Checksums:
    """Holds the sha256 of the counts' content, of each split's file of predictions, and of the probe's weights.

    weights: None where they were not to be saved; empty where a run has none that could be, as what only counts.
    """

    counts: str
    predictions: dict[str, str]
    weights: str | None = None


@dataclass(frozen=True)
class Seconds:
    read: float
    train: float
    score: float


@dataclass(frozen=True, repr=False)
class RunRecord:
    schema: int
    key: str
    identity: RunIdentity
    row: str
    config: Settings
    data: RecordedData
    encoder: RecordedEncoder
    features: RecordedFeatures
    layers: RecordedLayers
    scores: SplitScores
    sha256: Checksums
    best_epoch: Count
    curve: list[Epoch]
    mix: Mix | None
    parameters: Count
    seconds: Seconds
    software: Software
    hardware: Hardware
    started: str  # UTC
    finished: str
    outcome: Outcome  # how the training ended, see probes.schedule
    threshold: float | None = None  # of a detection: the log-odds that 1 % of dev's other texts exceed

    def __repr__(self) -> str:
        return f"RunRecord({self.label!r}, dev {self.scores.dev.headline:.4f}, {self.outcome})"

    @property
    def task(self) -> Task:
        return TASKS[self.identity.task]

    @property
    def seed(self) -> int:
        return self.identity.seed

    @property
    def selection(self) -> Selection:
        layers, normalize = self.layers, self.identity.layers.normalize
        return Selection(self.row, tuple(layers.indices), layers.combine, layers.width, normalize)

    @property
    def label(self) -> str:
        return label_of(self.row, self.identity)


Records = dict[Path, RunRecord]  # by their files


def remedy_of(*ended: RunRecord) -> str:
    """Says why these runs, which ended alike, did not converge, and what to type."""
    return HOW_UNCONVERGED[ended[0].outcome].format(2 * max(int(run.identity.probe["max_epochs"]) for run in ended))


def record_path(results_dir: Path, row: str, identity: RunIdentity) -> Path:
    """Returns where a run's record is, whatever its row was called when it was made, or where it will be."""
    ending = f"-{short(identity.key)}.json"
    path = results_dir / "records" / f"{row[:LONGEST_ROW]}-seed{identity.seed}{ending}"
    if path.exists():
        return path
    return path.with_name(min((name for name in names_in(path.parent) if name.endswith(ending)), default=path.name))


def load_record(path: Path) -> RunRecord:
    """Reads a record and checks it. Raises UserError naming the file, the field, and what is wrong with it."""
    refuse = refusal(path, "Move it away and run again.")
    record = load_json(path, RunRecord, refuse, SCHEMA)
    if record is None:
        raise refuse("there is no such file")
    if record.identity.key != record.key:
        raise refuse("its key is not the hash of its identity; it was changed")
    if not path.stem.endswith(f"-seed{record.seed}-{short(record.key)}"):  # its other files go by its name
        raise refuse("it is not named after the seed and key of its run")
    for name in ("context", "subword"):  # of a source that reads words in their context
        if name in record.features.identity and name not in record.config.features:
            raise refuse(f"config.features.{name} is missing")
    for name in {**record.config.probe, **record.identity.probe}:
        if (own := record.config.probe.get(name)) != (value := record.identity.probe.get(name)):
            raise refuse(f"config.probe.{name} is {own}, expected {value} as in identity.probe")
    layers = record.identity.layers.indices
    if max(layers, default=0) > record.encoder.num_layers:
        raise refuse(f"identity.layers.indices has {max(layers)}, encoder.num_layers is {record.encoder.num_layers}")
    if record.mix and len(record.mix.weights) != len(layers):
        raise refuse(f"mix has {len(record.mix.weights)} weights for {len(layers)} layers")
    if any((scores.span is None) == (record.task is SPANS) for scores in (record.scores.dev, record.scores.test)):
        raise refuse(f"scores are not those of {record.task.name}")
    return record


def load_json(file: Path, kind: type[T], refuse: Callable[[str], Exception], schema: int | None = None) -> T | None:
    """Reads a JSON file as this type; returns None where there is no file.

    Raises UserError where it cannot be read, and what `refuse` makes of the problem where it is no JSON, of another
    schema or of another type. A number that is not finite and half a character are no JSON, though Python reads both.
    """
    try:
        content = json.loads(read_regular(file))
        canonical(content).encode()
        if (levels := _levels(content)) > DEEPEST:
            raise ValueError(f"it is nested {levels} levels deep")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise refuse(str(error)) from None
    stated = content.get("schema") if isinstance(content, dict) else None
    if schema not in (None, stated):
        raise refuse(f"schema {json.dumps(stated)}, this version reads schema {schema}")
    return decoded(content, kind, refuse)


def _levels(value: Any) -> int:
    """Returns how many lists and objects lie in each other."""
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_levels, parts), default=0) if isinstance(value, dict | list) else 0


def decoded(content: object, kind: type[T], refuse: Callable[[str], Exception]) -> T:
    """Converts JSON values to a dataclass. Raises what `refuse` makes of the field's name and what is wrong with it."""
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        place = place.strip("`.")
        if missing := re.fullmatch(r"Object missing required field `(\w+)`", message):
            raise refuse(f"{f'{place}.' if place else ''}{missing[1]} is missing") from None
        raise refuse(f"{place or 'the whole'}: {message[:1].lower()}{message[1:]}") from None


def refusal(file: Path, remedy: str) -> Callable[[str], UserError]:
    """Returns a function that turns a problem with this file into an error that ends with the remedy."""
    return lambda problem: UserError(f"{file}: {problem}. {remedy}")


def load_records(results_dir: Path) -> Records:
    """Loads every record, with its file. What is no record is in `bad_records`."""
    return read_records(results_dir)[0]


def bad_records(results_dir: Path) -> dict[Path, UserError]:
    """Returns what is wrong with each file under records/ that holds none; its run counts as missing."""
    return read_records(results_dir)[1]


def read_records(results_dir: Path) -> tuple[Records, dict[Path, UserError]]:
    """Reads the files under records/: every record once, however many files hold it, and what is wrong with others."""
    by_key: dict[str, tuple[Path, RunRecord]] = {}
    bad: dict[Path, UserError] = {}
    for path in sorted((results_dir / "records").glob("*.json")):
        try:
            record = load_record(path)
            by_key[record.key] = path, record
        except UserError as error:
            bad[path] = error
    return dict(by_key.values()), bad
