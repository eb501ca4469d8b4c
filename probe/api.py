"""Implements `probe.run`, `probe.sweep`, `probe.screen` and `probe.results`, and defines what they return.

The first three run the command in a separate process. So settings have the same effect as on the command line,
nothing is printed, and the caller's threads and random states do not change. pandas is imported when a table is asked
for; `datasets` installs it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from probe.config import UserError
from probe.runs.outputs import bad_counts
from probe.runs.records import RunRecord, bad_records, load_record
from probe.screen.record import load_screens
from probe.screen.report import Screens, ranked_choices, screen_table
from probe.settings import configs_of
from probe.tables.columns import choose_columns
from probe.tables.formats import render, table, table_values
from probe.tables.recommendation import Recommendation, recommend
from probe.tables.row import Row, tables_of
from probe.tables.rows import build_rows, results_folder

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Results:
    """Holds a results folder: its rows and runs as pandas DataFrames, and which row to use.

    rows: as in `probe table`. problems: a line for each run that failed and for each file that cannot be read. Scores
    are fractions.
    """

    folder: Path
    rows: list[Row] = field(repr=False)
    problems: list[str] = field(default_factory=list)

    @cached_property
    def table(self) -> pandas.DataFrame:
        """Returns one row per row of the table, with the columns of `table.csv`."""
        import pandas

        return pandas.DataFrame(table_values(self.rows))

    @cached_property
    def runs(self) -> pandas.DataFrame:
        """Returns one row per run: its row and seed, its scores, how its training ended, its cost and its record."""
        import pandas

        return pandas.DataFrame([_run_fields(row, file, one) for row in self.rows for file, one in row.records.items()])

    @property
    def recommendations(self) -> list[Recommendation]:
        """Returns the recommendation of each table, in their order."""
        return [recommend(rows) for rows in tables_of(self.rows)]

    @property
    def recommendation(self) -> Recommendation:
        """Returns which row to use.

        `str()` gives the sentence. `use` and `best` are rows, with their layers, their dev score and by how much they
        may be worse than the truly best row. Raises UserError if there are several tables.
        """
        if len(given := self.recommendations) > 1:
            raise UserError(f"{self.folder} has {len(given)} tables (of several texts, encoders or probes): "
                            "results(...).recommendations has one for each.")  # fmt: skip
        return given[0]

    def __str__(self) -> str:
        return render(self.rows, "text")

    def _repr_html_(self) -> str:
        return "\n".join(table(rows, choose_columns(None, rows)).render("html") for rows in tables_of(self.rows))


@dataclass(frozen=True)
class Screen:
    """Holds a screen: every choice of layers that was tried, best first.

    screens: the content of screen.json, by encoder.
    """

    screens: Screens

    @cached_property
    def table(self) -> pandas.DataFrame:
        """Returns one row per choice, best first."""
        import pandas

        return pandas.DataFrame(ranked_choices(self.screens))

    def __str__(self) -> str:
        return screen_table(self.screens).render("text")

    def _repr_html_(self) -> str:
        return screen_table(self.screens).render("html")


def read_results(folder: Path, margin: float | None, problems: Sequence[str] = ()) -> Results:
    """Reads a results folder. Raises UserError if it holds neither records nor a sweep."""
    folder = results_folder(folder)
    rows = build_rows(folder, margin)
    records = {file: record for row in rows for file, record in row.records.items()}
    bad = [*bad_records(folder).values(), *bad_counts(records)]
    return Results(folder, rows, [*problems, *map(str, bad)])


def run_one(settings: Sequence[str]) -> RunRecord:
    """Trains one run, or reads the run that is done, and returns its record."""
    if configs_of(list(settings))[1]:
        raise UserError("probe.run trains one run. For a sweep: probe.sweep(...)")
    printed, _ = _run_command("train", settings)
    return load_record(Path(printed.rpartition("\nrecord: ")[2].strip()))


def run_sweep(settings: Sequence[str]) -> Results:
    """Trains every run of a sweep that is not done, and reads the results folder."""
    configs, _ = configs_of(["-m", *settings])
    folders = {cfg.results_dir for cfg in configs}
    if len(folders) > 1:
        raise UserError(f"give one results_dir, not {', '.join(sorted(folders))}.")
    _, errors = _run_command("train", ["-m", *settings], may_fail=True)
    failed = [line for line in errors.splitlines() if line.startswith("failed: ")]
    return read_results(Path(folders.pop()), configs[0].margin, failed)


def run_screen(settings: Sequence[str]) -> Screen:
    """Ranks the layers, or reads the screen that is done, and returns it."""
    folder = Path(configs_of(list(settings), swept="encoder")[0][0].results_dir)
    _run_command("screen", settings)
    return Screen(load_screens(folder))


def _run_command(command: str, settings: Sequence[str], may_fail: bool = False) -> tuple[str, str]:
    """Runs a command and returns its stdout and stderr. Raises UserError with its message for exit code 2.

    may_fail: accepts exit code 1, which says that some run failed.
    """
    arguments = [sys.executable, "-m", "probe", command, *settings]
    done = subprocess.run(arguments, capture_output=True, text=True, encoding="utf-8", errors="replace")
    message = done.stderr.rpartition("probe: ")[2].strip()
    if done.returncode == 2:
        raise UserError(message)
    if done.returncode not in ((0, 1) if may_fail else (0,)):
        raise RuntimeError(f"probe {command} ended with exit code {done.returncode}: {message[-2000:]}")
    return done.stdout, done.stderr


def _run_fields(row: Row, file: Path, record: RunRecord) -> dict[str, object]:
    return {
        "row": row.name,
        "encoder": record.encoder.name,
        "condition": row.condition,
        "seed": record.seed,
        "dev": record.scores.dev.headline,
        "test": record.scores.test.headline,
        "outcome": record.outcome,
        "best_epoch": record.best_epoch,
        "epochs": len(record.curve),
        "parameters": record.parameters,
        "read_s": record.seconds.read,
        "train_s": record.seconds.train,
        "key": record.key,
        "record": str(file),
    }
