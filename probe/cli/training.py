"""Commands that compute: train (a run or a sweep) and extract."""

from __future__ import annotations

import functools
import shlex
import sys

from probe.cli.parser import say_bad_records
from probe.cli.settings import HYDRA_ONLY, configs_of, hydra_itself


def extract(arguments: list[str]) -> int:
    from probe.runs.plan import plan
    from probe.runs.run import extract as extract_features

    plans = {planned.store.key: planned for planned in map(plan, configs_of(arguments)[0])}
    for planned in plans.values():
        store = extract_features(planned.cfg)
        words = sum(shards[-1].last for shards in store.shards.values())
        print(f"{words} words, {store.num_layers + 1} layers of {store.hidden_size} in {store.directory}")
    return 0


def train(arguments: list[str]) -> int:
    if any(argument.split("=")[0] in HYDRA_ONLY for argument in arguments):
        hydra_itself(arguments)
        return 0
    configs, launcher = configs_of(arguments)
    command = shlex.join(["probe", *sys.argv[1:]])
    tell = functools.partial(print, flush=True)
    if launcher:
        from probe.reporting.formats import render, write_tables
        from probe.reporting.rows import build_rows
        from probe.runs.sweep import run_sweep

        outcome = run_sweep(configs, launcher, command, tell)
        bad = 0
        for folder in outcome.folders:
            bad |= say_bad_records(folder)
            rows = build_rows(folder)
            write_tables(folder, rows)
            print(f"\n{render(rows, 'text')}\nRecords and tables: {folder}")
        for label, reason in outcome.failed:
            print(f"failed: {label}: {reason}", file=sys.stderr)
        return 1 if outcome.failed or bad else 0
    from probe.runs.plan import plan, prepare_results, training_device
    from probe.runs.run import run
    from probe.runs.sweep import scores_line

    planned = plan(configs[0])
    training_device(planned.cfg)
    prepare_results(planned.results_dir)
    was_done = planned.is_done
    if planned.record_path.exists() and not was_done:
        print("its weights were not kept: it is made again, and its record with it", flush=True)
    print(
        f"{planned.selection.as_text()} (of {planned.encoder.num_layers}), {planned.corpus.title}, "
        f"seed {planned.cfg.seed}",
        flush=True,
    )
    for note in planned.corpus.notes:
        print(f"data: {note}.", flush=True)
    record = run(planned.cfg, tell, command=command)
    print(scores_line(record) + (" · was done already" if was_done else "") + f"\nrecord: {planned.record_path}")
    return 0
