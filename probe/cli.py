"""The commands: dispatch, Hydra's door, and how a sweep is shown. What is computed stands elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from probe.config import PRESET_GROUPS, Config, UserError, conf_dir, to_config, unknown_setting

HELP = """\
probe: which layers of a frozen BERT should I use as features?

  probe [train] [-m] [setting=value ...]   one run, or with -m (or +sweep=NAME) a sweep, then its table
  probe extract [setting=value ...]        fill the feature store and stop
  probe table [DIR] [--format FORMAT]      records to a table: text, md, csv, json
  probe sweep-status [DIR]                 where a sweep stands, from another terminal
  probe cache list|explain|verify|prune    what the feature store holds; `probe cache --help` tells more

Examples
  probe +sweep=quickstart                                    the paper's six rows, bundled corpus and encoder
  probe data=demo encoder=minilm_l6 layers=second_to_last    one run
  probe -m data=demo encoder=minilm_l6 layers=last,sum_all seed=1,2,3
  probe layers=single 'layers.indices=[7]'                   any layer
  probe 'layers.indices=[0,12]' layers.combine=mean          any layers, by sum, mean, concat or mix
  probe encoder.path=DIR data=columns data.path=DIR          your own encoder and corpus

Settings: `probe --cfg job` prints them all with their values; `probe --hydra-help` is Hydra's own help.
"""
# Hydra's own flags that do not run anything: they go straight to Hydra.
HYDRA_ONLY = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--version", "--shell-completion", "-sc")


def main() -> None:
    """The `probe` command. Exit codes: 0 done, 1 a run failed, 2 something for the user to mend."""
    # Deterministic LSTMs on a GPU need it, and it is read once, when the GPU is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
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


class Parser(argparse.ArgumentParser):
    """One line for what is wrong, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.removeprefix('probe ')}: {message}. `{self.prog} --help` shows what there is.")


def dispatch(arguments: list[str]) -> int:
    commands = {"train": train, "extract": extract, "table": table, "cache": cache, "sweep-status": sweep_status}
    first = arguments[0] if arguments else ""
    if first in ("-h", "--help", "help"):
        print(HELP, end="")
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


def table(arguments: list[str]) -> int:
    from probe.table import FORMATS, build_rows, render

    parser = Parser(prog="probe table", description="Records to a table.")
    parser.add_argument("dir", nargs="?", default="results/quickstart", type=Path, help="folder with records/")
    parser.add_argument("--format", choices=FORMATS, default="text")
    options = parser.parse_args(arguments)
    rows = build_rows(options.dir)
    print(render(rows, options.format), end="")
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
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--older-than", type=float)
    parser.add_argument("--keep", type=int)
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
    configs, is_sweep = configs_of(arguments)
    if is_sweep:
        from probe.sweep import run_sweep

        overrides, _ = _split_flags(arguments)
        return run_sweep(configs, lambda: _launch(overrides))
    from probe.run import plan, prepare_results, resolve_device, run
    from probe.sweep import scores

    planned = plan(configs[0])
    resolve_device(planned.cfg.device)
    prepare_results(Path(planned.cfg.results_dir))
    was_done = planned.record_path.exists()
    print(
        f"{planned.selection.as_text()} (of {planned.encoder.num_layers}), {planned.corpus.name}, "
        f"seed {planned.cfg.seed}",
        flush=True,
    )
    record = run(planned.cfg, tell=functools.partial(print, flush=True))
    print(scores(record) + (" · was done already" if was_done else "") + f"\nrecord: {planned.record_path}")
    return 0


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


def _launch(overrides: list[str]) -> None:
    """Runs a sweep's jobs by Hydra's launcher. A launcher that breaks down has left its reason on stderr."""
    with contextlib.suppress(SystemExit):
        _hydra(["--multirun", *overrides])


def configs_of(arguments: list[str]) -> tuple[list[Config], bool]:
    """The config of every run that these arguments ask for, checked, and whether they are a sweep."""
    from hydra import compose, initialize_config_dir
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from hydra.types import RunMode
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
            return configs, is_sweep
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, AttributeError, TypeError, ValueError) as error:
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
