"""Reads texts with spans of characters, as annotation tools export them, and gives such spans back.

A row is one text: a line of doccano or Prodigy, an example of spaCy, a task of Label Studio. Each line of a text is a
sentence, unless a span goes on behind the line end. Words are cut where spans begin and end, so that offsets come out
as they came in. They count characters (code points); with data.offsets=utf16, as browsers do.
"""

from __future__ import annotations

import functools
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any, NamedTuple

from probe.config import UserError
from probe.data.layout import Layout
from probe.data.running_text import word_bounds
from probe.data.split import AROUND_WORD, CUT_WORDS, Split, SplitBuilder
from probe.scoring.tags import Tags, spans

OF_BROWSERS = ("label", "labels", "annotations", "data")  # fields of tools that may count as a browser does
FIELDS = ("label", "labels", "annotations", "entities", "spans", "ents")  # that may hold the spans of a text
A_SPAN = '[0, 4, "ORG"] or {"start": 0, "end": 4, "label": "ORG"}'
DOUBLE = re.compile("[\U00010000-\U0010ffff]")  # characters that a browser counts as two


class Span(NamedTuple):
    """Holds a span of characters of a text. end: behind the last one. score: its probability, if it was predicted."""

    start: int
    end: int
    kind: str
    score: float | None = None

    def as_dict(self, name: str) -> dict[str, Any]:
        """Returns the fields by their names, the type under this one."""
        return {"start": self.start, "end": self.end, name: self.kind, "score": self.score}


def flattened(row: Mapping) -> Mapping:
    """Puts the fields of `data`, where Label Studio has the text, among those of the task."""
    return {**row["data"], **row} if isinstance(row.get("data"), dict) else row


def text_of(row: Mapping, layout: Layout) -> str | None:
    """Returns the text of a row that has neither words nor tags; None for any other row."""
    words, tags = row.get(layout.words_field), row.get(layout.tags_field)
    if any(isinstance(part, str) for part in [*(words if isinstance(words, list) else []), *as_list(tags)]):
        return None
    return next((text for text in (words, row.get("text")) if isinstance(text, str)), None)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class SpanReader:
    """Reads the spans of texts. skipped: counts what is left out or changed, by its name."""

    def __init__(self, layout: Layout, skipped: Counter[str]) -> None:
        self.layout, self.skipped = layout, skipped
        self.kinds: dict[str, str] = {}  # as they were exported, by how tags have them

    def read(self, row: Mapping, text: str, place: str) -> list[Span] | None:
        """Returns a row's spans, in order; None if it was not annotated, or not accepted. Raises UserError."""
        exported = self._exported(row, place)
        if exported is None:
            return None
        by_browser = bool({*OF_BROWSERS} & row.keys())
        checked = [self._span(span, text, by_browser, f"{place}: span {_shown(span)}") for span in exported]
        apart: list[Span] = []
        for span in sorted(checked, key=lambda span: (span.start - span.end, span.start)):  # the longest first
            other = next((other for other in apart if span.start < other.end and other.start < span.end), None)
            if other is None:
                apart.append(span)
            elif self.layout.overlaps == "longest":
                self.skipped["overlapping spans"] += 1
            else:
                both = " and ".join(_shown(one[:3]) for one in sorted([span, other]))
                raise UserError(f"{place}: {both} overlap. To keep the longest: data.overlaps=longest.")
        return sorted(apart)

    def _exported(self, row: Mapping, place: str) -> list[Any] | None:
        """Returns a row's spans as they were exported; None if it was not annotated, or not accepted."""
        if row.get("answer") in ("reject", "ignore"):  # of Prodigy
            self.skipped["texts that were not accepted"] += 1
            return None
        if isinstance(row.get("data"), dict):  # of Label Studio, with an annotation by each annotator
            try:
                annotations = [one["result"] for one in row["annotations"] if not one.get("was_cancelled")]
                regions = [
                    [one.get("value") for one in results if str(one.get("type")).endswith("labels")]
                    for results in annotations
                ]
            except (AttributeError, KeyError, TypeError):
                raise UserError(f"{place}: its annotations are not as Label Studio exports them.") from None
            if len(annotations) > 1:
                raise UserError(f"{place} has {len(annotations)} annotations. Export one per text.")
            if not annotations:
                self.skipped["texts without annotation"] += 1
                return None
            self.skipped["annotations that are no spans"] += len(annotations[0]) - len(regions[0])
            return regions[0]
        wanted = self.layout.tags_field
        fields = FIELDS if wanted == Layout.tags_field and wanted not in row else (wanted,)
        names = [name for name in fields if isinstance(row.get(name), list)]
        if not names and (row.get("answer") == "accept" or "annotation_id" in row):  # it was annotated, and has no span
            return []
        if not names:
            known = ", ".join(fields)
            raise UserError(f"{place} has no list of words (data.words_field) or of spans ({known}: data.tags_field).")
        if len(names) > 1:
            typed = " or ".join(f"data.tags_field={name}" for name in names)
            raise UserError(f"{place} has several lists that may be its spans: {typed}.")
        return list(row[names[0]])

    def _span(self, exported: Any, text: str, by_browser: bool, shown: str) -> Span:
        """Returns a span without the blanks around it. Raises UserError if it is no span of the text."""
        start, end, kind, quoted = _parts(exported)
        if {type(start), type(end)} != {int} or not isinstance(kind, str) or not kind.strip():
            raise UserError(f"{shown} is not a start, an end and one type, as {A_SPAN}.")
        if self.layout.offsets == "utf16":
            start, end = (_from_utf16(text).get(at, -1) for at in (start, end))
        typed = "type data.offsets=utf16, or data.offsets=characters"
        remedy = f" A browser counts some of its characters (emoji) twice: {typed}." if DOUBLE.search(text) else ""
        if not 0 <= start < end <= len(text):
            raise UserError(f"{shown} does not lie in its text of {len(text)} characters.{remedy}")
        inside = text[start:end]
        if quoted is not None and _bare(str(quoted)) != _bare(inside):
            raise UserError(f"{shown} is {_shown(inside)} in the text.{remedy}")
        is_doubtful = quoted is None and self.layout.offsets is None and (by_browser or "start_offset" in exported)
        if is_doubtful and DOUBLE.search(text, 0, end):
            of_browser = text[slice(*(_from_utf16(text).get(at, 0) for at in (start, end)))]
            raise UserError(f"{shown} is {_shown(inside)}, or as a browser counts {_shown(of_browser)}.{remedy}")
        bare = inside.strip(AROUND_WORD)
        if not bare:
            raise UserError(f"{shown} holds only blanks.")
        self.skipped["blanks around spans"] += bare != inside
        start += inside.index(bare)
        written = "_".join(kind.split())
        if self.kinds.setdefault(written, kind) != kind:
            raise UserError(f"{shown}: types {kind!r} and {self.kinds[written]!r} would both be {written}.")
        return Span(start, start + len(bare), written)


def _parts(exported: Any) -> tuple[Any, Any, Any, Any]:
    """Returns start, end, type and text of a span as it was exported, with None for what it does not have."""
    if isinstance(exported, list) and len(exported) in (3, 4):  # the fourth is spaCy's id of an entity
        return (*exported[:3], None)
    found = exported if isinstance(exported, Mapping) else {}
    start, end = found.get("start", found.get("start_offset")), found.get("end", found.get("end_offset"))
    kind = found.get("label", found.get("labels", found.get("type")))
    return start, end, kind[0] if isinstance(kind, list) and len(kind) == 1 else kind, found.get("text")


@functools.lru_cache(maxsize=1)
def _from_utf16(text: str) -> dict[int, int]:
    """Returns how many characters stand before each offset in UTF-16."""
    units = accumulate((1 + (character > "\uffff") for character in text), initial=0)
    return {at: number for number, at in enumerate(units)}


def _bare(text: str) -> str:
    """Removes blanks and line ends: tools quote a line end as a blank, or as a backslash and an n."""
    return "".join(text.replace("\\n", " ").split())


def _shown(value: object) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def add_text(builder: SplitBuilder, number: int, text: str, apart: Sequence[Span], place: str) -> int:
    """Adds each line of a text that has words as a sentence. Returns how many there are.

    number: of the text's line in the file. apart: spans that do not overlap, in order.
    """
    bounds = word_bounds(text, place, [at for span in apart for at in span[:2]])
    starts, tags = [start for start, _ in bounds], ["O"] * len(bounds)
    for span in apart:
        first, last = bisect_left(starts, span.start), bisect_left(starts, span.end)
        tags[first:last] = [f"B-{span.kind}"] + [f"I-{span.kind}"] * (last - first - 1)
    builder.split.skipped[CUT_WORDS] += max(0, len(bounds) - len(word_bounds(text, place))) if apart else 0
    ends = [
        last
        for last in range(1, len(bounds))
        if "\n" in text[bounds[last - 1][1] : bounds[last][0]] and not tags[last].startswith("I-")
    ]
    lines = [slice(*part) for part in pairwise([0, *ends, len(bounds)])] if bounds else []
    for line in lines:
        words = [text[start:end] for start, end in bounds[line]]
        builder.add([number], words, tags[line], text, starts[line])
    return len(lines)


def texts_with_spans(
    split: Split, tags: Tags, scores: Sequence[float] | None = None
) -> Iterator[tuple[str, list[Span], Any]]:
    """Yields each text of a split, the spans of these tags and its id or None: the reverse of reading.

    Words without a text are joined by blanks. scores: of the split's words; a span has their mean.
    """
    found, before, text, name, position = list[Span](), 0, None, None, 0
    all_starts = split.starts or ([0, *accumulate(len(word) + 1 for word in words)] for words in split.words)
    lines = zip(split.words, tags, split.texts, all_starts, split.ids or [None] * len(split.words), strict=True)
    for words, tags_of_line, text_of_line, starts, of_line in lines:
        if text is not None and (text_of_line != text or starts[0] <= before):
            yield text, found, name
            found = []
        text, before, name = text_of_line, starts[0], of_line
        for kind, first, last in spans(tags_of_line):
            score = None if scores is None else fmean(scores[position + first : position + last])
            found.append(Span(starts[first], starts[last - 1] + len(words[last - 1]), kind, score))
        position += len(words)
    if text is not None:
        yield text, found, name
