"""Reads texts with spans of characters from a folder of brat, and from a DocBin of spaCy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.json_parquet import read_rows
from probe.data.layout import Layout
from probe.data.split import Split, lines_of
from probe.format import reason_of

TEXT_BOUND = re.compile(r"T\d+\t(\S+) (\d+) (\d+)\t(.*)")  # https://brat.nlplab.org/standoff.html


def is_of_brat(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.ann"))


def read_brat(folder: Path, layout: Layout) -> Split:
    """Reads a folder with pairs of a text, NAME.txt, and its annotations, NAME.ann. Each text is a document."""
    layout = replace(layout, words_field="text", document_field="id")
    return read_rows(enumerate(_texts_of_brat(folder), start=1), layout, str(folder))


def _texts_of_brat(folder: Path) -> Iterator[dict[str, Any]]:
    """Yields a task as Label Studio has it for each pair of files. Relations, events and notes are no spans."""
    names = sorted({file.stem for ending in ("txt", "ann") for file in folder.glob(f"*.{ending}")})
    for name in names:
        results = list[dict[str, Any]]()
        for number, line in enumerate(lines_of(folder / f"{name}.ann"), start=1):
            found = TEXT_BOUND.fullmatch(line.removesuffix("\r"))
            if line.startswith("T") and not found:
                shown = f"{folder / name}.ann:{number}: {line[:60]!r}"
                raise UserError(f"{shown} is not one span: T1 TAB TYPE START END TAB TEXT.")
            if found:
                span = {"start": int(found[2]), "end": int(found[3]), "label": found[1], "text": found[4]}
                results.append({"type": "labels", "value": span})
            elif line.strip():
                results.append({"type": "other"})
        text = "\n".join(lines_of(folder / f"{name}.txt"))
        yield {"id": f"{folder.name}/{name}", "data": {"text": text}, "annotations": [{"result": results}]}


def read_docbin(file: Path, layout: Layout) -> Split:
    """Reads the texts and entities of a DocBin; its tokens are not read."""
    try:
        from spacy.tokens import DocBin
        from spacy.vocab import Vocab
    except ImportError:
        raise UserError(f"{file} is a DocBin of spaCy. To read it: pip install spacy.") from None
    try:
        docs = list(DocBin().from_disk(file).get_docs(Vocab()))
    except Exception as error:  # of what it is packed with
        raise UserError(f"{file} cannot be read as a DocBin: {reason_of(error)}.") from None
    rows = enumerate(map(_text_of_doc, docs), start=1)
    return read_rows(rows, replace(layout, words_field="text"), str(file))


def _text_of_doc(doc: Any) -> dict[str, Any]:
    if not doc.has_annotation("ENT_IOB"):
        return {"data": {"text": doc.text}, "annotations": []}
    return {"text": doc.text, "ents": [[entity.start_char, entity.end_char, entity.label_] for entity in doc.ents]}
