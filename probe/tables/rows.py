"""Groups the runs of a results folder into the labelled rows of its tables. Imports nothing that takes long.

Rows depend only on the folder's files: records, the counts of each, what its sweeps asked for, and its screen.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe.conditions import CONDITIONS
from probe.config import UserError, default_margin
from probe.format import encoder_labels
from probe.probes.candidates import input_of
from probe.runs.frame import READ, Run, frame
from probe.runs.identity import RunIdentity, normalized_name
from probe.runs.progress import failures, other_results
from probe.runs.records import Records, bad_records
from probe.runs.screens import load_screen
from probe.runs.sweep_plan import SWEEP, read_asked
from probe.system.files import canonical, short, to_jsonable
from probe.system.grouping import group_by
from probe.tables.labels import label_rows
from probe.tables.notes import main_row, setting_of
from probe.tables.paper import PAPER
from probe.tables.row import Row


def results_folder(folder: Path) -> Path:
    """Returns the folder of results, also where its records/ was named. Raises UserError if there is none."""
    if folder.name == "records" and not (folder / "records").is_dir():
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder. {other_results(folder)}")
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
    """Builds rows, those of one table together, in the paper's order; skips invalid records (see `bad_records`).

    margin: points of dev score that the user does not mind; None: that of the folder's first sweep, else the default.
    Raises UserError where there is no run.
    """
    folder = results_folder(results_dir)
    runs = frame(folder)
    if not runs:
        for error in bad_records(folder).values():
            raise error
        raise UserError(f"{folder} holds no records. {other_results(folder)}")
    failed = failures(folder)
    rows = [_row(same, failed) for same in group_by(runs, lambda run: run.row).values()]
    rows = _with_screen(folder, rows)
    tables = [sorted(_in_one_table(table), key=_place) for table in _beside_frozen(rows)]
    tables.sort(key=lambda table: canonical(to_jsonable(main_row(table).setting)))
    points = next(wish for wish in (margin, read_asked(folder).margin, default_margin()) if wish is not None)
    labelled = [label_rows(_with_table_settings(table, tables), points) for table in tables]
    return [row for table in labelled for row in table]


def _with_screen(folder: Path, rows: Sequence[Row]) -> list[Row]:
    """Marks the rows whose layers the folder's screen chose for their scores, before they were trained."""
    screen = load_screen(folder)
    if screen is None:
        return [*rows]
    chosen = {(choice.encoder, choice.input) for choice in screen.ranked if choice.searched}
    short_names = {one.settings["name"]: name for name, one in screen.encoders.items()}

    def is_chosen(row: Row) -> bool:
        layers = row.identity.layers
        choice = short_names.get(row.setting.encoder), input_of(layers.combine, layers.indices)
        return choice in chosen and all(record.started > screen.finished for record in row.records.values())

    return [replace(row, screened=is_chosen(row)) for row in rows]


def _row(runs: Sequence[Run], failed: Collection[str]) -> Row:
    """Makes a row of its runs. Of several learning rates it has the best."""
    made_first = sorted(runs, key=lambda run: (run.record is None, run.identity.seed))
    by_rate = group_by(made_first, lambda run: float(run.identity.probe.get("learning_rate", 0.0)))
    rates = {
        rate: {run.file: run.record for run in same if run.file and run.record}
        for rate, same in sorted(by_rate.items())
    }
    rate = best_rate(rates)
    run, open_runs = by_rate[rate][0], [run for run in by_rate[rate] if run.record is None]
    return Row(
        name=min((run.name for run in runs), key=_rank),
        table=run.table,
        identity=run.identity,
        setting=run.setting,
        width=run.width,
        records=rates[rate],
        asked={run.file: run.asked for run in by_rate[rate] if run.file},
        missing=len(open_runs),
        failed=sum(short(run.identity.key) in failed for run in open_runs),
        unfinished={run.asked or "" for run in runs if run.record is None and short(run.identity.key) not in failed},
        rates=rates if run.identity.layers.indices and not run.identity.is_fine_tuned else {},
        condition=_condition(run.identity),
    )


def _condition(identity: RunIdentity) -> str | None:
    """Returns the condition of a row as displayed; None for main runs."""
    if identity.condition is None:
        return None
    epochs = identity.probe.get("max_epochs") if identity.is_fine_tuned else None
    return identity.condition.label + (f", {epochs} epoch{'s' * (epochs > 1)}" if epochs else "")


def best_rate(tried: Mapping[float, Records]) -> float:
    """Chooses the rate with the highest dev mean, of those with the most seeds; of equal ones the lowest.

    A rate with fewer seeds than another is not chosen: a mean of few seeds is high by luck more often.
    """
    most = max(map(len, tried.values()))
    full = {rate: records for rate, records in tried.items() if len(records) == most}
    if not most:
        return min(full)
    return max(full, key=lambda rate: statistics.fmean(record.scores.dev.headline for record in full[rate].values()))


def _rank(name: str) -> int:
    """Ranks a row's name in the table. Of two names of one row that of the paper is shown."""
    return [*PAPER].index(name) if name in PAPER else len(PAPER)


def _beside_frozen(rows: Sequence[Row]) -> list[list[Row]]:
    """Groups rows by table; a fine-tuned row stands in each table of frozen rows with its input, or in its own."""
    tables = group_by((row for row in rows if not row.identity.is_fine_tuned), lambda row: row.table)
    for row in (row for row in rows if row.identity.is_fine_tuned):
        beside = [table for table, of in tables.items() if any(other.run.input == row.run.input for other in of)]
        for table in beside or [row.table]:
            tables.setdefault(table, []).append(replace(row, table=table))
    return list(tables.values())


def _in_one_table(rows: Sequence[Row]) -> list[Row]:
    """Names rows of one table by what they differ in: encoders, normalization, learning rates, other settings."""
    encoders = {row.run.encoder: row.setting.encoder for row in rows}
    keyed = [f"{name} {encoder[-6:]}" for encoder, name in encoders.items()]
    labels = dict(zip(encoders, encoder_labels([*encoders.values()]) or keyed, strict=True))
    scales = {row.identity.layers.normalize for row in rows if row.indices and not row.identity.is_fine_tuned}
    has_rates = len({rate for row in rows for rate in row.rates}) > 1
    named = [
        replace(
            row,
            name=normalized_name(row.name, row.identity.layers.normalize) if len(scales) > 1 else row.name,
            encoder=labels[row.run.encoder] if len(encoders) > 1 else None,
            rates=row.rates if has_rates else {},
        )
        for row in rows
    ]
    alike = group_by(named, lambda row: row.full_name)
    return [_with_settings(row, alike[row.full_name]) for row in named]


def _with_settings(row: Row, alike: Sequence[Row]) -> Row:
    """Adds to a row's condition the settings in which rows that look the same differ."""
    settings = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in differing(_settings(row), [*map(_settings, alike)]).items()
    ]
    return replace(row, condition=f"{row.condition} ({', '.join(settings)})") if settings else row


def _with_table_settings(table: Sequence[Row], tables: Sequence[Sequence[Row]]) -> list[Row]:
    """Adds to the rows of a table what it differs in from others of the same caption: the text, or settings."""
    alike = [_compared(main_row(other).run) for other in tables if setting_of(other) == setting_of(table)]
    started = min((record.started[:16] for row in table for record in row.records.values()), default="no run")
    differs_in = [
        f"{name}={value}" + f" (from {started})" * (name == "text")
        for name, value in differing(_compared(main_row(table).run), alike).items()
    ]
    return [replace(row, differs_in=differs_in) for row in table]


def _compared(run: Run) -> dict[str, Any]:
    """Gives the settings in `Run.compared` the names that are typed."""
    corpus, *_, version, read, probe = run.compared
    names = [name for name in READ if name in run.setting.features]
    named = {f"features.{name}": value for name, value in zip(names, read, strict=True)}
    return {"text": corpus[:6], "version": version, **named, **{f"probe.{name}": probe[name] for name in probe}}


def differing(settings: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the settings that are not the same in all others."""
    return {name: value for name, value in settings.items() if any(other.get(name) != value for other in others)}


def _settings(row: Row) -> dict[str, Any]:
    """Returns the settings that the label of a row's condition does not say."""
    if row.identity.condition is None:
        return {}
    probe = row.identity.probe if row.identity.is_fine_tuned else {}
    return row.identity.condition.settings | {name: value for name, value in probe.items() if name != "max_epochs"}


def _place(row: Row) -> tuple[Any, ...]:
    """Returns where a row stands in its table: by encoder, section, condition, the paper's order, layers."""
    condition, order = row.identity.condition, list(CONDITIONS)
    variant: tuple[float, str] = (-1.0, "")
    if condition:
        rank = min(map(order.index, condition.ids)) + len(condition.ids) / 10
        variant = (rank, canonical([condition.ids, condition.settings]))
    layers = row.identity.layers
    name = row.name.partition(":")[0]
    place = (row.section, variant, _rank(name), layers.indices, layers.combine, layers.normalize or "")
    return (row.encoder or "", *place, canonical(row.identity.probe))
