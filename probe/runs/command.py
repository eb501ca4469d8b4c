"""`probe [train]`, `probe extract` and `probe sweep-status`."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from probe.arguments import Parser, results_or_last, say_bad_records
from probe.config import Config, UserError
from probe.probes.kinds import PROBES
from probe.settings import HYDRA_ONLY, configs_of, hydra_itself


def extract(arguments: list[str]) -> int:
    from probe.runs.plan import plan
    from probe.runs.run import extract as extract_features

    configs = configs_of(arguments)[0]
    asked = [planned for planned in map(plan, configs) if PROBES[planned.cfg.probe.kind].reads_features]
    if not asked:
        raise UserError(f"probe={configs[0].probe.kind} reads no features: there is nothing to extract.")
    plans = {planned.store.key: planned for planned in asked}
    for planned in plans.values():
        store = extract_features(planned.cfg)
        words = sum(shards[-1].last for shards in store.shards.values())
        print(f"{words} words, {store.layers_as_text()} of {store.hidden_size} in {store.directory}")
    return 0


def _screen_first(configs: Sequence[Config], command: str) -> None:
    """Shows the screen of a sweep that asks for it; what hinders it does not hinder the sweep."""
    asked = {cfg.results_dir: cfg for cfg in configs if cfg.screen.first}
    if not asked:
        return
    from probe.report.page import write_screen
    from probe.screen.report import render_screen
    from probe.screen.run import run_screen

    for folder, cfg in asked.items():
        try:
            record = run_screen(cfg, functools.partial(print, file=sys.stderr, flush=True), command)
            write_screen(Path(folder), record)
        except UserError as error:
            print(f"not screened: {error}", file=sys.stderr)
            continue
        print(f"{render_screen(record, 'text')}\nThe screen trains nothing; now the runs.\n", flush=True)


def train(arguments: list[str]) -> int:
    if any(argument.split("=")[0] in HYDRA_ONLY for argument in arguments):
        hydra_itself(arguments)
        return 0
    configs, launcher = configs_of(arguments)
    elsewhere = next((one for one in arguments if re.match("hydra/launcher=.*(slurm|submitit)", one)), None)
    if elsewhere and launcher is None:
        raise UserError(
            f"{elsewhere} sends sweeps, and this is one run, which would train on this machine. To send it: probe -m "
            f"{shlex.join(arguments)}"
        )
    command = shlex.join(["probe", *sys.argv[1:]])
    tell = functools.partial(print, flush=True)
    if launcher:
        from probe.runs.sweep import run_sweep
        from probe.tables.formats import render, write_tables
        from probe.tables.rows import build_rows

        if launcher.is_here:
            _screen_first(configs, command)
        outcome = run_sweep(configs, launcher, command, tell)
        bad = 0
        for folder in outcome.folders:
            bad |= say_bad_records(folder)
            rows = build_rows(folder, configs[0].margin)
            write_tables(folder, rows)
            print(f"\n{render(rows, 'text')}\nRecords and tables: {folder}")
        for label, reason in outcome.failed:
            print(f"failed: {label}: {reason}", file=sys.stderr)
        return 1 if outcome.failed or bad else 0
    from probe.runs.plan import plan, prepare_results
    from probe.runs.progress import running
    from probe.runs.run import run
    from probe.runs.sweep import scores_line
    from probe.system.machine import resolve_device

    planned = plan(configs[0])
    resolve_device(planned.cfg.device)
    prepare_results(planned.results_dir)
    was_done = planned.is_done
    if planned.record_path.exists() and not was_done:
        print("its weights were not kept: it is made again, and its record with it", flush=True)
    of_how_many = f" (of {planned.encoder.num_layers})" if planned.selection.indices else ""
    print(
        f"{planned.selection.as_text()}{of_how_many}{planned.kind.layers_note}, {planned.corpus.title}, "
        f"{planned.label.removeprefix(planned.selection.name).lstrip(', ')}",
        flush=True,
    )
    for note in planned.text.notes:
        print(f"data: {note}.", flush=True)
    with running(planned.results_dir, planned.identity.key) as show:

        def tell_both(line: str) -> None:
            tell(line)
            show(line)

        record = run(planned.cfg, tell_both, command=command)
    print(scores_line(record) + (" · was done already" if was_done else "") + f"\nrecord: {planned.record_path}")
    return 0


def sweep_status(arguments: list[str]) -> int:
    from probe.runs.progress import lines

    parser = Parser(prog="probe sweep-status", description="Where a sweep stands: done, running, failed, time left.")
    parser.add_argument("dir", nargs="?", type=Path, help="the sweep's results_dir; none: the one written last")
    print(*lines(results_or_last(parser.parse_args(arguments).dir)), sep="\n")
    return 0
