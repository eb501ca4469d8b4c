"""Records to rows: means and spreads over seeds, tests against the best row and the next, cost; missing cells stay.

Rows are plain dicts, what `probe table --format json` prints. A pure function of a results folder's files: records, the
counts beside them, and what its sweeps asked for. Imports nothing that takes long.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.reporting.order import Files, fill_in_order
from probe.reporting.published import is_conll2003
from probe.reporting.row import Row
from probe.runs.progress import failures, read_expected
from probe.runs.records import load_records
from probe.scoring.metrics import headline
from probe.scoring.significance import summary
from probe.system.files import canonical, key_of

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
        fill_in_order([(row, cell) for row, cell in zip(rows, ordered, strict=True) if cell["group"] == group])
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


def records_of(row: Row, records: Files) -> Files:
    """The records behind a row, of a folder that holds one setting."""
    return {
        file: record
        for file, record in records.items()
        if (record["layers"]["indices"], record["layers"]["combine"]) == (row["indices"], row["combine"])
    }
