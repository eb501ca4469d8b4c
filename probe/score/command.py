"""Implements `probe score`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from probe.arguments import Parser
from probe.config import UserError

DESCRIPTION = """\
Scores predictions in CoNLL columns: one word per line, the gold and the predicted tag last, an
empty line between sentences. Prints span F1 as conlleval and seqeval count it, strict F1, word F1,
recall of entity words, accuracy (of tags as they are written, as in conlleval), the scores of each
type, and ill-formed tags. Gold and predicted tags may be in two schemes: each scheme is detected
and printed. Of two files on one text it also prints the difference and its p value.
"""
EXAMPLES = """\
  probe score results/demo-minilm/predictions/last-seed1-*.test.conll
  probe score a.txt b.txt --ignore-docstart --format json
"""


def score(arguments: list[str]) -> int:
    """Scores one or two files of predictions, and returns the exit code."""
    from probe.data.task import TASKS

    parser = Parser("score", DESCRIPTION, EXAMPLES)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file of predictions, or two to compare")
    parser.add_argument(
        "--task",
        choices=[name for name, task in TASKS.items() if task.is_per_word],
        default="spans",
        help="what the tags are: spans, or one label per word (default: %(default)s)",
    )
    parser.add_argument(
        "--ignore-docstart", action="store_true", help="read lines -DOCSTART- as bounds of documents, not as words"
    )
    parser.add_format("text", "json")
    options = parser.parse_intermixed_args(arguments)
    if len(options.files) > 2:
        raise UserError(f"score: give one file, or two to compare, not {len(options.files)}.")

    from probe.score.predictions import paired_test, read_predictions, render, render_test
    from probe.system.files import to_jsonable

    systems = [read_predictions(file, TASKS[options.task], options.ignore_docstart) for file in options.files]
    tested = paired_test(systems[0], systems[1]) if len(systems) == 2 else None
    if options.format == "text":
        print(*map(render, systems), sep="\n", end="")
        if tested:
            print(f"\n{render_test(systems[0], systems[1], *tested)}", end="")
        return 0
    if tested is None:
        shown = systems[0].as_json()
    else:
        shown = {name: {"file": str(s.file), **s.as_json()} for name, s in zip("ab", systems, strict=True)}
        shown["test"] = {**to_jsonable(tested[0]), "unit": tested[1]}
    print(json.dumps(shown, indent=1))
    for system in systems:
        if system.marks:
            print(
                f"{system.file}: {system.marks} lines -DOCSTART- count as words. --ignore-docstart excludes them.",
                file=sys.stderr,
            )
    return 0
