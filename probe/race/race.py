"""Runs a race in a results folder. Its rules and rows are written to race.json before the first run.

The runs of each round are one sweep. Every decision follows only from race.json and the records. So a stopped race
can continue, earlier runs count, and all processes that share a race, its children too, reach the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from probe.config import Config, UserError
from probe.probes.kinds import PROBES
from probe.race.rule import VERSION, Cell, DevRun, Rules, num_ahead, replay, thresholds
from probe.race.spec import RACE, Entrant, RaceSpec, race_lines, read_spec, write_decisions
from probe.runs.identity import label_of
from probe.runs.outputs import load_counts
from probe.runs.plan import Plan, plan, prepare_results
from probe.runs.records import load_record, record_path
from probe.runs.samples import SplitStatistics, order_in
from probe.runs.sweep import make_runs
from probe.runs.sweep_plan import read_asked, write_expected
from probe.system.files import now, write_json
from probe.system.locks import alone
from probe.system.processes import Crew, is_child

# Probability that the best row is wrongly eliminated, if rows have equal spreads (results/README.md: if not).
ALPHA = 0.05
MIN_SEEDS = 4  # of remaining rows, before a race may end because more seeds would hardly help


def run_race(
    named: Sequence[Config],
    seeds: Sequence[int],
    base: Config,
    candidates: Callable[[], tuple[list[Config], int]],
    crew: Crew,
    log: Callable[[str], None] = print,
) -> dict[str, str]:
    """Races these configs (one per row) and the candidates in one results folder. Returns why runs failed.

    base: the settings of the race. candidates: gives those of a screen and how many it ranked; called only when a new
    race begins, because later its rows are in race.json.
    Raises UserError for rows that cannot race, and if the folder holds another race or another margin.
    """
    folder = Path(base.results_dir)
    if not PROBES[base.probe.kind].reads_features:
        raise UserError(f"A race compares layers of a frozen encoder. Omit probe={base.probe.kind}.")
    if any(cfg.layers.is_empty for cfg in named):
        raise UserError("layers=majority_tag has no seeds to race with. Run it without a race; it takes seconds.")
    request = {"named": sorted({plan(cfg).selection.name for cfg in named}), "candidates": base.race.candidates}
    stored = read_spec(folder)
    if stored is None:
        if (margin := read_asked(folder).margin) not in (None, base.margin):
            raise UserError(
                f"The tables of {folder} keep the margin of its first sweep, {margin:g}. "
                f"Type margin={margin:g}, or give the race another folder: results_dir=NAME."
            )
        chosen, choices = candidates()
        configs = [*named, *chosen]
    else:
        configs, choices = [replace(base, layers=entry.layers) for entry in stored.entries], stored.choices
    plans: dict[str, Plan] = {}  # by cell: if a row has two names, the first counts
    for planned in map(plan, configs):
        plans.setdefault(planned.identity.cell, planned)
    plan_of = {planned.selection.name: planned for planned in plans.values()}
    if len(plan_of) < len(plans):
        raise UserError("Two rows of this race have one name and different layers or another layers.normalize.")
    entries = [
        Entrant(
            name,
            (max(planned.selection.indices), planned.selection.width),
            planned.cfg.layers,
            replace(planned.identity, seed=seeds[0]),
        )
        for name, planned in plan_of.items()
    ]
    spec = _stored(folder, RaceSpec(request, entries, _rules(len(entries), seeds, base.margin / 100), now(), choices))
    identities = spec.runs
    paths = {cell: record_path(folder, cell[0], identity) for cell, identity in identities.items()}
    known: dict[Cell, DevRun | str] = {}
    num_logged = 0

    def run_of(cell: Cell) -> DevRun | str | None:
        if not isinstance(known.get(cell), DevRun) and paths[cell].exists():
            known[cell] = dev_run(paths[cell], base.data.order)
        return known.get(cell)

    while True:
        state = replay(spec.rules, spec.costs, run_of)
        state.failed = {f"{row} seed {seed}": why for (row, seed), why in known.items() if isinstance(why, str)}
        if not is_child():
            write_decisions(folder, state)
            for line in race_lines(state, num_logged):
                log(line)
            num_logged = len(state.rounds)
            cells = [*state.runs, *state.todo]  # also those that were made before
            decided = [(plan_of[row].expected, identities[row, seed]) for row, seed in cells]
            expected = [replace(run, key=identity.key, identity=identity) for run, identity in decided]
            if expected:
                write_expected(folder, expected, margin=base.margin, command=crew.command, started=spec.started)
        if not state.todo:
            return state.failed
        wanted = [replace(plan_of[row].cfg, seed=seed) for row, seed in state.todo]
        reasons = dict(make_runs(wanted, crew, log, in_race=True))
        for cell in state.todo:
            if run_of(cell) is None:  # recorded as failed, otherwise this round would repeat forever
                why = reasons.get(label_of(cell[0], identities[cell]))
                known[cell] = why or "it wrote no record; the same command tries again"


def dev_run(path: Path, order: str | None = None) -> DevRun:
    """Reads what a race may see of a record: nothing of test. order: as data.order states it. Raises UserError."""
    record = load_record(path)
    score = record.task.headline
    dev = SplitStatistics.of(load_counts(path)[0]["dev"], score, order_in(record, "dev", order))
    moves = dev.influence(dev.units) if score.has_influence else None
    return DevRun(record.scores.dev.headline, record.outcome, moves, dev.units)


def _rules(num_rows: int, seeds: Sequence[int], margin: float) -> Rules:
    ahead = num_ahead(num_rows)
    limits = thresholds(num_rows, ahead, len(seeds), ALPHA)
    return Rules(ALPHA, margin, list(seeds), ahead, limits, MIN_SEEDS, VERSION)


def _stored(folder: Path, wanted: RaceSpec) -> RaceSpec:
    """Returns the folder's race, after writing this one if there is none. Raises UserError if the two differ."""
    prepare_results(folder)
    with alone(folder / "logs" / "race.lock"):
        stored = read_spec(folder)
        if stored is None:
            write_json(folder / RACE, wanted)
            return wanted
    old, new = ({**spec.asked, "rows": list(spec.costs), **asdict(spec.rules)} for spec in (stored, wanted))
    del old["thresholds"]  # they follow from the rest
    differences = [f"{name}={value}, here {new[name]}" for name, value in old.items() if value != new[name]]
    if stored.entries != wanted.entries:
        differences.append("another text, encoder or probe")
    if differences:
        raise UserError(
            f"{folder} holds a race with other rules ({differences[0]}), and the rules of a race never change.\n"
            "Type its settings to continue it, or give the new race another folder: results_dir=NAME."
        )
    return stored
