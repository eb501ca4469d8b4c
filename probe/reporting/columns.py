"""Rows to tables: text, Markdown, CSV, LaTeX and JSON; columns by choice; several settings side by side, or compared.

A pure function of rows (see `rows`). Reads files only; imports nothing that takes long.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from probe.config import UserError
from probe.reporting.published import PUBLISHED, differences
from probe.reporting.row import Row
from probe.scoring.significance import ALPHA


class Column(NamedTuple):
    header: str
    show: Callable[[Row], str]
    left: bool = False


def _spread(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        if name not in row:
            return ""
        mean, std = row[name]["mean"], row[name]["std"]
        if mean is None:
            return "failed" if row["failed"] else "missing"
        return percent(mean) if std is None else f"{percent(mean)} ± {percent(std)}"

    return show


def _range(name: str, low: str | int, high: str | int, part: str | None = None) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        values = row[name] if part is None else row[name][part]
        return "" if values is None or values[low] is None else f"{percent(values[low])} .. {percent(values[high])}"

    return show


def _cost(name: str, form: str) -> Callable[[Row], str]:
    return lambda row: format(row["cost"][name], form) if "cost" in row else ""


def _against(relation: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        test = row["against"].get(relation)
        if test is None:
            return ""
        name = f"{test['row']}: " if relation == "next" else ""
        return (
            f"{name}{100 * test['dev_difference']:+.2f}, p {p_value(test['p_seeds'])} / {p_value(test['p_text_holm'])}"
        )

    return show


def _n(row: Row) -> str:
    if not row["missing"]:
        return str(row["n"])
    return f"{row['n']} of {row['n'] + row['missing']}" + (f" ({row['failed']} failed)" if row["failed"] else "")


def _layers(row: Row) -> str:
    indices = row["indices"]
    in_a_row = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    return f"{indices[0]}..{indices[-1]}" if in_a_row else ", ".join(map(str, indices))


def _published(source: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        value = PUBLISHED[source]["rows"].get(row["layers"])
        return "" if value is None else str(value)

    return show


COLUMNS: dict[str, Column] = {
    "row": Column("row", lambda row: row["layers"], left=True),
    "layers": Column("layers", _layers, left=True),
    "combine": Column("combine", lambda row: row["combine"], left=True),
    "width": Column("width", lambda row: str(row["width"])),
    "n": Column("n", _n),
    "dev": Column("dev F1", _spread("dev_f1")),
    "test": Column("test F1", _spread("test_f1")),
    "order": Column("order", lambda row: row["order"] or "", left=True),
    "paper": Column("paper", _published("paper")),
    "bert_ner": Column("bert_ner", _published("bert_ner")),
    "dev_range": Column("dev min .. max", _range("dev_f1", "min", "max")),
    "test_range": Column("test min .. max", _range("test_f1", "min", "max")),
    "dev_interval": Column("dev 95 %", _range("dev_f1", 0, 1, "interval")),
    "test_interval": Column("test 95 %", _range("test_f1", 0, 1, "interval")),
    "best": Column("to the best: dev, p seeds / text", _against("best"), left=True),
    "next": Column("to the next better: dev, p seeds / text", _against("next"), left=True),
    "strict": Column("test strict F1", _spread("test_strict_f1")),
    "word": Column("test word F1", _spread("test_word_f1")),
    "recall": Column("test entity word recall", _spread("test_entity_word_recall")),
    "accuracy": Column("test accuracy", _spread("test_accuracy")),
    "macro": Column("test macro F1", _spread("test_macro_f1")),
    "parameters": Column("parameters", _cost("parameters", ",d")),
    "epoch_s": Column("s an epoch", _cost("seconds_per_epoch", ".1f")),
    "mb_read": Column("MB read", _cost("mb_read", ".0f")),
    "f1_per_width": Column("dev F1 a unit of width", lambda row: _cost("f1_per_width", ".2%")(row).removesuffix("%")),
}
DEFAULT = ("row", "layers", "width", "n", "dev", "test", "order")
GROUPS = {  # names for several columns
    "default": DEFAULT,
    "tests": ("order", "best", "next"),
    "spread": ("dev_range", "test_range", "dev_interval", "test_interval"),
    "scores": ("strict", "word", "recall", "accuracy"),
    "cost": ("width", "parameters", "epoch_s", "mb_read", "f1_per_width"),
}


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def p_value(value: float | None) -> str:
    return "-" if value is None else "<0.001" if value < 0.001 else f"{value:.3f}"


def choose_columns(asked: str | None, rows: Sequence[Row]) -> list[str]:
    """Column names for `--columns a,b,group`. None: what fits the rows. Raises UserError for what is no column."""
    if asked is None:
        known = any(row["about"] and row["about"]["data"] == "CoNLL-2003" for row in rows)
        names = [name for name in DEFAULT if name != "order" or any(row["order"] for row in rows)]
        return [*names, "paper"] if known else names
    names = []
    for part in asked.split(","):
        if part not in COLUMNS and part not in GROUPS:
            close = difflib.get_close_matches(part, [*COLUMNS, *GROUPS], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise UserError(f"--columns: there is no {part!r}.{hint} There are: {', '.join([*COLUMNS, *GROUPS])}.")
        names += [name for name in GROUPS.get(part, (part,)) if name not in names]
    return names


def header(name: str, rows: Sequence[Row]) -> str:
    """A column's header; of tags that are no spans the headline is accuracy."""
    header = COLUMNS[name].header
    of_headline = name in ("dev", "test", "f1_per_width")
    return header.replace("F1", "accuracy") if of_headline and _is_tags(rows) else header


def _is_tags(rows: Sequence[Row]) -> bool:
    return any(row["about"] and row["about"]["task"] == "tags" for row in rows)


def caption(rows: Sequence[Row]) -> str:
    setting = rows[0]["setting"]
    probe, features = setting["probe"], setting["features"]
    model = (
        f"BiLSTM {probe['num_layers']} x {probe['hidden_size']} per direction"
        if probe["num_layers"]
        else "linear probe"
    )
    arithmetic = f" in {probe['precision']}" if probe.get("precision", "float32") != "float32" else ""
    score = "Accuracy" if _is_tags(rows) else "Span F1 (conlleval)"
    return (
        f"{setting['data']}, {Path(setting['encoder']).name}, {features['context']} context, "
        f"{features['subword']} piece, {model}{arithmetic}. {score} in percent, "
        "mean ± standard deviation over n seeds."
    )


def above(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The caption, and how each published column's setting differs, so that nobody reads unlike things as like."""
    about = next((row["about"] for row in rows if row["about"]), None)
    lines = [caption(rows)]
    if about is None:
        return lines
    about = about | {"seeds": " or ".join(map(str, sorted({row["n"] for row in rows if row["n"]})))}
    return lines + [
        f"{source}: {PUBLISHED[source]['score']}, {PUBLISHED[source]['source']}. Here otherwise: "
        + "; ".join(differences(about, source))
        + "."
        for source in PUBLISHED
        if source in columns
    ]


def notes(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    lines = []
    if any(row["n"] == 1 for row in rows):
        lines.append(
            "n = 1 has no spread, no rank and no bold: the seed alone moves F1 by about a point, so the order of such "
            "rows may be the seed's."
        )
    tests = [row["against"]["best"] for row in rows if row["against"]]
    if tests and {"order", "best", "next"} & set(columns):
        unit = next((test["unit"] for test in tests if test["unit"]), None)
        text = (
            f" (not corrected) and paired randomisation of the test split's {unit} (Holm-corrected)"
            if unit
            else " (Holm-corrected)"
        )
        note = (
            "order: best has the highest dev mean; tied could be as good; below is told apart from it (p < 0.05) by "
            f"exact permutation of dev F1 over seeds{text}."
        )
        lowest = min(test["p_seeds"] for test in tests)
        if lowest >= ALPHA:
            note += f" Here the seeds are too few or too spread to tell any row apart (lowest p {p_value(lowest)})."
        lines.append(note)
    return lines
