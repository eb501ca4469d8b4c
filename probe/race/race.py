"""Runs a race in a results folder. Its rules and rows are written to race.json before the first run.

The runs of each round are one sweep. Every decision follows only from race.json and the records. So a stopped race
can continue, earlier runs count, and two processes in one folder reach the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from probe.config import Config, LayersConfig, RaceConfig, UserError
from probe.probes.kinds import PROBES
from probe.race.dev_scores import DevScores
from probe.race.log import ending_line, round_lines
from probe.race.rule import VERSION, Cell, Rules, num_ahead, replay, thresholds
from probe.race.spec import DECISIONS, RACE, Decisions, Entry, RaceSpec, read_spec
from probe.runs.identity import label_of
from probe.runs.plan import Plan, plan, prepare_results
from probe.runs.sweep import run_sweep
from probe.runs.sweep_plan import write_expected
from probe.system.files import write_atomically, write_json
from probe.system.locks import wait_for_lock


def run_race(
    named: Sequence[Config],
    seeds: Sequence[int],
    base: Config,
    candidates: Callable[[], list[Config]],
    command: str,
    log: Callable[[str], None] = print,
) -> dict[Cell, str]:
    """Races these configs (one per row) and the candidates in one results folder. Returns why runs failed.

    base: the settings of the race. candidates: called only when a new race begins; later its rows are in race.json.
    Raises UserError for rows that cannot race, and if the folder holds another race.
    """
    folder = Path(base.results_dir)
    _refuse(named, base)
    rows = sorted({_name(cfg.layers) for cfg in named})
    asked: dict[str, Any] = {"named": rows, "candidates": base.race.candidates}
    there = read_spec(folder)
    if there is None:
        configs = [*named, *candidates()]
    elif there.asked != asked:
        raise _other_race(folder, f"{_described(there.asked)}; here {_described(asked)}")
    else:
        configs = [replace(base, layers=entry.layers) for entry in there.entries]
    plans: dict[str, Plan] = {}  # by cell: if a row has two names, the first counts
    for planned in map(plan, configs):
        plans.setdefault(planned.identity.cell, planned)
    spec = _stored_spec(folder, _make_spec([*plans.values()], seeds, asked, base.race))
    plan_of = {planned.selection.name: planned for planned in plans.values()}
    scores, num_logged = DevScores(folder, spec.runs), 0
    while True:
        state = replay(spec.rules, spec.rows, scores.run)
        write_atomically(folder / DECISIONS, Decisions.of(state, scores.still_failed).text())
        for done in state.rounds[num_logged:]:
            for line in round_lines(done, state.eliminated):
                log(line)
        num_logged = len(state.rounds)
        decided = [(plan_of[row].expected, spec.runs[row, seed]) for row, seed in state.runs]  # also earlier runs
        expected = [replace(run, key=identity.key, identity=identity) for run, identity in decided]
        if expected and (note := write_expected(folder, expected)):
            log(note)
        if not state.todo:
            log(ending_line(state.rounds, state.ended))
            return scores.still_failed
        log(f"Round {num_logged + 1} of at most {len(spec.rules.seeds)}: {len(state.remaining)} rows remain.")
        wanted = [replace(plan_of[row].cfg, seed=seed) for row, seed in state.todo]
        outcome = run_sweep(wanted, command, log, dev_only=True)
        reasons = dict(outcome.failed)
        for cell in state.todo:
            if not scores.path(cell).exists():  # recorded as failed, otherwise this round would repeat forever
                why = reasons.get(label_of(cell[0], spec.runs[cell]))
                scores.failed[cell] = why or "it wrote no record; the same command tries again"


def _refuse(named: Sequence[Config], base: Config) -> None:
    """Raises UserError for rows that are no choice of frozen layers, and if runs differ in more than their seed."""
    if not PROBES[base.probe.kind].reads_features:
        raise UserError(f"A race compares layers of a frozen encoder. Omit probe={base.probe.kind}.")
    if any(cfg.layers.is_empty for cfg in named):
        raise UserError("layers=majority_tag has no seeds to race with. Run it without a race; it takes seconds.")


def _make_spec(plans: Sequence[Plan], seeds: Sequence[int], asked: dict[str, Any], wanted: RaceConfig) -> RaceSpec:
    """Makes the race of these rows. Raises UserError for two rows of one name."""
    names = [planned.selection.name for planned in plans]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"Two rows of this race are called {doubled} but have different layers.")
    ahead = num_ahead(len(plans))
    limits = thresholds(len(plans), ahead, len(seeds), wanted.alpha)
    rules = Rules(wanted.alpha, list(seeds), ahead, limits, wanted.min_seeds, VERSION)
    entries = [
        Entry(name, planned.selection.width, planned.cfg.layers, replace(planned.identity, seed=seeds[0]))
        for name, planned in zip(names, plans, strict=True)
    ]
    return RaceSpec(asked, entries, rules)


def _stored_spec(folder: Path, wanted: RaceSpec) -> RaceSpec:
    """Returns the folder's race, after writing this one if there is none. Raises UserError if the two differ."""
    prepare_results(folder)
    with wait_for_lock(folder / "logs" / "race.lock"):
        there = read_spec(folder)
        if there is None:
            write_json(folder / RACE, wanted)
            return wanted
    if difference := _difference(there, wanted):
        raise _other_race(folder, difference)
    return there


def _other_race(folder: Path, difference: str) -> UserError:
    return UserError(
        f"{folder} holds a race with other rules ({difference}), and the rules of a race never change.\n"
        "Type its settings to continue it, or give the new race another folder: results_dir=NAME."
    )


def _name(layers: LayersConfig) -> str:
    """Names layers as tables do. Indices must be absolute."""
    indices = layers.indices if isinstance(layers.indices, list) else [layers.indices]
    return layers.name or "_".join(["layer" if len(indices) == 1 else layers.combine, *map(str, indices)])


def _described(asked: dict[str, Any]) -> str:
    rows = ", ".join(asked.get("named", [])) or "none"
    return f"{asked.get('candidates')} candidates of the screen, and the rows {rows}"


def _difference(there: RaceSpec, wanted: RaceSpec) -> str | None:
    """Returns how two races differ, or None. Thresholds follow from the rest, so they are not compared."""
    if there.rows != wanted.rows:
        return f"rows {', '.join(there.rows)}; here {', '.join(wanted.rows)}"
    old, new = asdict(there.rules), asdict(wanted.rules)
    for name in old:
        if name != "thresholds" and old[name] != new[name]:
            return f"{name} {old[name]}, here {new[name]}"
    if there.entries != wanted.entries:
        return "another text, encoder or probe"
    return None
