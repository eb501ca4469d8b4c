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
from probe.features import canonical, write_atomically
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
    """Notes the runs a sweep asks for: their key, row, seed, layers and setting."""
    write_atomically(results_dir / SWEEP, json.dumps({"runs": runs}, indent=1, ensure_ascii=False) + "\n")


def read_expected(results_dir: Path) -> list[dict[str, Any]]:
    try:
        return json.loads((results_dir / SWEEP).read_text(encoding="utf-8"))["runs"]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{results_dir / SWEEP} is damaged. Remove it, or start the sweep again.") from None


def setting_of(config: dict[str, Any]) -> dict[str, Any]:
    """What all rows of one table share, for its caption and to keep unlike runs apart."""
    return {
        "data": config["data"]["name"],
        "encoder": config["encoder"]["path"] or config["encoder"]["name"],
        "features": config["features"],
        "probe": config["probe"],
    }


def build_rows(results_dir: Path) -> list[dict[str, Any]]:
    """One dict a row, rows of one setting together, in the paper's order. Raises UserError if there is nothing."""
    if not results_dir.is_dir():
        raise UserError(f"{results_dir}: there is no such folder. `probe +sweep=quickstart` makes results/quickstart.")
    records, expected = load_records(results_dir), read_expected(results_dir)
    if not records and not expected:
        raise UserError(f"{results_dir} holds no records. `probe +sweep=quickstart` makes results/quickstart.")
    cells: dict[str, dict[str, Any]] = {}
    for run in expected:
        cell = _cell(cells, run["setting"], run["row"], run["layers"])
        cell["expected"].add(run["key"])
    for record in records:
        cell = _cell(cells, setting_of(record["config"]), record["row"], record["layers"])
        cell["records"].append(record)
    rows = [_row(cell) for cell in cells.values()]
    rank = {name: position for position, name in enumerate(PAPER_ORDER)}
    return sorted(
        rows,
        key=lambda row: (
            canonical(row["setting"]),
            rank.get(row["layers"], len(rank)),
            row["indices"],
            row["combine"],
        ),
    )


def _cell(
    cells: dict[str, dict[str, Any]], setting: dict[str, Any], name: str, layers: dict[str, Any]
) -> dict[str, Any]:
    empty = {"setting": setting, "layers": name, "selection": layers, "expected": set(), "records": []}
    return cells.setdefault(canonical([setting, layers["indices"], layers["combine"]]), empty)


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
    settings = {canonical(row["setting"]): row["setting"] for row in rows}
    for name, setting in settings.items():
        block = [row for row in rows if canonical(row["setting"]) == name]
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
