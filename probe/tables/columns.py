"""What a table can show: its columns, the caption above and the notes below. A pure function of rows."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from probe.conditions import CONDITIONS, MAIN
from probe.config import UserError
from probe.probes.kinds import PROBES, describe_probe
from probe.system.format import percent
from probe.tables.caveats import caveats
from probe.tables.decisions import BEST, ELIMINATED, UNCONVERGED
from probe.tables.published import PUBLISHED, setting_differences, tuning
from probe.tables.rates import all_rates, rate_notes, rate_of, scale_notes
from probe.tables.recommendation import recommend
from probe.tables.row import Row, short_name


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


def _behind(row: Row) -> str:
    """How far a row lies behind the best: the difference of their means, and the interval of it to the truly best."""
    if row.behind is None:
        return ""
    difference = row.to_best.dev.difference if row.to_best else 0.0
    return f"{_signed(difference)} ({_signed(row.behind[0])} .. {_signed(row.behind[1])})"


def _to_best(split: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        if row.to_best is None:
            return ""
        part = getattr(row.to_best, split)
        interval = "" if part.interval is None else f" ({' .. '.join(map(_signed, part.interval))})"
        return _signed(part.difference) + interval

    return show


def _signed(share: float) -> str:
    """In percent, with its sign; what rounds to nothing has none."""
    text = f"{100 * share:+.2f}"
    return "0.00" if float(text) == 0 else text


def _component(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        value = getattr(row.components["dev"], name) if row.components else None
        return "" if value is None else percent(value)

    return show


def _label(row: Row) -> str:
    eliminated = [f"{ELIMINATED} in round {row.left.round}"] if row.left else []
    return ", ".join([UNCONVERGED, *eliminated]) if row.label == UNCONVERGED else "".join(eliminated) or row.label or ""


def _n(row: Row) -> str:
    if not row.missing:
        return str(row.n)
    return f"{row.n} of {row.n + row.missing}" + (f" ({row.failed} failed)" if row.failed else "")


def _published(source: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        name = "fine-tuned" if row.conditions == {"fine_tuned"} else row.name
        name = name.partition(":")[0]  # how its layers are normalized
        return "" if row.conditions - {"fine_tuned"} else str(PUBLISHED[source].rows.get(name, ""))

    return show


COLUMNS: dict[str, Column] = {
    "row": Column("row", lambda row: row.name, left=True),
    "treatment": Column("treatment", lambda row: row.treatment or "", left=True),
    "layers": Column("layers", lambda row: row.layers_as_text, left=True),
    "combine": Column("combine", lambda row: row.combine, left=True),
    "width": Column("width", lambda row: str(row.width)),
    "rate": Column("rate", rate_of),
    "n": Column("n", _n),
    "dev": Column("dev F1", _spread("dev_f1")),
    "test": Column("test F1", _spread("test_f1")),
    "behind": Column("behind the best (95 %)", _behind),
    "label": Column("label", _label, left=True),
    "paper": Column("paper", _published("paper")),
    "bert_ner": Column("bert_ner", _published("bert_ner")),
    "dev_range": Column("dev min .. max", _range("dev_f1")),
    "test_range": Column("test min .. max", _range("test_f1")),
    "dev_interval": Column("dev 95 %", _interval("dev_f1")),
    "test_interval": Column("test 95 %", _interval("test_f1")),
    "dev_to_best": Column("dev: to the best (95 %)", _to_best("dev")),
    "test_to_best": Column("test: to the best (95 %)", _to_best("test")),
    "run_sd": Column("sd: run", _component("run")),
    "seed_text_sd": Column("sd: seed x text", _component("seed_text")),
    "text_sd": Column("sd: text", _component("text")),
    "strict": Column("test strict F1", _spread("test_strict_f1")),
    "word": Column("test word F1", _spread("test_word_f1")),
    "recall": Column("test entity word recall", _spread("test_entity_word_recall")),
    "accuracy": Column("test accuracy", _spread("test_accuracy")),
    "macro": Column("test macro F1", _spread("test_macro_f1")),
    "rates": Column("dev F1 by rate", all_rates, left=True),
    "selectivity": Column("selectivity (95 %)", _beside("selectivity", 100)),
    "guess_floor": Column("guess floor", _beside("guess_floor", 100)),
    "bits": Column("dev bits", _bits("dev_bits")),
    "test_bits": Column("test bits", _bits("test_bits")),
    "information": Column("dev information", _bits("dev_information")),
    "test_information": Column("test information", _bits("test_information")),
    "beyond": Column("beyond layer 0 (95 %)", _beside("beyond", digits=3)),
    "gap_closed": Column("gap closed from random weights (95 %)", _beside("gap_closed", 100, 0, " %")),
    "gap_closed_embeddings": Column("from embeddings (95 %)", _beside("gap_closed_embeddings", 100, 0, " %")),
    "paired": Column("to the best on the same samples: dev (95 %)", _beside("paired", 100)),
    "compression": Column("compression", _beside("compression")),
    "blocks": Column("blocks", lambda row: str(row.blocks)),
    "parameters": Column("parameters", _cost("parameters", ",d")),
    "epoch_s": Column("s an epoch", _cost("seconds_per_epoch", ".1f")),
    "mb_read": Column("MB read", _cost("mb_read", ".0f")),
    "words_s": Column("encoder words/s", _measured),
    "f1_per_width": Column("dev F1 a unit of width", lambda row: _cost("f1_per_width", ".2%")(row).removesuffix("%")),
}
INTERVALS = ("selectivity", "beyond", "gap_closed", "gap_closed_embeddings", "paired")
HOW_UNCONVERGED = {
    "cut_short": "ended by probe.max_epochs. Raise it.",
    "silent": "no dev score above 0. More text, more epochs or another probe.learning_rate.",
}
COLUMN_NOTES = {
    "selectivity": "selectivity: dev score minus that of the same row on the control task; interval over seeds.",
    "guess_floor": "guess floor: boundary F1 on dev times the sum of squared type shares, which is what guessing each "
    "type by its frequency would score at the boundaries that were found.",
    "bits": "bits: cross-entropy of a word's tag under the probe.",
    "information": "information, in bits a word: the cross-entropy of a word's tag under the frequency of each tag in "
    "train, minus that under the probe.",
    "beyond": "beyond layer 0: how many bits a word less than layer 0 beside itself, on dev.",
    "gap_closed": "gap closed: of the difference in dev score between the same row of random weights and the best "
    "fine-tuned row, the share that the row closes; interval over seeds (Fieller's).",
    "gap_closed_embeddings": "from embeddings: the same share, of the difference between the plain embeddings and the "
    "best fine-tuned row.",
    "paired": "to the best on the same samples: a seed draws one sample of train for all rows, so dev scores are "
    "subtracted seed by seed; interval over seeds, each row by itself.",
    "compression": "compression: uniform code of train's tags over their online code, in the portions that were run.",
}
SHOWN = 6  # runs named in a note
DEFAULT = ("row", "treatment", "layers", "width", "rate", "n", "dev", "test", "behind", "label")
GROUPS = {  # names for several columns
    "default": DEFAULT,
    "floors": ("selectivity", "guess_floor", "information", "gap_closed", "gap_closed_embeddings"),
    "bits": ("bits", "information", "beyond", "compression"),
    "differences": ("behind", "label", "dev_to_best", "test_to_best"),
    "variance": ("run_sd", "seed_text_sd", "text_sd"),
    "spread": ("dev_range", "test_range", "dev_interval", "test_interval"),
    "scores": ("strict", "word", "recall", "accuracy"),
    "cost": ("width", "blocks", "parameters", "epoch_s", "mb_read", "f1_per_width"),
}


def choose_columns(wanted: str | None, rows: Sequence[Row]) -> list[str]:
    """Column names for `--columns a,b,group`. None: what fits the rows. Raises UserError for what is no column."""
    if wanted is None:
        is_known = any(row.about and row.about.data == "CoNLL-2003" for row in rows)
        empty = {
            name
            for name in ("behind", "label", "treatment", "rate")
            if not any(COLUMNS[name].show(row) for row in rows)
        }
        return [name for name in DEFAULT if name not in empty] + ["paper"] * is_known
    names: list[str] = []
    for part in wanted.split(","):
        if part not in COLUMNS and part not in GROUPS:
            close = difflib.get_close_matches(part, [*COLUMNS, *GROUPS], n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise UserError(f"--columns: there is no {part!r}.{hint} There are: {', '.join([*COLUMNS, *GROUPS])}.")
        names += [name for name in GROUPS.get(part, (part,)) if name not in names]
    if "rate" not in wanted.split(",") and not any(row.rates for row in rows):
        names = [name for name in names if name != "rate"]
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
    ways = {row.normalize for row in rows if row.indices and "fine_tuned" not in row.conditions}
    return f", layers.normalize={way}" if len(ways) == 1 and (way := next(iter(ways))) else ""


def above(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """The caption, and how each published column's setting differs, so that nobody reads unlike things as like."""
    about = next((row.about for row in sorted(rows, key=lambda row: row.section != MAIN) if row.about), None)
    lines = [caption(rows)]
    if about is None:
        return lines
    seeds = sorted({row.n for row in rows if row.n and row.section == MAIN})
    about = replace(about, seeds=" or ".join(map(str, seeds)) or about.seeds)
    return lines + [
        f"{name}: {source.score}, {source.source}. Here otherwise: " + "; ".join(setting_differences(about, name)) + "."
        f"{tuning(name, [len(row.rates) for row in rows if row.n and row.section == MAIN])}"
        for name, source in PUBLISHED.items()
        if name in columns
    ]


def unconverged_notes(rows: Sequence[Row], so: str) -> list[str]:
    """A note for each way in which runs of these rows did not converge, and what of such rows is so."""
    lines = []
    for ending, told in HOW_UNCONVERGED.items():
        runs = [record for row in rows for record in row.unconverged if record.ending == ending]
        if runs:
            labels = ", ".join(record.label for record in runs[:SHOWN])
            more = f" and {len(runs) - SHOWN} more" if len(runs) > SHOWN else ""
            lines.append(f"not converged: {labels}{more}: {told} Such rows are {so}.")
    return lines


def _rising(rows: Sequence[Row]) -> str:
    """Of fine-tuning, which ends after as many epochs as asked for: how many, and where more might score higher."""
    tuned = [record for row in rows if "fine_tuned" in row.conditions for record in row.records.values()]
    rising = sum(record.best_epoch == len(record.curve) for record in tuned)
    epochs = " or ".join(map(str, sorted({len(record.curve) for record in tuned})))
    trained = f" Trained for {epochs} epoch{'' if epochs == '1' else 's'}, so it is no upper bound."
    runs = f" In {rising} of {len(tuned)} runs the best epoch is the last"
    return trained + (f"{runs}: more epochs (probe.max_epochs) may score higher." if rising else "")


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
    if any(row.left for row in rows) and "label" in columns:
        lines.append(
            f"{ELIMINATED}: a race gave the row no more seeds after that round, most often because it was "
            "significantly worse than the leader on dev; its test score is not in this table. decisions.json has the "
            "reasons."
        )
    lines += _notes_on_differences(rows, columns)
    if any(not row.indices for row in rows):
        lines += [PROBES["majority_tag"].note or ""]
    there = {name for row in rows for name in row.conditions}
    lines += [
        condition.note + (_rising(rows) if name == "fine_tuned" else "")
        for name, condition in CONDITIONS.items()
        if name in there and condition.note
    ]
    shown = {name for name in columns if name in COLUMN_NOTES and any(COLUMNS[name].show(row) for row in rows)}
    lines += [told for name, told in COLUMN_NOTES.items() if name in shown]
    lines += caveats(rows, columns)
    return lines


def _notes_on_differences(rows: Sequence[Row], columns: Sequence[str]) -> Iterator[str]:
    """What the labels, the intervals and the components of variance mean."""
    best = next((row for row in rows if row.label == BEST), None)
    if best is None:
        return
    over = "seeds and text" if best.over_text else "seeds alone (the counts of some runs are missing)"
    if {"behind", "label"} & set(columns):
        yield (
            f"behind the best: dev {best.task.score} minus that of the row with the highest mean; in brackets how far "
            f"the row lies behind the truly best one, over {over}, with 95 % confidence for all rows at once (Hsu "
            "1984). worse: the whole interval is below 0. within the margin: all of it is above "
            f"-{best.margin:g} (--margin). undecided: neither. The dev score of a run is that of its best epoch, so it "
            "is a little too high; test scores decide nothing."
        )
    if {"dev_to_best", "test_to_best"} & set(columns):
        yield f"to the best: the difference of the two rows' means, and its interval over {over} for this pair alone."
    if {"dev_interval", "test_interval"} & set(columns):
        yield f"95 %: intervals of the means over {over}."
    if {"run_sd", "seed_text_sd", "text_sd"} & set(columns):
        yield (
            "sd: standard deviations of dev scores. run: between models of other seeds, on all text. seed x text: what "
            "a seed gains on one text and not on another. text: of the row's mean between texts of this kind and size; "
            "rows share most of it."
        )


def recommendation(rows: Sequence[Row]) -> list[str]:
    """The sentence above a table, where there are runs to recommend from."""
    ranked = [row for row in rows if row.section == MAIN and row.n]
    return [recommend(rows).as_text()] if len(ranked) > 1 else []
