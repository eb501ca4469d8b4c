"""The commands: dispatch, Hydra's door, and how a sweep is shown. What is computed stands elsewhere."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from probe.config import Config, UserError, conf_dir, to_config, unknown_setting

if TYPE_CHECKING:
    from probe.run import Plan

HELP = """\
probe: which layers of a frozen BERT should I use as features?

  probe [train] [-m] [setting=value ...]   one run, or with -m (or +sweep=NAME) a sweep, then its table
  probe extract [setting=value ...]        fill the feature store and stop
  probe table [DIR] [--format FORMAT]      records to a table: text, md, csv, json
  probe cache list|explain|verify|prune    what the feature store holds; `probe cache --help` tells more

Examples
  probe +sweep=quickstart                                    the paper's six rows, bundled corpus and encoder
  probe data=demo encoder=minilm_l6 layers=second_to_last    one run
  probe -m data=demo encoder=minilm_l6 layers=last,sum_all seed=1,2,3
  probe layers=single 'layers.indices=[7]'                   any layer
  probe 'layers.indices=[0,12]' layers.combine=mean          any layers, by sum, mean, concat or mix
  probe encoder.path=DIR data.path=DIR                       your own encoder and corpus

Settings: `probe --cfg job` prints them all with their values; `probe --hydra-help` is Hydra's own help.
"""
# Hydra's own flags that do not run anything: they go straight to Hydra.
HYDRA_ONLY = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--version", "--shell-completion", "-sc")


def main() -> None:
    """The `probe` command. Exit codes: 0 done, 1 a run failed, 2 something for the user to mend."""
    arguments = sys.argv[1:]
    try:
        sys.exit(dispatch(arguments))
    except UserError as error:
        print(f"probe: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nprobe: stopped. What is finished is kept; the same command continues.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


class Parser(argparse.ArgumentParser):
    """One line for what is wrong, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.removeprefix('probe ')}: {message}. `{self.prog} --help` shows what there is.")


def dispatch(arguments: list[str]) -> int:
    commands = {"train": train, "extract": extract, "table": table, "cache": cache}
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if first in commands:
        if any(flag in arguments for flag in ("-h", "--help")) and first != "table":
            print(HELP, end="")
            return 0
        return commands[first](arguments[1:])
    if first and "=" not in first and not first.startswith(("-", "+", "~")):
        close = difflib.get_close_matches(first, commands, n=1)
        hint = f" Did you mean `probe {close[0]}`?" if close else ""
        raise UserError(f"there is no command {first!r}.{hint} Commands: {', '.join(commands)}.")
    return train(arguments)


def table(arguments: list[str]) -> int:
    from probe.table import FORMATS, build_rows, render

    parser = Parser(prog="probe table", description="Records to a table.")
    parser.add_argument("dir", nargs="?", default="results/quickstart", type=Path, help="folder with records/")
    parser.add_argument("--format", choices=FORMATS, default="text")
    options = parser.parse_args(arguments)
    rows = build_rows(options.dir)
    print(render(rows, options.format), end="")
    return 0


def extract(arguments: list[str]) -> int:
    from probe import run

    for cfg in _configs(arguments)[0]:
        store = run.extract(cfg)
        words = sum(shards[-1].last for shards in store.shards.values())
        print(f"{words} words, {store.num_layers + 1} layers of {store.hidden_size} in {store.directory}")
    return 0


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

    parser = Parser(prog="probe cache", usage=CACHE_HELP)
    parser.add_argument("action", choices=("list", "explain", "verify", "prune"))
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--older-than", type=float)
    parser.add_argument("--keep", type=int)
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args(arguments)
    cfg = _configs(options.overrides)[0][0]
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
        words, worst = store_cache.verify_sample(planned, options.sample)
        print(f"{words} words computed again: largest difference {worst:.2f} units of {planned.store.dtype}.")
        return 0 if worst <= 1 else 1
    return 0


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
    configs, is_sweep = _configs(arguments)
    if is_sweep:
        return _sweep(configs, arguments)
    from probe.run import plan

    planned = plan(configs[0])
    done_already = planned.record_path.exists()
    print(
        f"{planned.selection.as_text()} (of {planned.encoder.num_layers}), {planned.cfg.data.name}, "
        f"seed {planned.cfg.seed}"
    )
    from probe.run import run

    record = run(planned.cfg, announce=True)
    print(_scores(record) + (" · was done already" if done_already else "") + f"\nrecord: {planned.record_path}")
    return 0


def _scores(record: dict[str, Any]) -> str:
    dev, test = record["scores"]["dev"]["f1"], record["scores"]["test"]["f1"]
    epochs = f"best epoch {record['best_epoch']} of {len(record['curve'])}"
    return f"dev F1 {100 * dev:.2f} · test F1 {100 * test:.2f} · {epochs}"


# A sweep: planned here, run by Hydra's launcher, shown from what is on disk.


def _sweep(configs: list[Config], arguments: list[str]) -> int:
    from probe.run import extract, plan
    from probe.table import build_rows, render, setting_of, write_expected, write_tables

    plans = [plan(cfg) for cfg in configs]
    for results_dir in {planned.cfg.results_dir for planned in plans}:
        expected = [
            {
                "key": planned.identity.key,
                "row": planned.selection.name,
                "seed": planned.identity.seed,
                "layers": {**planned.identity.layers, "width": planned.selection.width},
                "setting": setting_of(_science(planned)),
            }
            for planned in plans
            if planned.cfg.results_dir == results_dir
        ]
        write_expected(Path(results_dir), expected)
        _failure_dir(Path(results_dir)).mkdir(parents=True, exist_ok=True)
    todo = [planned for planned in plans if not planned.record_path.exists()]
    done = "all" if not todo else len(plans) - len(todo)
    print(f"{len(plans)} runs, {done} done already.", flush=True)
    if todo:
        for planned in todo:
            _failure_file(planned).unlink(missing_ok=True)
        for store_plan in {planned.store.key: planned for planned in todo}.values():
            extract(store_plan.cfg)
        os.environ["PROBE_SWEEP"] = json.dumps(
            {"total": len(plans), "before": len(plans) - len(todo), "start": time.time()}
        )
        try:
            _hydra(arguments)
        except SystemExit as stopped:
            if stopped.code not in (0, None, 1):
                raise
    failed = [planned for planned in plans if not planned.record_path.exists()]
    for results_dir in sorted({planned.cfg.results_dir for planned in plans}):
        rows = build_rows(Path(results_dir))
        write_tables(Path(results_dir), rows)
        print(f"\n{render(rows, 'text')}\nRecords and tables: {results_dir}")
    for planned in failed:
        print(f"failed: {planned.label}: {_failure(planned)}", file=sys.stderr)
    return 1 if failed else 0


def _science(planned: Plan) -> dict[str, Any]:
    from probe.run import science

    return science(planned.cfg)


def _failure_dir(results_dir: Path) -> Path:
    return results_dir / "logs"


def _failure_file(planned: Plan) -> Path:
    return _failure_dir(Path(planned.cfg.results_dir)) / f"{planned.record_path.stem}.failed.txt"


def _failure(planned: Plan) -> str:
    file = _failure_file(planned)
    if not file.exists():
        return "did not finish; the same command continues"
    return f"{file.read_text(encoding='utf-8').splitlines()[0]} (all of it: {file})"


def job(composed: Any) -> None:
    """One run of a sweep, in whatever process the launcher chose. A failure is written down, never raised."""
    from hydra.core.hydra_config import HydraConfig

    from probe.run import plan, run

    hydra_config = HydraConfig.get()
    cfg = to_config(composed, hydra_config.runtime.choices["layers"], list(hydra_config.overrides.task))
    planned = plan(cfg)
    if planned.record_path.exists():
        return
    clock = time.perf_counter()
    try:
        record = run(cfg, announce=False)
        line = f"{_scores(record)} · {time.perf_counter() - clock:.0f} s"
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        text = reason if isinstance(error, UserError) else f"{type(error).__name__}: {reason}"
        _failure_file(planned).write_text(f"{text}\n\n{traceback.format_exc()}", encoding="utf-8")
        line = f"failed: {text}"
    print(f"{_progress(Path(cfg.results_dir))} · {planned.label} · {line}", flush=True)


def _progress(results_dir: Path) -> str:
    """Where the sweep stands, from what is on disk: "run 7 of 18, 2 failed, about 6 min left"."""
    sweep = json.loads(os.environ.get("PROBE_SWEEP", "null"))
    if sweep is None:
        return "run"
    from probe.table import read_expected

    keys = {run["key"][:10] for run in read_expected(results_dir)}
    done = sum(path.stem[-10:] in keys for path in (results_dir / "records").glob("*.json"))
    failed = sum(path.name.split(".")[0][-10:] in keys for path in _failure_dir(results_dir).glob("*.failed.txt"))
    over = done + failed
    new = over - sweep["before"]
    left_s = (time.time() - sweep["start"]) / max(1, new) * (sweep["total"] - over)
    left = f"about {left_s / 60:.0f} min left" if left_s >= 60 else f"about {left_s:.0f} s left"
    return (
        f"run {over} of {sweep['total']}"
        + (f", {failed} failed" if failed else "")
        + (f", {left}" if over < sweep["total"] else "")
    )


# Hydra's door.


def _hydra(arguments: list[str]) -> None:
    import hydra

    sys.argv = [sys.argv[0], *arguments]
    hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(job)()


def _configs(arguments: list[str]) -> tuple[list[Config], bool]:
    """The config of every run that these arguments ask for, checked, and whether they are a sweep."""
    from hydra import compose, initialize_config_dir
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from hydra.types import RunMode

    overrides, multirun = _split_flags(arguments)
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            parser = OverridesParser.create()
            parsed = parser.parse_overrides(overrides)
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
            configs = []
            for job_overrides in jobs:
                composed = compose("config", job_overrides, return_hydra_config=True)
                choice = composed.hydra.runtime.choices["layers"]
                task = list(composed.hydra.overrides.task)
                del composed.hydra
                configs.append(to_config(composed, choice, task))
            return configs, is_sweep
    except HydraException as error:
        raise _explain(error) from None
    finally:
        GlobalHydra.instance().clear()


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
