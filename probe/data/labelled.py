"""Reads files with a label and a text per line, separated by a tab, or as CSV."""

from __future__ import annotations

from collections.abc import Iterable

from probe.config import UserError
from probe.data.columns import cut_line, shown
from probe.data.layout import Layout
from probe.data.running_text import split_text
from probe.data.split import Split, SplitBuilder


def read_labelled(lines: Iterable[str], layout: Layout, origin: str) -> Split:
    """Reads lines of label, tab (or comma, if data.separator says so) and text.

    If the first line names data.tags_field and data.words_field, it says where these stand.
    """
    if layout.id_field is not None or layout.document_field is not None:
        raise UserError(
            f"{origin}: lines of label and text have no ids and groups. Write JSON lines, or type "
            "data.id_field=null data.document_field=null."
        )
    builder = SplitBuilder(origin, blanks=True)
    at_label, at_text, is_named = 0, 1, False
    separator = "comma" if layout.separator == "comma" else "tab"
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = cut_line(line.removesuffix("\r"), separator)
        if number == 1 and {layout.tags_field, layout.words_field} <= set(cells):
            at_label, at_text, is_named = cells.index(layout.tags_field), cells.index(layout.words_field), True
            builder.split.skipped["names of columns"] += 1
            continue
        with builder.collecting():
            if len(cells) <= max(at_label, at_text):
                raise UserError(
                    f"{origin}:{number}: {shown(cells, line)}; expected label TAB text, or as in the first line."
                )
            text = cells[at_text] if is_named else " ".join(cells[at_text:])
            builder.add([number], split_text(text, f"{origin}:{number}"), [cells[at_label]], text)
            builder.split.separator = separator
    split = builder.done()
    if len(builder.known_tags) > 2 * (num_texts := len({*map(tuple, split.words)})):
        found = f"{origin} has {len(builder.known_tags)} labels but {num_texts} texts"
        raise UserError(f"{found}. The label comes first, before the text, unless the first line names both columns.")
    return split
