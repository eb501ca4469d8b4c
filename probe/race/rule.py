"""Decides which runs of a race are next, which rows are eliminated, and when it ends: a pure function of dev scores.

Each round adds a seed. All rows run the first. The better half runs the second, which measures the spread over seeds;
the other rows are judged by that spread on their one seed. From the third round on, all remaining rows have the same
seeds. After every round from the second on, each row is compared with the leader, the row with the highest mean of
those with the most seeds, by the statistic of every table (`scoring.compare`):

    t = (leader's mean - row's mean) / standard error of the difference, over seeds and text

A row is eliminated if t exceeds the threshold of this interim analysis, and if no table would recommend it. A row that
costs less than the leader may be recommended as long as it lies within the margin. So it is only eliminated if it also
lies significantly farther behind than the margin, or significantly behind a row that costs no more than it does.

A run that never learned says nothing about its row. Another seed replaces it, and only a row with several such runs is
eliminated for it.

The thresholds account for repeated analyses, many rows and few seeds. They come from simulated races of equally good
rows with one spread on a known text, by the same statistic. They spend alpha over the analyses in equal steps (Lan &
DeMets 1983), so that over all of them a row as good as any other is eliminated with probability alpha at most
(comparison with the best: Hsu 1984). tests/benchmarks/decisions.py measures this probability if the text is a sample,
and if one row spreads more than the others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from probe.runs.samples import samples_over
from probe.scoring.compare import Comparison, Sample, seed_variances
from probe.scoring.significance import Units

VERSION = 5  # raise it when the rule decides differently on the same scores; race.json stores it
SIMULATED_RACES = 40_000
MOST_SEEDS = 200  # the largest number that is advised
MOST_REPLACED = 2  # of a row's runs that never learned; with one more the row is eliminated
NEVER_LEARNED = "never_learned"  # the ending of a training that never scored above zero


@dataclass(frozen=True)
class Rules:
    """Holds the rules of a race, which are fixed before the first run.

    seeds: in order, one per round. ahead: how many rows run the second seed while the others wait. thresholds: of t,
    after rounds 2, 3, ... min_seeds: of the remaining rows, before a race may end because more seeds would hardly help.
    margin: of the table, a fraction. version: of the rule.
    """

    alpha: float
    margin: float
    seeds: list[int]
    ahead: int
    thresholds: list[float]
    min_seeds: int
    version: int

    @property
    def spare_seeds(self) -> list[int]:
        """Returns the seeds that replace runs that never learned."""
        return [max(self.seeds) + 1 + number for number in range(MOST_REPLACED)]


@dataclass(frozen=True)
class DevRun:
    """Holds what a race may know of a finished run.

    dev: its score, a fraction. ending: how training ended ("converged" if it did). influence: (U,), how much each of
    these units of dev's text moves the score; None if counts are missing.
    """

    dev: float
    ending: str = "converged"
    influence: np.ndarray | None = None
    units: Units | None = None


Cell = tuple[str, int]  # a row and a seed


@dataclass(frozen=True)
class Elimination:
    """Says when and why a row was eliminated, so that it gets no more seeds.

    behind: its gap to the leader in dev score, a fraction. behind, t and threshold are None if t was not the reason.
    """

    round: int
    why: str
    behind: float | None = None
    t: float | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Round:
    """Holds a finished round. spread: pooled standard deviation over seeds. df: its degrees of freedom."""

    number: int
    runs: list[Cell]
    leader: str | None
    means: dict[str, float]
    spread: float | None = None
    df: int = 0


@dataclass
class Race:
    """Holds the state of a race, which decisions.json stores.

    eliminated: rows, and why. remaining: the other rows, best first once there is a round. ended: why it is over; None
    while it is not. needed: after the last round, for each remaining row but the leader, how many seeds of both would
    separate the two; None if no number would. failed: why runs have no record. replaced: runs that never learned, which
    another seed replaced. todo: runs to make before it can go on; not stored.
    """

    rounds: list[Round] = field(default_factory=list)
    eliminated: dict[str, Elimination] = field(default_factory=dict)
    remaining: list[str] = field(default_factory=list)
    ended: str | None = None
    needed: dict[str, int | None] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    replaced: list[Cell] = field(default_factory=list)
    todo: list[Cell] = field(default_factory=list)

    @property
    def runs(self) -> list[Cell]:
        return [cell for done in self.rounds for cell in done.runs]

    def eliminate(self, row: str, elimination: Elimination) -> None:
        self.eliminated[row] = elimination
        self.remaining = [other for other in self.remaining if other != row]


def num_ahead(num_rows: int) -> int:
    """Returns how many rows run the second seed first: the better half, at least two."""
    return min(num_rows, max(2, math.ceil(num_rows / 2)))


def thresholds(num_rows: int, num_ahead: int, num_seeds: int, alpha: float) -> list[float]:
    """Returns the thresholds of t after rounds 2 to `num_seeds`: equal rows are eliminated with probability alpha each.

    They come from a seeded simulation of `num_rows` normal rows with one spread.
    """
    if num_rows < 2:
        return []
    scores = np.random.default_rng(0).standard_normal((SIMULATED_RACES, num_rows, num_seeds))  # (races, rows, seeds)
    best_first = np.argsort(-scores[:, :, 0], axis=1)
    scores = np.take_along_axis(scores, best_first[:, :, None], axis=1)
    remaining = np.ones((SIMULATED_RACES, num_rows), dtype=bool)
    races = np.arange(SIMULATED_RACES)
    limits = []
    for seen in range(2, num_seeds + 1):
        n = np.full(num_rows, seen)
        if seen == 2:
            n[num_ahead:] = 1
        is_run = np.arange(num_seeds) < n[:, None]  # (rows, seeds)
        means = (scores * is_run).sum(2) / n
        squared = seed_variances(scores, is_run) / n
        leader = np.where(n == seen, means, -np.inf).argmax(1)
        t = (means[races, leader][:, None] - means) / np.sqrt(squared + squared[races, leader][:, None])
        t[races, leader] = 0.0
        spent = alpha * seen / num_seeds
        to_eliminate = int(spent * remaining.size) - int((~remaining).sum())
        limits.append(float(np.sort(t[remaining])[-to_eliminate - 1]))
        remaining &= t <= limits[-1]
    return limits


def replay(rules: Rules, costs: Mapping[str, tuple[int, ...]], run_of: Callable[[Cell], DevRun | str | None]) -> Race:
    """Replays a race from its start as far as its runs are known, so that its state depends only on the runs.

    costs: of each row; the lower one costs less. run_of: returns a run, the reason why it failed, or None if it is not
    made yet.
    """
    state = Race(remaining=list(costs))
    known: dict[str, dict[int, DevRun]] = {row: {} for row in costs}
    for number in range(1, len(rules.seeds) + 1):
        made: list[Cell] = []
        while runs := _runs_of(number, rules, state, known):
            state.todo = [cell for cell in runs if run_of(cell) is None]
            if state.todo:
                return state
            for cell in runs:
                _take(number, cell, run_of(cell), state, known)
            made += runs
        _analyse(number, made, rules, costs, state, known)
        if state.ended:
            break
    return state


def _runs_of(number: int, rules: Rules, state: Race, known: Mapping[str, Mapping[int, DevRun]]) -> list[Cell]:
    """Returns the runs that a round still needs.

    Each row of the round needs the seeds up to this round, and one more for each run that never learned.
    """
    rows = state.remaining[: rules.ahead] if number == 2 else state.remaining
    lost = Counter(row for row, _ in state.replaced)
    seeds = {row: [*rules.seeds[:number], *rules.spare_seeds[: lost[row]]] for row in rows}
    wanted = [(row, seed) for row in rows for seed in seeds[row]]
    cells = [cell for cell in wanted if cell[1] not in known[cell[0]] and cell not in state.replaced]
    return sorted(cells, key=lambda cell: [*rules.seeds, *rules.spare_seeds].index(cell[1]))


def _take(number: int, cell: Cell, run: DevRun | str | None, state: Race, known: dict[str, dict[int, DevRun]]) -> None:
    """Adds a run to the race, or eliminates its row."""
    row, seed = cell
    assert run is not None
    if isinstance(run, str):
        state.eliminate(row, Elimination(number, f"failed: {run}"))
    elif run.ending != NEVER_LEARNED:
        known[row][seed] = run
        if run.ending != "converged":
            state.eliminate(row, Elimination(number, "not converged (hit the epoch limit)"))
    elif sum(of == row for of, _ in state.replaced) < MOST_REPLACED:
        state.replaced.append(cell)
    else:
        state.eliminate(row, Elimination(number, f"{MOST_REPLACED + 1} of its runs never learned"))


def _analyse(
    number: int,
    runs: list[Cell],
    rules: Rules,
    costs: Mapping[str, tuple[int, ...]],
    state: Race,
    known: Mapping[str, Mapping[int, DevRun]],
) -> None:
    """Decides after a round which rows are eliminated and whether the race is over."""
    values = {row: [run.dev for run in known[row].values()] for row in known if row in state.remaining}
    means = {row: fmean(scores) for row, scores in values.items()}
    if not means:
        state.rounds.append(Round(number, runs, None, means))
        state.ended = "no row is left that can be ranked"
        return
    most = max(map(len, values.values()))
    leader = max((row for row in means if len(values[row]) == most), key=means.__getitem__)
    others = [row for row in means if row != leader]
    converged = {row: [run for run in known[row].values() if run.ending == "converged"] for row in known}
    converged = {row: made for row, made in converged.items() if made}
    state.needed = dict.fromkeys(others)
    if max(map(len, converged.values())) == 1:
        state.rounds.append(Round(number, runs, leader, means))
    else:
        compared = Comparison(_samples([*converged.values()]))
        df = int((compared.n - 1).sum())
        state.rounds.append(Round(number, runs, leader, means, math.sqrt(compared.variances.min()), df))
        place = {row: i for i, row in enumerate(converged)}
        threshold = rules.thresholds[number - 2]

        def t(better: str, row: str, by: float = 0.0) -> float:
            behind, error = means[better] - means[row] - by, compared.error(place[better], place[row])
            return behind / error if error else math.inf if behind > 0 else 0.0

        for row in others:
            behind, allowed = means[leader] - means[row], rules.margin * (costs[row] < costs[leader])
            as_cheap = [other for other in means if costs[other] <= costs[row]]
            is_useless = t(leader, row, allowed) > threshold or any(t(other, row) > threshold for other in as_cheap)
            if t(leader, row) > threshold and is_useless:
                why = f"significantly worse than {leader}"
                state.eliminate(row, Elimination(number, why, behind, t(leader, row), threshold))
                del state.needed[row]
                continue
            variances = float(compared.variances[place[leader]] + compared.variances[place[row]])
            over_text = compared.error_parts(place[leader], place[row])[1]
            state.needed[row] = seeds_to_cross(behind - allowed, variances, over_text, rules.thresholds[-1])
    state.remaining = sorted((row for row in means if row in state.remaining), key=lambda row: -means[row])
    within_reach = any(n is not None and n <= len(rules.seeds) for n in state.needed.values())
    if len(state.remaining) == 1:
        state.ended = "one row remains" if len(known) > 1 else "there is one row alone"
    elif number == len(rules.seeds):
        state.ended = f"all {number} seeds are run"
    elif number >= rules.min_seeds and not within_reach:
        state.ended = f"more seeds, up to {len(rules.seeds)}, would hardly separate more rows"


def _samples(rows: Sequence[Sequence[DevRun]]) -> list[Sample]:
    """Returns the scores of each row's runs with the influence of each unit of the text, as a table has them."""
    scores = [[run.dev for run in row] for row in rows]
    moves = [[run.influence for run in row if run.influence is not None] for row in rows]
    units = [run.units for row in rows for run in row if run.units is not None]
    return samples_over(scores, [*map(np.stack, moves)], units)[0] if all(moves) else [*map(Sample, scores)]


def seeds_to_cross(behind: float, variances: float, over_text: float, threshold: float) -> int | None:
    """Returns how many seeds of both rows bring t above the threshold, if the difference stays; None if none would.

    variances: sum of the two rows' variances of one run over seeds, which fall with seeds. over_text: the part of the
    squared error that does not.
    """
    over_seeds = (behind / threshold) ** 2 - over_text  # what the seeds' part may be at most
    if behind <= 0 or over_seeds <= 0:
        return None
    seeds = max(2, math.floor(variances / over_seeds) + 1)
    return seeds if seeds <= MOST_SEEDS else None
