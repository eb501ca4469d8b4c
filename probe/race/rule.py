"""The rule of a race: which runs are next, who leaves, and when it ends. A pure function of dev scores.

Each round adds a seed. All rows run the first; the better half runs the second, which measures the spread over seeds,
and the other rows are judged by that spread on their one seed; from the third round on all remaining rows have the same
seeds. After every round from the second on, each row is compared with the leader, the row with the highest mean of
those with the most seeds, by the statistic of every table (`scoring.compare`):

    t = (leader's mean - row's mean) / standard error of the difference, over seeds and text

A row leaves if t exceeds the threshold of this interim analysis. A run that never learned says nothing of its row: a
further seed takes its place, and only a row that fails so repeatedly leaves for it.

The thresholds account for repeated analyses, many rows and few seeds. They come from simulated races of equally good
rows with one spread on a known text, by the same statistic. They spend alpha over the analyses in equal steps (Lan &
DeMets 1983), so that over all of them a row as good as any other leaves with probability alpha at most (comparison with
the best: Hsu 1984). On a text that is a sample, and where one row spreads more than the others,
tests/benchmarks/decisions.py has measured what it is then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from probe.scoring.compare import Comparison, Sample, seed_variances

VERSION = 2  # rises when the rule decides otherwise than before on the same scores; race.json has it
SIMULATED = 40_000
MOST_SEEDS = 200  # the most that a race could still take; more are not advised
MOST_REPLACED = 2  # of a row's runs that never learned; one more, and the row leaves
SILENT = "silent"  # how a training ended that never scored above zero


@dataclass(frozen=True)
class Rules:
    """Fixed before the first run. seeds: in their order, one a round. ahead: how many rows run the second seed while
    the others wait. thresholds: of t, after rounds 2, 3, ... min_seeds: of the remaining rows, before a race may end
    because more seeds would hardly help. max_runs, max_minutes: None for no bound. version: of the rule; a race.json
    that names none was written for the first."""

    alpha: float
    seeds: list[int]
    ahead: int
    thresholds: list[float]
    min_seeds: int
    max_runs: int | None = None
    max_minutes: float | None = None
    version: int = 1

    @property
    def spare_seeds(self) -> list[int]:
        """Seeds that take the place of runs that never learned."""
        return [max(self.seeds) + 1 + number for number in range(MOST_REPLACED)]


@dataclass(frozen=True)
class DevRun:
    """What of a finished run a race may know: its dev score (a fraction), how its training ended ("converged" where it
    did), when it ran (seconds since the epoch), and how much each unit of dev's text moves its score, (U,)."""

    dev: float
    ending: str = "converged"
    began: float = 0.0
    ended: float = 0.0
    influence: np.ndarray | None = None


Cell = tuple[str, int]  # a row and a seed


@dataclass(frozen=True)
class Elimination:
    """A row that gets no more seeds. behind: its gap to the leader in dev score, a fraction; None, like t and
    threshold, if it left for another reason than t."""

    round: int
    why: str
    behind: float | None = None
    t: float | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Round:
    """A round that was run. spread: standard deviation over seeds, pooled, with its degrees of freedom."""

    number: int
    runs: list[Cell]
    leader: str | None
    means: dict[str, float]
    spread: float | None = None
    df: int = 0


@dataclass
class Race:
    """Where a race stands. todo: runs to be made before it can go on. ended: why it is over; None while it is not.
    needed: for each remaining row but the leader, how many seeds of both would separate the two, or None if no number
    would; as of the last round. replaced: runs that never learned, whose place another seed took."""

    rows: list[str]
    rounds: list[Round] = field(default_factory=list)
    left: dict[str, Elimination] = field(default_factory=dict)
    todo: list[Cell] = field(default_factory=list)
    ended: str | None = None
    needed: dict[str, int | None] = field(default_factory=dict)
    replaced: list[Cell] = field(default_factory=list)

    @property
    def standing(self) -> list[str]:
        """The rows that have not left, best first once there is a round."""
        means = self.rounds[-1].means if self.rounds else {}
        return sorted((row for row in self.rows if row not in self.left), key=lambda row: -means.get(row, 0.0))

    @property
    def runs(self) -> list[Cell]:
        return [cell for done in self.rounds for cell in done.runs]


def num_ahead(num_rows: int) -> int:
    """How many rows run the second seed first: the better half, two at least."""
    return min(num_rows, max(2, math.ceil(num_rows / 2)))


def thresholds(num_rows: int, num_ahead: int, num_seeds: int, alpha: float, seed: int = 0) -> list[float]:
    """What t must exceed after rounds 2 to `num_seeds`, so that of equal rows each leaves with probability alpha.

    By simulation of so many rows, normal with one spread; seeded.
    """
    if num_rows < 2:
        return []
    scores = np.random.default_rng(seed).standard_normal((SIMULATED, num_rows, num_seeds))  # (races, rows, seeds)
    best_first = np.argsort(-scores[:, :, 0], axis=1)
    scores = np.take_along_axis(scores, best_first[:, :, None], axis=1)
    stands = np.ones((SIMULATED, num_rows), dtype=bool)
    races = np.arange(SIMULATED)
    found = []
    for seen in range(2, num_seeds + 1):
        n = np.full(num_rows, seen)
        if seen == 2:
            n[num_ahead:] = 1
        there = np.arange(num_seeds) < n[:, None]  # (rows, seeds)
        means = (scores * there).sum(2) / n
        squared = seed_variances(scores, there) / n
        leader = np.where(n == seen, means, -np.inf).argmax(1)
        t = (means[races, leader][:, None] - means) / np.sqrt(squared + squared[races, leader][:, None])
        t[races, leader] = 0.0
        spent = alpha * seen / num_seeds
        may_leave = int(spent * stands.size) - int((~stands).sum())
        threshold = float(np.sort(t[stands])[-may_leave - 1])
        stands &= t <= threshold
        found.append(threshold)
    return found


def replay(rules: Rules, rows: Sequence[str], run_of: Callable[[Cell], DevRun | str | None]) -> Race:
    """Replays a race from its start as far as its runs are known, so that its state depends on the runs alone.

    run_of: a run, a text that says why there is none, or None where it is not made yet.
    """
    state = Race(list(rows))
    scores: dict[str, dict[int, DevRun]] = {row: {} for row in rows}
    for number in range(1, len(rules.seeds) + 1):
        made: list[Cell] = []
        while runs := _runs_of(number, rules, state, scores):
            state.ended = _over_budget(rules, state, made, runs, scores)
            if state.ended:
                return state
            state.todo = [cell for cell in runs if run_of(cell) is None]
            if state.todo:
                return state
            for cell in runs:
                _take(number, cell, run_of(cell), state, scores)
            made += runs
        _interim_analysis(number, made, rules, state, scores)
        if state.ended:
            break
    return state


def _runs_of(number: int, rules: Rules, state: Race, scores: Mapping[str, Mapping[int, DevRun]]) -> list[Cell]:
    """The runs that a round lacks: of each row that takes part the seeds up to this one, and one more for each run that
    never learned."""
    rows = state.standing
    if number == 2:
        rows = rows[: rules.ahead]
    lost = {row: sum(of == row for of, _ in state.replaced) for row in rows}
    seeds = {row: [*rules.seeds[:number], *rules.spare_seeds[: lost[row]]] for row in rows}
    wanted = [(row, seed) for row in rows for seed in seeds[row]]
    cells = [cell for cell in wanted if cell[1] not in scores[cell[0]] and cell not in state.replaced]
    return sorted(cells, key=lambda cell: [*rules.seeds, *rules.spare_seeds].index(cell[1]))


def _take(number: int, cell: Cell, run: DevRun | str | None, state: Race, scores: dict[str, dict[int, DevRun]]) -> None:
    """Takes a run into the race, or its row out of it."""
    row, seed = cell
    if isinstance(run, str):
        state.left[row] = Elimination(number, f"failed: {run}")
        return
    assert run is not None
    if run.ending == SILENT and sum(of == row for of, _ in state.replaced) < MOST_REPLACED:
        state.replaced.append(cell)
        return
    scores[row][seed] = run
    if run.ending == SILENT:
        state.left[row] = Elimination(number, f"{MOST_REPLACED + 1} of its runs never learned")
    elif run.ending != "converged":
        state.left[row] = Elimination(number, "not converged (hit the epoch limit)")


def _interim_analysis(
    number: int, runs: list[Cell], rules: Rules, state: Race, scores: Mapping[str, Mapping[int, DevRun]]
) -> None:
    """What a round's scores decide: who leaves, and whether the race is over."""
    values = {row: [run.dev for run in scores[row].values()] for row in state.rows if row not in state.left}
    means = {row: fmean(own) for row, own in values.items()}
    if not means:
        state.rounds.append(Round(number, runs, None, means))
        state.ended = "no row is left that can be ranked"
        return
    most = max(map(len, values.values()))
    leader = max((row for row in means if len(values[row]) == most), key=means.__getitem__)
    others = [row for row in means if row != leader]
    converged = {row: [run for run in own.values() if run.ending == "converged"] for row, own in scores.items()}
    converged = {row: own for row, own in converged.items() if own}
    place = {row: i for i, row in enumerate(converged)}
    compared = None
    if max(map(len, converged.values())) > 1:
        compared = Comparison([_sample(own) for own in converged.values()])
        df = int((compared.n - 1).sum())
        state.rounds.append(Round(number, runs, leader, means, math.sqrt(compared.variances.min()), df))
    else:
        state.rounds.append(Round(number, runs, leader, means))
    behind = {row: means[leader] - means[row] for row in others}
    if compared is not None:
        for row in others:
            error = compared.error(place[leader], place[row])
            t, threshold = _ratio(behind[row], error), rules.thresholds[number - 2]
            if t > threshold:
                state.left[row] = Elimination(number, f"significantly worse than {leader}", behind[row], t, threshold)
    stand = [row for row in others if row not in state.left]
    state.needed = dict.fromkeys(stand)
    if compared is not None:
        for row in stand:
            variances = float(compared.variances[place[leader]] + compared.variances[place[row]])
            over_text = compared.error_parts(place[leader], place[row])[1]
            state.needed[row] = seeds_to_cross(behind[row], variances, over_text, rules.thresholds[-1])
    within_reach = any(n is not None and n <= len(rules.seeds) for n in state.needed.values())
    if not stand:
        state.ended = "one row remains" if others or state.left else "there is one row alone"
    elif number == len(rules.seeds):
        state.ended = f"all {number} seeds are run"
    elif number >= rules.min_seeds and not within_reach:
        state.ended = f"more seeds, up to {len(rules.seeds)}, would hardly separate more rows"


def _sample(runs: Sequence[DevRun]) -> Sample:
    influences = [run.influence for run in runs if run.influence is not None]
    is_whole = len(influences) == len(runs)
    return Sample([run.dev for run in runs], np.stack(influences) if is_whole else None)


def _over_budget(
    rules: Rules,
    state: Race,
    in_this_round: Sequence[Cell],
    runs: Sequence[Cell],
    scores: Mapping[str, Mapping[int, DevRun]],
) -> str | None:
    """Why runs are not begun: they would exceed the number or, at the pace so far, the minutes that are allowed."""
    made = len(state.runs) + len(in_this_round)
    if rules.max_runs is not None and made + len(runs) > rules.max_runs:
        return f"the budget of {rules.max_runs} runs is spent (the next round needs {len(runs)}, {made} are made)"
    if rules.max_minutes is not None and made:
        minutes = minutes_busy([run for own in scores.values() for run in own.values()])
        if minutes * (1 + len(runs) / made) > rules.max_minutes:
            return f"the budget of {rules.max_minutes:g} minutes is spent ({minutes:.0f} are, the next round is longer)"
    return None


def seeds_to_cross(behind: float, variances: float, over_text: float, threshold: float) -> int | None:
    """How many seeds of both rows bring t above the threshold, should the difference stay; None where none would.

    variances: of a run of either row over seeds, summed; they fall with seeds. over_text: what does not.
    """
    room = (behind / threshold) ** 2 - over_text
    if behind <= 0 or room <= 0:
        return None
    seeds = max(2, math.floor(variances / room) + 1)
    return seeds if seeds <= MOST_SEEDS else None


def minutes_busy(runs: Sequence[DevRun]) -> float:
    """Minutes in which at least one of the runs was going on: pauses of a race do not count."""
    busy, until = 0.0, -math.inf
    for began, ended in sorted((run.began, run.ended) for run in runs):
        busy += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return busy / 60


def _ratio(difference: float, error: float) -> float:
    return difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
