"""Scores any system's predictions in CoNLL columns (word ... gold predicted) by all common definitions.

Each column is read in its own scheme. Tags that are not IOB2 are converted first: a scorer that does not know BIOES
counts its spans wrongly. Only accuracy compares the original tags, as conlleval does. Reads files only.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
from tabulate import SEPARATING_LINE, tabulate

from probe.config import UserError
from probe.data.columns import ColumnsError
from probe.data.corpus import places_of
from probe.data.layout import Layout
from probe.data.readers import READERS
from probe.data.split import Split
from probe.data.tags import Tags, TagSchemeError, find_scheme, ill_formed, to_iob2, with_prefixes
from probe.data.task import Task
from probe.scoring.metrics import Counts, Scores, by_sentence, count, scores_of, strict_counts
from probe.scoring.significance import Randomisation, approximate_randomisation, units_of
from probe.system.files import to_jsonable
from probe.system.format import percent

DOCUMENT_MARKER = "-DOCSTART-"
ENOUGH = 10  # predicted spans that begin with I- make a scheme if there are so many; fewer may be mistakes of a tagger


@dataclass
class Predictions:
    """Holds a file of predictions and its counts.

    gold: in IOB2. marks: lines between documents that were counted as words. invisible: tags from which invisible
    characters around them were removed.
    """

    file: Path
    task: Task
    split: Split
    gold: Tags
    counts: Counts
    schemes: tuple[str, str] | None  # of gold and predicted, as they are in the file
    marks: int
    invisible: int

    def scores(self) -> Scores:
        return scores_of(self.counts)

    def table(self) -> np.ndarray:
        """Returns (sentences, 3): the number of gold, predicted and correct items of all types."""
        return by_sentence(self.counts)

    def as_json(self) -> dict:
        """Returns the scores, and the scheme of each column."""
        named = {} if self.schemes is None else {"schemes": dict(zip(("gold", "predicted"), self.schemes, strict=True))}
        return {**to_jsonable(self.scores()), **named}


def read_predictions(file: Path, task: Task, ignore_docstart: bool) -> Predictions:
    """Reads and counts a file: the word first, gold and predicted tag last. Raises UserError with the line."""
    marker = DOCUMENT_MARKER if ignore_docstart else None
    try:
        split, other = (
            READERS["columns"].read(file, Layout(tag_column=column, document_marker=marker), "Type: probe score FILE.")
            for column in (-2, -1)
        )
    except ColumnsError as error:
        hint = " --ignore-docstart skips such lines." if DOCUMENT_MARKER in error.columns else ""
        if error.too_few:
            hint = " Three are needed: word, gold tag, predicted tag."
        raise UserError(f"{error.found}{hint}") from None
    gold: Tags = split.tags
    predicted: Tags = other.tags
    marks = sum(word == DOCUMENT_MARKER for words in split.words for word in words)
    invisible = split.invisible + other.invisible
    if not task.has_spans:
        return Predictions(file, task, split, gold, count(gold, predicted, task), None, marks, invisible)
    gold_scheme = _scheme(split, "auto")
    predicted_scheme = _scheme_of_predictions(other, gold_scheme)
    as_written = [sum(map(str.__eq__, gs, ps)) for gs, ps in zip(gold, predicted, strict=True)]
    gold, predicted = with_prefixes(gold, gold_scheme), with_prefixes(predicted, predicted_scheme)
    strict = strict_counts(gold, predicted, gold_scheme, predicted_scheme)
    if gold_scheme != "IOB2":
        gold = [to_iob2(tags) for tags in gold]
    if predicted_scheme != "IOB2":
        predicted = [to_iob2(tags) for tags in predicted]
    counts = count(gold, predicted, task) | strict | {"right_tags": as_written}
    return Predictions(file, task, split, gold, counts, (gold_scheme, predicted_scheme), marks, invisible)


def _scheme(split: Split, asked: str) -> str:
    try:
        return find_scheme(split.tags, asked)
    except TagSchemeError as error:
        if asked != "auto":
            return _scheme(split, "auto")
        place = next(places_of(split, error.tag))
        raise UserError(f"{place}: tag {error.tag!r} {error}. If tags are not spans: --task tags.") from None


def _scheme_of_predictions(predicted: Split, gold_scheme: str) -> str:
    """Returns the scheme of predictions: gold's, unless they are clearly in another.

    If it were detected only from predictions, a tagger's stray I- could pass for IOB1, with nothing ill-formed. But
    for gold in IOB1, as CoNLL-2003 was distributed, predictions are often IOB2. And for gold in BIOES, predictions that
    never end a span with E- or S- are not BIOES.
    """
    if gold_scheme in ("IOB1", "IO"):
        return _scheme(predicted, "auto")
    scheme = _scheme(predicted, gold_scheme)
    prefixes = {tag[0] for tags in predicted.tags for tag in tags} - {"O"}
    if scheme != gold_scheme or not prefixes <= set("BI"):
        return scheme
    own = _scheme(predicted, "auto")
    wrong, wrong_by_own = (sum(len(ill_formed(tags, s)) for tags in predicted.tags) for s in (gold_scheme, own))
    if gold_scheme == "IOB2" and (wrong < ENOUGH or wrong_by_own):
        return gold_scheme
    return own if wrong_by_own < wrong else gold_scheme


def paired_test(a: Predictions, b: Predictions) -> tuple[Randomisation, str]:
    """Returns the difference of the two files' span F1 (or accuracy) with its p, and the unit that was shuffled.

    Documents are swapped as a whole if both files mark the same ones, and enough of them, else sentences. Raises
    UserError if the files do not have the same text.
    """
    for i, (ours, theirs) in enumerate(zip(a.split.words, b.split.words, strict=False)):
        same_tags = [to_iob2(tags) for tags in (a.gold[i], b.gold[i])] if a.task.has_spans else [a.gold[i], b.gold[i]]
        if ours != theirs or same_tags[0] != same_tags[1]:
            what = "words" if ours != theirs else "gold tags"
            raise UserError(
                f"{a.split.origin}:{a.split.lines[i]} and {b.split.origin}:{b.split.lines[i]}: the {what} differ; two "
                "systems can only be compared on one text."
            )
    if len(a.split.words) != len(b.split.words):
        raise UserError(
            f"{a.file} has {len(a.split.words)} sentences, {b.file} {len(b.split.words)}; two systems can only be "
            "compared on one text."
        )
    units = units_of(a.split.documents, b.split.documents)
    return approximate_randomisation(a.table(), b.table(), units), "sentence" if units is None else "document"


def render(predictions: Predictions) -> str:
    """Renders scores for people: percentages with two decimals."""
    scores = predictions.scores()
    total = scores.counts
    head = f"{predictions.file}: {total.sentences} sentences, {total.words} words"
    lines: list[list[str | float | None]] = [
        ["accuracy", None, None, scores.accuracy],
        ["macro F1 over tags", None, None, scores.macro_f1],
    ]
    if predictions.schemes is not None:
        gold, predicted = predictions.schemes
        schemes = gold if gold == predicted else f"gold {gold}, predicted {predicted}"
        head += f"; spans: {total.gold} in gold, {total.predicted} predicted, {total.correct} right. {schemes}"
        head += f", {scores.ill_formed} predicted tags ill-formed"
        assert scores.span is not None
        assert scores.strict is not None
        assert scores.word is not None
        lines = [
            ["span (conlleval)", *astuple(scores.span)],
            ["span, strict", *astuple(scores.strict)],
            ["word (B- and I- count as equal)", *astuple(scores.word)],
            ["recall of entity words", None, scores.entity_word_recall, None],
            ["accuracy, O counted, tags as written", None, None, scores.accuracy],
        ]
    per_type: list[list[str | float | None]] = [
        [f"{kind} ({score.gold})", score.precision, score.recall, score.f1] for kind, score in scores.per_type.items()
    ]
    blocks = [
        [[name, *("" if value is None else percent(float(value)) for value in row)] for name, *row in block]
        for block in (lines, per_type)
    ]
    text = tabulate(
        [*blocks[0], SEPARATING_LINE, *blocks[1]],
        ["", "precision", "recall", "F1" if predictions.task.has_spans else "F1, accuracy"],
        disable_numparse=True,
        colalign=("left", "right", "right", "right"),
    )
    if predictions.schemes is not None and len(set(predictions.schemes)) > 1:
        text += (
            "\nAccuracy compares tags as they are written, as conlleval does: tags of two schemes that differ count as "
            "errors."
        )
    if predictions.marks:
        text += f"\n{predictions.marks} lines {DOCUMENT_MARKER} count as words; --ignore-docstart skips them."
    if predictions.invisible:
        text += f"\n{predictions.invisible} tags have invisible characters around them, which are ignored."
    return f"{head}.\n\n{text}\n"


def render_test(a: Predictions, b: Predictions, tested: Randomisation, unit: str) -> str:
    name = "span F1" if a.task.has_spans else "accuracy"
    return (
        f"{a.file} minus {b.file}: {100 * tested.difference:+.2f} points of {name}, p = {tested.p:.4f} "
        f"(paired approximate randomisation, {tested.shuffles:,} shuffles of {tested.units:,} {unit}s).\n"
    )
