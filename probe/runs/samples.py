"""Prepares records for comparisons: the scores of a row's runs, and each document's influence on them.

The influence comes from the counts next to a record. A race reads those of dev only.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probe.config import UserError
from probe.runs.outputs import load_counts
from probe.runs.records import Records
from probe.scoring.compare import Sample
from probe.scoring.metrics import Counts, Scores, by_sentence
from probe.scoring.significance import FEWEST_UNITS, effective_number, influence, units_of, with_neighbours

SPLITS = ("dev", "test")


@dataclass(frozen=True)
class SplitCounts:
    """Holds a run's counts on one split. documents: of each sentence; None: unknown.

    counts: (sentences, 3), gold, predicted, correct; of all types, or of one.
    """

    counts: np.ndarray
    documents: np.ndarray | None

    @classmethod
    def of(cls, counts: Counts, kind: str | None = None) -> SplitCounts:
        documents = np.asarray(counts["documents"], dtype=int) if "documents" in counts else None
        return cls(by_sentence(counts, kind), documents)

    def units(self) -> tuple[np.ndarray, str, float]:
        """Returns the unit of each sentence, what units are called, and their effective number."""
        units, name = units_of(len(self.counts), self.documents)
        return units, name, effective_number(self.counts, units)

    def influence(self) -> np.ndarray | None:
        """Returns how much each unit of the text moves the score; None if the text has too few for an error."""
        units, _, effective = self.units()
        return influence(self.counts, units) if effective >= FEWEST_UNITS else None


Load = Callable[[Path, str | None], dict[str, SplitCounts] | None]


def run_counts(file: Path, kind: str | None = None) -> dict[str, SplitCounts] | None:
    """Reads the counts of dev and test that belong to a record's file; None if there are no valid ones.

    kind: of one type or tag; None: of all.
    """
    try:
        counts = load_counts(file)[0]
    except UserError:
        return None
    return {split: SplitCounts.of(counts[split], kind) for split in SPLITS}


def samples_of(
    rows: Sequence[Records], split: str, load: Load, kind: str | None = None
) -> tuple[list[Sample], str | None]:
    """Returns the rows' scores on a split with the influence of each unit of its text, and says what these units are.

    load: `run_counts`, with or without a cache. kind: scores are the F1 of it; None: the headline.
    Units are documents if all rows have the same ones, else blocks of sentences. A text of too few units gives no
    influence. Rows that were scored on different texts have separate units. Without the counts of every run there are
    no units: None.
    """
    scores = [[_score(getattr(record.scores, split), kind) for record in records.values()] for records in rows]
    known = [[one[split] for file in records if (one := load(file, kind)) is not None] for records in rows]
    is_whole = all(
        len(one) == len(row) and len({run.counts.shape for run in one}) == 1
        for one, row in zip(known, rows, strict=True)
    )
    influences, units = influences_of(known) if is_whole else (None, None)
    return [Sample(own, influences[at] if influences else None) for at, own in enumerate(scores)], units


def influences_of(rows: Sequence[Sequence[SplitCounts]]) -> tuple[list[np.ndarray] | None, str]:
    """Returns how much each unit of the text moves each run's score, (runs, U) of each row, and says what units are.

    None if the text has too few units, or too unequal ones, to say how much scores vary over it.
    """
    texts = [row[0].counts[:, 0].tobytes() for row in rows]  # identified by their gold items
    marks: dict[bytes, set[bytes | None]] = defaultdict(set)  # of documents, by text; of several, none is used
    for row, text in zip(rows, texts, strict=True):
        marks[text].update(None if run.documents is None else run.documents.tobytes() for run in row)
    rows = [
        [replace(run, documents=None) for run in row] if len(marks[text]) > 1 else row
        for row, text in zip(rows, texts, strict=True)
    ]
    units, names, numbers = zip(*(row[0].units() for row in rows), strict=True)
    fewest = int(np.argmin(numbers))
    there = f"{units[fewest].max() + 1:,} {names[fewest]}, as good as {numbers[fewest]:.0f} of equal length"
    if numbers[fewest] < FEWEST_UNITS:
        return None, there
    moves = [np.stack([influence(run.counts, own) for run in row]) for row, own in zip(rows, units, strict=True)]
    moves = _side_by_side(moves, texts)
    if all(row[0].documents is not None for row in rows):
        return moves, there
    moved = with_neighbours(moves)
    return moved, there if moved else f"{there}, of which neighbours vary together"


def _score(scores: Scores, kind: str | None) -> float:
    if kind is None:
        return scores.headline
    return scores.per_type[kind].f1 if kind in scores.per_type else 0.0


def _side_by_side(influences: Sequence[np.ndarray], texts: Sequence[bytes]) -> list[np.ndarray]:
    """Places influences over the units of all texts; a row has zeros for the units of other texts."""
    sizes = {text: one.shape[1] for text, one in zip(texts, influences, strict=True)}
    ends = dict(zip(sizes, itertools.accumulate(sizes.values()), strict=True))
    total = sum(sizes.values())
    return [
        np.pad(one, ((0, 0), (ends[text] - sizes[text], total - ends[text])))
        for text, one in zip(texts, influences, strict=True)
    ]
