"""Describes a row of a table: one choice of layers in one setting, over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from probe.conditions import section_of
from probe.data.task import Task
from probe.race.rule import Elimination
from probe.runs.identity import RecordedCondition
from probe.runs.records import Records, RunRecord
from probe.runs.sweep_plan import Setting
from probe.scoring.significance import Cell
from probe.system.format import format_layers, with_encoder
from probe.system.grouping import group_by


@dataclass(frozen=True)
class SplitDifference:
    """Compares two rows on one split. a, b: the mean of each, fractions. difference: a - b. interval: 95 %, for two
    rows that were named beforehand. over: what the interval covers, `seeds and text`, or `seeds` where counts are
    missing.
    """

    a: float
    b: float
    difference: float
    interval: list[float] | None
    over: str | None


@dataclass(frozen=True)
class Difference:
    """Compares two rows. row: the second. n: seeds of each. unit: of the text drawn, sentences or documents."""

    row: str
    n: tuple[int, int]
    dev: SplitDifference
    test: SplitDifference
    unit: str | None


@dataclass(frozen=True)
class SettingSummary:
    """Holds a row's setting in the words of `published`, by which two tables are compared."""

    task: str
    data: str
    encoder: str
    case: str
    context: str
    piece: str
    probe: str
    scoring: str
    seeds: str


@dataclass(frozen=True)
class Cost:
    """Holds parameters of the probe and median seconds of an epoch."""

    parameters: int
    seconds_per_epoch: float


@dataclass(frozen=True)
class Tried:
    """Holds a row's dev score at one of several learning rates. missing: how many runs asked for have no record."""

    rate: float
    seeds: list[int]
    dev: Cell
    missing: int


@dataclass(frozen=True)
class Row:
    """Holds a row. records: the row's records, one a seed, by file. missing: number of runs asked for that have no
    record; `failed` of them failed. cells: scores over seeds, `dev_f1`, `test_strict_f1` and so on.

    label, behind, to_best: what the table decided, see `decisions.label_rows`; margin: points of dev score,
    by which it decided. behind: how far the row lies behind the truly best one on dev, [low, high], a fraction. error:
    the square of the standard error of its difference to the best on dev: what seeds, and what the text contributes.

    condition: the condition of its runs as displayed; None for main runs. recorded_condition: in records.
    relative: scores relative to other rows, see `tables.relative_scores`. eliminated: when and why a race gave it no
    more seeds; it is compared with no other row. normalize: how its layers are normalized; None: not. rates: all that
    it was tried at, where they are several; `records` are those of the best by dev. encoder: its encoder's name where
    its table has several.
    """

    name: str
    task: Task
    indices: list[int]
    combine: str
    width: int
    group: str  # key of the table that it belongs to
    setting: Setting
    records: Records
    seeds: list[int]
    keys: list[str]
    sha256: list[str]  # of the records' files
    missing: int
    failed: int
    cells: dict[str, Cell]
    about: SettingSummary | None
    cost: Cost | None
    condition: str | None = None
    recorded_condition: RecordedCondition | None = None
    eliminated: Elimination | None = None
    label: str | None = None
    margin: float | None = None
    behind: list[float] | None = None
    over_text: bool = False
    to_best: Difference | None = None
    error: tuple[float, float] | None = None
    relative: Mapping[str, Cell] = field(default_factory=dict)
    normalize: str | None = None
    rates: Sequence[Tried] = ()
    encoder: str | None = None

    @property
    def title(self) -> str:
        """Returns its name in sentences, with its encoder where its table has several."""
        return with_encoder(self.name, self.encoder)

    @property
    def n(self) -> int:
        return len(self.records)

    @property
    def conditions(self) -> frozenset[str]:
        """Returns the conditions of its runs, by their ids in `CONDITIONS`; none for main runs."""
        return frozenset(self.recorded_condition.ids if self.recorded_condition else ())

    @property
    def section(self) -> int:
        """Returns the section of its table: BASELINE, MAIN or UPPER_BOUND."""
        return section_of(self.indices, self.conditions)

    @property
    def unconverged(self) -> list[RunRecord]:
        """Returns the runs whose training was cut short, or never scored above zero."""
        return [record for record in self.records.values() if record.outcome != "converged"]

    @property
    def num_blocks(self) -> int:
        """Returns how many of the encoder's blocks have to be computed."""
        return max(self.indices, default=0)

    @property
    def layers_as_text(self) -> str:
        """Writes its layers as in `3..6`, or `0, 3, 5`."""
        return format_layers(self.indices)

    @property
    def is_single(self) -> bool:
        """Tells whether it is one layer as it is."""
        return len(self.indices) == 1 and self.combine != "mix"

    @property
    def dev_mean(self) -> float:
        """Returns the dev mean, a fraction; 0 without records."""
        return self.cells["dev_f1"].mean or 0.0

    @property
    def dev(self) -> list[float]:
        """Returns the headline of every seed, fractions."""
        return [record.scores.dev.headline for record in self.records.values()]

    @property
    def test(self) -> list[float]:
        return [record.scores.test.headline for record in self.records.values()]


def groups_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Groups rows by setting, in their order."""
    return [*group_by(rows, lambda row: row.group).values()]


def by_encoder(rows: Sequence[Row]) -> list[list[Row]]:
    """Groups rows by setting and encoder, in their order."""
    return [*group_by(rows, lambda row: (row.group, row.encoder)).values()]


def setting_of(record: RunRecord) -> Setting:
    """Returns what a caption says of a record's run."""
    return Setting(record.data.name, record.encoder.name, record.config.features, record.config.probe)
