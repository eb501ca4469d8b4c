"""Reads the label of each sentence from a line before its words, in column files and CoNLL-U.

Such a line is `# KEY = label`, as the metadata of CoNLL-U, or `# KEY: label`, as in xSID; data.label_key is its key.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from probe.config import UserError
from probe.data.columns import read_columns_without_tags
from probe.data.conllu import read_conllu_without_tags
from probe.data.layout import Layout
from probe.data.sentences import Sentences
from probe.data.split import Split, bare_tag, check_tag, lines_of

METADATA = re.compile(r"#\s+([^=:\t]+?)\s*[=:]\s*([^\t]*?)\s*")  # a word may begin with # too


@dataclass
class LabelLines:
    """Finds the label lines of a file while its lines are read. labels: by line number. others: lines with other keys.

    comment: how other comments begin. keeps: whether the lines are passed on, to a reader that skips comments; else
    empty lines stand in their place.
    """

    key: str
    keeps: bool
    comment: str | None = None
    labels: dict[int, str] = field(default_factory=dict)
    others: list[int] = field(default_factory=list)

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        in_sentence = False
        for number, line in enumerate(lines, start=1):
            found = None if in_sentence else METADATA.fullmatch(line.removesuffix("\r"))
            if found is None:
                marker = "#" if self.keeps else self.comment
                is_comment = marker is not None and not in_sentence and line.startswith(marker)
                in_sentence = bool(line.strip()) and not is_comment
                yield line
                continue
            if found[1] == self.key:
                self.labels[number] = found[2]
            elif not self.keeps:
                self.others.append(number)
            yield line if self.keeps else ""


def read_label_lines(file: Path, layout: Layout, remedy: str = "") -> Split:
    """Reads words and one label per sentence. Raises UserError for a sentence with no label line, or with several."""
    assert layout.label_key is not None
    is_conllu = Path(file.name.removesuffix(".gz")).suffix == ".conllu"
    found = LabelLines(layout.label_key, is_conllu, layout.comment)
    with closing(lines_of(file, remedy)) as lines:
        read = read_conllu_without_tags if is_conllu else read_columns_without_tags
        split = read(found.lines(lines), layout, str(file))
    labels = list(_labels_of(split, found))
    skipped = sorted([*split.skipped_lines, *found.others])
    return replace(split, tags=Sentences.of(labels), columns=None, skipped_lines=skipped)


def _labels_of(split: Split, found: LabelLines) -> Iterator[list[str]]:
    """Yields the label of each sentence. Exactly one label line must stand between the sentence before and this one."""
    remaining = deque(found.labels.items())
    expected = f"Expected one line '# {found.key} = label' before each sentence (data.label_key={found.key})."
    for line in split.lines:
        mine = []
        while remaining and remaining[0][0] < line:
            mine.append(remaining.popleft())
        if len(mine) != 1:
            lines = ", ".join(str(number) for number, _ in mine)
            count = f"has {len(mine)} labels (lines {lines})" if mine else "has no label"
            raise UserError(f"{split.origin}:{line}: the sentence that begins here {count}. {expected}")
        number, label = mine[0]
        bare = bare_tag(label)
        check_tag(bare, f"{split.origin}:{number}", may_have_blanks=True)
        split.invisible += bare != label
        yield [bare]
    if remaining:
        raise UserError(f"{split.origin}:{remaining[0][0]}: no sentence follows this label. {expected}")
