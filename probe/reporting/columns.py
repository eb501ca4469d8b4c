"""What a table can show: its columns, the caption above and the notes below. A pure function of rows."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from probe.config import UserError
from probe.reporting.order import has_counts
from probe.reporting.published import PUBLISHED, unlike
from probe.reporting.row import Row, describe_probe, short_name
from probe.scoring.significance import ALPHA
from probe.system.show import p_value, percent


class Column(NamedTuple):
    header: str
    show: Callable[[Row], str]
    left: bool = False


def _spread(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        cell = row.cells.get(name)
        if cell is None or (row.left and name.startswith("test")):
            return ""
        if cell.mean is None:
            return "failed" if row.failed else "missing"
        return percent(cell.mean) if cell.std is None else f"{percent(cell.mean)} ± {percent(cell.std)}"

    return show


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{percent(low)} .. {percent(high)}"


def _range(name: str) -> Callable[[Row], str]:
    return lambda row: _span(row.cells[name].min, row.cells[name].max)


def _interval(name: str) -> Callable[[Row], str]:
    return lambda row: _span(*(row.cells[name].interval or (None, None)))


def _cost(name: str, form: str) -> Callable[[Row], str]:
    return lambda row: "" if row.cost is None else format(getattr(row.cost, name), form)


def _against(relation: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        difference = row.against.get(relation)
        if difference is None:
            return ""
        name = f"{difference.row}: " if relation == "next" else ""
        p = f"p {p_value(difference.dev.p_seeds)} / {p_value(difference.p_text_holm)}"
        return f"{name}{100 * difference.dev.difference:+.2f}, {p}"

    return show


def _order(row: Row) -> str:
    if row.unconverged:
        return "not converged"
    return f"left in round {row.left.round}" if row.left else row.order or ""


def _n(row: Row) -> str:
    if not row.missing:
        return str(row.n)
    return f"{row.n} of {row.n + row.missing}" + (f" ({row.failed} failed)" if row.failed else "")


def _layers(row: Row) -> str:
    indices = row.indices
    in_a_row = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    return f"{indices[0]}..{indices[-1]}" if in_a_row else ", ".join(map(str, indices))


def _published(source: str) -> Callable[[Row], str]:
    return lambda row: "" if row.treatment else str(PUBLISHED[source].rows.get(row.name, ""))


COLUMNS: dict[str, Column] = {
    "row": Column("row", lambda row: row.name, left=True),
    "treatment": Column("treatment", lambda row: row.treatment or "", left=True),
    "layers": Column("layers", _layers, left=True),
    "combine": Column("combine", lambda row: row.combine, left=True),
    "width": Column("width", lambda row: str(row.width)),
    "n": Column("n", _n),
    "dev": Column("dev F1", _spread("dev_f1")),
    "test": Column("test F1", _spread("test_f1")),
    "order": Column("order", _order, left=True),
    "paper": Column("paper", _published("paper")),
    "bert_ner": Column("bert_ner", _published("bert_ner")),
    "dev_range": Column("dev min .. max", _range("dev_f1")),
    "test_range": Column("test min .. max", _range("test_f1")),
    "dev_interval": Column("dev 95 %", _interval("dev_f1")),
    "test_interval": Column("test 95 %", _interval("test_f1")),
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
UNCONVERGED = {
    "cut_short": "still rising at the last epoch allowed. Raise probe.max_epochs.",
    "silent": "no dev score above 0. More text, more epochs or another probe.learning_rate.",
}
SHOWN = 6  # runs named in a note
DEFAULT = ("row", "treatment", "layers", "width", "n", "dev", "test", "order")
GROUPS = {  # names for several columns
    "default": tuple(name for name in DEFAULT if name != "treatment"),
    "tests": ("order", "best", "next"),
    "spread": ("dev_range", "test_range", "dev_interval", "test_interval"),
    "scores": ("strict", "word", "recall", "accuracy"),
    "cost": ("width", "parameters", "epoch_s", "mb_read", "f1_per_width"),
}


def choose_columns(wanted: str | None, rows: Sequence[Row]) -> list[str]:
    """Column names for `--columns a,b,group`. None: what fits the rows. Raises UserError for what is no column."""
    if wanted is None:
        is_known = any(row.about and row.about.data == "CoNLL-2003" for row in rows)
        empty = {name for name in ("order", "treatment") if not any(COLUMNS[name].show(row) for row in rows)}
        return [name for name in DEFAULT if name not in empty] + ["paper"] * is_known
    names: list[str] = []
    for part in wanted.split(","):
        if part not in COLUMNS and part not in GROUPS:
            close = difflib.get_close_matches(part, [*COLUMNS, *GROUPS], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise UserError(f"--columns: there is no {part!r}.{hint} There are: {', '.join([*COLUMNS, *GROUPS])}.")
        names += [name for name in GROUPS.get(part, (part,)) if name not in names]
    return names


def header(name: str, rows: Sequence[Row]) -> str:
    """A column's header; of tags that are no spans the headline is accuracy."""
    header = COLUMNS[name].header
    return header.replace("F1", rows[0].task.score) if name in ("dev", "test", "f1_per_width") else header


def caption(rows: Sequence[Row]) -> str:
    """What the rows of one table have in common, and what their numbers are."""
    setting = rows[0].setting
    return (
        f"{setting.data}, {short_name(setting.encoder)}, {setting.features['context']} context, "
        f"{setting.features['subword']} piece, {describe_probe(setting.probe)}. {rows[0].task.title} in percent, "
        "mean ± standard deviation over n seeds."
    )


def above(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The caption, and how each published column's setting differs, so that nobody reads unlike things as like."""
    about = next((row.about for row in rows if row.about), None)
    lines = [caption(rows)]
    if about is None:
        return lines
    about = replace(about, seeds=" or ".join(map(str, sorted({row.n for row in rows if row.n}))))
    return lines + [
        f"{name}: {source.score}, {source.source}. Here otherwise: " + "; ".join(unlike(about, name)) + "."
        for name, source in PUBLISHED.items()
        if name in columns
    ]


def notes(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """What a reader must know of the numbers, below the table."""
    lines = []
    if any(row.n == 1 and not row.left for row in rows):
        lines.append(
            "n = 1 has no spread, no rank and no bold: the seed alone moves F1 by about a point, so the order of such "
            "rows may be the seed's."
        )
    for ending, told in UNCONVERGED.items():
        runs = [record for row in rows for record in row.unconverged if record.ending == ending]
        if runs:
            labels = ", ".join(record.label for record in runs[:SHOWN])
            more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
            lines.append(f"not converged: {labels}{more}: {told} Such rows are not ranked.")
    if any(row.left for row in rows) and "order" in columns:
        lines.append(
            "left: a race gave the row no more seeds after that round, most often because it was told apart from the "
            "leader, on dev alone; its test score is not shown. decisions.json has the reasons."
        )
    to_best = [row.against["best"] for row in rows if row.against]
    if to_best and {"order", "best", "next"} & set(columns):
        unit = next((difference.unit for difference in to_best if difference.unit), None)
        text = (
            f" (not corrected) and paired randomisation of the test split's {unit} (Holm-corrected)"
            if has_counts(to_best)
            else " (Holm-corrected)"
        )
        note = (
            "order: best has the highest dev mean; tied could be as good; below is told apart from it (p < 0.05) by "
            f"exact permutation of dev F1 over seeds{text}."
        )
        lowest = min(difference.dev.p_seeds for difference in to_best if difference.dev.p_seeds is not None)
        if lowest >= ALPHA:
            note += f" Here the seeds are too few or too spread to tell any row apart (lowest p {p_value(lowest)})."
        lines.append(note)
    return lines
