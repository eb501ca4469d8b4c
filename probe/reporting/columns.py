"""What a table can show: its columns, the caption above and the notes below. A pure function of rows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from probe.config import UserError
from probe.reporting.order import has_counts
from probe.reporting.published import PUBLISHED, tuning, unlike
from probe.reporting.rates import all_rates, rate_notes, rate_of, scale_notes
from probe.reporting.row import PLAIN, Row, describe_probe, names_of, short_name
from probe.reporting.verdict import verdict
from probe.runs.identity import CONTROL, FINE_TUNED, RANDOM
from probe.scoring.significance import ALPHA
from probe.system.show import p_value, percent


class Column(NamedTuple):
    header: str
    show: Callable[[Row], str]
    left: bool = False


def _is_hidden(row: Row, cell: str) -> bool:
    """A race shows no test score of a row that left it."""
    return row.left is not None and cell.startswith("test")


def _spread(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        cell = row.cells.get(name)
        if cell is None or _is_hidden(row, name):
            return ""
        if cell.mean is None:
            return "failed" if row.failed else "missing"
        return percent(cell.mean) if cell.std is None else f"{percent(cell.mean)} ± {percent(cell.std)}"

    return show


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{percent(low)} .. {percent(high)}"


def _range(name: str) -> Callable[[Row], str]:
    return lambda row: "" if _is_hidden(row, name) else _span(row.cells[name].min, row.cells[name].max)


def _interval(name: str) -> Callable[[Row], str]:
    return lambda row: "" if _is_hidden(row, name) else _span(*(row.cells[name].interval or (None, None)))


def _bits(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        cell = row.cells.get(name)
        if cell is None or cell.mean is None or _is_hidden(row, name):
            return ""
        return f"{cell.mean:.3f}" + ("" if cell.std is None else f" ± {cell.std:.3f}")

    return show


def _beside(name: str, scale: float = 1, digits: int = 2, unit: str = "") -> Callable[[Row], str]:
    """A mean, its deviation and, where there is one, its interval."""

    def show(row: Row) -> str:
        cell = row.beside.get(name)
        if cell is None or cell.mean is None:
            return ""
        spread = "" if cell.std is None else f" ± {scale * cell.std:.{digits}f}"
        low, high = (f"{scale * edge:.{digits}f}" for edge in cell.interval or (math.nan, math.nan))
        interval = f" ({low} .. {high})" if cell.interval and name in INTERVALS else ""
        return f"{scale * cell.mean:.{digits}f}{unit}{spread}{interval}"

    return show


def _cost(name: str, form: str) -> Callable[[Row], str]:
    return lambda row: "" if row.cost is None else format(getattr(row.cost, name), form)


def _measured(row: Row) -> str:
    return f"{row.cost.words_per_second:,}" if row.cost and row.cost.words_per_second else ""


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
    left = [f"left in round {row.left.round}"] if row.left else []
    return ", ".join(["not converged", *left]) if row.order == "unconverged" else left[0] if left else row.order or ""


def _n(row: Row) -> str:
    if not row.missing:
        return str(row.n)
    return f"{row.n} of {row.n + row.missing}" + (f" ({row.failed} failed)" if row.failed else "")


def _layers(row: Row) -> str:
    indices = row.indices
    in_a_row = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    return f"{indices[0]}..{indices[-1]}" if in_a_row else ", ".join(map(str, indices))


def _published(source: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        names = names_of(row.of)
        name = FINE_TUNED if names == {FINE_TUNED} else row.name
        name = name.partition(":")[0]  # how its layers are normalized
        return "" if names - {FINE_TUNED} else str(PUBLISHED[source].rows.get(name, ""))

    return show


COLUMNS: dict[str, Column] = {
    "row": Column("row", lambda row: row.name, left=True),
    "treatment": Column("treatment", lambda row: row.treatment or "", left=True),
    "layers": Column("layers", _layers, left=True),
    "combine": Column("combine", lambda row: row.combine, left=True),
    "width": Column("width", lambda row: str(row.width)),
    "rate": Column("rate", rate_of),
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
    "rates": Column("dev F1 by rate", all_rates, left=True),
    "selectivity": Column("selectivity (95 %)", _beside("selectivity", 100)),
    "bits": Column("dev bits", _bits("dev_bits")),
    "test_bits": Column("test bits", _bits("test_bits")),
    "information": Column("dev information", _bits("dev_information")),
    "test_information": Column("test information", _bits("test_information")),
    "beyond": Column("beyond layer 0 (95 %)", _beside("beyond", digits=3)),
    "way": Column("of the way", _beside("way", 100, 0, " %")),
    "compression": Column("compression", _beside("compression")),
    "blocks": Column("blocks", lambda row: str(row.blocks)),
    "parameters": Column("parameters", _cost("parameters", ",d")),
    "epoch_s": Column("s an epoch", _cost("seconds_per_epoch", ".1f")),
    "mb_read": Column("MB read", _cost("mb_read", ".0f")),
    "words_s": Column("encoder words/s", _measured),
    "f1_per_width": Column("dev F1 a unit of width", lambda row: _cost("f1_per_width", ".2%")(row).removesuffix("%")),
}
INTERVALS = ("selectivity", "beyond")  # differences, which readers want to tell from zero
UNCONVERGED = {
    "cut_short": "ended by probe.max_epochs. Raise it.",
    "silent": "no dev score above 0. More text, more epochs or another probe.learning_rate.",
}
COLUMN_NOTES = {
    "selectivity": "selectivity: dev score minus that of the same row on the control task.",
    "bits": "bits: cross-entropy of a word's tag under the probe.",
    "information": "information, in bits a word: the cross-entropy of a word's tag under the frequency of each tag in "
    "train, minus that under the probe.",
    "beyond": "beyond layer 0: how many bits a word less than layer 0 beside itself, on dev.",
    "way": "of the way: how far dev has come from the same row of random weights to the fine-tuned encoder.",
    "compression": "compression: uniform code of train's tags over their online code, in the portions that were run.",
}
TREATED_NOTES = {
    "word_memory": "word_memory: no encoder, no probe: each word or longest known mention as train has it most often.",
    RANDOM["random"]: "random weights: the same architecture, initialised anew and never trained.",
    RANDOM["random_blocks"]: "random blocks: trained embeddings, all else initialised anew.",
    CONTROL: "control: another task on the same words, in which each word (of spans: each mention) has a tag drawn at "
    "random (bounds of spans stay): what is right there is remembered, or guessed among a few.",
    FINE_TUNED: "fine-tuned: the encoder itself trained, with a linear layer on its last layer; its best epoch on dev.",
}
SHOWN = 6  # runs named in a note
DEFAULT = ("row", "treatment", "layers", "width", "rate", "n", "dev", "test", "order")
GROUPS = {  # names for several columns
    "default": DEFAULT,
    "floors": ("selectivity", "information", "way"),
    "bits": ("bits", "information", "beyond", "compression"),
    "tests": ("order", "best", "next"),
    "spread": ("dev_range", "test_range", "dev_interval", "test_interval"),
    "scores": ("strict", "word", "recall", "accuracy"),
    "cost": ("width", "blocks", "parameters", "epoch_s", "mb_read", "f1_per_width"),
}


def choose_columns(wanted: str | None, rows: Sequence[Row]) -> list[str]:
    """Column names for `--columns a,b,group`. None: what fits the rows. Raises UserError for what is no column."""
    if wanted is None:
        is_known = any(row.about and row.about.data == "CoNLL-2003" for row in rows)
        empty = {name for name in ("order", "treatment", "rate") if not any(COLUMNS[name].show(row) for row in rows)}
        return [name for name in DEFAULT if name not in empty] + ["paper"] * is_known
    names: list[str] = []
    for part in wanted.split(","):
        if part not in COLUMNS and part not in GROUPS:
            close = difflib.get_close_matches(part, [*COLUMNS, *GROUPS], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise UserError(f"--columns: there is no {part!r}.{hint} There are: {', '.join([*COLUMNS, *GROUPS])}.")
        names += [name for name in GROUPS.get(part, (part,)) if name not in names]
    is_treated = any(row.treatment for row in rows)
    return names if is_treated or "treatment" in wanted.split(",") else [n for n in names if n != "treatment"]


def header(name: str, rows: Sequence[Row]) -> str:
    """A column's header; of tags that are no spans the headline is accuracy."""
    header = COLUMNS[name].header
    return header.replace("F1", rows[0].task.score) if name in ("dev", "test", "rates", "f1_per_width") else header


def caption(rows: Sequence[Row]) -> str:
    """What the rows of one table have in common, and what their numbers are."""
    setting = rows[0].setting
    return (
        f"{setting.data}, {short_name(setting.encoder)}, {setting.features['context']} context, "
        f"{setting.features['subword']} piece, {describe_probe(setting.probe)}{_normalized(rows)}. "
        f"{rows[0].task.title} in percent, "
        "mean ± standard deviation over n seeds."
    )


def _normalized(rows: Sequence[Row]) -> str:
    """How the layers of all rows are normalized; where rows differ in it, their names say it."""
    ways = {row.normalize for row in rows if row.indices and FINE_TUNED not in names_of(row.of)}
    return f", layers.normalize={way}" if len(ways) == 1 and (way := next(iter(ways))) else ""


def above(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The caption, and how each published column's setting differs, so that nobody reads unlike things as like."""
    about = next((row.about for row in sorted(rows, key=lambda row: row.place != PLAIN) if row.about), None)
    lines = [caption(rows)]
    if about is None:
        return lines
    seeds = sorted({row.n for row in rows if row.n and row.place == PLAIN})
    about = replace(about, seeds=" or ".join(map(str, seeds)) or about.seeds)
    return lines + [
        f"{name}: {source.score}, {source.source}. Here otherwise: " + "; ".join(unlike(about, name)) + "."
        f"{tuning(name, [len(row.rates) for row in rows if row.n and row.place == PLAIN])}"
        for name, source in PUBLISHED.items()
        if name in columns
    ]


def unconverged_notes(rows: Sequence[Row], so: str) -> list[str]:
    """A note for each way in which runs of these rows did not converge, and what of such rows is so."""
    lines = []
    for ending, told in UNCONVERGED.items():
        runs = [record for row in rows for record in row.unconverged if record.ending == ending]
        if runs:
            labels = ", ".join(record.label for record in runs[:SHOWN])
            more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
            lines.append(f"not converged: {labels}{more}: {told} Such rows are {so}.")
    return lines


def _rising(rows: Sequence[Row]) -> str:
    """Of fine-tuning, which ends after as many epochs as asked for: where it might have gone on."""
    tuned = [record for row in rows if FINE_TUNED in names_of(row.of) for record in row.records.values()]
    rising = sum(record.best_epoch == len(record.curve) for record in tuned)
    runs = f" In {rising} of {len(tuned)} runs the best epoch is the last"
    return f"{runs}: more epochs (probe.max_epochs) may score higher." if rising else ""


def notes(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """What a reader must know of the numbers, below the table."""
    lines = []
    if any(row.n == 1 and row.indices and not row.left for row in rows):
        lines.append(
            "n = 1 has no spread, no rank and no bold: the seed alone moves F1 by about a point, so the order of such "
            "rows may be the seed's."
        )
    lines += unconverged_notes(rows, "not ranked")
    lines += rate_notes(rows) + scale_notes(rows)
    if any(row.left for row in rows) and "order" in columns:
        lines.append(
            "left: a race gave the row no more seeds after that round, most often because it was told apart from the "
            "leader, on dev alone; its test score is not in this table. decisions.json has the reasons."
        )
    to_best = [row.against["best"] for row in rows if row.against and row.order]
    if to_best and {"order", "best", "next"} & set(columns):
        unit = next((difference.unit for difference in to_best if difference.unit), None)
        text = (
            f" (not corrected) and paired randomisation of the test split's {unit} (Holm-corrected)"
            if has_counts(to_best)
            else " (Holm-corrected)"
        )
        note = (
            "order: best has the highest dev mean of the rows ranked; tied could be as good; below is told apart from "
            f"it (p < 0.05) by exact permutation of dev {rows[0].task.score} over seeds{text}."
        )
        lowest = min(difference.dev.p_seeds for difference in to_best if difference.dev.p_seeds is not None)
        if any(row.order == "untested" for row in rows):
            note += " untested: with so few seeds, or without counts, no test could tell it apart, however far it lies."
        elif lowest >= ALPHA:
            note += f" Here the seeds are too spread to tell any row apart (lowest p {p_value(lowest)})."
        lines.append(note)
    there = {name for row in rows for name in names_of(row.of)} | {row.name for row in rows if not row.indices}
    lines += [
        told + (_rising(rows) if name == FINE_TUNED else "") for name, told in TREATED_NOTES.items() if name in there
    ]
    shown = {name for name in columns if name in COLUMN_NOTES and any(COLUMNS[name].show(row) for row in rows)}
    lines += [told for name, told in COLUMN_NOTES.items() if name in shown]
    if "dev" in columns and any(row.n for row in rows):
        lines.append(verdict(rows).as_text())
    return lines
