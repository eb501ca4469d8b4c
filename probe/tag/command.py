"""Implements `probe tag`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from probe.arguments import Parser
from probe.config import UserError
from probe.settings import config_of, split_settings
from probe.system.format import percent, pluralize

DESCRIPTION = """\
Tags text with a probe whose weights were saved (save_probe=true), with the windows and the pooling
that it was trained with. A FILE or standard input (-) holds one word per line in columns as in
training or CoNLL-U, JSON lines, or running text with one sentence per line. stderr says how it was
read.

Output: the given columns and the predicted tag, with the lines between documents and without
comments, or one JSON line per sentence. Tags of spans are in IOB2. In document context an empty
line of running text, or a document marker, separates documents.
"""
EXAMPLES = """\
  probe +sweep=quickstart layers=last seed=1 save_probe=true
  probe tag results/quickstart --row last "Angela Merkel came to Paris."
  probe tag results/quickstart --row last --repair test.txt > tagged.txt
"""


def tag(arguments: list[str]) -> int:
    """Tags texts with a saved probe, and returns the exit code."""
    from probe.tag.io import INPUTS

    parser = Parser("tag", DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "given",
        nargs="*",
        metavar="DIR | FILE | TEXT | - | setting=value",
        help="first the results folder, then what to tag; settings for files or columns that differ "
        "(encoder.path=DIR, data.word_column=1, data.words_field=words, device=cpu)",
    )
    parser.add_argument("--row", help="the row of the probe, by its name in tables (needed if there are several)")
    parser.add_argument("--seed", type=int, metavar="S", help="the seed of the probe (default: the best one on dev)")
    parser.add_argument(
        "--input",
        choices=INPUTS,
        default=INPUTS[0],
        help="how to read a FILE or standard input (default: %(default)s, by the file's ending and content)",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="write an I- that continues no span of its type as B-, as scoring does (default: as predicted)",
    )
    parser.add_format("conll", "json")
    options = parser.parse_intermixed_args(arguments)
    overrides, words = split_settings(options.given)
    if len(words) < 2:
        hint = f" {overrides[0]!r} was read as a setting. To tag it: ... - < FILE" if overrides else ""
        raise UserError(f'tag: a results folder and a text are needed: probe tag DIR FILE|"TEXT"|-.{hint}')

    from probe.runs.config_from_record import config_from_record
    from probe.tag.io import format_tagged, read_untagged, repaired, select_saved_probe

    file, record = select_saved_probe(Path(words[0]), options.row, options.seed)
    if record.task.is_of_pairs:
        raise UserError(
            f"{record.label} is a probe of pairs of {'texts' if record.task.is_of_texts else 'words'} "
            f"(data.task={record.config.data['task']}). A text to tag names no pairs, so `probe tag` takes only "
            "probes of words and of sentences."
        )
    from probe.tag.corpus_tagger import CorpusTagger  # imports torch, so only after the checks above

    cfg = config_from_record(record, config_of, overrides)
    texts = [read_untagged(given, cfg.data, record, options.input) for given in words[1:]]
    tagger, counts = CorpusTagger(file, record, cfg), Counter[str]()
    scheme = "; tags in IOB2" if record.task.has_spans else ""
    print(f"{record.label} (dev {percent(record.scores.dev.headline)}){scheme}", file=sys.stderr)
    for number, text in enumerate(texts):
        print(text.message, file=sys.stderr, flush=True)
        if number and options.format == "conll" and record.task.is_per_word:
            print()
        tagged = tagger.tag(text.split)
        if record.task.has_spans:
            tagged = repaired(tagged, options.repair, counts)
        for block in format_tagged(text, tagged, options.format, record.task):
            print(block, end="")
    if number := counts["ill_formed"]:
        continues = f"{pluralize(number, 'I- tag')} {'continues' if number == 1 else 'continue'} no span"
        how = "written as B-" if options.repair else "scored as the beginning of a span; --repair writes B-"
        print(f"{continues}, {how}", file=sys.stderr)
    return 0
