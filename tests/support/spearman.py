"""Simulates tables of rows scored by Spearman's correlation, and how often the shipped statistic is right.

`python tests/support/spearman.py` prints a line per truth; the last line is one JSON object.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from probe.scoring.compare import Comparison, Sample
from probe.scoring.metrics import spearman
from probe.scoring.significance import rank_influence

SEEDS = 5
ROWS = 3  # of a table
NOISE = {"low correlation": 3.0, "middle": 1.0, "high": 0.3}  # the deviation of a row's error; labels have 1
LEVELS = {"numbers": None, "six levels": 1.25}  # labels as in STS-B


def _draw(draw: np.random.Generator, rows: int, noise: float, levels: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns labels (rows,) and predictions (ROWS, SEEDS, rows) of rows that are equally good in truth.

    The rows share a part of their error, as layers of one encoder do; each has a part of its own, and each seed too.
    """
    hidden = draw.standard_normal(rows)
    shared = draw.standard_normal(rows)
    own = draw.standard_normal((ROWS, 1, rows))
    of_seed = draw.standard_normal((ROWS, SEEDS, rows))
    predictions = hidden + noise * (0.7 * shared + 0.6 * own + 0.39 * of_seed)
    gold = hidden if levels is None else np.clip(np.round(hidden * levels), -2, 3)
    return gold, predictions


@functools.cache
def true_value(noise: float, levels: float | None) -> float:
    gold, predictions = _draw(np.random.default_rng(99), 400_000, noise, levels)
    return spearman(gold, predictions[0, 0])


def coverage(tables: int, rows: int, truths: Collection[str] = tuple(NOISE)) -> Iterator[dict[str, Any]]:
    """Yields, for each truth, how often intervals of a difference (0) and of a mean hold the truth.

    wrongly_worse: the share of tables in which some row is called significantly worse than the best.
    """
    for truth, noise in NOISE.items():
        if truth not in truths:
            continue
        for labels, levels in LEVELS.items():
            draw = np.random.default_rng(0)
            difference = mean = worse = 0
            for _ in range(tables):
                gold, predictions = _draw(draw, rows, noise, levels)
                samples = [
                    Sample([spearman(gold, one) for one in row], np.stack([rank_influence(gold, one) for one in row]))
                    for row in predictions
                ]
                compared = Comparison(samples)
                low, high = compared.difference(0, 1)[1]
                difference += low <= 0 <= high
                low, high = compared.mean(0)
                mean += low <= true_value(noise, levels) <= high
                worse += any(high < 0 for _, high in compared.behind())
            shares = {"difference": difference / tables, "mean": mean / tables, "wrongly_worse": worse / tables}
            yield {
                "truth": truth,
                "labels": labels,
                "rows": rows,
                "spearman": round(true_value(noise, levels), 3),
            } | shares


if __name__ == "__main__":
    everything = []
    for number in (60, 250, 1500):
        for line in coverage(int(sys.argv[1]) if len(sys.argv) > 1 else 1000, number):
            print(line, flush=True)
            everything.append(line)
    print(json.dumps(everything))
