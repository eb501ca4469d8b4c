"""Compares rows by one statistic: in tables, recommendations, comparisons of result sets and screens.

The score of a run varies for three reasons. Each enters the standard error of a difference:

- the run: another seed gives another model. This is estimated by the spread over seeds. Their variance on one text
  already contains the interaction of seeds and text.
- the text: on other documents of this kind, one row gains on another with any seeds. This is estimated from each
  document's (or sentence's) influence on F1, paired between rows, minus the interaction of seeds and text.
- the interaction of seeds and text: counted once, with the seeds.

A row's variance over seeds is the larger of its own and the pooled one, so that a row that varies more than the others
is not judged by their spread. Critical values come from simulated tables of equally good rows, with the same numbers of
seeds and the same rule. So they allow for that rule, for few seeds, and for the number of compared rows. They also
allow for few documents, which estimate the variance over the text with few degrees of freedom. Of a single document
nothing follows for others: then every interval holds all scores.

Whoever adds seeds looks at a table more than once, and would call some row worse by luck sooner or later. So a table's
error is spent over its looks (Lan & DeMets 1983): the first table may be wrong in 5 % x (1 - seeds^-1.5) of cases, and
each later one in what its runs add to this share. Nobody has to plan the number of seeds, and no number of looks is
wrong in more than 5 % of cases, if rows vary alike. So the intervals of all looks hold together, and a table has their
intersection.

K rows, S seeds at most, U units of text, N simulated tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from probe.scoring.significance import CONFIDENCE, FEW_UNITS

LUCK = 2.0  # standard errors by which a row with fewer seeds must lead to be called the best
SIMULATED = 20_000
POWER = 0.84  # standard errors by which a difference is exceeded in 80 % of cases
NO_SPREAD = 1e-15  # a variance below it is that of equal scores, but for rounding
MORE_SEEDS = (2, 4, 8)  # so many times those there are, of which `seeds_needed` chooses
LOSSES = 4_000  # draws of the rows' true scores
SPENDING = 1.5  # 1 leaves more to later looks, and the first loses twice as much of its power
MOST_DRAWS = 8_000_000  # of one simulation: bounds the memory if a table has many rows
LEAST_ITEMS = 3  # as many may differ in another text, with 95 %, where none of many did (Hanley & Lippman-Hand 1983)
RARE = 0.05  # an estimate of a variance is so low only in this share of cases
MOST_FREEDOM = 2_000  # degrees of freedom beyond which a variance counts as known


@dataclass(frozen=True)
class Sample:
    """Holds one row's scores on one split.

    scores: of each seed, fractions. influence: (seeds, U), how much each unit of the text moves each score (see
    `Score` in scoring/score.py); None if there are no counts. looks: the look at which each score was first seen;
    empty: one saw all. effective: how many equally long units would carry as much of the text; below 2, nothing is
    known of other texts. item: how much one item of the text moves a score.
    """

    scores: Sequence[float]
    influence: np.ndarray | None = None
    looks: Sequence[int] = ()
    effective: float = math.inf
    item: float = 0.0


def seed_variances(scores: np.ndarray, exists: np.ndarray) -> np.ndarray:
    """Estimates the variance of a single run of each row: the larger of its own and the pooled one.

    scores: (..., K, S). exists: (K, S), which of them exist. Returns (..., K); with one seed the pooled variance.
    """
    n = exists.sum(-1)
    means = (scores * exists).sum(-1) / np.maximum(1, n)
    squares = (((scores - means[..., None]) * exists) ** 2).sum(-1)
    freedom = np.maximum(0, n - 1)
    pooled = squares.sum(-1, keepdims=True) / max(1, int(freedom.sum()))
    return np.maximum(pooled, squares / np.maximum(1, freedom))


def place_of_best(means: np.ndarray, n: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """Returns the place of the best row: the one with the highest mean.

    A mean of few seeds is high by luck more often. So a row with fewer seeds than another loses LUCK standard errors of
    what its missing seeds could change. means, variances: (K, ...). n: (K,). Returns (...).
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # a row without seeds loses everything
        missing = (1 / n - 1 / n.max()).reshape(-1, *[1] * (means.ndim - 1))
        lost = np.nan_to_num(LUCK * np.sqrt(variances.min(0) * missing), nan=np.inf)
    return np.asarray((means - lost).argmax(0))


class Comparison:
    """Compares the rows of one split. All scores are fractions. No end of an interval is nearer than LEAST_ITEMS items.

    means, n: (K,). variances: (K,), of a single run over seeds. text: (K, K), covariance over the text of the rows'
    means, without the interaction of seeds and text. seed_text: (K,), this interaction, a part of `variances`.
    over_text: whether there were counts; without them, intervals are over seeds only.
    """

    def __init__(self, rows: Sequence[Sample]) -> None:
        """Raises ValueError if no row has two seeds, because nothing then says how much a score varies."""
        most = max((len(row.scores) for row in rows), default=0)
        if most < 2:
            raise ValueError("no row has two seeds")
        self._scores = np.zeros((len(rows), most))
        looks = np.full(self._scores.shape, np.inf)
        for place, row in enumerate(rows):
            self._scores[place, : len(row.scores)] = row.scores
            looks[place, : len(row.scores)] = row.looks or 0
        exists = looks < np.inf
        self._seen = [seen for look in np.unique(looks[exists]) if (seen := looks <= look).sum(1).max() > 1]
        influences = [row.influence for row in rows if row.influence is not None]
        self.over_text = len(influences) == len(rows) and len({one.shape[1] for one in influences}) == 1
        self._influences = influences if self.over_text else []
        self._effective = min(row.effective for row in rows)
        self.n, self.means, self.variances, self.text, self.seed_text = self._known(exists)
        self._text_freedom = _freedom(influences, self.text, self._effective - 1) if self.over_text else MOST_FREEDOM
        self._least = LEAST_ITEMS * max(row.item for row in rows) * (1 - np.eye(len(rows)))

    def _known(self, seen: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns n, means, variances, text and seed_text (see the class) as the runs in `seen` (K, S) show them."""
        n = seen.sum(1)
        text, seed_text = np.zeros((len(n), len(n))), np.zeros(len(n))
        if known := [one[own[: len(one)]] for one, own in zip(self._influences, seen, strict=False) if own.any()]:
            text[np.ix_(n > 0, n > 0)], seed_text[n > 0] = _over_text(known)
            if self._effective < 2:  # nothing is known of other texts, where a score may be anything
                np.fill_diagonal(text, 1.0)
        means = (self._scores * seen).sum(1) / np.maximum(1, n)
        return n, means, seed_variances(self._scores, seen), text, seed_text

    @property
    def looks(self) -> list[tuple[int, ...]]:
        """Returns the number of seeds of each row at each look that could tell rows apart."""
        return [tuple(seen.sum(1).tolist()) for seen in self._seen]

    @property
    def typical(self) -> tuple[float, float, int]:
        """Returns the median variance of a run, that over the text of a difference of two rows, and its freedom."""
        pairs = _between(self.text)[np.triu_indices(len(self.n), 1)]
        return float(np.median(self.variances)), float(np.median(pairs)), self._text_freedom

    def error(self, a: int, b: int) -> float:
        """Returns the standard error of the difference of two rows' means, over seeds and text."""
        return float(_errors(self.n, self.variances, self.text)[a, b])

    def error_parts(self, a: int, b: int) -> tuple[float, float]:
        """Returns the two parts of the squared error: one falls with more seeds, the other only with more text."""
        over_seeds = self.variances / self.n
        return float(over_seeds[a] + over_seeds[b]), float(_between(self.text)[a, b])

    def difference(self, a: int, b: int) -> tuple[float, list[float]]:
        """Returns a - b and its 95 % interval at one look, for two rows chosen before their scores were seen."""
        centre = float(self.means[a] - self.means[b])
        reach = self._reach(a, b)
        return centre, [max(-1.0, centre - reach), min(1.0, centre + reach)]

    def _reach(self, a: int, b: int) -> float:
        return max(self.error(a, b) * self._simulation.last.between(a, b), float(self._least[a, b]))

    def p(self, a: int, b: int) -> float:
        """Returns the two-sided p-value of no difference at one look: the share of simulated tables as different."""
        unit = max(self._reach(a, b) / self._simulation.last.between(a, b), 1e-12)
        reached = abs(float(self.means[a] - self.means[b])) / unit
        return float((np.abs(self._simulation.last.t(a, b)) >= reached).mean())

    def mean(self, a: int) -> list[float]:
        """Returns the 95 % interval of a row's mean, at one look."""
        error = np.sqrt(self.variances[a] / self.n[a] + max(0.0, self.text[a, a]))
        reach = float(error) * self._simulation.last.of_mean(a)
        return [max(0.0, float(self.means[a]) - reach), min(1.0, float(self.means[a]) + reach)]

    @property
    def best(self) -> int:
        return int(place_of_best(self.means, self.n, self.variances))

    def behind(self) -> list[list[float]]:
        """Returns how far each row lies behind the truly best one: intervals [low, high], high at most 0.

        All low ends hold simultaneously with 95 %: multiple comparisons with the best (Hsu 1984), by many-to-one values
        (Dunnett 1955) with each row in turn as the truly best. If all rows are equally good, some high end is below 0
        in at most 5 % of tables. This uses the range from the best to any other row, since the best is chosen by score.
        Each end is the strictest of all looks, by the errors as they were known then, but the interval contains the
        measured difference. A look does not count while no row's seeds differ: nothing then says how much scores vary.
        """
        measured = np.minimum(0.0, self.means - self.means[self.best])
        rows = len(self.n)
        lows, highs = np.full((rows, rows), -np.inf), np.zeros(rows)
        for seen, (to_control, widest) in zip(self._seen, self._simulation.limits, strict=True):
            n, means, variances, text, _ = self._known(seen)
            if variances.max() < NO_SPREAD < self.variances.max():
                continue
            errors = _errors(n, variances, text)
            gaps, best = means[:, None] - means, place_of_best(means, n, variances)
            with np.errstate(invalid="ignore"):  # a look says nothing of rows without seeds
                # Of the row itself 0, the most it can be.
                lows = np.fmax(lows, gaps - np.maximum(to_control * errors, self._least))
                highs = np.fmin(highs, (gaps + np.maximum(widest * errors, self._least))[:, best])
        farthest = -1.0 if self._scores.min() >= 0 and self._scores.max() <= 1 else -np.inf
        lows = np.maximum(np.minimum(lows.min(1), measured), farthest)
        return np.stack([lows, np.maximum(highs, measured)], 1).tolist()

    def seeds_needed(self, row: int, margin: float) -> int | None:
        """Returns with how many seeds of every row one more look would in 80 % of cases show a row to lie within.

        Its difference to the best is taken to stay. None if MORE_SEEDS would not do.
        """
        best = self.best
        room = float(self.means[row] - self.means[best]) + margin
        for n in (times * int(self.n.max()) for times in MORE_SEEDS if room > 0):
            limit = self._simulate([*self.looks, (n,) * len(self.n)]).limits[-1][0][best]
            over_seeds = float(self.variances[row] + self.variances[best]) / n
            if room >= limit * math.sqrt(over_seeds + self.error_parts(row, best)[1]) + POWER * math.sqrt(over_seeds):
                return n
        return None

    @property
    def visible(self) -> float:
        """Returns the difference to the best row below which no row is called worse at this look; 1: none is."""
        reach = np.maximum(self._simulation.limits[-1][1] * _errors(self.n, self.variances, self.text), self._least)
        return min(1.0, float(np.delete(reach[self.best], self.best).min()))

    def losses(self) -> np.ndarray:
        """Returns what each row may lose against the truly best one: (LOSSES, K), all equally likely.

        The true scores are taken to be normal around the measured means (a flat prior), with the errors of this table.
        """
        rows = len(self.n)
        covariance = np.diag(self.variances / self.n) + self.text
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        true = self.means + np.random.default_rng(0).standard_normal((LOSSES, rows)) @ root
        return np.asarray(true.max(1, keepdims=True) - true)

    @functools.cached_property
    def _simulation(self) -> _Simulations:
        return self._simulate(self.looks)

    def _simulate(self, looks: Sequence[tuple[int, ...]]) -> _Simulations:
        """Simulates these looks at equally good rows that vary as much as these."""
        pooled, text = float(self.variances.min()), self.text  # some row's own variance is not larger
        pooled = max(pooled, 1e-6 * float(np.diag(text).mean()))  # scores that no seed changes vary over the text
        if self._effective < FEW_UNITS:
            # Critical values rise with the text's share of the variance, and few documents may show far less than
            # there is. So the text has the largest variance of which its estimate would not be RARE.
            from scipy.special import chdtri

            freedom = self._text_freedom
            text = (text + np.diag(self.seed_text / np.maximum(1, self.n))) * freedom / chdtri(freedom, 1 - RARE)
        else:
            # One standard error more than estimated: critical values fall with the text's share of the variance, and
            # few seeds estimate that share badly.
            pooled *= 1 + (2 / int((self.n - 1).sum())) ** 0.5
        relative = text / pooled if pooled > 0 else np.zeros_like(text)
        return _simulated(tuple(looks), tuple(np.round(relative, 6).ravel().tolist()), self._text_freedom)


def detectable(rows: int, seeds: int, over_seeds: float, over_text: float, freedom: int) -> tuple[float, float]:
    """Returns what a first table will show in 80 % of cases, fractions.

    The first is the smallest difference to the best row that is called worse. The second is the smallest margin within
    which a row as good as the best is shown to lie. over_seeds: variance of a single run. over_text: variance over the
    text of the difference of two rows; freedom: its degrees of freedom.
    """
    relative = np.round(np.eye(rows) * over_text / 2 / over_seeds, 6)
    to_control, widest = _simulated(((seeds,) * rows,), tuple(relative.ravel().tolist()), freedom).limits[-1]
    error = math.sqrt(2 * over_seeds / seeds + over_text)
    return (widest + POWER) * error, (float(to_control.mean()) + POWER) * error


def _over_text(influences: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the covariance over the text of rows' means without the seed x text part, (K, K), and that part, (K,)."""
    units = influences[0].shape[1]
    factor = (units - 1) / units
    means = np.stack([one.mean(0) for one in influences])  # (K, U)
    covariance = factor * means @ means.T
    squares = np.array([((one - one.mean(0)) ** 2).sum() for one in influences])
    freedom = np.array([len(one) - 1 for one in influences])
    pooled = squares.sum() / max(1, int(freedom.sum()))
    seed_text = factor * np.where(freedom > 0, squares / np.maximum(1, freedom), pooled)
    removed = seed_text / np.array([len(one) for one in influences])
    return covariance - np.diag(removed), seed_text


def _freedom(influences: Sequence[np.ndarray], text: np.ndarray, most: float) -> int:
    """Returns the degrees of freedom of the variances over the text: so many normal units would be as informative.

    text: as `_over_text` returns it. most: of as many units. A few long documents carry much of a variance, so it is
    less certain than the number of units says. Relative to its square, its own variance is the sum of fourth powers of
    the units' shares minus 1 / U, which is 2 / U for normal units. Removing the seed x text part makes the variance
    smaller, but not its uncertainty.
    """
    means = np.stack([one.mean(0) for one in influences])  # (K, U)
    moves = means - means.mean(0) if len(means) > 1 else means
    variances = (moves**2).sum(1)
    fourth = (moves**4).sum(1)[variances > 0] / variances[variances > 0] ** 2
    excess = float(fourth.mean()) - 1 / means.shape[1] if len(fourth) else 0.0
    if len(means) > 1 and variances.sum() > 0:
        remaining = np.trace(text) - text.mean() * len(text)  # of the sum of the variances of the rows' differences
        excess /= max(0.1, float(remaining / variances.sum())) ** 2
    freedom = max(1.0, min(2 / excess if excess > 0 else MOST_FREEDOM, most, MOST_FREEDOM))
    return math.ceil(1.05 ** math.floor(math.log(freedom, 1.05)))  # steps, so that a simulation serves many tables


def _between(covariance: np.ndarray) -> np.ndarray:
    """Returns the variances of the differences between any two rows, (K, K); a negative estimate becomes 0."""
    diagonal = np.diag(covariance)
    return np.maximum(0.0, diagonal[:, None] + diagonal - 2 * covariance)


def _errors(n: np.ndarray, variances: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Returns the errors of the differences between any two rows, (K, K). n: seeds, variances: of one run, (K,)."""
    with np.errstate(divide="ignore", invalid="ignore"):  # nothing is known of a row without seeds
        over_seeds = variances / n
    squared = over_seeds[:, None] + over_seeds + _between(text)
    np.fill_diagonal(squared, 0.0)
    return np.asarray(np.sqrt(squared))


class _Simulation:
    """Simulates a look at tables of equally good rows, and how large their differences are in standard errors.

    n: the number of seeds of each row. text: (K, K), in units of the variance over seeds. Each table estimates it with
    `freedom` degrees of freedom.
    errors: (N, K), of the means. above: (N, K), how far any other row is above each. widest: (N,), the difference
    between the best and any other row. A block of B tables at a time, so that memory does not grow with K^2 N.
    """

    def __init__(self, n: tuple[int, ...], tables: int, text: np.ndarray, freedom: int) -> None:
        means, variances, moves = _draws(n, tables)
        with np.errstate(divide="ignore"):  # a row without seeds is not above or below another
            self._over_seeds = variances / np.array(n, dtype=np.float32)
        values, vectors = np.linalg.eigh((text + text.T) / 2)
        # The symmetric root does not depend on the signs and order of eigenvectors, which differ between CPUs.
        self._root = (vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T).astype(np.float32)
        self._freedom = freedom
        self.means = means + moves @ self._root  # (N, K)
        best = place_of_best(self.means.T, np.array(n), variances.T)
        blocks = [(errors, t.max(2), t.min(2)) for errors, t in self._blocks()]
        self.errors, self.above, below = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        self.widest = -below[np.arange(len(best)), best]

    def _blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields the errors of the means, (B, K), and t, (B, K, K): how far b is above a in table i, at [i, a, b]."""
        tables, rows = self.means.shape
        size = max(1, MOST_DRAWS // rows**2)
        for number, start in enumerate(range(0, tables, size)):
            means, over_seeds = self.means[start : start + size], self._over_seeds[start : start + size]
            moved = self._root @ _wishart_roots(number, len(means), rows, self._freedom)
            estimates = moved @ moved.transpose(0, 2, 1)
            of_means = np.einsum("nkk->nk", estimates)
            t = of_means[:, :, None] + of_means[:, None] - 2 * estimates
            np.maximum(t, 0, out=t)
            t = t + over_seeds[:, :, None]
            t += over_seeds[:, None]
            yield (
                np.sqrt(over_seeds + of_means),
                np.divide(means[:, None] - means[:, :, None], np.sqrt(t, out=t), out=t),
            )

    def t(self, a: int, b: int) -> np.ndarray:
        """Returns how far row b is above row a in standard errors: (N,)."""
        return np.concatenate([t[:, a, b] for _, t in self._blocks()])

    def between(self, a: int, b: int) -> float:
        return _quantile(np.abs(self.t(a, b)))

    def of_mean(self, a: int) -> float:
        """Returns the critical value of one row's mean against its true value; like `between` two-sided."""
        return _quantile(np.abs(self.means[:, a]) / self.errors[:, a])


class _Simulations:
    """Simulates several looks at the same tables, and gives their critical values.

    looks: the number of seeds of each row at each look. 95 % of tables exceed no critical value at any look. limits:
    two critical values of each look. The first is by row how far any other row is above it (one-sided, many to one;
    (K,)). The second is the difference between the best and any other row.
    """

    def __init__(self, looks: tuple[tuple[int, ...], ...], text: tuple[float, ...], freedom: int) -> None:
        most = looks[-1]
        tables = int(min(SIMULATED, max(2_000, MOST_DRAWS // (sum(most) + len(most) ** 2))))
        self._looks = [_look(n, tables, text, freedom) for n in looks]
        self.last = self._looks[-1]
        rows_at_first = sum(n > 0 for n in looks[0])
        self._spent = [(1 - CONFIDENCE) * (1 - (rows_at_first / sum(n)) ** SPENDING) for n in looks]
        above = [self._critical([look.above[:, row] for look in self._looks]) for row in range(len(looks[0]))]
        widest = self._critical([look.widest for look in self._looks])
        self.limits = [*zip(np.array(above).T, widest, strict=True)]

    def _critical(self, values: Sequence[np.ndarray]) -> list[float]:
        """Returns the critical value of each look, one standard error of the simulation on the safe side.

        values: (N,) at each look. A table that exceeds a look's critical value has spent its error.
        """
        inside, limits = np.ones(len(values[0]), dtype=bool), []
        for at_look, spent in zip(values, self._spent, strict=True):
            safe = spent - (spent * (1 - spent) / len(inside)) ** 0.5
            may_exceed = max(0, int(safe * len(inside)) - int((~inside).sum()))
            limits.append(float(np.sort(at_look[inside])[-may_exceed - 1]))
            inside &= at_look <= limits[-1]
        return limits


@functools.lru_cache(maxsize=4)
def _wishart_roots(block: int, tables: int, rows: int, freedom: int) -> np.ndarray:
    """Draws roots of estimates of the unit matrix with `freedom` degrees of freedom (Bartlett's decomposition).

    Returns (B, K, K): each times its transpose is an estimate. With fewer degrees of freedom than rows, it is singular.
    """
    if freedom >= MOST_FREEDOM:
        return np.eye(rows, dtype=np.float32)[None]
    draw = np.random.default_rng(1 + block)
    roots = draw.standard_normal((tables, rows, rows))
    roots *= np.tri(rows)
    roots[:, :, freedom:] = 0
    diagonal = np.arange(min(rows, freedom))
    roots[:, diagonal, diagonal] = np.sqrt(draw.chisquare(freedom - diagonal, (tables, len(diagonal))))
    roots /= math.sqrt(freedom)
    return roots.astype(np.float32)


_simulated = functools.lru_cache(maxsize=16)(_Simulations)


@functools.lru_cache(maxsize=32)
def _look(n: tuple[int, ...], tables: int, text: tuple[float, ...], freedom: int) -> _Simulation:
    return _Simulation(n, tables, np.array(text).reshape(len(n), len(n)), freedom)


@functools.lru_cache(maxsize=8)
def _draws(n: tuple[int, ...], tables: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws tables of equally good rows with n seeds each; more seeds of the same tables add to them.

    Returns means, the estimated variances of a single run, and standard normal values for the text. Each (N, K).
    """
    there = np.arange(max(n)) < np.array(n)[:, None]
    by_seed = [np.random.default_rng([0, seed]).standard_normal((tables, len(n))) for seed in range(max(n))]
    scores = np.stack(by_seed, -1)  # (N, K, S)
    means, variances = (scores * there).sum(-1) / np.maximum(1, n), seed_variances(scores, there)
    moves = np.random.default_rng([1]).standard_normal((tables, len(n)))
    return means.astype(np.float32), variances.astype(np.float32), moves.astype(np.float32)


def _quantile(values: np.ndarray) -> float:
    """Returns the CONFIDENCE quantile, one standard error of the simulation on the safe side."""
    return float(np.quantile(values, CONFIDENCE + (CONFIDENCE * (1 - CONFIDENCE) / len(values)) ** 0.5))
