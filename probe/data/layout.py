"""Says where a corpus has its words, tags and documents."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields

from probe.config import DataConfig, UserError
from probe.system.format import escape_invisible

USUAL = {  # names that fields and columns often have
    "words_field": ("tokens", "words", "token", "word", "text", "sentence"),
    "tags_field": ("ner_tags", "tags", "labels", "ner", "tag", "label", "gold_label", "score", "pos_tags", "upos"),
}
COLUMN_NAMES = {name for names in USUAL.values() for name in names}


@dataclass(frozen=True)
class Layout:
    """Holds the settings of `data` that readers use. The defaults are those of conf/data/columns.yaml.

    Columns are counted from 0; negative ones from the end. No format has all of them.
    """

    task: str = "spans"
    word_column: int = 0
    tag_column: int = -1
    separator: str = "auto"  # auto, whitespace, tab or space
    comment: str | None = None  # prefix of comment lines
    document_marker: str | None = "-DOCSTART-"  # begins a line between documents, or is one of its columns
    word_prefix: str | None = None  # prefix of every word, removed
    words_field: str = "tokens"
    tags_field: str = "ner_tags"
    document_field: str | None = None
    labels: list[str] | None = None  # the names of tags that are numbers: tag 0 is labels[0]
    split: str = "train"  # the one to read, where a file holds several

    @classmethod
    def of(cls, data: DataConfig) -> Layout:
        return cls(**{field.name: getattr(data, field.name) for field in fields(cls) if hasattr(data, field.name)})


def check_fields(place: str, available: Collection[str], layout: Layout) -> None:
    """Raises UserError with what to type if fields are missing that the settings name. place: of the fields."""
    missing = [
        setting
        for setting in ("words_field", "tags_field", "document_field")
        if getattr(layout, setting) is not None and getattr(layout, setting) not in available
    ]
    if not missing:
        return
    none = " or null" if missing[0] == "document_field" else ""
    shown = ", ".join(map(escape_invisible, available))
    usual = [next((name for name in USUAL.get(setting, ()) if name in available), None) for setting in missing]
    hint = f"To choose another: data.{missing[0]}=NAME{none}."
    if all(usual):
        typed = " ".join(f"data.{setting}={name}" for setting, name in zip(missing, usual, strict=True))
        hint = f"Did you mean {typed}?"
    raise UserError(f"{place} has no {getattr(layout, missing[0])!r}, only {shown}. {hint}")
