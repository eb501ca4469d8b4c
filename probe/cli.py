"""The commands: dispatch, Hydra's door, and how a sweep is shown. What is computed stands elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from probe.config import COMMAND, PRESET_GROUPS, SENTENCES, Config, UserError, conf_dir, to_config, unknown_setting

HELP = """\
probe: which layers of a frozen BERT should I use as features?

  probe [train] [-m] [setting=value ...]   one run, or with -m (or +sweep=NAME) a sweep, then its table
  probe extract [setting=value ...]        fill the feature store and stop
  probe table [DIR ...] [--format FORMAT]  records to a table: text, md, csv, tex, json; --compare A B
  probe report [DIR]                       tables, figures and one page that holds everything
  probe verify [DIR]                       do these records hold? --rerun trains again, --against compares
  probe sweep-status [DIR]                 where a sweep stands, from another terminal
  probe inspect "TEXT" ... [setting=value] one text, layer by layer; `probe inspect --help` tells more
  probe doctor [setting=value ...]         is everything here for this run: data, encoder, store, device?
  probe score FILE [FILE]                  anybody's predictions in CoNLL columns, scored every way; two: a paired test
  probe cache list|explain|verify|prune    what the feature store holds; `probe cache --help` tells more

Examples
  probe +sweep=quickstart                                    the paper's six rows, bundled corpus and encoder
  probe data=demo encoder=minilm_l6 layers=second_to_last    one run
  probe -m data=demo encoder=minilm_l6 layers=last,sum_all seed=1,2,3
  probe layers=single 'layers.indices=[7]'                   any layer
  probe 'layers.indices=[0,12]' layers.combine=mean          any layers, by sum, mean, concat or mix
  probe encoder.path=DIR data=columns data.path=DIR          your own encoder and corpus
  probe inspect "I love Paris" encoder=minilm_l6             pieces, hidden states, vectors of one text

Settings: `probe --cfg job` prints them all with their values; `probe --hydra-help` is Hydra's own help.
Completion in bash: eval "$(probe --shell-completion install=bash)"
"""
TAKE_SETTINGS = ("train", "extract", "inspect", "cache")
# Hydra's own flags that do not run anything: they go straight to Hydra.
HYDRA_ONLY = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--version", "--shell-completion", "-sc")

LOCAL = "local"  # our preset
LAUNCHERS_HERE = (LOCAL, "joblib", "basic")  # their jobs run on this machine


def main() -> None:
    """The `probe` command. Exit codes: 0 done, 1 a run failed, 2 something for the user to mend."""
    os.environ[COMMAND] = shlex.join(["probe", *sys.argv[1:]])
    signal.signal(signal.SIGTERM, _stop)
    try:
        sys.exit(dispatch(sys.argv[1:]))
    except UserError as error:
        print(f"probe: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nprobe: stopped. What is finished is kept; the same command continues.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a full disk, a folder taken away
        print(f"probe: {error.filename or 'writing'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)


def _stop(*_: object) -> NoReturn:
    """`kill` stops as Ctrl-C does, with the jobs that were started."""
    raise KeyboardInterrupt


class Parser(argparse.ArgumentParser):
    """One line for what is wrong, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.removeprefix('probe ')}: {message}. `{self.prog} --help` shows what there is.")


def dispatch(arguments: list[str]) -> int:
    commands = {
        "train": train,
        "extract": extract,
        "table": table,
        "report": report,
        "verify": verify,
        "sweep-status": sweep_status,
        "inspect": inspect,
        "cache": cache,
        "doctor": doctor,
        "score": score,
    }
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if first in ("--shell-completion", "-sc"):
        _complete(arguments, list(commands))
        return 0
    if first in commands:
        if first in ("train", "extract") and any(flag in arguments for flag in ("-h", "--help")):
            print(HELP, end="")
            return 0
        return commands[first](arguments[1:])
    if first and "=" not in first and not first.startswith(("-", "+", "~")):
        close = difflib.get_close_matches(first, commands, n=1)
        hint = f" Did you mean `probe {close[0]}`?" if close else ""
        raise UserError(f"there is no command {first!r}.{hint} Commands: {', '.join(commands)}.")
    return train(arguments)


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
    from probe.rows import build_rows
    from probe.table import COLUMNS, FORMATS, GROUPS, render, render_comparison, render_side_by_side

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
    from probe import verify as checks
    from probe.published import PUBLISHED

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
        found = checks.check_against_published(folder, options.against)
    elif options.against is not None:
        found = checks.check_against(folder, Path(options.against))
    elif options.rerun is not None:
        found = checks.rerun(folder, row or None, options.seed, lambda o: configs_of(o)[0][0], overrides)
    else:
        found = checks.check_files(folder, Path(config_of([]).features.cache_dir) / "hashes.json")
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
    from probe.report import write_report

    parser = Parser(prog="probe report", description="Tables, figures and one self-contained page (report.html).")
    parser.add_argument("dir", nargs="?", default="results/quickstart", type=Path, help="folder with records/")
    print(*write_report(parser.parse_args(arguments).dir), sep="\n")
    return 0


def sweep_status(arguments: list[str]) -> int:
    from probe.status import lines

    parser = Parser(prog="probe sweep-status", description="Where a sweep stands: done, running, failed, time left.")
    parser.add_argument("dir", nargs="?", default="results/quickstart", type=Path, help="the sweep's results_dir")
    print(*lines(parser.parse_args(arguments).dir), sep="\n")
    return 0


def extract(arguments: list[str]) -> int:
    from probe import run

    plans = {planned.store.key: planned for planned in map(run.plan, configs_of(arguments)[0])}
    for planned in plans.values():
        store = run.extract(planned.cfg)
        words = sum(shards[-1].last for shards in store.shards.values())
        print(f"{words} words, {store.num_layers + 1} layers of {store.hidden_size} in {store.directory}")
    return 0


SCORE_HELP = """\
probe score FILE [FILE] [--task spans|tags] [--ignore-docstart] [--format text|json]

Predictions in CoNLL columns: a word a line, gold and predicted tag last, an empty line between sentences. Shows span F1
as conlleval and seqeval count it, strict F1, word F1, recall of entity words, accuracy, each type, ill-formed tags.
Two files on one text: also the difference and its p. --task tags: labels that are no spans. --ignore-docstart: lines
-DOCSTART- are bounds between documents, no words.

Examples
  probe score results/demo-minilm/predictions/last-seed1-*.test.conll
  probe score a.txt b.txt --ignore-docstart --format json
"""


def score(arguments: list[str]) -> int:
    from probe import score as scoring

    parser = Parser(prog="probe score", usage=SCORE_HELP)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--task", choices=("spans", "tags"), default="spans")
    parser.add_argument("--ignore-docstart", action="store_true")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_intermixed_args(arguments)
    if len(options.files) > 2:
        raise UserError(f"score: {len(options.files)} files; one, or two to compare.")
    found = [scoring.read_predictions(file, options.task, options.ignore_docstart) for file in options.files]
    tested = scoring.paired_test(found[0], found[1]) if len(found) == 2 else None
    if options.format == "text":
        print(*[scoring.render(one) for one in found], sep="\n", end="")
        if tested:
            print(f"\n{scoring.render_test(found[0], found[1], tested)}", end="")
        return 0
    shown = [one.scores() for one in found]
    both = {name: {"file": str(one.file), **one.scores()} for name, one in zip("ab", found, strict=False)}
    print(json.dumps({**both, "test": tested} if tested else shown[0], indent=1))
    for one in found:
        if one.marks:
            print(
                f"{one.file}: {one.marks} lines -DOCSTART- count as words; --ignore-docstart leaves them out.",
                file=sys.stderr,
            )
    return 0


def doctor(arguments: list[str]) -> int:
    from probe.doctor import examine

    parser = Parser(prog="probe doctor", description="Is everything here for the run that these settings ask for?")
    parser.add_argument("overrides", nargs="*", metavar="setting=value")
    overrides = parser.parse_args(arguments).overrides
    return 0 if examine(configs_of(overrides)[0][0], functools.partial(print, flush=True)) else 1


CACHE_HELP = """\
probe cache list                            every store: key, size, when used, what it holds
probe cache explain [setting=value ...]     which stores serve this config, and field by field why the others do not
probe cache verify [setting=value ...]      read this config's store whole and compare every checksum
  --sample N                                also compute N random sentences again and compare
probe cache prune --older-than DAYS | --keep N [--yes]
                                            stores to give up; says which, and deletes only with --yes
The store's place: features.cache_dir=DIR or LAYER_PROBE_CACHE.
"""


def cache(arguments: list[str]) -> int:
    from probe import cache as store_cache

    parser = Parser(prog="probe cache", usage="probe cache ACTION ...\n\n" + CACHE_HELP)
    parser.add_argument("action", choices=("list", "explain", "verify", "prune"))
    parser.add_argument("--sample", type=_not_negative(int), default=0)
    parser.add_argument("--older-than", type=_not_negative(float))
    parser.add_argument("--keep", type=_not_negative(int))
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    cfg = configs_of(options.overrides)[0][0]
    cache_dir = Path(cfg.features.cache_dir)
    if options.action == "list":
        found = store_cache.entries(cache_dir)
        print(*[entry.line() for entry in found], sep="\n", end="\n" if found else "")
        print(f"{len(found)} stores, {sum(entry.num_bytes for entry in found) / 1e9:.2f} GB in {cache_dir}")
        return 0
    if options.action == "prune":
        return _prune(cache_dir, options.older_than, options.keep, options.yes)
    from probe.run import plan

    planned = plan(cfg)
    if options.action == "explain":
        print(*store_cache.explain(planned), sep="\n")
        return 0
    problems = list(store_cache.verify_checksums(planned.store))
    for file, problem in problems:
        print(f"{planned.store.directory / file}: {problem}")
    if problems:
        print("The next run sets aside what is damaged and extracts it again.")
        return 1
    print(f"{planned.store.directory}: every shard is whole.")
    if options.sample:
        words, worst, allowed = store_cache.verify_sample(planned, options.sample)
        print(
            f"{words} words computed again: largest difference {worst:.1g} of a vector's length"
            f" (rounding: up to {allowed:.1g})."
        )
        return 0 if worst <= allowed else 1
    return 0


def _not_negative(kind: type) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        value = kind(text)
        if not value >= 0:
            raise ValueError
        return value

    number.__name__ = "number, 0 or more,"  # in argparse's message
    return number


def _prune(cache_dir: Path, older_than: float | None, keep: int | None, yes: bool) -> int:
    from probe import cache as store_cache

    if older_than is None and keep is None:
        raise UserError("probe cache prune needs a rule: --older-than DAYS or --keep N.")
    doomed = store_cache.prunable(cache_dir, older_than, keep)
    for entry in doomed:
        print(("deleting " if yes else "would delete ") + entry.line())
        if yes:
            try:
                store_cache.remove(entry)
            except UserError as error:
                print(error)
    total = sum(entry.num_bytes for entry in doomed) / 1e9
    print(
        f"{len(doomed)} stores, {total:.2f} GB"
        + ("" if yes or not doomed else ". Nothing was deleted; add --yes to do it.")
    )
    return 0


def train(arguments: list[str]) -> int:
    if any(argument.split("=")[0] in HYDRA_ONLY for argument in arguments):
        _hydra(arguments)
        return 0
    configs, launcher = configs_of(arguments)
    if launcher:
        from probe.sweep import run_sweep

        overrides, _ = _split_flags(arguments)
        return run_sweep(configs, lambda jobs: _launch(launcher, jobs, overrides), here=launcher in LAUNCHERS_HERE)
    from probe.run import plan, prepare_results, run, training_device
    from probe.sweep import scores

    planned = plan(configs[0])
    training_device(planned.cfg)
    prepare_results(Path(planned.cfg.results_dir))
    was_done = planned.record_path.exists()
    print(
        f"{planned.selection.as_text()} (of {planned.encoder.num_layers}), {planned.corpus.title}, "
        f"seed {planned.cfg.seed}",
        flush=True,
    )
    for note in planned.corpus.notes:
        print(f"data: {note}.", flush=True)
    record = run(planned.cfg, tell=functools.partial(print, flush=True))
    print(scores(record) + (" · was done already" if was_done else "") + f"\nrecord: {planned.record_path}")
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
# What is taken for a setting; a text that looks like one can come by standard input.
SETTING = re.compile(r"[+~]{0,2}[\w./@:-]+=")


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

    from probe.inspection_report import lines

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


# Hydra's door.


def job(composed: Any) -> None:
    """One run of a sweep, in whatever process Hydra's launcher chose."""
    from hydra.core.hydra_config import HydraConfig

    from probe.sweep import run_one

    run_one(to_config(composed, HydraConfig.get().runtime.choices))


def _hydra(arguments: list[str]) -> None:
    import hydra

    sys.argv = [sys.argv[0], *arguments]
    hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(job)()


def _complete(arguments: list[str], commands: list[str]) -> None:
    """Hydra's shell completion, which knows settings; here it also learns of the commands that stand before them."""
    if (line := os.environ.get("COMP_LINE")) is not None:
        program, *words = line.split()
        last = "" if line[-1:].isspace() or not words else words.pop()
        if not words:
            print(*[command for command in commands if command.startswith(last)])
        elif words[0] in commands and words[0] not in TAKE_SETTINGS:
            return
        settings = [word for word in words if SETTING.match(word)]  # of a text or a flag Hydra would make an error
        os.environ["COMP_LINE"] = " ".join([program, *settings, last])
    _hydra(arguments)


def _launch(launcher: str, jobs: int, overrides: list[str]) -> None:
    """Runs a sweep's jobs by Hydra's launcher. A launcher that breaks down has left its reason on stderr."""
    side_by_side = [f"hydra.launcher.n_jobs={jobs}"] if launcher == LOCAL else []
    with contextlib.suppress(SystemExit):
        _hydra(["--multirun", *side_by_side, *overrides])


def configs_of(arguments: list[str]) -> tuple[list[Config], str | None]:
    """The config of every run that these arguments ask for, checked, and the launcher if they are a sweep."""
    from hydra import compose, initialize_config_dir
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    overrides, multirun = _split_flags(arguments)
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())
            parsed = parser.parse_overrides(overrides)
            swept_file = next(
                (o.input_line for o in parsed if o.key_or_group == "sweep" and o.is_sweep_override()), None
            )
            if swept_file:
                raise UserError(f"{swept_file}: one sweep file at a time.")
            plain = [o.input_line for o in parsed if o.input_line is not None and not o.is_sweep_override()]
            base = compose("config", plain, return_hydra_config=True)
            is_sweep = multirun or base.hydra.mode == RunMode.MULTIRUN
            if not is_sweep:
                if len(plain) < len(parsed):
                    swept = next(o.input_line for o in parsed if o.is_sweep_override())
                    raise UserError(
                        f"{swept} names several values: that is a sweep. Type: probe -m {' '.join(arguments)}"
                    )
                jobs = [overrides]
            else:
                params = (
                    [f"{key}={value}" for key, value in base.hydra.sweeper.params.items()]
                    if base.hydra.sweeper.params
                    else []
                )
                jobs = BasicSweeper.split_arguments(parser.parse_overrides([*params, *overrides]), None)[0]
                if not jobs:
                    raise UserError("this sweep has no run: one of its settings names no value (a range, a glob?).")
            configs = []
            for job_overrides in jobs:
                composed = compose("config", job_overrides, return_hydra_config=True)
                choices = dict(composed.hydra.runtime.choices)
                without = next((group for group in PRESET_GROUPS if group not in choices), None)
                if without:
                    raise UserError(
                        f"{without}: one preset is needed, no list and not none. A sweep: probe -m {without}=A,B."
                    )
                del composed.hydra
                configs.append(to_config(composed, choices))
            if is_sweep and "encoder.num_layers" in OmegaConf.to_yaml(base.hydra.sweeper):
                _check_depths(configs, {o.key_or_group for o in parsed})
            return configs, base.hydra.runtime.choices["hydra/launcher"] if is_sweep else None
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, AttributeError, TypeError, ValueError) as error:
        raise _explain(error) from None
    finally:
        GlobalHydra.instance().clear()


def _check_depths(configs: list[Config], typed: set[str]) -> None:
    """A sweep that counts an encoder's layers must know their number, and has one encoder."""
    if len({(cfg.encoder.name, cfg.encoder.path) for cfg in configs}) > 1:
        raise UserError("This sweep counts the layers of its encoder: one encoder at a time.")
    if configs[0].encoder.num_layers is None and "encoder.num_layers" not in typed:
        raise UserError(
            "This sweep counts the layers of its encoder, and only a preset knows them. Of another: "
            "encoder.num_layers=N (config.json has it, num_hidden_layers most often)."
        )


def config_of(overrides: list[str]) -> Config:
    """The one config that these settings ask for."""
    configs, is_sweep = configs_of(overrides)
    if is_sweep:
        raise UserError("One encoder and one choice of layers at a time; a sweep is for training.")
    return configs[0]


def _split_flags(arguments: list[str]) -> tuple[list[str], bool]:
    """Overrides, and whether -m is among the flags."""
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    unknown = [flag for flag in flags if flag not in ("-m", "--multirun")]
    if unknown:
        raise UserError(f"there is no flag {unknown[0]}. `probe --help` shows what there is.")
    return overrides, bool(flags)


def _explain(error: Exception) -> UserError:
    """Hydra's errors in one or two lines."""
    from hydra.errors import MissingConfigException, OverrideParseException

    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        if group == "hydra/launcher" and name.startswith("submitit"):
            return UserError(f"{group}={name} is not installed. Type: pip install 'layer-probe[slurm]'")
        options = sorted(error.options or [])
        close = difflib.get_close_matches(name, options, n=1)
        hint = f" Did you mean {group}={close[0]}?" if close else ""
        return UserError(f"{group}={name}: there is no such preset.{hint} There are: {', '.join(options)}.")
    if isinstance(error, OverrideParseException):
        return UserError(
            f"{error.override!r} cannot be read: {text.splitlines()[0]}. Quote lists: 'layers.indices=[9,10]'."
        )
    if text.startswith("Could not override '"):
        return unknown_setting(text.split("'")[1])
    return UserError(text.splitlines()[0])
