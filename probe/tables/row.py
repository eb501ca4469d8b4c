"""Describes a row of a table: one choice of layers under some conditions, over its seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from probe.conditions import MAIN
from probe.data.task import Task
from probe.data.tasks import TASKS
from probe.format import format_layers, with_encoder
from probe.probes.selection import encoder_flops
from probe.runs.frame import Run
from probe.runs.identity import RunIdentity
from probe.runs.records import Records, RunRecord
from probe.runs.samples import OVER_SEEDS, Cover
from probe.runs.sweep_plan import Setting
from probe.scoring.metrics import Scores
from probe.scoring.significance import Cell, summary
from probe.system.grouping import group_by


@dataclass(frozen=True, eq=False, repr=False)
class Row:
    """Holds a row: one choice of layers under some conditions, over its seeds.

    table: the key of its table. records: one per seed, by file. asked: when a sweep asked for each of them, see
    `frame.Run`. missing: how many runs that were asked for have no record; `failed` of them failed. unfinished: when
    sweeps asked for runs, at any learning rate, that have no record and did not fail. rates: the records by learning
    rate, where its table has several; `records` are those of the best by dev. encoder: its encoder's name where its
    table has several. condition: as displayed; None for main runs. screened: whether a screen chose its layers by
    scores on the same dev text. differs_in: what its table differs in from others of the same caption.

    `labels.label_rows` adds the rest. margin: points of dev score by which it decided. behind: how far the row lies
    behind the truly best one on dev, [low, high], a fraction. difference: of its dev mean to that of the best row.
    loss: what the row is expected to lose against the truly best one on dev; chance: that this is below the margin,
    if nothing was known before (a flat prior). None: dev says nothing of other text. seeds_needed: of an undecided
    row that costs less than the best, see `Comparison.seeds_needed`. intervals: of the mean of each split; cover: for
    what other text they hold. visible: the difference to the best below which dev shows no row to be worse, a
    fraction; 1: it shows none. looks: how often these scores may have been looked at.
    """

    name: str
    table: str
    identity: RunIdentity  # of one of its runs
    setting: Setting
    width: int
    records: Records
    asked: dict[Path, str | None]
    missing: int
    failed: int
    unfinished: set[str]
    rates: dict[float, Records]
    encoder: str | None = None
    condition: str | None = None
    screened: bool = False
    differs_in: Sequence[str] = ()
    margin: float = 0.0
    label: str | None = None
    behind: list[float] | None = None
    difference: float | None = None
    loss: float | None = None
    chance: float | None = None
    seeds_needed: int | None = None
    intervals: dict[str, list[float]] = field(default_factory=dict)
    cover: Cover = OVER_SEEDS
    visible: float = 0.0
    looks: int = 1

    def __repr__(self) -> str:
        return (
            f"Row({self.full_name!r}, layers {self.layers_as_text}, {self.label}, dev {self.dev_mean:.4f}, n={self.n})"
        )

    @property
    def title(self) -> str:
        """Returns its name in sentences, with its encoder where its table has several."""
        return with_encoder(self.name, self.encoder)

    @property
    def full_name(self) -> str:
        """Returns its name with its condition, as figures and --difference have it."""
        return ", ".join(filter(None, [self.title, self.condition]))

    @property
    def task(self) -> Task:
        return TASKS[self.identity.task]

    @property
    def record(self) -> RunRecord:
        return next(iter(self.records.values()))

    @property
    def n(self) -> int:
        return len(self.records)

    @property
    def section(self) -> int:
        """Returns the section of its table: BASELINE, MAIN or UPPER_BOUND."""
        return self.identity.section

    @property
    def indices(self) -> list[int]:
        return self.identity.layers.indices

    @property
    def layers_as_text(self) -> str:
        return format_layers(self.indices)

    @property
    def num_blocks(self) -> int:
        """Returns how many of the encoder's blocks have to be computed."""
        return max(self.indices, default=0)

    @property
    def run(self) -> Run:
        return Run(self.name, self.identity, self.width, self.setting)

    @property
    def num_layers(self) -> int:
        """Returns how many layers its encoder has, without the embeddings."""
        return self.record.encoder.num_layers

    @property
    def most_behind(self) -> float:
        """Returns how far it may lie behind the truly best row on dev, a fraction; 0 if it is not compared."""
        return abs(self.behind[0]) if self.behind else 0.0

    @property
    def over_text(self) -> bool:
        """Tells whether its intervals are over the text, not over seeds alone."""
        return self.cover.units is not None

    @property
    def errors(self) -> float:
        """Returns how many items of dev it gets wrong: missed and invented ones by half, the mean over seeds."""
        counts = [record.scores.dev.counts for record in self.records.values()]
        return fmean((total.gold + total.predicted) / 2 - total.correct for total in counts)

    @property
    def cost(self) -> tuple[int, int]:
        """Returns the operations of the encoder per piece, and the width of the vectors."""
        return encoder_flops(self.record.encoder.hidden_size, self.num_blocks), self.width

    @property
    def is_single(self) -> bool:
        """Tells whether it is one layer as it is."""
        return len(self.indices) == 1 and self.identity.layers.combine != "mix"

    @property
    def unconverged(self) -> list[RunRecord]:
        """Returns the runs whose training was cut short, or never scored above zero."""
        return [record for record in self.records.values() if record.outcome != "converged"]

    @property
    def dev_mean(self) -> float:
        """Returns the dev mean, a fraction; 0 without records."""
        return self.cell("dev").mean or 0.0

    def cell(self, split: str, score: Callable[[Scores], float | None] | None = None) -> Cell:
        """Returns the headline of a split, or another score, over its seeds; empty where its task has no such score."""
        scores = [getattr(record.scores, split) for record in self.records.values()]
        values = [score(of_seed) if score else of_seed.headline for of_seed in scores]
        cell = summary([value for value in values if value is not None])
        return replace(cell, interval=self.intervals[split]) if score is None and split in self.intervals else cell


def tables_of(rows: Sequence[Row]) -> list[list[Row]]:
    return [*group_by(rows, lambda row: row.table).values()]


def by_score(rows: Iterable[Row]) -> list[Row]:
    """Orders rows by their dev score: main rows, then upper bounds, then baselines."""
    return sorted(rows, key=lambda row: (row.section != MAIN, -row.section, -row.dev_mean))


def split_by_encoder(rows: Sequence[Row]) -> list[list[Row]]:
    return [*group_by(rows, lambda row: (row.table, row.encoder)).values()]
