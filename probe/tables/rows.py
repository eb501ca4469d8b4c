"""Groups the runs of a results folder into the labelled rows of its tables. Imports nothing that takes long.

Rows depend only on the folder's files: records, the counts of each, what its sweeps asked for, and its race.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe.conditions import CONDITIONS
from probe.config import UserError, default_margin, layer_presets
from probe.format import encoder_labels
from probe.probes.candidates import readout_of
from probe.race.spec import read_outcome, read_spec
from probe.runs.frame import READ, Run, frame
from probe.runs.identity import normalized_name
from probe.runs.progress import failures, other_results
from probe.runs.records import Records, bad_records
from probe.runs.screens import load_screens
from probe.runs.sweep_plan import SWEEP, read_asked
from probe.system.files import canonical, sha256_of, short, to_jsonable
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
    eliminated, replaced = read_outcome(folder)
    runs = [run for run in frame(folder) if run.identity.key not in replaced]
    if not runs:
        for error in bad_records(folder).values():
            raise error
        raise UserError(f"{folder} holds no records. {other_results(folder)}")
    failed = failures(folder)
    rows = [_row(same, failed) for same in group_by(runs, lambda run: run.row).values()]
    race = read_spec(folder)
    of_screen = dict.fromkeys(race.screened, race.choices) if race else _best_of_screen(folder, rows)
    for row in rows:
        row.eliminated, row.screened = eliminated.get(row.identity.cell), of_screen.get(row.identity.cell)
    tables = _beside_frozen(rows)
    for table in tables:
        if len({rate for row in table for rate in row.rates}) < 2:
            for row in table:
                row.rates = {}
        _name(table)
        table.sort(key=_place)
    tables.sort(key=lambda table: canonical(to_jsonable(main_row(table).setting)))
    points = next(one for one in (margin, read_asked(folder).margin, default_margin()) if one is not None)
    for table in tables:
        label_rows(table, points)
    _tell_apart(tables)
    return [row for table in tables for row in table]


def _best_of_screen(folder: Path, rows: Sequence[Row]) -> dict[str, int]:
    """Finds the rows that a screen chose: the first of their width in the folder's screen, before they were trained.

    Returns the number of the screen's choices by the rows' cells. Presets are left out: they need no screen.
    """
    screens = load_screens(folder).values()
    presets = {preset.name for preset in layer_presets()} if screens else set()  # reading them takes 0.1 s
    return {
        row.identity.cell: len(screen.ranked)
        for screen in screens
        for row in rows
        if row.setting.encoder == screen.setting.encoder and row.name not in presets
        if all(record.started > screen.finished for record in row.records.values())
        for first in [one for one in screen.ranked if one.width == row.width][:1]
        if first.readout == readout_of(row.identity.layers.combine, row.identity.layers.indices)
    }


def _row(runs: Sequence[Run], failed: Collection[str]) -> Row:
    """Makes a row of its runs. Of several learning rates it has the best."""
    rates = group_by(runs, lambda run: float(run.identity.probe.get("learning_rate", 0.0)))
    records = {
        rate: {
            run.file: run.record for run in sorted(own, key=lambda run: run.identity.seed) if run.file and run.record
        }
        for rate, own in sorted(rates.items())
    }
    rate = best_rate(records)
    run, open_runs = rates[rate][0], [run for run in rates[rate] if run.record is None]
    return Row(
        name=min((run.name for run in runs), key=_rank),
        table=run.table,
        identity=run.identity,
        setting=run.setting,
        width=run.width,
        records=records[rate],
        asked={run.file: run.asked for run in rates[rate] if run.file},
        missing=len(open_runs),
        failed=sum(short(run.identity.key) in failed for run in open_runs),
        unfinished={run.asked or "" for run in runs if run.record is None and short(run.identity.key) not in failed},
        encoder=run.encoder,
        rates=records if run.identity.layers.indices and not run.identity.is_fine_tuned else {},
    )


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
        beside = [own[0].table for own in tables.values() if any(other.run.input == row.run.input for other in own)]
        for table in beside or [row.table]:
            tables.setdefault(table, []).append(replace(row, table=table))
    return list(tables.values())


def _name(table: list[Row]) -> None:
    """Names the encoders of a table if they are several, and what rows that look the same differ in."""
    encoders = {row.encoder: row.setting.encoder for row in table}
    keyed = [f"{name} {str(encoder)[-6:]}" for encoder, name in encoders.items()]
    labels = dict(zip(encoders, encoder_labels([*encoders.values()]) or keyed, strict=True))
    normalized = {row.identity.layers.normalize for row in table if row.indices and not row.identity.is_fine_tuned}
    key = short(sha256_of(table[0].table.encode()))
    for row in table:
        row.encoder = labels[row.encoder] if len(encoders) > 1 else None
        row.table = key
        if len(normalized) > 1:
            row.name = normalized_name(row.name, row.identity.layers.normalize)
        if row.identity.condition:
            row.condition = row.identity.condition.label
            if row.identity.is_fine_tuned and (epochs := row.identity.probe.get("max_epochs")):
                row.condition += f", {epochs} epoch{'s' * (epochs > 1)}"
    for same in group_by(table, lambda row: (row.encoder, row.name, row.condition)).values():
        settings = [_settings(row) for row in same]
        for row, own in zip(same, settings, strict=True):
            different = [
                f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                for name, value in own.items()
                if any(other.get(name) != value for other in settings)
            ]
            row.condition = f"{row.condition} ({', '.join(different)})" if different else row.condition


def _tell_apart(tables: Sequence[list[Row]]) -> None:
    """Says in captions that would be the same what their tables differ in: the text, or settings."""
    for same in group_by(tables, setting_of).values():
        known = []
        for table in same if len(same) > 1 else ():
            corpus, *_, version, read, probe = main_row(table).run.compared
            started = min((record.started[:16] for row in table for record in row.records.values()), default="no run")
            named = {f"features.{name}": value for name, value in zip(READ, read, strict=False)}  # the last is optional
            named |= {f"probe.{name}": value for name, value in probe.items()}
            known.append(({"text": corpus[:6], "version": version, **named}, f" (from {started})"))
        for table, (own, since) in zip(same, known, strict=False):
            differ = [name for name in own if any(one.get(name) != own[name] for one, _ in known)]
            for row in table:
                row.apart = [f"{name}={own[name]}{since if name == 'text' else ''}" for name in differ]


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
