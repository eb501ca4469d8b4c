"""`probe score`: anybody's predictions, scored."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from probe.arguments import Parser
from probe.config import UserError

SCORE_HELP = """\
probe score FILE [FILE] [--task spans|tags] [--ignore-docstart] [--format text|json]

Predictions in CoNLL columns: a word a line, gold and predicted tag last, an empty line between sentences. Shows span F1
as conlleval and seqeval count it, strict F1, word F1, recall of entity words, accuracy (of tags as they are written, as
conlleval), each type, ill-formed tags. Gold and predicted tags may be in two schemes; each is found and named.
Two files on one text: also the difference and its p. --task tags: labels that are no spans. --ignore-docstart: lines
-DOCSTART- are bounds between documents, no words.

Examples
  probe score results/demo-minilm/predictions/last-seed1-*.test.conll
  probe score a.txt b.txt --ignore-docstart --format json
"""


def score(arguments: list[str]) -> int:
    from probe.data.task import TASKS
    from probe.score import predictions as scoring
    from probe.system.files import plain

    parser = Parser(prog="probe score", usage=SCORE_HELP)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--task", choices=tuple(TASKS), default="spans")
    parser.add_argument("--ignore-docstart", action="store_true")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_intermixed_args(arguments)
    if len(options.files) > 2:
        raise UserError(f"score: {len(options.files)} files; one, or two to compare.")
    read = [scoring.read_predictions(file, TASKS[options.task], options.ignore_docstart) for file in options.files]
    tested = scoring.paired_test(read[0], read[1]) if len(read) == 2 else None
    if options.format == "text":
        print(*[scoring.render(one) for one in read], sep="\n", end="")
        if tested:
            print(f"\n{scoring.render_test(read[0], read[1], *tested)}", end="")
        return 0
    if tested is None:
        shown = read[0].as_json()
    else:
        shown = {name: {"file": str(one.file), **one.as_json()} for name, one in zip("ab", read, strict=True)}
        shown["test"] = {**plain(tested[0]), "unit": tested[1]}
    print(json.dumps(shown, indent=1))
    for one in read:
        if one.marks:
            print(
                f"{one.file}: {one.marks} lines -DOCSTART- count as words; --ignore-docstart leaves them out.",
                file=sys.stderr,
            )
    return 0
