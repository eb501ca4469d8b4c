"""Records to rows: means and spreads over seeds, tests against the best row and the next, cost; missing cells stay.

Rows are plain dicts, what `probe table --format json` prints. A pure function of a results folder's files: records, the
counts beside them, and what its sweeps asked for. Imports nothing that takes long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probe.config import UserError
from probe.reporting.row import Row
from probe.runs.records import load_counts
from probe.scoring.metrics import by_sentence, headline
from probe.scoring.significance import ALPHA, bootstrap, holm, permutation_test, randomisation_tests


def fill_in_order(cells: Sequence[tuple[Row, dict[str, Any]]]) -> None:
    """Fills in `order` and `against` of one table's rows: each against the best by dev mean, and the next better one.

    Seeds: exact permutation of dev scores. Text: paired randomisation of the test split's sentences or documents. Both
    with Holm's correction over the table. Below the best is a row whose difference neither the seeds (p < 0.05, not
    corrected: over eight comparisons five seeds cannot go below 0.06) nor the text (corrected) explain, and which has
    the same sign on both splits. The others are tied with it. Where no row has counts the seeds decide, corrected.
    """
    ranked = sorted((c for c in cells if c[0]["n"] > 1), key=lambda c: c[0]["dev_f1"]["mean"], reverse=True)
    if len(ranked) < 2:
        return
    ranked[0][0]["order"] = "best"
    load = functools.cache(counts_of)
    for relation in ("best", "next"):
        pairs = [(cell, ranked[0] if relation == "best" else ranked[i]) for i, cell in enumerate(ranked[1:])]
        for (row, cell), (other, better) in pairs:
            row["against"][relation] = {
                "row": other["layers"],
                "dev_difference": row["dev_f1"]["mean"] - other["dev_f1"]["mean"],
                "dev_interval": bootstrap(_dev(cell), _dev(better)),
                "test_difference": row["test_f1"]["mean"] - other["test_f1"]["mean"],
                "p_seeds": permutation_test(_dev(cell), _dev(better)),
            }
        found = [row["against"][relation] for (row, _), _ in pairs]
        for test, text in zip(
            found, text_tests([(a["files"], b["files"]) for (_, a), (_, b) in pairs], load), strict=True
        ):
            test |= text
        for name in ("p_seeds", "p_text"):
            for test, corrected in zip(found, holm([test[name] for test in found]), strict=True):
                test[f"{name}_holm"] = corrected
    tests = [row["against"]["best"] for row, _ in ranked[1:]]
    no_counts = all(test["p_text_holm"] is None for test in tests)
    for (row, _), test in zip(ranked[1:], tests, strict=True):
        if no_counts:
            told_apart = test["p_seeds_holm"] < ALPHA
        else:
            told_apart = test["p_seeds"] < ALPHA and test["p_text_holm"] is not None and test["p_text_holm"] < ALPHA
        row["order"] = "below" if told_apart and test["test_difference"] < 0 else "tied"


def _dev(cell: dict[str, Any]) -> list[float]:
    return [headline(record["scores"]["dev"]) for record in cell["files"].values()]


Counts = tuple[np.ndarray, np.ndarray | None]
Files = dict[Path, dict[str, Any]]  # records, by their files


def text_tests(pairs: Sequence[tuple[Files, Files]], load: Callable[[Path], Counts | None]) -> list[dict[str, Any]]:
    """Paired randomisation tests of rows' records over the test split: `p_text` and its `unit`, None without counts.

    load: gives a record's counts (`counts_of`). The counts of all seeds that both sides have are summed. Documents
    change sides whole where both sides know the same ones, else sentences.
    """
    results: list[dict[str, Any]] = [{"p_text": None, "unit": None} for _ in pairs]
    alike: dict[bytes | None, list[tuple[int, tuple[np.ndarray, np.ndarray]]]] = {}  # places and counts, by documents
    for place, pair in enumerate(pairs):
        by_seed = [{record["identity"]["seed"]: file for file, record in side.items()} for side in pair]
        seeds = by_seed[0].keys() & by_seed[1].keys()
        loaded = [[counts for seed in seeds if (counts := load(side[seed]))] for side in by_seed]
        if not seeds or len(loaded[0]) != len(seeds) or len(loaded[1]) != len(seeds):
            continue
        first, second = (np.sum([counts for counts, _ in side], axis=0) for side in loaded)
        if first.shape == second.shape and np.array_equal(first[:, 0], second[:, 0]):  # one text, one gold
            documents, others = (side[0][1] for side in loaded)
            known = None
            if documents is not None and others is not None and np.array_equal(documents, others):
                known = documents.tobytes()
            alike.setdefault(known, []).append((place, (first, second)))
    for known, found in alike.items():
        units = None if known is None else np.frombuffer(known, dtype=int)
        tests = randomisation_tests([totals for _, totals in found], units)
        for (place, _), test in zip(found, tests, strict=True):
            results[place] = {"p_text": test["p"], "unit": "sentences" if units is None else "documents"}
    return results


def counts_of(file: Path) -> Counts | None:
    """(gold, predicted, correct) by sentence of the test split, and its documents; None where there are no counts."""
    try:
        counts = load_counts(file)[0]["test"]
    except (UserError, KeyError):
        return None
    return by_sentence(counts), np.asarray(counts["documents"], dtype=int) if "documents" in counts else None
