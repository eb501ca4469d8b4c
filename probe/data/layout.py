"""Says where a corpus has its words, tags and documents."""

from __future__ import annotations

from dataclasses import dataclass, fields

from probe.config import DataConfig


@dataclass(frozen=True)
class Layout:
    """Holds the settings of `data` that readers use. The defaults are those of conf/data/columns.yaml.

    Columns are counted from 0; negative ones from the end. `Reader.settings` says which reader uses which settings.
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
    second_field: str | None = None
    regression: bool = False
    document_field: str | None = None
    label_key: str | None = None  # of the comment lines that label sentences
    labels: list[str] | None = None  # the names of tags that are numbers: tag 0 is labels[0]
    split: str = "train"  # the one to read, where a file holds several

    @classmethod
    def of(cls, data: DataConfig) -> Layout:
        return cls(**{field.name: getattr(data, field.name) for field in fields(cls) if hasattr(data, field.name)})
