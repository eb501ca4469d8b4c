"""Prepares records for comparisons: the scores of a row's runs, and each document's influence on them.

The influence comes from the counts next to a record. A race reads those of dev only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from probe.config import UserError
from probe.runs.outputs import load_counts
from probe.runs.records import Records
from probe.scoring.compare import Sample
from probe.scoring.metrics import Counts, Scores, by_sentence
from probe.scoring.significance import influence, units_of

SPLITS = ("dev", "test")


@dataclass(frozen=True)
class SplitCounts:
    """Holds a run's counts on one split. documents: of each sentence.

    counts: (sentences, 3), gold, predicted, correct; of all types, or of one.
    """

    counts: np.ndarray
    documents: np.ndarray | None

    @classmethod
    def of(cls, counts: Counts, kind: str | None = None) -> SplitCounts:
        documents = np.asarray(counts["documents"], dtype=int) if "documents" in counts else None
        return cls(by_sentence(counts, kind), documents)

    def influence(self, others: np.ndarray | None) -> np.ndarray:
        """Returns how much each unit moves the score. others: documents of a run to be paired with, if any."""
        return influence(self.counts, units_of(self.documents, others))


Load = Callable[[Path], dict[str, SplitCounts] | None]


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
    """Returns the rows' scores on a split with the influence of each unit of its text, and the name of these units.

    load: returns a run's counts, of all types or of this kind. kind: scores are the F1 of it; None: the headline.
    Units are documents if all rows have the same ones, and enough of them, else sentences. Rows that were scored on
    different texts have separate units. Without the counts of every run there are no units: None.
    """
    scores = [[_score(getattr(record.scores, split), kind) for record in records.values()] for records in rows]
    known = [[one[split] for file in records if (one := load(file)) is not None] for records in rows]
    is_whole = all(len(one) == len(row) for one, row in zip(known, rows, strict=True))
    if not is_whole or any(len({run.counts.shape for run in row}) > 1 for row in known):
        return [Sample(own) for own in scores], None
    units = known[0][0].documents
    for row in known:
        units = units_of(units, row[0].documents)
    texts = [row[0].counts[:, 0].tobytes() for row in known]  # identified by their gold items
    influences = [np.stack([run.influence(units) for run in row]) for row in known]
    samples = [Sample(own, one) for own, one in zip(scores, _side_by_side(influences, texts), strict=True)]
    return samples, "sentences" if units is None else "documents"


def _score(scores: Scores, kind: str | None) -> float:
    if kind is None:
        return scores.headline
    return scores.per_type[kind].f1 if kind in scores.per_type else 0.0


def _side_by_side(influences: Sequence[np.ndarray], texts: Sequence[bytes]) -> list[np.ndarray]:
    """Places influences over the units of all texts; a row has zeros for the units of other texts."""
    sizes = {text: one.shape[1] for text, one in zip(texts, influences, strict=True)}
    if len(sizes) == 1:
        return list(influences)
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    wide = []
    for text, one in zip(texts, influences, strict=True):
        placed = np.zeros((len(one), sum(sizes.values())))
        placed[:, starts[text] : starts[text] + one.shape[1]] = one
        wide.append(placed)
    return wide
