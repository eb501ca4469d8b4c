"""How often the decisions of tables are wrong: simulated tables, decided by the package's own functions.

    python tests/benchmarks/decisions.py [--tables 1000] [--jobs 2] [--only NAME,...] [--seed 0]

Each truth says how rows truly differ and how much scores vary. Its variances are those of committed records: between
runs, of seed x text, and of row x text. A table draws, for every run, what the seed and each document add to its score;
the package sees the scores and the influence of each document, as it does of real runs. `resampled` truths draw real
things instead: documents and runs of a committed folder, with replacement, so that F1 is counted anew from their spans.

wrongly_worse: the share of tables that call a row worse though no row is truly better than it.
coverage: the share of 95 % intervals that hold the truth, of a difference of two rows and of a mean; and (behind) the
share of tables in which all low ends of "behind the best" hold. Where rows have no costs, one table in EVERY counts.
loss_over_margin: the share of tables that recommend a row as within the margin which truly loses more than the margin.
Beside it the mean true loss of what is recommended, and of the best row where none is within the margin. power: the
share of truly worse rows that are called worse, by how far they are behind.

little: of texts of few sentences, see `little_study`.
detection: of AUROC over groups of texts, see `Detection`.
reach: how far low ends lie below the measured difference, in points, by the seeds at each look.
first_loses: by how much the critical values of a first table are larger than if no error were left for later looks.

The last line is one JSON object of these, each by the name of its truth.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from probe.conditions import MAIN
from probe.runs.samples import SplitStatistics, run_counts, samples_of, samples_over
from probe.scoring import compare
from probe.scoring.compare import Comparison, Sample
from probe.scoring.detection import AUROC
from probe.scoring.metrics import by_sentence, f1_of
from probe.scoring.score import F1, jackknife
from probe.scoring.significance import DOCUMENT
from probe.tables.labels import WITHIN, WORSE, cheapest_within, label_of_interval
from probe.tables.row import Row
from probe.tables.rows import build_rows

RESULTS = Path(__file__).parents[2] / "results"
DOCUMENTS = 216  # of CoNLL-2003's dev split
MARGIN = 0.005
EVERY = 4  # one of so many tables of a truth without costs is looked at whole, the others for rows wrongly called worse
LEAST_T = 2.2  # below the critical value of any table here (2.8 and more): no row so near to the best is called worse
FAR, NEAR = (0.013, 0.03), (0.0035, 0.006)  # how far behind a row is, of which the power is given


@dataclass(frozen=True)
class Noise:
    """Standard deviations of scores, fractions. run: between runs, on all text. row_text: of a row, paired with
    another's."""

    run: float
    seed_text: float
    row_text: float

    def with_text(self, times: float) -> Noise:
        """The same on so many times the text."""
        return Noise(self.run, self.seed_text / times**0.5, self.row_text / times**0.5)


@dataclass(frozen=True)
class Truth:
    """Rows' true scores (fractions) and costs, how many seeds each has, and how much more each varies over seeds.

    fails: of the first row, the share of runs that fail, and what these lose; its mean stays the true one.
    """

    name: str
    scores: tuple[float, ...]
    noise: Noise
    seeds: int = 5
    spreads: tuple[float, ...] = ()
    documents: int = DOCUMENTS
    costs: tuple[tuple[int, ...], ...] = ()
    fails: tuple[float, float] = (0.0, 0.0)
    pool: tuple[np.ndarray, ...] = field(default=(), compare=False)  # of each row: (runs, documents, 3) counts

    def draw(self, draw: np.random.Generator, seeds: int | None = None) -> list[Sample]:
        """A table's rows on one text. seeds: other than the truth's own."""
        if self.pool:
            return self._drawn_from_pool(draw, seeds or self.seeds)
        rows, seeds = len(self.scores), seeds or self.seeds
        spread = np.array(self.spreads or [1.0] * rows)[:, None]
        unit = self.documents**-0.5
        moves = self.noise.row_text * unit * draw.standard_normal((rows, 1, self.documents))
        both = (rows, seeds, self.documents)
        moves = moves + spread[:, :, None] * self.noise.seed_text * unit * draw.standard_normal(both)
        runs = spread * self.noise.run * draw.standard_normal((rows, seeds))
        share, lost = self.fails
        if share:
            runs[0] += lost * (share - (draw.random(seeds) < share))
        scores = np.array(self.scores)[:, None] + runs + moves.sum(2)
        moves = moves - moves.mean(2, keepdims=True)
        moves *= self.documents / (self.documents - 1)  # as if each document were left out
        return [Sample(list(scores[row]), moves[row]) for row in range(rows)]

    def _drawn_from_pool(self, draw: np.random.Generator, seeds: int) -> list[Sample]:
        documents = draw.integers(self.documents, size=self.documents)
        samples = []
        for pool in self.pool:
            counts = pool[draw.integers(len(pool), size=seeds)][:, documents]  # (seeds, documents, 3)
            gold, predicted, correct = counts.sum(1).T
            samples.append(
                Sample(
                    list(2 * correct / (gold + predicted)),
                    np.stack([jackknife(f1_of, run, np.arange(len(run))) for run in counts]),
                )
            )
        return samples


@dataclass(frozen=True)
class Text:
    """Texts of nine rows that are equal in expectation, by documents of some sizes, five seeds.

    spans: of each document, given a generator. marked: whether the package is told which sentences are one document.
    Each document moves each row by CoNLL-2003's sd, so that fewer documents are a noisier text.
    """

    name: str
    spans: Callable[[np.random.Generator], np.ndarray]
    marked: bool = True
    rows: int = 9
    seeds: int = 5

    def draw(self, draw: np.random.Generator) -> list[Sample]:
        """Draws a table."""
        spans = np.maximum(1, self.spans(draw).astype(int))
        documents = np.repeat(np.arange(len(spans)), spans)  # of each sentence, which has one span
        row_text = 0.0018 * DOCUMENTS**0.5 * draw.standard_normal((self.rows, 1, len(spans)))
        both = 0.0010 * DOCUMENTS**0.5 * draw.standard_normal((self.rows, self.seeds, len(spans)))
        run = 0.0026 * draw.standard_normal((self.rows, self.seeds, 1))
        right = np.clip(0.89 + row_text + both + run, 0, 1)[:, :, documents]
        correct = draw.random((1, 1, len(documents))) < right  # what is hard for one row is hard for all
        ones = np.ones(len(documents))
        counts = np.stack(np.broadcast_arrays(ones, ones, correct), -1)
        return sampled(counts, documents if self.marked else None, DOCUMENT)[0]


def sampled(counts: np.ndarray, documents: np.ndarray | None, order: str | None) -> tuple[list[Sample], str]:
    """Returns the samples of rows that the package makes of their counts, and what labels rest on.

    counts: (rows, seeds, sentences, 3).
    """
    rows = [[SplitStatistics(F1, run[:, 0], run, documents, order) for run in row] for row in counts]
    units = rows[0][0].units
    moves = [np.stack([run.influence(units) for run in row]) for row in rows]
    samples, cover = samples_over(f1_of(counts.sum(2)).tolist(), moves, [units])
    return samples, cover.condition


LITTLE_FOLDERS = ("conll2003-minilm-sentence", "conll2003-minilm-document", "conll2003-mpnet")
LITTLE = (60, 200, 1000, 3250)  # sentences
VIEWS = ("marked", "in order", "shuffled")  # how the package sees a text
BEHIND = 0.03  # of one row, in the second half of tables
LITTLE_MARGIN = 0.01


@dataclass(frozen=True)
class LittleText:
    """Texts of few sentences, whose documents are drawn from a committed folder's, with replacement.

    In each document rows are permuted, so that they are equal in expectation and differ by document as real ones do.
    Of `long documents`, 40 of 80 sentences with two spans each, each document moves each row by CoNLL-2003's sd.
    """

    folder: str
    rows: int = 9

    @functools.cached_property
    def pool(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """The counts of the rows with the highest means, (rows, runs, sentences, 3), and each document's sentences."""
        best = sorted(compared_rows(self.folder)[1], key=lambda row: -row.dev_mean)[: self.rows]
        runs = [[run_counts(file) or {} for file in row.records] for row in best]
        documents = np.asarray(runs[0][0]["dev"]["documents"])
        counts = np.array([[by_sentence(run["dev"]) for run in row] for row in runs], dtype=float)
        return counts, [np.flatnonzero(documents == number) for number in np.unique(documents)]

    def draw(self, draw: np.random.Generator, sentences: int, behind: float) -> tuple[np.ndarray, np.ndarray]:
        """Draws counts, (rows, seeds, sentences, 3), and the document of each sentence. behind: of the first row."""
        if self.folder == "long documents":
            return self._long(draw, sentences, behind)
        pool, documents = self.pool
        parts: list[np.ndarray] = []
        while (left := sentences - sum(part.shape[2] for part in parts)) > 0:
            own = documents[draw.integers(len(documents))][:left]
            parts.append(pool[:, :, own][draw.permutation(len(pool))])
        counts = np.concatenate(parts, 2)
        correct = counts[0, :, :, 2]
        share = behind / float(f1_of(counts[0].sum(1)).mean())
        counts[0, :, :, 2] = correct - draw.binomial(correct.astype(int), share)
        return counts, np.repeat(np.arange(len(parts)), [part.shape[2] for part in parts])

    def _long(self, draw: np.random.Generator, sentences: int, behind: float) -> tuple[np.ndarray, np.ndarray]:
        documents = np.arange(sentences) // 80
        number, both = int(documents[-1]) + 1, (self.rows, 5)
        right = 0.89 + 0.0018 * DOCUMENTS**0.5 * draw.standard_normal((self.rows, 1, number))
        right = right + 0.0010 * DOCUMENTS**0.5 * draw.standard_normal((*both, number))
        right = right + 0.0026 * draw.standard_normal((*both, 1))
        right[0] -= behind
        correct = draw.random((sentences, 2)) < right[:, :, documents, None].clip(0, 1)
        spans = np.full((*both, sentences), 2.0)
        return np.stack([spans, spans, correct.sum(3)], 3), documents


def little_study(text: LittleText, view: str, sentences: int, tables: int, seed: int = 0) -> dict[str, Any]:
    """How tables of little text are labelled, of nine equal rows and with one row BEHIND.

    worse: the share of tables without a difference that call a row worse; within: of those with one that call the row
    behind within the margin; found: that call it worse. Of all tables: conditional, how many labels rest on independent
    sentences; reach: how far the low ends lie below the best, in points, on average. Critical values are from 4,000
    simulated tables, which makes them a little stricter.
    """
    compare.SIMULATED = 4_000
    draw, found = np.random.default_rng(seed), dict.fromkeys(("worse", "within", "found", "conditional", "reach"), 0.0)
    for behind in (0.0, BEHIND):
        for _ in range(tables):
            counts, documents = text.draw(draw, sentences, behind)
            if view == "shuffled":
                counts = counts[:, :, draw.permutation(sentences)]
            order = DOCUMENT if view == "in order" else None
            samples, condition = sampled(counts, documents if view == "marked" else None, order)
            compared = Comparison(samples)
            bounds = compared.behind()
            labels = [label_of_interval(own, LITTLE_MARGIN) for own in bounds]
            others = [label for row, label in enumerate(labels) if row != compared.best]
            found["worse"] += not behind and WORSE in others
            found["within"] += bool(behind) and labels[0] == WITHIN
            found["found"] += bool(behind) and labels[0] == WORSE
            found["conditional"] += bool(condition) / 2
            found["reach"] -= float(np.delete(np.array(bounds)[:, 0], compared.best).mean()) * 100 / 2
    return {"little": {name: round(number / tables, 4) for name, number in found.items()}}


def equal_sizes(draw: np.random.Generator, number: int, spans: int) -> np.ndarray:
    return np.full(number, spans)


def unequal_sizes(draw: np.random.Generator, number: int, kind: str, shape: float) -> np.ndarray:
    own = draw.lognormal(0, shape, number) if kind == "lognormal" else 1 + draw.pareto(shape, number)
    return np.asarray(np.minimum(own / own.mean() * 28, 3000))


def one_giant(draw: np.random.Generator, share: float) -> np.ndarray:
    return np.array([share / (1 - share) * 100 * 6, *[6] * 100])


def texts() -> list[Text]:
    """Texts of few and unequal documents, and of documents that are not marked."""
    found = [
        Text(f"{number} equal documents", partial(equal_sizes, number=number, spans=100))
        for number in (3, 10, 16, 20, 25, 36)
    ]
    found += [
        Text("216 equal documents", partial(equal_sizes, number=216, spans=28)),
        Text("100 lognormal(1) documents", partial(unequal_sizes, number=100, kind="lognormal", shape=1.0)),
        Text("25 lognormal(1.2) documents", partial(unequal_sizes, number=25, kind="lognormal", shape=1.2)),
        Text("50 lognormal(1.2) documents", partial(unequal_sizes, number=50, kind="lognormal", shape=1.2)),
        Text("30 Pareto(1.1) documents", partial(unequal_sizes, number=30, kind="Pareto", shape=1.1)),
        Text("100 Pareto(1.1) documents", partial(unequal_sizes, number=100, kind="Pareto", shape=1.1)),
        Text("one document of 20 % of the text", partial(one_giant, share=0.2)),
        Text("one document of 70 % of the text", partial(one_giant, share=0.7)),
        Text("36 equal documents, 30 rows, 2 seeds", partial(equal_sizes, number=36, spans=100), rows=30, seeds=2),
        Text("216 equal documents, not marked", partial(equal_sizes, number=216, spans=28), marked=False),
        Text(
            "216 lognormal(1) documents, not marked",
            partial(unequal_sizes, number=216, kind="lognormal", shape=1.0),
            marked=False,
        ),
        Text("20 documents of 100 spans, not marked", partial(equal_sizes, number=20, spans=100), marked=False),
        Text(
            "40 lognormal(0.7) documents, not marked",
            partial(unequal_sizes, number=40, kind="lognormal", shape=0.7),
            marked=False,
        ),
        Text(
            "two rows, 40 lognormal(0.7) documents, not marked",
            partial(unequal_sizes, number=40, kind="lognormal", shape=0.7),
            False,
            rows=2,
        ),
        Text("5 documents of 200 spans, not marked", partial(equal_sizes, number=5, spans=200), marked=False),
        Text(
            "two rows, 5 documents of 200 spans, not marked", partial(equal_sizes, number=5, spans=200), False, rows=2
        ),
        Text(
            "two rows, 216 equal documents, not marked",
            partial(equal_sizes, number=216, spans=28),
            marked=False,
            rows=2,
        ),
    ]
    return found


SCHEDULES = {  # the number of seeds at each look at a table
    "3, then every seed to 20": range(3, 21),
    "3, 4, 5, 6, 8, 10, 13, 16, 20": (3, 4, 5, 6, 8, 10, 13, 16, 20),
    "5, 10, 20, 36": (5, 10, 20, 36),
    "2, 3, 5": (2, 3, 5),
    "3, then 5 of two rows, then every seed of them to 14": (3, *range(5, 15)),
    "2 of five rows, then 2 and 3 of all": (2, 2, 3),
}


def looks_study(name: str, truth: Truth, tables: int, seed: int = 0) -> dict[str, Any]:
    """How often a folder whose owner adds seeds is ever wrong: calls a row worse that is as good as any, or within the
    margin that is not."""
    draw, schedule, scores = np.random.default_rng(seed), list(SCHEDULES[name]), np.array(truth.scores)
    loss = scores.max() - scores
    is_equal, is_beyond = loss < 1e-9, loss > MARGIN
    first, ever, lost = 0, 0, 0
    for _ in range(tables):
        whole = truth.draw(draw, max(schedule))
        two = set(np.argsort([np.mean(sample.scores[: schedule[0]]) for sample in whole])[[0, -1]].tolist())
        wrong, over = [], False
        for last in range(len(schedule)):
            rows = []
            for row, sample in enumerate(whole[:5] if "five rows" in name and not last else whole):
                n = schedule[last] if "two rows" not in name or row in two else schedule[0]
                looks = [next(i for i, seeds in enumerate(schedule) if place < seeds) for place in range(n)]
                if "five rows" in name and row >= 5:
                    looks = [max(1, look) for look in looks]
                rows.append(Sample(sample.scores[:n], sample.influence[:n], looks))  # type: ignore[index]
            compared = Comparison(rows)
            best = compared.best
            t = [
                (compared.means[best] - compared.means[row]) / max(compared.error(row, best), 1e-12)
                for row in range(len(rows))
            ]
            if max(t) < LEAST_T and not is_beyond.any():
                wrong.append(False)
                continue
            bounds = compared.behind()
            wrong.append(any(high < 0 for equal, (_, high) in zip(is_equal[: len(rows)], bounds, strict=True) if equal))
            over |= any(
                low > -MARGIN for beyond, (low, _) in zip(is_beyond[: len(rows)], bounds, strict=True) if beyond
            )
        first, ever, lost = first + wrong[0], ever + any(wrong), lost + over
    return {"ever_wrong": {"first": first / tables, "worse": ever / tables, "within": lost / tables}}


def reach_study(folder: str, schedule: Sequence[int], tables: int, seed: int = 0) -> dict[str, Any]:
    """How far the low ends lie below the measured differences, in points, after looks at these numbers of seeds.

    Rows are equally good and vary as those of a committed folder.
    """
    rows = compared_rows(folder)[1]
    samples, _ = samples_of([rows[0].records], "dev", run_counts)
    assert samples[0].influence is not None
    truth = Truth("", (0.89,) * len(rows), noise_of(folder), documents=samples[0].influence.shape[1])
    draw, reach = np.random.default_rng(seed), []
    for _ in range(tables):
        looks = [next(i for i, seeds in enumerate(schedule) if place < seeds) for place in range(schedule[-1])]
        compared = Comparison([replace(sample, looks=looks) for sample in truth.draw(draw, schedule[-1])])
        gaps = compared.means - compared.means[compared.best] - np.array(compared.behind())[:, 0]
        reach.append(float(np.delete(gaps, compared.best).mean()))
    return {"reach": round(100 * float(np.mean(reach)), 3)}


def first_look_study(seeds: int, row_text: float) -> dict[str, Any]:
    """What nine rows lose with so many seeds each. row_text: the variance over the text, as a multiple of that over
    seeds, with 100 degrees of freedom."""
    look = compare._simulated(((seeds,) * 9,), tuple((row_text * np.eye(9)).ravel().tolist()), 100)
    ahead, widest = look.limits[-1]
    whole = (
        float(np.mean([compare._quantile(above) for above in look.last.above.T])),
        compare._quantile(look.last.widest),
    )
    return {"first_loses": [round(ahead.mean() / whole[0] - 1, 3), round(widest / whole[1] - 1, 3)]}


def looked_at() -> dict[str, tuple[str, Truth]]:
    """Tables to look at again: by schedule, with the text known or a sample, two or nine rows, none better or one."""
    noise = noise_of("conll2003-minilm-sentence")
    known = Noise((noise.run**2 + noise.seed_text**2) ** 0.5, 0.0, 0.0)
    equal, behind = (0.89,) * 9, (0.8951, *[0.89] * 8)
    found = {}
    for name in SCHEDULES:
        found[f"looks at {name}: nine equal rows, text known"] = name, Truth("", equal, known)
        found[f"looks at {name}: nine equal rows, text as CoNLL-2003's"] = name, Truth("", equal, noise)
        found[f"looks at {name}: two equal rows, text known"] = name, Truth("", equal[:2], known)
        found[f"looks at {name}: eight rows just beyond the margin, text known"] = name, Truth("", behind, known)
    return found


def text_study(text: Text, tables: int, seed: int = 0) -> dict[str, Any]:
    """How often the text says something of others, and how often a table calls a row worse (none is)."""
    draw = np.random.default_rng(seed)
    given = wrongly = 0
    for _ in range(tables):
        compared = Comparison(text.draw(draw))
        given += compared.visible < 1
        best = compared.best
        errors = [max(compared.error(row, best), 1e-12) for row in range(text.rows)]
        if max((compared.means[best] - compared.means) / errors) >= LEAST_T:
            wrongly += any(high < 0 for _, high in compared.behind())
    return {"by_unit": {"says_something": given / tables, "wrongly_worse": round(wrongly / tables, 4)}}


@dataclass(frozen=True)
class Detection:
    """Texts of two labels in groups, scored by nine rows of three seeds: log-odds are normal.

    share: of positive texts, or of groups if each has one label. spread: of the lognormal sizes of groups. A text is as
    hard for all rows; a group adds to all rows, and to each row on its own.
    """

    name: str
    groups: int
    mean_size: int
    share: float = 0.5
    spread: float = 0.0
    one_label_each: bool = False

    def draw(self, draw: np.random.Generator, behind: float) -> tuple[list[Sample], float]:
        """Returns the rows, the others than the first with less signal, and how many points of AUROC that costs."""
        sizes = np.exp(self.spread * draw.standard_normal(self.groups))
        unit_of = np.repeat(
            np.arange(self.groups), np.maximum(1, np.round(sizes / sizes.mean() * self.mean_size)).astype(int)
        )
        chosen = draw.random(self.groups if self.one_label_each else len(unit_of)) < self.share
        chosen[:2] = True, False
        positive = (chosen[unit_of] if self.one_label_each else chosen).astype(int)
        texts = len(unit_of)
        shared = 0.7 * draw.standard_normal(texts) + 0.6 * draw.standard_normal(self.groups)[unit_of]
        rows = []
        for row in range(9):
            log_odds = shared + 0.4 * draw.standard_normal(self.groups)[unit_of] + 0.5 * draw.standard_normal(texts)
            log_odds = log_odds + (2.0 - behind * (row > 0)) * positive
            runs = [log_odds + 0.25 * draw.standard_normal(texts) for _ in range(3)]
            ranked = [np.stack([positive, np.argsort(np.argsort(run))], 1) for run in runs]
            rows.append([SplitStatistics(AUROC, AUROC.items(one), one, unit_of) for one in ranked])
        units = rows[0][0].units
        moves = [np.stack([run.influence(units) for run in row]) for row in rows]
        samples, _ = samples_over([[AUROC.value(run.statistics) for run in row] for row in rows], moves, [units])
        deviation = (2 * (0.7**2 + 0.6**2 + 0.4**2 + 0.5**2 + 0.25**2)) ** 0.5
        return samples, float(ndtr(2.0 / deviation) - ndtr((2.0 - behind) / deviation))


DETECTIONS = (
    Detection("36 groups of unequal size", 36, 20, spread=1.0),
    Detection("36 groups of unequal size, each of one label", 36, 20, spread=1.0, one_label_each=True),
    Detection("200 groups", 200, 10),
    Detection("200 groups, 1 % positive", 200, 20, share=0.01),
    Detection("36 groups of unequal size, 1 % positive", 36, 100, share=0.01, spread=1.0),
)
LESS_SIGNAL = 0.235  # costs 3.0 points of AUROC


def detection_study(world: Detection, tables: int, seed: int = 0) -> dict[str, Any]:
    """How often a table of equal rows calls one worse, and how often rows 3 points behind are called worse."""
    draw = np.random.default_rng(seed)
    equal = [Comparison(world.draw(draw, 0.0)[0]).behind() for _ in range(tables)]
    drawn = [world.draw(draw, LESS_SIGNAL) for _ in range(max(1, tables // 5))]
    found = [[high < 0 for _, high in Comparison(samples).behind()[1:]] for samples, _ in drawn]
    return {
        "detection": {
            "wrongly_worse": round(float(np.mean([any(high < 0 for _, high in behind) for behind in equal])), 4),
            "points_behind": round(100 * drawn[0][1], 1),
            "called_worse": round(float(np.mean(found)), 3),
        }
    }


def noise_of(folder: str, task: str | None = None) -> Noise:
    """The mean variances of a committed folder's rows on dev."""
    compared, _ = compared_rows(folder, task)
    pairs = [compared.error_parts(a, b)[1] / 2 for a, b in itertools.combinations(range(len(compared.n)), 2)]
    run = float(np.mean(np.maximum(0.0, compared.variances - compared.seed_text))) ** 0.5
    return Noise(run, float(np.mean(compared.seed_text)) ** 0.5, float(np.median(pairs)) ** 0.5)


def compared_rows(folder: str, task: str | None = None) -> tuple[Comparison, list[Row]]:
    rows = [row for row in build_rows(RESULTS / folder) if row.section == MAIN and row.n > 1]
    rows = [row for row in rows if task in (None, row.setting.data)]
    return Comparison(samples_of([row.records for row in rows], "dev", run_counts)[0]), rows


def pool_of(row: Row) -> np.ndarray:
    """A row's counts on dev by document: (runs, documents, 3)."""
    runs = []
    for file in row.records:
        counted = run_counts(file)
        assert counted is not None
        place = np.unique(counted["dev"]["documents"], return_inverse=True)[1]
        by_document = np.zeros((int(place.max()) + 1, 3))
        np.add.at(by_document, place, by_sentence(counted["dev"]))
        runs.append(by_document)
    return np.stack(runs)


def truths() -> list[Truth]:
    """Tables without a difference, in many conditions; then the committed rows' differences on more and less text."""
    noise, equal = noise_of("conll2003-minilm-sentence"), (0.89,) * 9
    chunks, speech = (noise_of("conll2003-minilm-tasks", f"conll2003-{task}") for task in ("chunks", "pos"))
    same = replace(noise, row_text=0.0)
    found = [
        Truth("nine equal rows", equal, same),
        Truth("nine equal rows, four times the text", equal, same.with_text(4), documents=4 * DOCUMENTS),
        Truth("nine equal rows, 10 seeds", equal, same, 10),
        Truth("nine equal rows, 20 seeds", equal, same, 20),
        Truth("nine equal rows, 3 seeds", equal, same, 3),
        Truth("seven equal rows, variances of chunks", equal[:7], replace(chunks, row_text=0.0)),
        Truth("seven equal rows, variances of parts of speech", equal[:7], replace(speech, row_text=0.0)),
        Truth("equal in expectation, row x text", equal, noise),
        Truth("equal in expectation, row x text, four times the text", equal, noise.with_text(4), 5, (), 4 * DOCUMENTS),
        Truth("equal in expectation, row x text, 3 seeds", equal, noise, 3),
        Truth("equal in expectation, row x text, 20 seeds", equal, noise, 20),
        Truth("one row of three times the spread", equal, noise, 5, (3.0, *[1.0] * 8)),
        Truth("one row of three times the spread, no row x text", equal, same, 5, (3.0, *[1.0] * 8)),
        Truth("one row of three times the spread, 3 seeds", equal, noise, 3, (3.0, *[1.0] * 8)),
        Truth("spreads from a quarter to four times, 2 seeds", equal, noise, 2, tuple(4 ** np.linspace(-1, 1, 9))),
        Truth("spreads from a quarter to four times, 3 seeds", equal, noise, 3, tuple(4 ** np.linspace(-1, 1, 9))),
        Truth("one row of which every fifth run is 5 points lower", equal, noise, fails=(0.2, 0.05)),
        Truth("one row of which every fifth run is 5 points lower, 3 seeds", equal, noise, 3, fails=(0.2, 0.05)),
        Truth("one row ahead by 0.3", (0.893, *[0.89] * 8), noise),
        Truth("four rows ahead by 1", (*[0.9] * 4, *[0.89] * 5), noise),
    ]
    folder = "conll2003-minilm-sentence"
    for name, times in (("an eighth", 0.125), ("a quarter", 0.25), ("all", 1.0), ("four times", 4.0)):
        found.append(committed(folder, times, f"committed rows, {name} of the text"))
    pools = [pool_of(row) for row in compared_rows(folder)[1]]
    scores = [2 * pool[:, :, 2].sum() / pool[:, :, :2].sum() for pool in pools]
    drawn = replace(committed(folder), name="committed rows, resampled", scores=tuple(scores), pool=tuple(pools))
    best = int(np.argmax(scores))
    equal_pools = Truth("nine equal rows, resampled", (scores[best],) * 9, drawn.noise, pool=(pools[best],) * 9)
    found += [drawn, equal_pools]
    return found


def committed(folder: str, times: float = 1.0, name: str = "") -> Truth:
    """The differences, costs and mean variances of a committed folder's rows, on so many times the text."""
    compared, rows = compared_rows(folder)
    costs = tuple(row.cost for row in rows)
    noise = noise_of(folder).with_text(times)
    return Truth(name, tuple(compared.means.tolist()), noise, 5, (), int(DOCUMENTS * times), costs)


def all_hold(bounds: Sequence[Sequence[float]], loss: np.ndarray) -> bool:
    """Whether no row lies farther behind the truly best than the low end of its interval says. loss: of each row."""
    return all(low <= -own + 1e-9 for own, (low, _) in zip(loss, bounds, strict=True))


def study(truth: Truth, tables: int, seed: int = 0) -> dict[str, Any]:
    """What the package decides of so many tables of one truth."""
    draw, scores = np.random.default_rng(seed), np.array(truth.scores)
    loss = scores.max() - scores
    wrongly = between = means = behind = over = 0
    lost, lost_of_best, alone = 0.0, 0.0, 0
    found: dict[str, list[float]] = {"far": [], "near": []}
    whole = 0
    for number in range(tables):
        dev = truth.draw(draw)
        truth.draw(draw)  # test, which decides nothing
        compared = Comparison(dev)
        is_whole = bool(truth.costs) or number % EVERY == 0
        equal = [row for row in range(len(loss)) if loss[row] < 1e-9 and row != compared.best]
        t = [
            (compared.means[compared.best] - compared.means[row]) / compared.error(row, compared.best) for row in equal
        ]
        if not is_whole and max(t, default=0.0) < LEAST_T:
            continue
        bounds = compared.behind()
        is_worse = [high < 0 for _, high in bounds]
        assert not any(is_worse[row] for row, own in zip(equal, t, strict=True) if own < LEAST_T)
        wrongly += any(is_worse[row] for row in equal)
        if not is_whole:
            continue
        whole += 1
        behind += all_hold(bounds, loss)
        a, b = draw.choice(len(scores), 2, replace=False)
        low, high = compared.difference(a, b)[1]
        between += low <= scores[a] - scores[b] <= high
        low, high = compared.mean(a)
        means += low <= scores[a] <= high
        if truth.costs:
            place = cheapest_within(bounds, truth.costs, compared.means.tolist(), MARGIN)
            used = compared.best if place is None else place
            lost += loss[used]
            alone += place is None
            lost_of_best += loss[used] if place is None else 0.0
            over += place is not None and loss[place] > MARGIN
        for name, (least, most) in (("far", FAR), ("near", NEAR)):
            for row in np.flatnonzero((loss > least) & (loss < most)):
                found[name].append(is_worse[row])
    result = {
        "wrongly_worse": wrongly / tables,
        "coverage": {"difference": between / whole, "mean": means / whole, "behind": behind / whole},
    }
    if truth.costs:
        result["loss_over_margin"] = {
            "share": over / tables,
            "mean_loss": round(100 * lost / tables, 3),
            "none_within": alone / tables,
            "mean_loss_of_the_best_then": round(100 * lost_of_best / max(1, alone), 3),
        }
    if any(found.values()):
        result["power"] = {name: round(float(np.mean(own)), 3) for name, own in found.items() if own}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="names of truths, or parts of them, with commas between")
    options = parser.parse_args()
    only = options.only.split(",") if options.only else [""]

    def is_wanted(name: str) -> bool:
        return any(part in name for part in only)

    chosen = [truth for truth in truths() if is_wanted(truth.name)]
    jobs: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        *((truth.name, study, (truth, options.tables, options.seed)) for truth in chosen),
    ]
    jobs += [(name, looks_study, (*one, options.tables, options.seed)) for name, one in looked_at().items()]
    jobs += [(text.name, text_study, (text, options.tables, options.seed)) for text in texts()]
    jobs += [(f"detection, {one.name}", detection_study, (one, options.tables, options.seed)) for one in DETECTIONS]
    jobs += [
        (
            f"little text: {folder}, {view}, {sentences} sentences",
            little_study,
            (LittleText(folder), view, sentences, options.tables, options.seed),
        )
        for folder in (*LITTLE_FOLDERS, "long documents")
        for sentences in LITTLE
        for view in VIEWS
    ]
    jobs += [
        (f"reach of {folder}, seeds {schedule}", reach_study, (folder, schedule, options.tables, options.seed))
        for folder in ("conll2003-minilm-sentence", "demo-quickstart")
        for schedule in ((3,), (3, 5), (5,), (5, 10), (10,))
    ]
    jobs += [
        (f"first look at {seeds} seeds, {text}", first_look_study, (seeds, row_text))
        for seeds in (2, 3, 5)
        for text, row_text in (("text known", 0.0), ("text varies as much as seeds", 1.0))
    ]
    jobs = [job for job in jobs if is_wanted(job[0])]
    found: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(work, *given) for _, work, given in jobs]
        for (name, _, _), result in zip(jobs, (future.result() for future in futures), strict=True):
            print(f"{name}: {json.dumps(result)}", flush=True)
            for what, value in result.items():
                found.setdefault(what, {})[name] = value
    print(json.dumps({"tables": options.tables} | found))


if __name__ == "__main__":
    main()
