"""The commands: dispatch, Hydra's door, and how a sweep is shown. What is computed stands elsewhere."""

from __future__ import annotations

import functools
from pathlib import Path

from probe.cli.settings import HYDRA_ONLY, LAUNCHERS_HERE, configs_of, hydra_main, launch, split_flags


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
        hydra_main(arguments)
        return 0
    configs, launcher = configs_of(arguments)
    if launcher:
        from probe.runs.sweep import run_sweep

        overrides, _ = split_flags(arguments)
        return run_sweep(configs, lambda jobs: launch(launcher, jobs, overrides), here=launcher in LAUNCHERS_HERE)
    from probe.runs.plan import plan, prepare_results, training_device
    from probe.runs.run import run
    from probe.runs.sweep import scores

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
