"""The commands: dispatch, Hydra's door, and how a sweep is shown. What is computed stands elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from probe.cli.parser import Parser
from probe.cli.settings import config_of, configs_of
from probe.config import UserError

TABLE_HELP = """\
probe table [DIR ...] [--format text|md|csv|tex|json] [--columns NAME,...]
probe table --compare A B

Records to a table: mean and standard deviation over seeds, the order of the rows as far as it can be told, and for
CoNLL-2003 the paper's numbers. Several folders stand side by side. --compare: row by row the difference of two result
sets, its interval and its p.

Examples
  probe table results/quickstart --format md
  probe table results/quickstart --columns default,tests,cost
  probe table results/quickstart results/demo-minilm
  probe table --compare results/quickstart results/demo-minilm
"""


def table(arguments: list[str]) -> int:
    from probe.reporting.columns import COLUMNS, GROUPS
    from probe.reporting.comparison import render_comparison, render_side_by_side
    from probe.reporting.formats import FORMATS, render
    from probe.reporting.rows import build_rows

    columns = f"\ncolumns: {', '.join(COLUMNS)}\nseveral at once: {', '.join(GROUPS)}\n"
    parser = Parser(prog="probe table", usage=TABLE_HELP + columns)
    parser.add_argument("dirs", nargs="*", type=Path)
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--columns")
    parser.add_argument("--compare", action="store_true")
    options = parser.parse_args(arguments)
    folders = options.dirs or [Path("results/quickstart")]
    if options.columns and (options.compare or len(folders) > 1):
        raise UserError("table: --columns is for one folder.")
    if options.compare:
        if len(folders) != 2:
            raise UserError("table: --compare needs two folders of results: probe table --compare A B.")
        print(render_comparison(folders[0], folders[1], options.format), end="")
    elif len(folders) > 1:
        print(render_side_by_side(folders, options.format), end="")
    else:
        print(render(build_rows(folders[0]), options.format, options.columns), end="")
    return 0


VERIFY_HELP = """\
probe verify [DIR] [--format text|json]              records, counts, tables and figures against each other
probe verify [DIR] --rerun [ROW] [--seed S] [...]    train again and compare; settings may say where data lies
probe verify [DIR] --against DIR                     the same runs, made elsewhere
probe verify [DIR] --against paper|bert_ner          means beside published numbers, with what differs

Exit code 0 if everything that could be checked holds, 1 if not.

Examples
  probe verify results/quickstart --against results/demo-minilm
  probe verify results/demo-minilm --rerun concat_last_four --seed 1
  probe verify results/paper_table --rerun last --seed 2 data.path=DIR
"""


def verify(arguments: list[str]) -> int:
    from probe.checks import reruns
    from probe.checks.results import check_files
    from probe.reporting.published import PUBLISHED

    parser = Parser(prog="probe verify", usage=VERIFY_HELP)
    parser.add_argument("dir", nargs="?", default="results/quickstart")
    parser.add_argument("--rerun", nargs="?", const="")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--against")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    words = [options.dir, options.rerun or "", *options.overrides]
    overrides = [word for word in words if "=" in word]
    row = None if options.rerun is None or "=" in options.rerun else options.rerun
    folder = Path("results/quickstart" if "=" in options.dir else options.dir)
    if options.rerun is None and (overrides or options.seed is not None):
        raise UserError("verify: settings and --seed are for --rerun: probe verify DIR --rerun [ROW] [--seed S] [...].")
    if options.rerun is not None and options.against is not None:
        raise UserError("verify: --rerun or --against, not both.")
    if extra := [word for word in options.overrides if "=" not in word]:
        raise UserError(f"verify: one folder at a time, not {extra[0]} too. Another to compare with: --against DIR.")
    if options.against in PUBLISHED:
        found = reruns.check_against_published(folder, options.against)
    elif options.against is not None:
        found = reruns.check_against(folder, Path(options.against))
    elif options.rerun is not None:
        found = reruns.rerun(folder, row or None, options.seed, lambda o: configs_of(o)[0][0], overrides)
    else:
        found = check_files(folder, Path(config_of([]).features.cache_dir) / "hashes.json")
    results = []
    for check in found:
        results.append(check)
        if options.format == "text":
            print(check.line(), flush=True)
    if options.format == "json":
        print(json.dumps([check._asdict() for check in results], indent=1))
    bad = [check for check in results if check.ok is False]
    if options.format == "text":
        held = sum(check.ok is True for check in results)
        print(f"{held} checks hold, {len(bad)} do not, {len(results) - held - len(bad)} could not be made.")
    return 1 if bad else 0


def report(arguments: list[str]) -> int:
    from probe.reporting.page import write_report

    parser = Parser(prog="probe report", description="Tables, figures and one self-contained page (report.html).")
    parser.add_argument("dir", nargs="?", default="results/quickstart", type=Path, help="folder with records/")
    print(*write_report(parser.parse_args(arguments).dir), sep="\n")
    return 0


def sweep_status(arguments: list[str]) -> int:
    from probe.runs.progress import lines

    parser = Parser(prog="probe sweep-status", description="Where a sweep stands: done, running, failed, time left.")
    parser.add_argument("dir", nargs="?", default="results/quickstart", type=Path, help="the sweep's results_dir")
    print(*lines(parser.parse_args(arguments).dir), sep="\n")
    return 0
