"""Records to tables: mean and standard deviation of F1 by row, as text, Markdown, CSV and JSON.

A table is a pure function of the records and of what the sweep asked for, so that a missing cell shows as missing.
Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
from pathlib import Path
from typing import Any

from tabulate import tabulate

from probe.config import UserError
from probe.features import canonical, key_of, write_atomically
from probe.records import load_records

FORMATS = ("text", "md", "csv", "json")
FILES = {"md": "table.md", "csv": "table.csv", "json": "table.json"}
SWEEP = "sweep.json"  # what the last sweep into a folder asked for
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
        if all({"key", "row", "identity", "width", "setting"} <= run.keys() for run in runs):
            return runs
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"{results_dir / SWEEP} is damaged. Remove it, or start the sweep again.")


def setting_of(config: dict[str, Any], data: str, encoder: str) -> dict[str, Any]:
    """What people want to know of the runs of one table, for its caption.

    Which runs belong together is another question: their identities settle it, which hold content and not names.
    """
    return {"data": data, "encoder": encoder, "features": config["features"], "probe": config["probe"]}


def build_rows(results_dir: Path) -> list[dict[str, Any]]:
    """One dict a row, rows of one setting together, in the paper's order. Raises UserError if there is nothing."""
    if results_dir.name == "records" and not (results_dir / "records").is_dir():
        results_dir = results_dir.parent
    if not results_dir.is_dir():
        raise UserError(f"{results_dir}: there is no such folder. `probe +sweep=quickstart` makes results/quickstart.")
    records, expected = load_records(results_dir), read_expected(results_dir)
    if not records and not expected:
        raise UserError(f"{results_dir} holds no records. `probe +sweep=quickstart` makes results/quickstart.")
    cells: dict[str, dict[str, Any]] = {}
    for run in expected:
        _cell(cells, run, run["setting"], run["width"])["expected"].add(run["key"])
    for record in records:
        setting = setting_of(record["config"], record["data"]["name"], record["encoder"]["name"])
        _cell(cells, record, setting, record["layers"]["width"])["records"].append(record)
    rows = [_row(cell) for cell in cells.values()]
    rank = {name: position for position, name in enumerate(PAPER_ORDER)}
    groups = {row["group"]: canonical(row["setting"]) for row in rows}
    return sorted(
        rows,
        key=lambda row: (
            groups[row["group"]],
            row["group"],
            rank.get(row["layers"], len(rank)),
            row["indices"],
            row["combine"],
        ),
    )


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
        "records": [],
    }
    return cells.setdefault(canonical([group, layers]), empty)


def _row(cell: dict[str, Any]) -> dict[str, Any]:
    found = {record["key"] for record in cell["records"]}
    return {
        "layers": cell["layers"],
        "indices": cell["selection"]["indices"],
        "combine": cell["selection"]["combine"],
        "width": cell["selection"]["width"],
        "n": len(cell["records"]),
        "missing": len(cell["expected"] - found),
        "dev_f1": _summary([record["scores"]["dev"]["f1"] for record in cell["records"]]),
        "test_f1": _summary([record["scores"]["test"]["f1"] for record in cell["records"]]),
        "group": cell["group"][:10],
        "setting": cell["setting"],
    }


def _summary(values: list[float]) -> dict[str, float | None]:
    """Mean, and sample standard deviation where there are two or more."""
    return {
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
    }


def render(rows: list[dict[str, Any]], form: str) -> str:
    """Rows as text, md, csv or json."""
    if form == "json":
        return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    if form == "csv":
        return _csv(rows)
    blocks = []
    for group in dict.fromkeys(row["group"] for row in rows):
        block = [row for row in rows if row["group"] == group]
        setting = block[0]["setting"]
        lines = [
            [_layers(row), row["width"], _n(row), _percent(row, "dev_f1"), _percent(row, "test_f1")] for row in block
        ]
        table = tabulate(
            [[row["layers"], *line] for row, line in zip(block, lines, strict=True)],
            headers=["row", "layers", "width", "n", "dev F1", "test F1"],
            tablefmt="github" if form == "md" else "simple",
            disable_numparse=True,
            colalign=("left", "left", "right", "right", "right", "right"),
        )
        blocks.append(f"{caption(setting)}\n\n{table}\n" + ("" if form == "md" else _notes(block)))
    return "\n".join(blocks)


def caption(setting: dict[str, Any]) -> str:
    probe, features = setting["probe"], setting["features"]
    model = (
        f"BiLSTM {probe['num_layers']} x {probe['hidden_size']} per direction"
        if probe["num_layers"]
        else "linear probe"
    )
    return (
        f"{setting['data']}, {Path(setting['encoder']).name}, {features['context']} context, "
        f"{features['subword']} piece, {model}. Span F1 (conlleval) in percent, mean ± standard deviation over n seeds."
    )


def _notes(rows: list[dict[str, Any]]) -> str:
    if any(row["n"] == 1 for row in rows):
        return "n = 1 has no spread: differences between such rows may be the seed alone.\n"
    return ""


def _layers(row: dict[str, Any]) -> str:
    indices = row["indices"]
    in_a_row = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    return f"{indices[0]}..{indices[-1]}" if in_a_row else ", ".join(map(str, indices))


def _n(row: dict[str, Any]) -> str:
    return f"{row['n']} of {row['n'] + row['missing']}" if row["missing"] else str(row["n"])


def _percent(row: dict[str, Any], column: str) -> str:
    mean, std = row[column]["mean"], row[column]["std"]
    if mean is None:
        return "missing"
    return f"{100 * mean:.2f}" if std is None else f"{100 * mean:.2f} ± {100 * std:.2f}"


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["data", "encoder", "context", "layers", "indices", "combine", "width", "n", "missing"]
        + [f"{split}_f1_{part}" for split in ("dev", "test") for part in ("mean", "std")]
    )
    for row in rows:
        setting = row["setting"]
        scores = [row[f"{split}_f1"][part] for split in ("dev", "test") for part in ("mean", "std")]
        writer.writerow(
            [setting["data"], setting["encoder"], setting["features"]["context"], row["layers"]]
            + [" ".join(map(str, row["indices"])), row["combine"], row["width"], row["n"], row["missing"]]
            + ["" if score is None else score for score in scores]
        )
    return out.getvalue()


def write_tables(results_dir: Path, rows: list[dict[str, Any]]) -> None:
    """The table beside the records, in the forms that files are read in."""
    for form, name in FILES.items():
        write_atomically(results_dir / name, render(rows, form))
