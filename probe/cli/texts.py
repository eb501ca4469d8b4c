"""Commands on texts of one's own: score predictions, inspect an encoder, tag with a kept probe."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from probe.cli.parser import Parser
from probe.cli.settings import SETTING, config_of
from probe.config import SENTENCES, UserError
from probe.system.format import percent

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


INSPECT_HELP = """\
What an encoder makes of a text: its pieces, ids, mask and segments, and the word of each piece; how many hidden states
there are and what each index is; the parts of layer 0; the vectors of the layers chosen (layers=..., as in training).
Words are split at blanks, and each punctuation mark is a word of its own: "bank." is "bank" and ".".
"""
INSPECT_EXAMPLES = """\
examples:
  probe inspect "I love Paris" encoder=minilm_l6 --pad 7
  probe inspect encoder=minilm_l6 layers=single 'layers.indices=[4]' --values 8 "I love Paris"
  probe inspect encoder=minilm_l6 --sentence mean "A cat sat." "A dog lay down." "Stocks fell."
  probe inspect encoder=minilm_l6 --word bank "The bank vault." "A river bank." "Go to the bank." --figure bank.svg
  probe inspect encoder.path=DIR --format json < texts.txt
"""


def inspect(arguments: list[str]) -> int:
    parser = Parser(
        prog="probe inspect",
        usage="probe inspect [TEXT ...] [setting=value ...] [options]",
        description=INSPECT_HELP,
        epilog=INSPECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("given", nargs="*", metavar="TEXT", help="none: texts from standard input, one a line")
    parser.add_argument("--pair", action="store_true", help="two texts as one input, as for next-sentence prediction")
    parser.add_argument("--pad", type=int, default=0, metavar="N", help="pad to N pieces")
    parser.add_argument("--segment", type=int, metavar="N", help="this segment id for all pieces, not the tokenizer's")
    parser.add_argument("--values", type=int, default=5, metavar="N", help="how many values to print of a vector (5)")
    parser.add_argument(
        "--sentence",
        choices=SENTENCES,
        help="instead: a vector for each text, and their cosines. cls, mean, max: over all pieces, layers as chosen",
    )
    parser.add_argument("--word", help="instead: a word's occurrences, and their cosines by layer and by combination")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw what --word compares: .png or .svg")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep all vectors, (words, layers, H): .safetensors")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = vars(parser.parse_intermixed_args(arguments))
    given = options.pop("given")
    cfg = config_of([argument for argument in given if SETTING.match(argument)])
    texts = [argument for argument in given if not SETTING.match(argument)] or _texts_from_stdin()

    from probe.inspect.report import lines

    for line in lines(cfg, texts, **options):
        print(line)
    return 0


def _texts_from_stdin() -> list[str]:
    if sys.stdin.isatty():
        raise UserError('probe inspect needs a text: probe inspect "I love Paris", or one a line on standard input.')
    texts = []
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            texts.append(line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise UserError(f"standard input, line {number}: {error.reason}; texts are UTF-8.") from None
    if not texts:
        raise UserError("Standard input holds no text. One a line is needed.")
    return texts


TAG_HELP = """\
probe tag RESULTS --row ROW [--seed S] FILE|TEXT|- ... [--format conll|json] [--input auto|columns|json|text]
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

    from probe.cli.settings import configs_of
    from probe.runs.config_from_record import config_from_record
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
