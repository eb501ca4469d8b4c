"""Prepares records for comparisons: the scores of a row's runs and, from their counts, each document's influence."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from probe.config import UserError
from probe.data.order import order_of
from probe.runs.outputs import load_counts
from probe.runs.records import Records, RunRecord
from probe.scoring.compare import Sample
from probe.scoring.metrics import Counts, Scores, of_kind
from probe.scoring.score import F1, Score
from probe.scoring.significance import ON_THIS_TEXT, Units, with_neighbours

SPLITS = ("dev", "test")


class Cover(NamedTuple):
    """Says for what other text the intervals of some rows hold.

    units: what they know of it, for people; None if counts are missing. condition: what a label rests on; empty if it
    holds for other text of this kind.
    """

    units: str | None
    condition: str


OVER_SEEDS = Cover(None, ON_THIS_TEXT)


@dataclass(frozen=True)
class SplitStatistics:
    """Holds what a run's score is computed from on one split.

    gold: the number of gold items, see `Score.items`. statistics: (sentences, C), see `Score`. documents: of each
    sentence; None: unknown. order: see `Units.of`.
    """

    score: Score
    gold: np.ndarray
    statistics: np.ndarray
    documents: np.ndarray | None
    order: str | None = None

    @classmethod
    def of(cls, counts: Counts, score: Score, order: str | None = None) -> SplitStatistics:
        documents = np.asarray(counts["documents"], dtype=int) if "documents" in counts else None
        statistics = score.statistics(counts)
        return cls(score, score.items(statistics), statistics, documents, order)

    @property
    def units(self) -> Units:
        return Units.of(self.gold, self.documents, self.order)

    def influence(self, units: Units) -> np.ndarray:
        """Returns how much each unit moves the score: (U,)."""
        assert self.score.influence is not None
        return self.score.influence(self.statistics, units.unit_of) * units.factor**0.5


Load = Callable[[Path], dict[str, Counts] | None]


def run_counts(file: Path) -> dict[str, Counts] | None:
    """Reads the counts of dev and test that belong to a record's file; None if there are no valid ones."""
    try:
        return load_counts(file)[0]
    except UserError:
        return None


def samples_of(
    rows: Sequence[Records], split: str, load: Load, kind: str | None = None, order: str | None = None
) -> tuple[list[Sample], Cover]:
    """Returns the rows' scores on a split with the influence of each unit of its text, and what they hold for.

    load: `run_counts`, with or without a cache. kind: scores are the F1 of it; None: the headline. order: as the last
    sweep stated it, else as the record has it. Units are documents if all rows have the same ones, else what `Units`
    puts in their place. Rows that were scored on different texts have separate units. Without the counts of every run,
    or an influence, there are none.
    """
    scores = [[_score(getattr(record.scores, split), kind) for record in records.values()] for records in rows]

    def statistics_of(record: RunRecord, counts: Counts) -> SplitStatistics:
        score, counts = (record.task.headline, counts) if kind is None else (F1, of_kind(counts, kind))
        of_split = order_of(order or record.config.data.get("order"), record.data.neighbours, split)
        return SplitStatistics.of(counts, score, of_split)

    known = [
        [statistics_of(record, counts[split]) for file, record in records.items() if (counts := load(file)) is not None]
        for records in rows
    ]
    is_whole = all(
        len(one) == len(row) and len({len(run.gold) for run in one}) == 1 and one[0].score.influence is not None
        for one, row in zip(known, rows, strict=True)
    )
    if not is_whole:
        return [*map(Sample, scores)], OVER_SEEDS
    texts = [row[0].gold.tobytes() for row in known]  # identified by their gold items
    marks: dict[bytes, set[bytes | None]] = defaultdict(set)  # of documents, by text; of several, none is used
    orders: dict[bytes, str | None] = {}
    for row, text in zip(known, texts, strict=True):
        marks[text].update(None if run.documents is None else run.documents.tobytes() for run in row)
        orders[text] = orders.get(text) or row[0].order
    units = [
        replace(row[0], documents=row[0].documents if len(marks[text]) == 1 else None, order=orders[text]).units
        for row, text in zip(known, texts, strict=True)
    ]
    moves = [np.stack([run.influence(own) for run in row]) for row, own in zip(known, units, strict=True)]
    return samples_over(scores, _side_by_side(moves, texts), units)


def samples_over(
    scores: Sequence[Sequence[float]], moves: Sequence[np.ndarray], units: Sequence[Units]
) -> tuple[list[Sample], Cover]:
    """Returns the rows' scores with the influence of each unit of the text, and what they hold for.

    scores: of each run of each row. moves: of each row, (runs, U). units: of each row, or of all.
    """
    number, fewest = moves[0].shape[1], min(units, key=lambda one: one.effective)
    effective, name = fewest.effective, fewest.title
    if any(one.are_blocks for one in units):
        moves, effective = with_neighbours(moves, effective)
        name += f", joined to {moves[0].shape[1]}" * (effective > 0 and moves[0].shape[1] < number)
    name += f", as good as {effective:.0f} of equal length" if effective else ", too few or too much alike"
    item = 1 / max(1, min(one.items for one in units))
    samples = [Sample(own, one, effective=effective, item=item) for own, one in zip(scores, moves, strict=True)]
    return samples, Cover(name, next((one.condition for one in units if one.condition), ""))


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
