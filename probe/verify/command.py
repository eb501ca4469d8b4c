"""`probe verify`: do these results hold?"""

from __future__ import annotations

import itertools
import json
import random
import sys
from pathlib import Path

from probe.arguments import Parser, at_least, results_or_last
from probe.config import Config, UserError
from probe.settings import config_of, configs_of

VERIFY_HELP = """\
probe verify [DIR] [--format text|json]              records, counts, scores and table.json against each other
probe verify [DIR] --rerun [ROW] [--seed S] [...]    train again and compare; settings may say where data lies
  --sample N [--sample-seed K]                       only N of these runs, drawn at random; says how to draw them again
probe verify [DIR] --weights [ROW] [--seed S] [...]  predict again with kept weights (save_probe=true), no training
probe verify [DIR] --against DIR                     the same runs, made elsewhere
probe verify [DIR] --against paper|bert_ner          means beside published numbers, with what differs

Exit code 0 if everything that could be checked holds, 1 if not.

Examples
  probe verify results/quickstart --against results/demo-minilm
  probe verify results/demo-minilm --rerun concat_last_four --seed 1
  probe verify results/demo-minilm --rerun --sample 2
  probe verify results/paper_table --rerun last --seed 2 data.path=DIR
"""

# Below a folder's checks: what they cannot tell.
CONSISTENT = """\
Consistent with itself is not yet true: scores raised alike in predictions, counts and record are found only by training
again: probe verify {folder} --rerun [--sample N]; runs struck from sweep.json with their records: not at all."""


def verify(arguments: list[str]) -> int:
    from probe.tables.published import PUBLISHED
    from probe.verify import reruns
    from probe.verify.complete import unreadable
    from probe.verify.results import check_files

    parser = Parser(prog="probe verify", usage=VERIFY_HELP)
    parser.add_argument("dir", nargs="?", default="")
    parser.add_argument("--rerun", nargs="?", const="")
    parser.add_argument("--weights", nargs="?", const="")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--sample", type=at_least(int, 1))
    parser.add_argument("--sample-seed", type=int)
    parser.add_argument("--against")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    asked = options.rerun if options.weights is None else options.weights
    named = Path(options.dir) if options.dir and ("=" not in options.dir or Path(options.dir).is_dir()) else None
    words = [*([] if named else [options.dir]), asked or "", *options.overrides]
    overrides = [word for word in words if "=" in word]
    row = None if asked is None or "=" in asked else asked
    if asked is None and (overrides or (options.seed, options.sample) != (None, None)):
        raise UserError(
            "verify: settings, --seed and --sample are for --rerun and --weights: "
            "probe verify DIR --rerun [ROW] [--seed S] [--sample N] [...]."
        )
    if options.sample is None and options.sample_seed is not None:
        raise UserError("verify: --sample-seed is for --sample: probe verify DIR --rerun --sample N --sample-seed K.")
    if sum(option is not None for option in (options.rerun, options.weights, options.against)) > 1:
        raise UserError("verify: --rerun, --weights or --against, one of them.")
    if extra := [word for word in options.overrides if "=" not in word]:
        raise UserError(f"verify: one folder at a time, not {extra[0]} too. Another to compare with: --against DIR.")
    folder = results_or_last(named, options.format)
    if options.against in PUBLISHED:
        checks = reruns.check_against_published(folder, options.against)
    elif options.against is not None:
        checks = reruns.check_against(folder, Path(options.against))
    elif asked is not None:
        draw = random.SystemRandom().randrange(10**6) if options.sample_seed is None else options.sample_seed
        chosen = reruns.choose_runs(folder, row or None, options.seed, options.sample, draw)
        if options.sample is not None:
            drawn = f"Drawn: {', '.join(record.label for record in chosen)}"
            say = sys.stdout if options.format == "text" else sys.stderr
            print(f"{drawn}. The same again: --sample {options.sample} --sample-seed {draw}", file=say, flush=True)
        if options.weights is None:
            again = reruns.rerun(chosen, _config_of_one, overrides)
        else:
            kept = [record for record in chosen if record.sha256.weights]
            if not kept:
                raise UserError(f"{folder}: none of these {len(chosen)} runs has kept its weights (save_probe=true).")
            again = reruns.predict_again(kept, folder, _config_of_one, overrides)
        checks = itertools.chain(unreadable(folder), again)
    else:
        checks = check_files(folder, Path(config_of([]).features.cache_dir))
    results = []
    for check in checks:
        results.append(check)
        if options.format == "text":
            print(check.line(), flush=True)
    if options.format == "json":
        print(json.dumps([check._asdict() for check in results], indent=1))
    bad = [check for check in results if check.ok is False]
    if options.format == "text":
        held = sum(check.ok is True for check in results)
        print(f"{held} checks hold, {len(bad)} do not, {len(results) - held - len(bad)} could not be made.")
        if asked is None and options.against is None and not bad:
            print(CONSISTENT.format(folder=folder))
    return 1 if bad else 0


def _config_of_one(typed: list[str]) -> Config:
    return configs_of(typed)[0][0]
