"""What can be told apart: rows against the best of their table, and two rows against each other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from probe.config import UserError
from probe.reporting.row import PLAIN, Difference, Row, SplitDifference, names_of
from probe.runs.identity import CONTROL
from probe.runs.outputs import load_counts
from probe.runs.records import Records
from probe.scoring.metrics import by_sentence
from probe.scoring.significance import (
    ALPHA,
    SHUFFLES,
    holm,
    interval,
    lowest_p,
    permutation_test,
    randomisation_tests,
    units_of,
)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """One table's rows with `order` and `against` filled in: each against the best by dev mean, and the next better.

    A row is below the best if the difference is significant over seeds (p < 0.05, not corrected: over eight comparisons
    five seeds cannot go below 0.06) and over the text (corrected), with the same sign on both splits; untested if no
    outcome of these tests could have told it apart; else tied. If no row has counts, seeds alone decide, corrected.
    Rows that have left a race, or whose runs did not all converge, are not compared. Floors, ceilings and rows trained
    on less text are not ranked; except for controls, which are another task, they are compared with the best row too,
    corrected among themselves.
    """
    rows = [replace(row, order="unconverged" if row.unconverged else "left" if row.left else None) for row in rows]
    compared = [row for row in rows if row.n > 1 and row.order is None]
    ranked = sorted(
        (row for row in compared if row.place == PLAIN),
        key=lambda row: row.dev_mean,
        reverse=True,
    )
    if len(ranked) < 2:
        return rows
    best, *others = ranked
    load = functools.cache(text_counts)
    to_best = differences([(row, best) for row in others], load)
    to_next = differences(list(zip(others, ranked, strict=False)), load)
    ordered = {id(best): replace(best, order="best")}
    for row, order, difference, to_better in zip(others, _orders(to_best), to_best, to_next, strict=True):
        ordered[id(row)] = replace(row, order=order, against={"best": difference, "next": to_better})
    beside = [row for row in compared if row.place != PLAIN and CONTROL not in names_of(row.of)]
    for row, difference in zip(beside, differences([(row, best) for row in beside], load), strict=True):
        ordered[id(row)] = replace(row, against={"best": difference})
    return [ordered.get(id(row), row) for row in rows]


def has_counts(differences: Sequence[Difference]) -> bool:
    """Whether any of these was tested over the text, which takes counts."""
    return any(difference.p_text is not None for difference in differences)


def _orders(to_best: Sequence[Difference]) -> Iterator[str]:
    with_counts = has_counts(to_best)
    least = [lowest_p(*difference.n) for difference in to_best]
    for difference, lowest in zip(to_best, least if with_counts else holm(least), strict=True):
        dev = difference.dev
        assert dev.p_seeds is not None
        assert dev.p_seeds_holm is not None
        assert lowest is not None
        if with_counts:
            told_apart = dev.p_seeds < ALPHA and difference.p_text_holm is not None and difference.p_text_holm < ALPHA
        else:
            told_apart = dev.p_seeds_holm < ALPHA
        if told_apart and difference.test.difference < 0:
            yield "below"
        elif lowest >= ALPHA or (with_counts and difference.p_text is None):
            yield "untested"
        else:
            yield "tied"


@dataclass(frozen=True)
class TextCounts:
    """(sentences, 3) gold, predicted and correct of a test split, and its documents where they are known."""

    counts: np.ndarray
    documents: np.ndarray | None


def text_counts(file: Path) -> TextCounts | None:
    """The counts that belong to a record's file; None where there are none that can be read."""
    try:
        counts = load_counts(file)[0]["test"]
    except UserError:
        return None
    return TextCounts(
        by_sentence(counts), np.asarray(counts["documents"], dtype=int) if "documents" in counts else None
    )


def differences(
    pairs: Sequence[tuple[Row, Row]], load: Callable[[Path], TextCounts | None] | None = None
) -> list[Difference]:
    """Each pair of rows compared, on seeds and on text; p values also with Holm's correction over the pairs.

    load: gives a record's counts, `text_counts` if none is named.
    """
    texts = _text_tests([(a.records, b.records) for a, b in pairs], load or functools.cache(text_counts))
    p_text_holm = holm([p for p, _ in texts])
    splits = {
        split: _split_differences([(getattr(a, split), getattr(b, split)) for a, b in pairs], split, pairs)
        for split in ("dev", "test")
    }
    return [
        Difference(b.name, (a.n, b.n), dev, test, p_text, p_holm, unit)
        for (a, b), dev, test, (p_text, unit), p_holm in zip(
            pairs, splits["dev"], splits["test"], texts, p_text_holm, strict=True
        )
    ]


def _split_differences(
    scores: Sequence[tuple[list[float], list[float]]], split: str, pairs: Sequence[tuple[Row, Row]]
) -> list[SplitDifference]:
    p_values = [permutation_test(a, b) for a, b in scores]
    compared = []
    for (a, b), (first, second), p, corrected in zip(scores, pairs, p_values, holm(p_values), strict=True):
        means = [row.cells[f"{split}_f1"].mean for row in (first, second)]
        assert means[0] is not None
        assert means[1] is not None
        between = interval(a, b) if min(len(a), len(b)) > 1 else None
        compared.append(SplitDifference(means[0], means[1], means[0] - means[1], between, p, corrected))
    return compared


def _text_tests(
    pairs: Sequence[tuple[Records, Records]], load: Callable[[Path], TextCounts | None]
) -> list[tuple[float | None, str | None]]:
    """Paired randomisation tests over the test split: p and its unit, None without counts or where texts differ.

    The counts of all seeds that both sides have are summed. Documents change sides whole where both sides know the same
    ones, and enough of them, else sentences. Of many pairs more shuffles are made: Holm's correction must leave a p
    below 0.05 possible.
    """
    results: list[tuple[float | None, str | None]] = [(None, None) for _ in pairs]
    alike: dict[bytes | None, list[tuple[int, tuple[np.ndarray, np.ndarray]]]] = {}  # places and counts, by documents
    for place, pair in enumerate(pairs):
        by_seed = [{record.seed: file for file, record in side.items()} for side in pair]
        seeds = by_seed[0].keys() & by_seed[1].keys()
        loaded = [[counts for seed in seeds if (counts := load(side[seed]))] for side in by_seed]
        if not seeds or len(loaded[0]) != len(seeds) or len(loaded[1]) != len(seeds):
            continue
        if len({one.counts.shape for side in loaded for one in side}) > 1:
            continue
        first, second = (np.sum([one.counts for one in side], axis=0) for side in loaded)
        if np.array_equal(first[:, 0], second[:, 0]):  # one text, one gold
            units = units_of(loaded[0][0].documents, loaded[1][0].documents)
            known = None if units is None else units.tobytes()
            alike.setdefault(known, []).append((place, (first, second)))
    for known, members in alike.items():
        units = None if known is None else np.frombuffer(known, dtype=int)
        shuffles = max(SHUFFLES, 2 * math.ceil(len(pairs) / ALPHA))
        tests = randomisation_tests([totals for _, totals in members], units, shuffles)
        for (place, _), test in zip(members, tests, strict=True):
            results[place] = test.p, "sentences" if units is None else "documents"
    return results
