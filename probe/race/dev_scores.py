"""Reads what a race may see of a folder's records: dev scores, how training ended, dev counts by sentence.

A race reads records only through this module, which passes on nothing of test.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from probe.race.rule import Cell, DevRun
from probe.runs.identity import RunIdentity
from probe.runs.outputs import load_counts
from probe.runs.records import load_record, record_path
from probe.runs.samples import SplitCounts


class DevScores:
    """Holds the dev scores of some rows' runs that a results folder has.

    runs: the identity of each run, by row and seed. failed: why runs have no record, as the race notes it.
    """

    def __init__(self, results_dir: Path, runs: Mapping[Cell, RunIdentity]) -> None:
        self.results_dir = results_dir
        self.runs = runs
        self.failed: dict[Cell, str] = {}
        self._loaded: dict[Cell, DevRun] = {}

    def path(self, cell: Cell) -> Path:
        """Returns the path of the run's record, which may not exist yet."""
        return record_path(self.results_dir, cell[0], self.runs[cell])

    def run(self, cell: Cell) -> DevRun | str | None:
        """Returns the run, the reason why it failed, or None if it is not made yet.

        Raises UserError for a file that is no record, and for a record without counts.
        """
        if cell not in self._loaded:
            path = self.path(cell)
            if not path.exists():
                return self.failed.get(cell)
            record = load_record(path)
            dev = SplitCounts.of(load_counts(path)[0]["dev"])
            moves = dev.influence(dev.documents)
            self._loaded[cell] = DevRun(record.scores.dev.headline, record.outcome, moves)
        return self._loaded[cell]

    @property
    def still_failed(self) -> dict[Cell, str]:
        """Returns the runs that failed and were not made since."""
        return {cell: why for cell, why in self.failed.items() if not self.path(cell).exists()}
