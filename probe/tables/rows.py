"""Builds rows from records: means and spreads over seeds, comparison with the best row, cost; missing cells stay.

Rows depend only on a results folder's files: records, the counts of each, what its sweeps asked for, and
its race. Imports nothing that takes long.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probe.conditions import CONDITIONS
from probe.config import UserError, default_margin
from probe.data.tasks import TASKS
from probe.probes.kinds import describe_probe
from probe.race.spec import read_outcome
from probe.runs.identity import RecordedCondition, RunIdentity, normalized_name
from probe.runs.progress import closest_results, failures
from probe.runs.records import Records, RunRecord, bad_records, load_records
from probe.runs.sweep_plan import SWEEP, RequestedRun, Setting, read_expected
from probe.scoring.metrics import Scores, SpanScore
from probe.scoring.significance import Cell, summary
from probe.system.files import canonical, key_of, short, to_jsonable
from probe.system.format import encoder_labels, short_name
from probe.system.grouping import group_by
from probe.tables.decisions import label_rows
from probe.tables.published import is_conll2003
from probe.tables.rates import RATE, best_rate
from probe.tables.relative_scores import add_relative_scores
from probe.tables.row import (
    Cost,
    Row,
    SettingSummary,
    Tried,
    by_encoder,
    groups_of,
    setting_of,
)

# The order of the paper's table (Devlin et al. 2019, Table 7), with our variants beside what they vary.
PAPER_ORDER = (
    "embeddings",
    "second_to_last",
    "last",
    "sum_last_four",
    "mean_last_four",
    "mix_last_four",
    "concat_last_four",
    "sum_all",
    "mix_all",
)

# Settings of the features that say how an encoder reads a text. The store's key holds the encoder too.
READ = ("context", "subword", "stride", "precision", "dtype")


def _part(score: SpanScore | None, part: str) -> float | None:
    return None if score is None else getattr(score, part)


# Scores of a split, by the name they have in rows; None where the task has no such score.
SCORES: dict[str, Callable[[Scores], float | None]] = {
    "f1": lambda scores: scores.headline,  # of tags that are no spans: accuracy
    "strict_f1": lambda scores: _part(scores.strict, "f1"),
    "word_f1": lambda scores: _part(scores.word, "f1"),
    "accuracy": lambda scores: scores.accuracy,
    "macro_f1": lambda scores: scores.macro_f1,
}


@dataclass
class _Gathered:
    """Holds what is known of a row while records are gathered: runs of one row differ in their seed only."""

    name: str
    group: str  # the table that it stands in
    identity: RunIdentity  # of one of its runs
    width: int
    setting: Setting
    records: Records = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    rates: Sequence[Tried] = ()
    encoder: str | None = None  # its name in a table of several encoders

    @property
    def missing(self) -> set[str]:
        """Returns the keys of runs asked for that have no record."""
        return self.expected - {record.key for record in self.records.values()}


def results_folder(folder: Path) -> Path:
    """Returns the folder of results, also where its records/ was named. Raises UserError if there is none."""
    if folder.name == "records" and not (folder / "records").is_dir():
        folder = folder.parent
    if not folder.is_dir():
        close = closest_results(folder)
        hint = f"Did you mean {close}?" if close else "`probe +sweep=quickstart` makes results/quickstart."
        raise UserError(f"{folder}: there is no such folder. {hint}")
    return folder


def last_results(home: Path = Path("results")) -> Path:
    """Returns the folder of results that was written last. Raises UserError if there is none."""
    written = {
        folder: max(path.stat().st_mtime for path in (folder, *folder.glob("records/*.json"), *folder.glob(SWEEP)))
        for folder in (home.iterdir() if home.is_dir() else ())
        if (folder / "records").is_dir() or (folder / SWEEP).is_file()
    }
    if not written:
        raise UserError(f"{home}/ holds no results. `probe +sweep=quickstart` makes results/quickstart.")
    return max(written, key=lambda folder: (written[folder], folder))


def build_rows(results_dir: Path, margin: float | None = None) -> list[Row]:
    """Builds rows, those of one setting together, in the paper's order; skips invalid records (see `bad_records`).

    margin: points of dev score that the user does not mind; None: the default.

    Raises UserError if there are neither records nor expected runs.
    """
    results_dir = results_folder(results_dir)
    records, expected = load_records(results_dir), read_expected(results_dir)
    failed = failures(results_dir)
    if not records and not expected:
        for error in bad_records(results_dir).values():
            raise error
        raise UserError(f"{results_dir} holds no records. `probe +sweep=quickstart` makes results/quickstart.")
    eliminated, replaced = read_outcome(results_dir)
    records = {file: record for file, record in records.items() if record.key not in replaced}
    expected = [run for run in expected if run.key not in replaced]
    gathered = _beside_frozen(_across_encoders(_at_best_rates(_gather(records, expected))))
    settings: dict[str, str] = {}  # of each table, by its group: a frozen row's if it has one
    for row in sorted(gathered, key=_is_fine_tuned, reverse=True):  # fine-tuned first, overwritten: their probe differs
        settings[row.group] = canonical(to_jsonable(row.setting))
    gathered.sort(
        key=lambda row: (
            settings[row.group],
            row.group,
            row.encoder or "",
            row.identity.section,
            _rank_of_condition(row.identity.condition),
            _rank(row.name),
            row.identity.layers.indices,
            row.identity.layers.combine,
            row.identity.layers.normalize or "",
            canonical(row.identity.probe),
        )
    )
    alike = group_by(gathered, _shown)
    normalized: defaultdict[str, set[str | None]] = defaultdict(set)  # how rows of each table are
    for row in gathered:
        if row.identity.layers.indices and not _is_fine_tuned(row):
            normalized[row.group].add(row.identity.layers.normalize)
    rows = [
        replace(
            _row(row, failed, _condition(row, alike[_shown(row)])),
            name=_name(row, normalized[row.group]),
            eliminated=eliminated.get(row.identity.cell),
        )
        for row in gathered
    ]
    points = default_margin() if margin is None else margin
    labelled = [row for group in groups_of(rows) for row in label_rows(group, points)]
    return [row for own in by_encoder(labelled) for row in add_relative_scores(own)]


def _name(row: _Gathered, normalized: set[str | None]) -> str:
    """Returns a row's name, with how its layers are normalized where rows of its table differ in it."""
    return normalized_name(row.name, row.identity.layers.normalize) if len(normalized) > 1 else row.name


def _rank_of_condition(condition: RecordedCondition | None) -> tuple[int, float, str]:
    """Ranks a condition in its section of the table."""
    if condition is None:
        return 0, 0.0, ""
    order, ids = list(CONDITIONS), condition.ids
    rank = min(order.index(name) if name in order else len(order) for name in ids) + len(ids) / 10
    return 1, rank, canonical([ids, condition.settings])


def _shown(row: _Gathered) -> tuple[str | None, ...]:
    """Returns a row's group, encoder, name and conditions."""
    return row.group, row.encoder, row.name, row.identity.condition.label if row.identity.condition else None


def _condition(row: _Gathered, alike: list[_Gathered]) -> str | None:
    """Returns a row's condition as displayed: its label, of fine-tuning the number of epochs, and the settings by which
    rows that look the same differ.
    """
    if row.identity.condition is None:
        return None
    name = row.identity.condition.label
    if _is_fine_tuned(row) and (epochs := row.identity.probe.get("max_epochs")):
        name += f", {epochs} epoch{'s' if epochs > 1 else ''}"
    settings, *others = map(_settings, [row, *alike])
    different = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
        if any(other.get(name) != value for other in others)
    ]
    return f"{name} ({', '.join(different)})" if different else name


def _settings(row: _Gathered) -> dict[str, Any]:
    """Returns the settings that the label of a row's condition does not say."""
    assert row.identity.condition is not None
    probe = {name: value for name, value in row.identity.probe.items() if name != "max_epochs"}  # part of its name
    return row.identity.condition.settings | (probe if _is_fine_tuned(row) else {})


def _gather(records: Records, expected: list[RequestedRun]) -> list[_Gathered]:
    """Groups records and expected runs by row; a row with records is described by them.

    Raises UserError where one seed of a row was trained by two versions of this package.
    """
    gathered: dict[str, _Gathered] = {}
    for file, record in records.items():
        new = _Gathered(record.row, record.identity.group, record.identity, record.layers.width, setting_of(record))
        row = gathered.setdefault(record.identity.cell, new)
        for file_of_other, other in row.records.items():
            if other.seed == record.seed:
                older = min(record.identity.version, other.identity.version)
                raise UserError(
                    f"{file} and {file_of_other.name} are one run of two versions of the training (versions "
                    f"{record.identity.version} and {other.identity.version}). Move the records of version {older} "
                    "away, or sweep into another results_dir."
                )
        row.records[file] = record
        row.name = min(row.name, record.row, key=_rank)
    for run in expected:
        new = _Gathered(run.row, run.identity.group, run.identity, run.width, run.setting)
        gathered.setdefault(run.identity.cell, new).expected.add(run.key)
    return list(gathered.values())


def _at_best_rates(gathered: list[_Gathered]) -> list[_Gathered]:
    """Replaces rows that differ only in their learning rate by the best of them on dev, in one table."""
    tables = group_by(gathered, lambda row: row.identity.key if _is_fine_tuned(row) else row.identity.across_rates)
    chosen = []
    for group, rows in tables.items():
        if len({row.identity.probe.get(RATE) for row in rows}) < 2:
            chosen += rows
            continue
        alike = group_by(rows, lambda row: canonical(to_jsonable([row.identity.layers, row.identity.condition])))
        chosen += [_at_best_rate(same, group) for same in alike.values()]
    return chosen


def _at_best_rate(alike: list[_Gathered], group: str) -> _Gathered:
    """Returns of rows that differ in their rate the best by dev, in the table of this group."""
    by_rate = {row.identity.probe[RATE]: row for row in sorted(alike, key=lambda row: row.identity.probe[RATE])}
    best = by_rate[best_rate({rate: list(row.records.values()) for rate, row in by_rate.items()})]
    name = min((row.name for row in alike), key=_rank)
    if len(by_rate) < 2 or not best.identity.layers.indices:  # a majority-tag baseline has no rate
        return replace(best, group=group, name=name)
    tried = []
    for rate, row in by_rate.items():
        records = sorted(row.records.values(), key=lambda record: record.seed)
        dev = summary([record.scores.dev.headline for record in records])
        tried.append(Tried(rate, [record.seed for record in records], dev, len(row.missing)))
    return replace(best, group=group, name=name, rates=tried)


def _across_encoders(gathered: list[_Gathered]) -> list[_Gathered]:
    """Merges tables that differ only in their encoder. The merged table's rows name their encoders.

    Spans and words are those of one corpus, whatever the encoder, so the scores compare. Encoders of equal names
    keep separate tables, since their rows could not be distinguished. So do conditions without a main run.
    """
    names: dict[str, str] = {}  # of the encoder of each table, by its group
    families: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for row in gathered:
        if row.identity.condition is None:
            names[row.group] = row.setting.encoder
            families[_family(row)][row.group] = None
    shared: dict[str, tuple[str, str]] = {}  # the group that each of several tables joins, and its encoder's name
    for family, groups in families.items():
        labels = encoder_labels([names[group] for group in groups])
        if labels and len(groups) > 1:
            shared |= {group: (family, label) for group, label in zip(groups, labels, strict=True)}
    joined = {row.group: shared.get(row.group, (row.group, None)) for row in gathered}
    return [replace(row, group=joined[row.group][0], encoder=joined[row.group][1]) for row in gathered]


def _family(row: _Gathered) -> str:
    """Returns a key of what tables share that differ only in their encoder. Several rates count as any rate."""
    identity = row.identity
    rates_differ = row.group == identity.across_rates
    probe = {name: value for name, value in identity.probe.items() if not (rates_differ and name == RATE)}
    read = {name: row.setting.features.get(name) for name in READ}
    parts = {"corpus": identity.corpus, "task": identity.task, "version": identity.version}
    return key_of(parts | {"probe": probe, "rates_differ": rates_differ, "read": read})


def _beside_frozen(gathered: list[_Gathered]) -> list[_Gathered]:
    """Puts fine-tuned rows into each table of frozen rows with the same input, or if none, into their own."""
    tables: defaultdict[str, dict[str, str | None]] = defaultdict(dict)  # each with its encoder's name in it
    for row in gathered:
        if not _is_fine_tuned(row):
            tables[row.identity.beside][row.group] = row.encoder
    placed: list[_Gathered] = []
    for row in gathered:
        alone = {row.group: row.encoder}
        own = alone if not _is_fine_tuned(row) else tables.get(row.identity.beside, alone)
        placed += [replace(row, group=group, encoder=encoder) for group, encoder in own.items()]
    return placed


def _is_fine_tuned(row: _Gathered) -> bool:
    return "fine_tuned" in row.identity.conditions


def _rank(name: str) -> int:
    """Ranks a row's name in the table. Of two names of one row that of the paper is shown."""
    return PAPER_ORDER.index(name) if name in PAPER_ORDER else len(PAPER_ORDER)


def _row(gathered: _Gathered, failed: Collection[str], condition: str | None) -> Row:
    by_seed = sorted(gathered.records.items(), key=lambda pair: pair[1].seed)
    records = [record for _, record in by_seed]
    cells: dict[str, Cell] = {}
    for split in ("dev", "test"):
        for name, score in SCORES.items():
            values = [score(getattr(record.scores, split)) for record in records]
            present = [value for value in values if value is not None]
            if len(present) == len(values):
                cells[f"{split}_{name}"] = summary(present)
    return Row(
        name=gathered.name,
        task=TASKS[gathered.identity.task],
        indices=gathered.identity.layers.indices,
        combine=gathered.identity.layers.combine,
        width=gathered.width,
        group=short(gathered.group),
        setting=gathered.setting,
        records=gathered.records,
        seeds=[record.seed for record in records],
        keys=[record.key for record in records],
        sha256=[hashlib.sha256(file.read_bytes()).hexdigest() for file, _ in by_seed],
        missing=len(gathered.missing),
        failed=sum(short(key) in failed for key in gathered.missing),
        cells=cells,
        about=_about(records[0], len(records)) if records else None,
        cost=_cost(records) if records else None,
        condition=condition,
        recorded_condition=gathered.identity.condition,
        normalize=gathered.identity.layers.normalize,
        rates=gathered.rates,
        encoder=gathered.encoder,
    )


def _cost(records: list[RunRecord]) -> Cost | None:
    seconds = [epoch.train_s for record in records for epoch in record.curve]
    if not seconds:  # nothing was trained
        return None
    return Cost(
        records[0].parameters,
        statistics.median(seconds),
    )


def _about(record: RunRecord, num_seeds: int) -> SettingSummary:
    return SettingSummary(
        task=record.data.task,
        data="CoNLL-2003" if is_conll2003(record.data.splits) else record.data.name,
        encoder=short_name(record.encoder.name),
        case="dropped" if record.encoder.lower_cases else "kept",
        context=record.config.features["context"],
        piece=record.config.features["subword"],
        probe=describe_probe(record.config.probe),
        scoring="spans" if record.task.has_spans else record.task.score,
        seeds=str(num_seeds),
    )
