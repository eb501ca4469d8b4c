"""One statistic for every comparison of rows: of tables, recommendations, two result sets, races.

The score of a run varies for three reasons, and each has its place in the standard error of a difference:

- the run: another seed gives another model. Estimated by the spread over seeds, whose variance on one text already
  holds how seeds and text interact;
- the text: on other documents of the kind, one row gains on another whatever the seeds. Estimated from each document's
  (or sentence's) influence on F1, paired between rows, after what belongs to seeds and text together is taken off;
- seeds and text together: counted once, with the seeds.

A row's variance over seeds is the larger of its own and of the one pooled over all rows, so that a row that varies more
than the others is not judged by their spread. Critical values come from simulated tables of equally good rows, with
this table's numbers of seeds and this very rule, so they allow for it, for few seeds, and for how many rows are
compared.

K rows, S seeds at most, U units of text, N simulated tables.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STATISTIC = 2  # which rules compare; 1 permuted seeds and swapped texts, on dev and test
SIMULATED = 20_000
MOST_DRAWS = 8_000_000  # of one simulation: bounds its memory where a table has many rows
CONFIDENCE = 0.95
MOST_FREEDOM = 2_000  # degrees of freedom beyond which a variance counts as known


@dataclass(frozen=True)
class Sample:
    """One row on one split. scores: of each seed, fractions. influence: (seeds, U), how much each unit of the text
    moves each score, see `significance.influence`; None where there are no counts."""

    scores: Sequence[float]
    influence: np.ndarray | None = None


@dataclass(frozen=True)
class Components:
    """Standard deviations of a row's score: over runs (the model that a seed gives), over seed x text, and over the
    text (of the mean of the row's runs). None where there are no counts, or a single seed."""

    run: float | None
    seed_text: float | None
    text: float | None


def seed_variances(scores: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Variance of a single run of each row: the larger of its own and the pooled one.

    scores: (..., K, S). there: (K, S), which of them count. Returns (..., K). A row of one seed has the pooled
    variance.
    """
    n = there.sum(-1)
    means = (scores * there).sum(-1) / n
    squares = (((scores - means[..., None]) * there) ** 2).sum(-1)
    pooled = squares.sum(-1, keepdims=True) / max(1, int((n - 1).sum()))
    return np.maximum(pooled, squares / np.maximum(1, n - 1))


class Comparison:
    """Rows of one split, compared. Fractions throughout.

    means, n: (K,). variances: (K,), of a single run over seeds. text: (K, K), covariance over the text of the rows'
    means, without what seeds and text do together. over_text: whether counts were there; without them intervals are
    over seeds alone.
    """

    def __init__(self, rows: Sequence[Sample]) -> None:
        """Raises ValueError where no row has two seeds: nothing says then how much a score varies."""
        self.n = np.array([len(row.scores) for row in rows])
        if not len(rows) or self.n.max() < 2:
            raise ValueError("no row has two seeds")
        scores = np.zeros((len(rows), int(self.n.max())))
        for place, row in enumerate(rows):
            scores[place, : len(row.scores)] = row.scores
        there = np.arange(scores.shape[1]) < self.n[:, None]
        self.means = (scores * there).sum(1) / self.n
        self.variances = seed_variances(scores, there)
        influences = [row.influence for row in rows if row.influence is not None]
        self.over_text = len(influences) == len(rows) and len({one.shape[1] for one in influences}) == 1
        self.text = np.zeros((len(rows), len(rows)))
        self._seed_text = np.zeros(len(rows))
        self._text_freedom = MOST_FREEDOM
        if self.over_text:
            self.text, self._seed_text = _over_text(influences)
            self._text_freedom = _freedom(influences, self.text)

    def error(self, a: int, b: int) -> float:
        """Standard error of the difference of two rows' means, over seeds and text."""
        return float(np.sqrt(self._errors_of(a)[b]))

    def error_parts(self, a: int, b: int) -> tuple[float, float]:
        """The two parts of that error's square: what falls with more seeds, and what falls with more text alone."""
        over_seeds = self.variances / self.n
        return float(over_seeds[a] + over_seeds[b]), float(_between(self.text, a)[b])

    def difference(self, a: int, b: int) -> tuple[float, list[float]]:
        """a - b and its 95 % interval, for two rows that were named before their scores were seen."""
        centre = float(self.means[a] - self.means[b])
        reach = self.error(a, b) * self._simulation.between(a, b)
        return centre, [centre - reach, centre + reach]

    def mean(self, a: int) -> list[float]:
        """95 % interval of a row's mean."""
        error = np.sqrt(self.variances[a] / self.n[a] + max(0.0, self.text[a, a]))
        reach = float(error) * self._simulation.of_mean(a)
        return [float(self.means[a]) - reach, float(self.means[a]) + reach]

    @property
    def best(self) -> int:
        """The row with the highest mean among those with the most seeds: fewer give a chance to be lucky."""
        return int(np.where(self.n == self.n.max(), self.means, -np.inf).argmax())

    def behind(self) -> list[list[float]]:
        """How far each row lies behind the truly best one: intervals [low, high], high at most 0.

        All low ends hold at once with 95 %: multiple comparisons with the best (Hsu 1984), by many-to-one values
        (Dunnett 1955) for each row in turn as the truly best. Where no row is better than another, a high end is below
        0 in 5 % of tables at most: by the range from the best to any other row, as the best is chosen by its score.
        """
        best = self.best
        to_control, widest = self._simulation.limits
        bounds = []
        for row in range(len(self.n)):
            errors = np.sqrt(self._errors_of(row))
            low = min(
                (
                    float(self.means[row] - self.means[other] - to_control[other] * errors[other])
                    for other in range(len(self.n))
                    if other != row
                ),
                default=0.0,
            )
            high = float(self.means[row] - self.means[best] + widest * errors[best]) if row != best else 0.0
            bounds.append([min(0.0, low), min(0.0, high)])
        return bounds

    def components(self, row: int) -> Components:
        if not self.over_text:
            return Components(None, None, None)
        text = float(np.sqrt(max(0.0, self.text[row, row])))
        if self.n[row] < 2:
            return Components(None, None, text)
        seed_text = float(self._seed_text[row])
        run = max(0.0, float(self.variances[row]) - seed_text)
        return Components(float(np.sqrt(run)), float(np.sqrt(seed_text)), text)

    def _errors_of(self, a: int) -> np.ndarray:
        """Squared errors of the differences between row a and each row: (K,)."""
        over_seeds = self.variances / self.n
        squared = over_seeds[a] + over_seeds + _between(self.text, a)
        squared[a] = 0.0
        return squared

    @functools.cached_property
    def _simulation(self) -> _Simulation:
        pooled = float(self.variances.min())  # some row's own is not above it
        # One standard error more than estimated: critical values fall with the share of the text, which few seeds tell
        # badly.
        pooled *= 1 + (2 / int((self.n - 1).sum())) ** 0.5
        relative = self.text / pooled if pooled > 0 else np.zeros_like(self.text)
        return _simulated(tuple(self.n.tolist()), tuple(np.round(relative, 6).ravel().tolist()), self._text_freedom)


def _over_text(influences: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Covariance over the text of rows' means (K, K) without the seed x text part; that part for one run of each
    row."""
    units = influences[0].shape[1]
    factor = units / max(1, units - 1)
    means = np.stack([one.mean(0) for one in influences])  # (K, U)
    covariance = factor * means @ means.T
    squares = np.array([((one - one.mean(0)) ** 2).sum() for one in influences])
    freedom = np.array([len(one) - 1 for one in influences])
    pooled = squares.sum() / max(1, int(freedom.sum()))
    seed_text = factor * np.where(freedom > 0, squares / np.maximum(1, freedom), pooled)
    taken_off = seed_text / np.array([len(one) for one in influences])
    return covariance - np.diag(taken_off), seed_text


def _freedom(influences: Sequence[np.ndarray], text: np.ndarray) -> int:
    """Degrees of freedom of the variances over the text: of so many normal units they would be known as well.

    text: as `_over_text` gives it.

    A few long documents carry much of a variance, so it is less certain than the number of units says: relative to its
    square, its own variance is the sum of fourth powers of the units' shares less 1 / U, which is 2 / U for normal
    ones. What is taken off for seed x text leaves less of the variance, with all of its uncertainty.
    """
    means = np.stack([one.mean(0) for one in influences])  # (K, U)
    moves = means - means.mean(0) if len(means) > 1 else means
    variances = (moves**2).sum(1)
    fourth = (moves**4).sum(1)[variances > 0] / variances[variances > 0] ** 2
    excess = float(fourth.mean()) - 1 / means.shape[1] if len(fourth) else 0.0
    if len(means) > 1 and variances.sum() > 0:
        left = np.trace(text) - text.mean() * len(text)  # of the sum of variances, as the rows differ
        excess /= max(0.1, float(left / variances.sum())) ** 2
    freedom = np.clip(2 / excess if excess > 0 else MOST_FREEDOM, len(means) + 1, MOST_FREEDOM)
    return math.ceil(1.05 ** math.floor(math.log(freedom, 1.05)))  # in steps, so that a simulation serves many tables


def _between(covariance: np.ndarray, a: int) -> np.ndarray:
    """Variances of the differences between row a and each row, by their covariance; an estimate below 0 is 0."""
    diagonal = np.diag(covariance)
    return np.maximum(0.0, diagonal[a] + diagonal - 2 * covariance[a])


class _Simulation:
    """Tables of equally good rows: what differences come to, in standard errors.

    text: (K, K), in variances over seeds; it is estimated anew in each table, with so many degrees of freedom.
    """

    def __init__(self, n: tuple[int, ...], text: np.ndarray, freedom: int) -> None:
        means, self.over_seeds, moves = _draws(n)
        values, vectors = np.linalg.eigh((text + text.T) / 2)
        # The symmetric root is one whatever signs and order the eigenvectors come in, which differ from CPU to CPU.
        root = (vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T).astype(np.float32)
        self.n = np.array(n)
        self.means = means + moves @ root.T  # (N, K)
        estimates = root @ _wishart(len(means), len(n), freedom) @ root.T  # (N or 1, K, K)
        self.estimates = np.broadcast_to(estimates, (len(means), *estimates.shape[1:]))
        self.diagonals = np.einsum("nkk->nk", self.estimates)

    def t(self, a: int) -> np.ndarray:
        """Each row's mean minus that of row a, in standard errors: (N, K)."""
        squared = np.maximum(0, self.diagonals[:, [a]] + self.diagonals - 2 * self.estimates[:, a])
        squared += self.over_seeds + self.over_seeds[:, [a]]
        t = (self.means - self.means[:, [a]]) / np.sqrt(squared)
        t[:, a] = 0
        return t

    @functools.cached_property
    def limits(self) -> tuple[np.ndarray, float]:
        """What stays within in 95 % of tables: of each row, all others above it (one-sided, many to one; (K,)), and the
        difference between the best and any other row."""
        best = np.where(self.n == self.n.max(), self.means, -np.inf).argmax(1)
        to_control, widest = [], np.zeros(len(best))
        for a in range(len(self.n)):
            t = self.t(a)
            to_control.append(_quantile(t.max(1)))
            widest[best == a] = -t[best == a].min(1)
        return np.array(to_control), _quantile(widest)

    def between(self, a: int, b: int) -> float:
        """What the difference of two rows stays within in 95 % of tables, to both sides."""
        return _quantile(np.abs(self.t(a)[:, b]))

    def of_mean(self, a: int) -> float:
        """The same of one row's mean and its true value."""
        return _quantile(np.abs(self.means[:, a]) / np.sqrt(self.over_seeds[:, a] + self.diagonals[:, a]))


@functools.lru_cache(maxsize=4)
def _wishart(tables: int, rows: int, freedom: int) -> np.ndarray:
    """Estimates of the unit matrix with so many degrees of freedom (Bartlett's decomposition): (N, K, K)."""
    if freedom >= MOST_FREEDOM:
        return np.eye(rows, dtype=np.float32)[None]
    draw = np.random.default_rng(1)
    roots = np.tril(draw.standard_normal((tables, rows, rows)), -1)
    diagonal = np.arange(rows)
    roots[:, diagonal, diagonal] = np.sqrt(draw.chisquare(freedom - diagonal, (tables, rows)))
    return (roots @ roots.transpose(0, 2, 1) / freedom).astype(np.float32)


@functools.lru_cache(maxsize=16)
def _simulated(n: tuple[int, ...], text: tuple[float, ...], freedom: int) -> _Simulation:
    return _Simulation(n, np.array(text).reshape(len(n), len(n)), freedom)


@functools.lru_cache(maxsize=8)
def _draws(n: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with so many seeds, all equally good, without a text: means, their variances as estimated, and standard
    normal values for the text. Each (N, K)."""
    tables = int(min(SIMULATED, max(2_000, MOST_DRAWS // (sum(n) + len(n) ** 2))))
    draw = np.random.default_rng(0)
    seeds = np.array(n)
    there = np.arange(max(n)) < seeds[:, None]
    scores = draw.standard_normal((tables, len(n), max(n)))  # (N, K, S)
    means, variances = (scores * there).sum(-1) / seeds, seed_variances(scores, there) / seeds
    moves = draw.standard_normal((tables, len(n)))
    return means.astype(np.float32), variances.astype(np.float32), moves.astype(np.float32)


def _quantile(values: np.ndarray) -> float:
    """The value that CONFIDENCE of all tables stay within, and one standard error of the simulation more of them."""
    return float(np.quantile(values, CONFIDENCE + (CONFIDENCE * (1 - CONFIDENCE) / len(values)) ** 0.5))
