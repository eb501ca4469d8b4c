"""What a race reads from a folder's records: dev scores, how trainings ended and when, and dev counts by sentence.

A race reads records only through this module, which passes on nothing of test.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from probe.config import UserError
from probe.racing.rule import Cell, DevRun
from probe.runs.identity import RunIdentity
from probe.runs.outputs import load_counts
from probe.runs.records import load_record, record_path
from probe.scoring.metrics import by_sentence
from probe.scoring.significance import paired_variance, units_of


class Evidence:
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
        self._counts = functools.cache(self._read_counts)

    def path(self, cell: Cell) -> Path:
        """Where the run's record is, or will be."""
        return record_path(self.results_dir, cell[0], self.runs[cell])

    def run(self, cell: Cell) -> DevRun | str | None:
        """The run, why there is none, or None where it is not made yet. Raises UserError for what is no record."""
        if cell not in self._loaded:
            path = self.path(cell)
            if not path.exists():
                return self.failed.get(cell)
            record = load_record(path)
            try:
                began, ended = (datetime.fromisoformat(time).timestamp() for time in (record.started, record.finished))
            except ValueError:
                raise UserError(f"{path}: its times are none. Move it away and run again.") from None
            self._loaded[cell] = DevRun(record.scores.dev.headline, record.ending, began, ended)
        return self._loaded[cell]

    @property
    def still_failed(self) -> dict[Cell, str]:
        """The runs that have failed and were not made since."""
        return {cell: why for cell, why in self.failed.items() if not self.path(cell).exists()}

    def text_variance(self, first: str, second: str, seeds: Sequence[int]) -> float:
        """Variance of the difference of two rows over the text of dev, their counts summed over these seeds.

        The units are documents where both rows have the same ones, and enough of them, else sentences. Raises UserError
        without counts.
        """
        sides = [[self._counts((row, seed)) for seed in seeds] for row in (first, second)]
        totals = [np.sum([counts for counts, _ in side], axis=0) for side in sides]
        documents, others = (side[0][1] for side in sides)
        return paired_variance(totals[0], totals[1], units_of(documents, others))

    def _read_counts(self, cell: Cell) -> tuple[np.ndarray, list[int] | None]:
        counts = load_counts(self.path(cell))[0]["dev"]
        return by_sentence(counts), counts.get("documents")
