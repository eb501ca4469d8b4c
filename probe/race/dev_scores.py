"""What a race reads from a folder's records: dev scores, how trainings ended and when, and dev counts by sentence.

A race reads records only through this module, which passes on nothing of test.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from probe.config import UserError
from probe.race.rule import Cell, DevRun
from probe.runs.identity import RunIdentity
from probe.runs.outputs import load_counts
from probe.runs.records import load_record, record_path
from probe.runs.samples import SplitCounts
from probe.scoring.significance import influence, units_of


class DevScores:
    """The runs of some rows (their identities, by seed) as far as a results folder has them.

    failed: why runs have no record, where that is known.
    """

    def __init__(
        self, results_dir: Path, runs: Mapping[Cell, RunIdentity], failed: Mapping[Cell, str] | None = None
    ) -> None:
        self.results_dir = results_dir
        self.runs = runs
        self.failed = dict(failed or {})
        self._loaded: dict[Cell, DevRun] = {}

    def path(self, cell: Cell) -> Path:
        """Where the run's record is, or will be."""
        return record_path(self.results_dir, cell[0], self.runs[cell])

    def run(self, cell: Cell) -> DevRun | str | None:
        """The run, why there is none, or None where it is not made yet. Raises UserError for what is no record, and for
        one without counts."""
        if cell not in self._loaded:
            path = self.path(cell)
            if not path.exists():
                return self.failed.get(cell)
            record = load_record(path)
            try:
                began, ended = (datetime.fromisoformat(time).timestamp() for time in (record.started, record.finished))
            except ValueError:
                raise UserError(f"{path}: its times are none. Move it away and run again.") from None
            dev = SplitCounts.of(load_counts(path)[0]["dev"])
            moves = influence(dev.counts, units_of(dev.documents, dev.documents))
            self._loaded[cell] = DevRun(record.scores.dev.headline, record.ending, began, ended, moves)
        return self._loaded[cell]

    @property
    def still_failed(self) -> dict[Cell, str]:
        """The runs that have failed and were not made since."""
        return {cell: why for cell, why in self.failed.items() if not self.path(cell).exists()}
