"""Says where a corpus has its words, tags and documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from probe.config import DataConfig, UserError
from probe.format import escape_invisible


@dataclass(frozen=True)
class Layout:
    """Holds the settings of `data` that readers use. The defaults are those of conf/data/columns.yaml.

    Columns are counted from 0; negative ones from the end. No format has all of them.
    """

    task: str = "spans"
    word_column: int = 0
    tag_column: int = -1
    tag_feature: str | None = None  # the tag is one of several features: name in Case=Nom|name=B-PER
    sentence_column: int | None = None  # begins a sentence where it changes
    separator: str = "auto"  # auto, whitespace, tab, space or comma
    comment: str | list[str] | None = None  # prefix of comment lines, or several
    document_marker: str | None = "-DOCSTART-"  # begins a line between documents, or is one of its columns
    word_prefix: str | None = None  # prefix of every word, removed
    words_field: str = "tokens"
    tags_field: str = "ner_tags"
    document_field: str | None = None
    id_field: str | None = None
    offsets: str | None = None  # what spans of characters count: characters or utf16; None: characters, if that is sure
    overlaps: str | None = None  # longest: of overlapping spans of characters, the longest is read
    labels: list[str] | None = None  # the names of tags that are numbers: tag 0 is labels[0]
    without_tags: bool = False  # of a text to be tagged
    most_lines: int | None = None  # that are read; None: all

    @property
    def comments(self) -> tuple[str, ...]:
        prefixes = self.comment if isinstance(self.comment, list) else [self.comment]
        return tuple(str(prefix) for prefix in prefixes if prefix is not None)

    @property
    def fields(self) -> dict[str, str]:
        """Returns the fields of a row that are read, by their settings."""
        labelled = ("words_field", "tags_field", "document_field", "id_field")
        settings = ("words_field",) if self.without_tags else labelled
        return {setting: name for setting in settings if (name := getattr(self, setting)) is not None}

    @property
    def document_fields(self) -> dict[str, str]:
        return {setting: name for setting, name in self.fields.items() if setting == "document_field"}

    @classmethod
    def of(cls, data: DataConfig) -> Layout:
        return cls(**{field.name: getattr(data, field.name) for field in fields(cls) if hasattr(data, field.name)})


def check_fields(place: str, available: Collection[str], needed: Mapping[str, str]) -> None:
    """Raises UserError with what to type if a field is missing. place: of the fields. needed: by their settings."""
    for setting, name in needed.items():
        if name not in available:
            shown = ", ".join(map(escape_invisible, available))
            raise UserError(f"{place} has no {name!r} (data.{setting}), only {shown}.")
