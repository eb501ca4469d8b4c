"""The rule of a race: which runs are next, who leaves, and when it ends. A pure function of dev scores.

Each round adds a seed. All rows run the first; the better half runs the second, which measures the spread over seeds,
and the other rows are judged by that spread on their one seed; from the third round on all remaining rows have the same
seeds. After every round from the second on, each row is compared with the leader, the row with the highest mean of
those with the most seeds:

    t = (leader's mean - row's mean) / sqrt(s^2 (1 / n_leader + 1 / n_row) + v)

s^2 is the variance over seeds, pooled over all rows: rows of a corpus have similar spreads, and a row's own three seeds
estimate it poorly. v is the variance of the difference over the text, paired by document or sentence, where counts are
available: it keeps a row whose gap on this dev split another split could reverse. A row leaves if t exceeds the
threshold of this interim look.

The thresholds account for repeated looks and many rows. They come from simulated races of equally good rows, when the
best row is dropped most easily, and without v, which only makes leaving harder. They spend alpha over the looks in
equal steps (Lan & DeMets 1983), so that over all looks a row as good as any other leaves with probability alpha at most
(comparison with the best: Hsu 1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

VERSION = 1  # rises when the rule decides otherwise than before on the same scores; race.json has it
SIMULATED = 40_000
MOST_SEEDS = 200  # the most that a race could still take; more are not advised


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


@dataclass(frozen=True)
class DevRun:
    """What of a finished run a race may know: its dev score (a fraction), how its training ended ("converged" where it
    did), and when it ran (seconds since the epoch)."""

    dev: float
    ending: str = "converged"
    began: float = 0.0
    ended: float = 0.0


Cell = tuple[str, int]  # a row and a seed


@dataclass(frozen=True)
class Left:
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
    needed: for each remaining row but the leader, how many seeds of both would tell the two apart, or None if no number
    would; as of the last round."""

    rows: list[str]
    rounds: list[Round] = field(default_factory=list)
    left: dict[str, Left] = field(default_factory=dict)
    todo: list[Cell] = field(default_factory=list)
    ended: str | None = None
    needed: dict[str, int | None] = field(default_factory=dict)

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
    found = []
    for seen in range(2, num_seeds + 1):
        n = np.full(num_rows, seen)
        if seen == 2:
            n[num_ahead:] = 1
        there = np.arange(num_seeds) < n[:, None]  # (rows, seeds)
        means = (scores * there).sum(2) / n
        squares = (((scores - means[:, :, None]) * there) ** 2).sum((1, 2))
        leads = means[:, n == seen].max(1)[:, None]
        deviation = np.sqrt(squares / (n - 1).sum())[:, None]
        t = (leads - means) / (deviation * np.sqrt(1 / n + 1 / seen))
        spent = alpha * seen / num_seeds
        may_leave = int(spent * stands.size) - int((~stands).sum())
        threshold = float(np.sort(t[stands])[-may_leave - 1])
        stands &= t <= threshold
        found.append(threshold)
    return found


def follow(
    rules: Rules,
    rows: Sequence[str],
    run_of: Callable[[Cell], DevRun | str | None],
    text_variance: Callable[[str, str, Sequence[int]], float] = lambda *_: 0.0,
) -> Race:
    """Replays a race from its start as far as its runs are known, so that its state depends on the runs alone.

    run_of: a run, a text that says why there is none, or None where it is not made yet. text_variance: variance over
    the text of the difference of two rows, their counts summed over these seeds.
    """
    state = Race(list(rows))
    scores: dict[str, dict[int, DevRun]] = {row: {} for row in rows}
    for number in range(1, len(rules.seeds) + 1):
        runs = _runs_of(number, rules, state, scores)
        state.ended = _over_budget(rules, state, runs, scores)
        if state.ended:
            break
        state.todo = [cell for cell in runs if run_of(cell) is None]
        if state.todo:
            return state
        for row, seed in runs:
            run = run_of((row, seed))
            if isinstance(run, DevRun):
                scores[row][seed] = run
            if isinstance(run, str):
                state.left[row] = Left(number, f"failed: {run}")
            elif run is not None and run.ending != "converged":
                state.left[row] = Left(number, f"not converged ({run.ending})")
        _look(number, runs, rules, state, scores, text_variance)
        if state.ended:
            break
    return state


def _runs_of(number: int, rules: Rules, state: Race, scores: Mapping[str, Mapping[int, DevRun]]) -> list[Cell]:
    """The runs of a round: of each row that takes part the seeds up to this one that it has not run."""
    rows = state.standing
    if number == 2:
        rows = rows[: rules.ahead]
    return [(row, seed) for seed in rules.seeds[:number] for row in rows if seed not in scores[row]]


def _look(
    number: int,
    runs: list[Cell],
    rules: Rules,
    state: Race,
    scores: Mapping[str, Mapping[int, DevRun]],
    text_variance: Callable[[str, str, Sequence[int]], float],
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
    deviation, df = pooled([[run.dev for run in own.values() if run.ending == "converged"] for own in scores.values()])
    state.rounds.append(Round(number, runs, leader, means, deviation, df))
    others = [row for row in means if row != leader]
    behind = {row: means[leader] - means[row] for row in others}
    over_text = {}
    if deviation is not None:
        for row in others:
            over_text[row] = text_variance(leader, row, [seed for seed in scores[row] if seed in scores[leader]])
            error = math.sqrt(deviation**2 * (1 / most + 1 / len(values[row])) + over_text[row])
            t, threshold = _ratio(behind[row], error), rules.thresholds[number - 2]
            if t > threshold:
                state.left[row] = Left(number, f"told apart from {leader}", behind[row], t, threshold)
    stand = [row for row in others if row not in state.left]
    last = number == len(rules.seeds)
    if deviation is not None:
        needed = {row: seeds_to_cross(behind[row], deviation, over_text[row], rules.thresholds[-1]) for row in stand}
    else:
        needed = dict.fromkeys(stand)
    if not stand:
        state.ended = "one row is left" if others or state.left else "there is one row alone"
    elif last:
        state.ended = f"all {number} seeds are run"
    elif number >= rules.min_seeds and not any(n is not None and n <= len(rules.seeds) for n in needed.values()):
        state.ended = f"more seeds, up to {len(rules.seeds)}, would hardly tell more rows apart"
    state.needed = needed


def _over_budget(
    rules: Rules, state: Race, runs: Sequence[Cell], scores: Mapping[str, Mapping[int, DevRun]]
) -> str | None:
    """Why a round is not begun: it would exceed the runs or, at the pace so far, the minutes that are allowed."""
    made = len(state.runs)
    if rules.max_runs is not None and made + len(runs) > rules.max_runs:
        return f"the budget of {rules.max_runs} runs is spent (the next round needs {len(runs)}, {made} are made)"
    if rules.max_minutes is not None and made:
        minutes = minutes_busy([run for own in scores.values() for run in own.values()])
        if minutes * (1 + len(runs) / made) > rules.max_minutes:
            return f"the budget of {rules.max_minutes:g} minutes is spent ({minutes:.0f} are, the next round is longer)"
    return None


def pooled(groups: Sequence[Sequence[float]]) -> tuple[float | None, int]:
    """The standard deviation within groups, pooled, and its degrees of freedom; None where no group has two values."""
    df = sum(len(group) - 1 for group in groups if group)
    if not df:
        return None, 0
    return math.sqrt(sum(_squares(group) for group in groups if group) / df), df


def seeds_to_cross(behind: float, deviation: float, over_text: float, threshold: float) -> int | None:
    """How many seeds of both rows bring t above the threshold, should the difference stay; None where none would."""
    room = (behind / threshold) ** 2 - over_text
    if behind <= 0 or room <= 0:
        return None
    seeds = max(2, math.floor(2 * deviation**2 / room) + 1)
    return seeds if seeds <= MOST_SEEDS else None


def minutes_busy(runs: Sequence[DevRun]) -> float:
    """Minutes in which at least one of the runs was going on: pauses of a race do not count."""
    busy, until = 0.0, -math.inf
    for began, ended in sorted((run.began, run.ended) for run in runs):
        busy += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return busy / 60


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def _ratio(difference: float, error: float) -> float:
    return difference / error if error else math.copysign(math.inf, difference) if difference else 0.0
