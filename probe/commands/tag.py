"""Implements `probe tag`."""

from __future__ import annotations

import sys
from pathlib import Path

from probe.commands.arguments import Parser
from probe.config import UserError
from probe.format import percent, pluralize
from probe.settings import config_of, split_settings


def tag(arguments: list[str]) -> int:
    """Tags text with a probe whose weights were saved (save_probe=true), with the windows and the pooling
    that it was trained with. A FILE is read as in training, by its ending; a folder of brat too. A .txt
    whose lines do not end in tags, a TEXT and standard input (-) are running text, with one sentence per
    line.

    Output: the given columns and the predicted tag, with the lines between documents and without
    comments, or one JSON line per sentence. Spans have the tags B- and I- as they are predicted, so one
    may begin with I-, which conlleval and seqeval also read as its begin. In document context an empty
    line of running text, or a document marker, separates documents.

    With --format spans, one JSON line per text, with start, end, label and score of each span, as Prodigy
    reads them; with doccano and spacy, as these do. Start and end count characters as Python does, where
    an emoji is one. A row's id is kept. A score is the mean probability of the tags of a span's words.

    examples:
      probe +sweep=quickstart layers=last seed=1 save_probe=true
      probe tag results/quickstart --row last "Angela Merkel came to Paris."
      probe tag results/quickstart --row last test.conll > tagged.conll
      probe tag results/quickstart --row last all.jsonl --format doccano > tagged.jsonl
    """
    from probe.tag.io import INPUTS, SPAN_FORMS

    parser = Parser(tag)
    parser.add_argument(
        "given",
        nargs="*",
        metavar="DIR | FILE | TEXT | - | setting=value",
        help="first the results folder, then what to tag; settings for files or columns that differ "
        "(encoder.path=DIR, data.word_column=1, data.words_field=words, device=cpu)",
    )
    parser.add_argument("--row", help="the row of the probe, by its name in tables (needed if there are several)")
    parser.add_argument("--seed", type=int, metavar="S", help="the seed of the probe (default: the best one on dev)")
    parser.add_argument("--input", choices=INPUTS, help="how to read a FILE or standard input instead")
    parser.add_format("conll", "json", *SPAN_FORMS)
    options = parser.parse_intermixed_args(arguments)
    overrides, words = split_settings(options.given)
    if len(words) < 2:
        hint = f" {overrides[0]!r} was read as a setting. To tag it: ... - < FILE" if overrides else ""
        raise UserError(f'tag: a results folder and a text are needed: probe tag DIR FILE|"TEXT"|-.{hint}')

    from probe.runs.config_from_record import config_of_record
    from probe.tag.io import format_tagged, read_untagged, refuse_other_tasks, select_saved_probe

    file, record = select_saved_probe(Path(words[0]), options.row, options.seed)
    if options.format in SPAN_FORMS:
        refuse_other_tasks(record, f"--format {options.format}")
    from probe.tag.tagging import TrainedRow  # imports torch, so only after the checks above

    cfg = config_of_record(file, record, config_of, overrides)
    splits = [read_untagged(given, cfg.data, options.input) for given in words[1:]]
    print(f"{record.label} (dev {percent(record.scores.dev.headline)})", file=sys.stderr)
    for split in splits:
        size = f"{pluralize(len(split.words), 'sentence')}, {pluralize(split.num_words, 'word')}"
        width = f", {split.num_columns} columns per line" if split.num_columns else ""
        empty = split.skipped["empty sentences"]
        skipped = f", {empty} without a word skipped" if empty else ""
        print(f"{split.origin}: {size}{width}{skipped}", file=sys.stderr, flush=True)
    of_each = zip(splits, TrainedRow(file, record, cfg).tag(splits), strict=True)
    for number, (split, (tagged, scores)) in enumerate(of_each):
        if number and options.format == "conll" and record.task.is_per_word:
            print()
        for block in format_tagged(split, tagged, scores, options.format, record.task):
            print(block, end="")
    return 0
