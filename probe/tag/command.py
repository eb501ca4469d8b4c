"""`probe tag`: text tagged with a saved probe."""

from __future__ import annotations

import sys
from pathlib import Path

from probe.arguments import Parser
from probe.config import UserError
from probe.settings import SETTING
from probe.system.format import percent

TAG_HELP = """\
probe tag RESULTS --row ROW [--seed S] FILE|TEXT|- ... [--format conll|json] [--input auto|columns|conllu|json|text]
          [setting=value]

Tags text with a probe whose weights were kept (save_probe=true), through the windows and pooling it was trained with. A
FILE or standard input (-) holds a word a line, columns as in training, JSON lines (where the name ends in .jsonl, or
with --input json), or running text, a sentence a line; how it was read is said on stderr, and --input settles it. Out
come the given columns and the predicted tag, with the lines between documents and without comments, or a JSON line a
sentence. In document context an empty line of running text, or a document marker, stands between documents. Without
--seed: the one with the best dev score. Settings say what lies elsewhere, in other columns or fields: encoder.path=DIR,
data.word_column=1, data.words_field=words, device=cpu.

Examples
  probe +sweep=quickstart layers=last seed=1 save_probe=true
  probe tag results/quickstart --row last "Angela Merkel came to Paris."
  probe tag results/quickstart --row last test.txt > tagged.txt
"""


def tag(arguments: list[str]) -> int:
    from probe.tag.io import INPUTS

    parser = Parser(prog="probe tag", usage=TAG_HELP)
    parser.add_argument("given", nargs="*")
    parser.add_argument("--row", required=True)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--format", choices=("conll", "json"), default="conll")
    parser.add_argument("--input", choices=INPUTS, default=INPUTS[0])
    options = parser.parse_intermixed_args(arguments)
    overrides = [word for word in options.given if SETTING.match(word)]
    words = [word for word in options.given if not SETTING.match(word)]
    if len(words) < 2:
        taken = f" {overrides[0]!r} was taken for a setting; a text or file like it: ... - < FILE" if overrides else ""
        raise UserError(
            f'tag: a folder of results and a text are needed: probe tag RESULTS --row ROW FILE|"TEXT"|-.{taken}'
        )

    from probe.runs.config_from_record import config_from_record
    from probe.settings import configs_of
    from probe.tag.io import format_tagged, read_untagged, select_saved_probe

    file, record = select_saved_probe(Path(words[0]), options.row, options.seed)
    from probe.tag.corpus_tagger import CorpusTagger  # imports torch, so only after choose_kept, which may refuse

    cfg = config_from_record(record, lambda typed: configs_of(typed)[0][0], overrides)
    untagged = [read_untagged(given, cfg.data, record, options.input) for given in words[1:]]
    applier = CorpusTagger(file, record, cfg)
    print(f"{record.label} (dev {percent(record.scores.dev.headline)})", file=sys.stderr)
    for number, text in enumerate(untagged):
        print(text.message, file=sys.stderr, flush=True)
        if number and options.format == "conll":
            print()
        for block in format_tagged(text, applier.tag(text.split), options.format):
            print(block, end="")
    return 0
