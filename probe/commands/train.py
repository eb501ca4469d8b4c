"""Implements `probe [train]`, `probe extract` and `probe sweep-status`."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from probe.commands.arguments import Parser, report_bad_records, results_or_last
from probe.config import Config, UserError
from probe.format import format_layers
from probe.probes.kinds import PROBES, slow_bfloat16
from probe.settings import config_of, configs_of
from probe.system.grouping import group_by
from probe.system.processes import is_child


def train(arguments: list[str]) -> int:
    """Trains a probe on the chosen layers, scores it on dev and test, and writes a record. With -m, or
    with a sweep file (+sweep=NAME), it does so for every combination of the values given, and prints
    their table. Runs with a record are skipped, so the same command continues a sweep.
    `probe train ...` and `probe ...` are the same.

    examples:
      probe +sweep=quickstart
      probe data=demo encoder=minilm_l6 layers=second_to_last
      probe -m data=demo encoder=minilm_l6 layers=last,sum_all seed=1,2,3
      probe -m layers=last,layer_7,concat_2_5_7 seed=1,2,3
      probe 'layers.indices=[0,12]' layers.combine=mean
      probe encoder=DIR data=DATA
    """
    parser = Parser(train)
    parser.add_settings(multirun=True)
    parser.add_argument("--cfg", choices=["job"], help="print every setting of a run with its value, and stop")
    options = parser.parse_intermixed_args(arguments)
    if options.cfg:
        from omegaconf import OmegaConf

        config = config_of(["-m"] * options.multirun + options.overrides)
        print(OmegaConf.to_yaml(OmegaConf.structured(config)), end="")
        return 0
    configs, is_sweep = configs_of(["-m"] * options.multirun + options.overrides)
    command = shlex.join(["probe", *sys.argv[1:]])
    if is_sweep:
        return _train_sweep(configs, command)
    return _train_one(configs[0], command)


def _train_sweep(configs: Sequence[Config], command: str) -> int:
    """Trains every run of a sweep, writes and prints its tables, and returns the exit code."""
    from probe.report.page import finish
    from probe.runs.sweep import crew_of, make_runs

    if not is_child():
        _screen_first(configs, command)
    with crew_of(command) as crew:
        failed = make_runs(configs, crew, functools.partial(print, flush=True))
    if is_child():
        return 0
    folders = sorted({Path(cfg.results_dir) for cfg in configs})
    return report_bad_records(*folders) | finish(folders, failed)


def _screen_first(configs: Sequence[Config], command: str) -> None:
    """Makes and prints the screen of a sweep that asks for one (screen.first). If it fails, the sweep still runs."""
    asked = group_by((cfg for cfg in configs if cfg.screen.first), lambda cfg: Path(cfg.results_dir))
    if not asked:
        return
    from probe.runs.plan import one_per_encoder
    from probe.screening.report import screen_table
    from probe.screening.run import run_screen

    log = functools.partial(print, file=sys.stderr, flush=True)
    for of_folder in asked.values():
        try:
            screen = run_screen(one_per_encoder(of_folder), log, command)
        except UserError as error:
            print(f"not screened: {error}", file=sys.stderr)
            continue
        print(f"{screen_table(screen).render('text')}\nNow the runs.\n", flush=True)


def _train_one(cfg: Config, command: str) -> int:
    """Trains one run, prints its scores, and returns the exit code."""
    from probe.runs.plan import plan, prepare_results
    from probe.runs.progress import running
    from probe.runs.run import make
    from probe.runs.sweep import scores_line
    from probe.system.machine import resolve_device

    planned = plan(cfg)
    device = resolve_device(planned.cfg.device)
    prepare_results(planned.results_dir)
    was_done = planned.is_done
    of_all = f" (of {planned.encoder.num_layers})" if planned.selection.indices else ""
    print(
        f"{planned.label}: {planned.selection.as_text()}{of_all}{planned.kind.layers_note}, {planned.corpus.title}",
        flush=True,
    )
    for note in planned.corpus.notes:
        print(f"data: {note}.", flush=True)
    if not was_done and (line := slow_bfloat16(planned.cfg, device)):
        print(f"{line}.", flush=True)
    with running(planned.results_dir, planned.identity.key) as show:
        assert show is not None

        def log(line: str) -> None:
            print(line, flush=True)
            show(line)

        record = make(planned, log, command=command)
    print(scores_line(record) + (" · was already done" if was_done else "") + f"\nrecord: {planned.record_path}")
    return 0


def extract(arguments: list[str]) -> int:
    """Computes the features of a corpus, all layers of all words, fills the feature store with them and
    stops. Runs with the same corpus and encoder then read them.

    examples:
      probe extract data=demo encoder=minilm_l6
    """
    parser = Parser(extract)
    parser.add_settings(multirun=True)
    options = parser.parse_intermixed_args(arguments)

    from probe.runs.plan import store_of
    from probe.system.machine import resolve_device
    from probe.vectors.sources import complete_store

    configs, _ = configs_of(["-m"] * options.multirun + options.overrides)
    frozen = [cfg for cfg in configs if PROBES[cfg.probe.kind].reads_features]
    if not frozen:
        raise UserError(f"probe={configs[0].probe.kind} reads no features: there is nothing to extract.")
    for cfg in {store_of(cfg).key: cfg for cfg in frozen}.values():
        store = complete_store(store_of(cfg), resolve_device(cfg.device))
        words = sum(shards[-1].last for shards in store.shards.values())
        layers = format_layers(store.layers)
        print(f"{words} words, layers {layers} with {store.hidden_size} values each, in {store.directory}")
    return 0


def sweep_status(arguments: list[str]) -> int:
    """Shows which runs of a sweep are done, running, failed, or died with their process; with their
    attempts and hosts, and the time left. Works from another terminal while the sweep runs.

    examples:
      probe sweep-status results/quickstart
    """
    parser = Parser(sweep_status)
    parser.add_folder()
    options = parser.parse_intermixed_args(arguments)

    from probe.runs.progress import status_lines, status_of

    now = status_of(results_or_last(options.dir))
    print(*status_lines(now), sep="\n")
    return 1 if now.bad else 0
