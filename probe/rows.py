"""Records to rows: means and spreads over seeds, tests against the best row and the next, cost; missing cells stay.

Rows are plain dicts, what `probe table --format json` prints. A pure function of a results folder's files: records, the
counts beside them, and what its sweeps asked for. Imports nothing that takes long.
"""

from __future__ import annotations

import functools
import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probe.config import UserError
from probe.features import canonical, key_of, write_atomically
from probe.metrics import by_sentence, headline
from probe.published import is_conll2003
from probe.records import load_counts, load_records
from probe.stats import ALPHA, bootstrap, holm, permutation_test, randomisation_tests, summary

SWEEP = "sweep.json"  # what sweeps into a folder have asked for
# The order of the paper's table (Devlin et al. 2019, Table 7), with our variants beside what they vary.
PAPER_ORDER = (
    "embeddings",
    "second_to_last",
    "last",
    "sum_last_four",
    "mean_last_four",
    "mix_last_four",
    "concat_last_four",
    "sum_all",
    "mix_all",
)
# Scores of a split, by the name they have in rows. Not every task has every score.
SCORES: dict[str, Callable[[dict[str, Any]], float]] = {
    "f1": headline,  # of tags that are no spans: accuracy
    "precision": lambda scores: scores["span"]["precision"],
    "recall": lambda scores: scores["span"]["recall"],
    "strict_f1": lambda scores: scores["strict"]["f1"],
    "word_f1": lambda scores: scores["word"]["f1"],
    "entity_word_recall": lambda scores: scores["entity_word_recall"],
    "accuracy": lambda scores: scores["accuracy"],
    "macro_f1": lambda scores: scores["macro_f1"],
}
Row = dict[str, Any]


def write_expected(results_dir: Path, runs: list[dict[str, Any]]) -> None:
    """Adds the runs a sweep asks for to those asked for before: key, row, identity, width and setting of each.

    They stay asked for until the file is removed, so that a narrower sweep does not hide what a wider one left open.
    """
    merged = {run["key"]: run for run in [*read_expected(results_dir), *runs]}
    text = json.dumps({"runs": list(merged.values())}, indent=1, ensure_ascii=False) + "\n"
    write_atomically(results_dir / SWEEP, text)


def read_expected(results_dir: Path) -> list[dict[str, Any]]:
    try:
        runs = json.loads((results_dir / SWEEP).read_text(encoding="utf-8"))["runs"]
        parts = {"key", "row", "identity", "width", "setting"}
        if all(parts <= run.keys() and run["key"] == key_of(run["identity"]) for run in runs):
            return runs
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{results_dir / SWEEP} is damaged. Remove it, or start the sweep again.")


def failures(results_dir: Path) -> dict[str, Path]:
    """The logs of failed runs, by the first ten characters of their keys."""
    return {path.name.split(".")[0][-10:]: path for path in sorted((results_dir / "logs").glob("*.failed.txt"))}


def first_line(failure: Path) -> str:
    """Why a run failed. A full disk may have left nothing to read."""
    return (failure.read_text(encoding="utf-8").splitlines() or ["the reason could not be written"])[0]


def setting_of(config: dict[str, Any], data: str, encoder: str) -> dict[str, Any]:
    """What people want to know of the runs of one table, for its caption.

    Which runs belong together is another question: their identities settle it, which hold content and not names.
    """
    return {"data": data, "encoder": encoder, "features": config["features"], "probe": config["probe"]}


def results_folder(folder: Path) -> Path:
    """The folder that was meant: of results, where its records/ was named. Raises UserError if there is none."""
    if folder.name == "records" and not (folder / "records").is_dir():
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder. `probe +sweep=quickstart` makes results/quickstart.")
    return folder


def build_rows(results_dir: Path) -> list[Row]:
    """One dict a row, rows of one setting together, in the paper's order. Raises UserError if there is nothing."""
    results_dir = results_folder(results_dir)
    records, expected, failed = load_records(results_dir), read_expected(results_dir), failures(results_dir)
    if not records and not expected:
        raise UserError(f"{results_dir} holds no records. `probe +sweep=quickstart` makes results/quickstart.")
    cells: dict[str, dict[str, Any]] = {}
    for file, record in records.items():  # what was run outranks what was asked for
        setting = setting_of(record["config"], record["data"]["name"], record["encoder"]["name"])
        cell = _cell(cells, record, setting, record["layers"]["width"])
        cell["files"][file] = record
        cell["layers"] = min(cell["layers"], record["row"], key=_rank)
    for run in expected:
        _cell(cells, run, run["setting"], run["width"])["expected"].add(run["key"])
    groups = {cell["group"]: canonical(cell["setting"]) for cell in cells.values()}
    ordered = sorted(
        cells.values(),
        key=lambda cell: (
            groups[cell["group"]],
            cell["group"],
            _rank(cell["layers"]),
            cell["selection"]["indices"],
            cell["selection"]["combine"],
        ),
    )
    rows = [_row(cell, failed) for cell in ordered]
    for group in groups:
        _test([(row, cell) for row, cell in zip(rows, ordered, strict=True) if cell["group"] == group])
    return rows


def _rank(name: str) -> int:
    """A row's place in the table. Of two names of one row that of the paper is shown."""
    return PAPER_ORDER.index(name) if name in PAPER_ORDER else len(PAPER_ORDER)


def _cell(cells: dict[str, dict[str, Any]], run: dict[str, Any], setting: dict[str, Any], width: int) -> dict[str, Any]:
    """The cell of a run. Runs of a cell differ in their seed alone, runs of a table in layers and seed."""
    identity = dict(run["identity"])
    layers, _ = identity.pop("layers"), identity.pop("seed")
    group = key_of(identity)
    empty = {
        "group": group,
        "setting": setting,
        "layers": run["row"],
        "selection": {**layers, "width": width},
        "expected": set(),
        "files": {},
    }
    return cells.setdefault(canonical([group, layers]), empty)


def _row(cell: dict[str, Any], failed: dict[str, Path]) -> Row:
    records = sorted(cell["files"].values(), key=lambda record: record["identity"]["seed"])
    files = {record["key"]: file for file, record in cell["files"].items()}
    missing = cell["expected"] - files.keys()
    row = {
        "layers": cell["layers"],
        "indices": cell["selection"]["indices"],
        "combine": cell["selection"]["combine"],
        "width": cell["selection"]["width"],
        "n": len(records),
        "seeds": [record["identity"]["seed"] for record in records],
        "keys": [record["key"] for record in records],
        "sha256": [hashlib.sha256(files[record["key"]].read_bytes()).hexdigest() for record in records],
        "missing": len(missing),
        "failed": sum(key[:10] in failed for key in missing),
        "order": None,  # best, tied, below; None where one seed, or nothing, gives no order
        "against": {},
        "group": cell["group"][:10],
        "setting": cell["setting"],
        "about": _about(records[0], len(records)) if records else None,
    }
    for split in ("dev", "test"):
        for name, score in SCORES.items():
            try:
                values = [score(record["scores"][split]) for record in records]
            except KeyError:  # this task has no such score
                continue
            row[f"{split}_{name}"] = summary(values)
    if records:
        row["cost"] = {
            "parameters": records[0]["parameters"],
            "seconds_per_epoch": statistics.median(point["train_s"] for r in records for point in r["curve"]),
            "mb_read": records[0]["features"]["bytes_read"] / 1e6,
            "f1_per_width": row["dev_f1"]["mean"] / row["width"],
        }
    return row


def _about(record: dict[str, Any], num_seeds: int) -> dict[str, Any]:
    """The setting in the words of `published`: what makes two tables like or unlike."""
    config, encoder = record["config"], record["encoder"]
    probe, name = config["probe"], Path(encoder["name"]).name
    lstm = f"BiLSTM {probe['num_layers']} x {probe['hidden_size']} per direction" if probe["num_layers"] else "linear"
    return {
        "task": record["data"]["task"],
        "data": "CoNLL-2003" if is_conll2003(record["data"]["splits"]) else record["data"]["name"],
        "encoder": name,
        "case": "dropped" if encoder["lower_cases"] else "kept",
        "context": config["features"]["context"],
        "piece": config["features"]["subword"],
        "probe": lstm + (f" in {probe['precision']}" if probe["precision"] != "float32" else ""),
        "scoring": "spans" if record["data"]["task"] == "spans" else "accuracy",
        "seeds": str(num_seeds),
    }


def _test(cells: Sequence[tuple[Row, dict[str, Any]]]) -> None:
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


def records_of(row: Row, records: Files) -> Files:
    """The records behind a row, of a folder that holds one setting."""
    return {
        file: record
        for file, record in records.items()
        if (record["layers"]["indices"], record["layers"]["combine"]) == (row["indices"], row["combine"])
    }
