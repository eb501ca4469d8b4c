"""Computes means and intervals over seeds, and finds the units that a text is a sample of.

`scoring.compare` compares rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95  # of every interval and critical value
BLOCKS = 18  # of a text without marked documents: each holds several, which vary together
SHORTEST_BLOCK = 30  # sentences
FEWEST_BLOCKS = 4  # with fewer, nobody knows whether documents are longer than blocks
FEW_UNITS = 15  # effective; with fewer, what they have in common and how much they vary is estimated badly
MOST_IN_COMMON = 0.2  # correlation of neighbouring blocks; more of it says that documents are longer than blocks
# Sentences in no order may be of common documents, which nothing shows. Then the variance of a difference is larger
# than of independent sentences: in the committed tables with marked documents 0.6 to 4.8 times, by row. No factor is
# right for every text, so what rests on this one is said under the condition that sentences are independent.
DESIGN_EFFECT = 4.0
DOCUMENT, INDEPENDENT = "document", "independent"  # orders of sentences, as data.order has them
IF_INDEPENDENT, ON_THIS_TEXT = "if sentences are independent", "on this text"  # what a label may rest on


@dataclass(frozen=True)
class Cell:
    """Holds a row's score over its seeds, as fractions: mean, sample standard deviation, 95 % interval.

    A value is None if there are too few seeds for it.
    """

    mean: float | None
    std: float | None
    interval: list[float] | None


def summary(values: Sequence[float]) -> Cell:
    if not values:
        return Cell(None, None, None)
    many = len(values) > 1
    std = float(np.std(values, ddof=1)) if many else None
    return Cell(float(np.mean(values)), std, interval(values) if many else None)


def interval(values: Sequence[float]) -> list[float]:
    """Returns the 95 % interval of the mean of two or more values (Student's t).

    For normal values the coverage is right from two values on. Resampling a few
    seeds (a percentile bootstrap) is not: it covers the mean in 76 % of cases with three values, in 84 % with five.
    """
    from scipy.special import stdtrit

    centre, error = float(np.mean(values)), math.sqrt(float(np.var(values, ddof=1)) / len(values))
    reach = float(stdtrit(len(values) - 1, (1 + CONFIDENCE) / 2)) * error
    return [centre - reach, centre + reach]


@dataclass(frozen=True)
class Units:
    """Describes what a text is a sample of.

    gold: (sentences,) or (sentences, K), the number of gold items of each sentence, or of each of K kinds.
    unit_of: (sentences,), the number of its unit. name: what units are called. are_blocks: whether documents of unknown
    bounds lie in them. factor: of the variance over units. condition: what a label rests on; empty: nothing.
    """

    gold: np.ndarray
    unit_of: np.ndarray
    name: str
    are_blocks: bool = False
    factor: float = 1.0
    condition: str = ""

    @classmethod
    def of(cls, gold: np.ndarray, documents: Sequence[int] | np.ndarray | None, order: str | None) -> Units:
        """Finds the units of a text.

        Sentences of a document vary together, so a text is a sample of documents. Where they are unknown and the text
        is in their order, blocks of neighbouring sentences take their place. Sentences in no known order are units
        themselves. order: DOCUMENT, INDEPENDENT, or None if it is not known.
        """
        sentences = np.arange(len(gold))
        if documents is not None:
            return cls(gold, np.unique(np.asarray(documents), return_inverse=True)[1], "documents")
        if order == DOCUMENT:
            size = max(SHORTEST_BLOCK, -(-len(gold) // BLOCKS))
            return cls(gold, sentences // size, f"blocks of {size} sentences", are_blocks=True)
        if order == INDEPENDENT:
            return cls(gold, sentences, "independent sentences")
        return cls(gold, sentences, "sentences in no known order", factor=DESIGN_EFFECT, condition=IF_INDEPENDENT)

    @property
    def items(self) -> int:
        """Returns the number of gold items, of the rarest kind."""
        return int(np.min(self.gold.sum(0)))

    @property
    def effective(self) -> float:
        """Returns how many equally long units would carry as much of the text: 1 / sum(share^2) (Kish 1965).

        A unit's share is that of its gold items, of the kind that lies in the fewest units.
        """
        kinds = self.gold.reshape(len(self.gold), -1).T.astype(float)
        sizes = [np.bincount(self.unit_of, kind) for kind in kinds]
        return min(float(size.sum() ** 2 / max(1.0, (size**2).sum())) for size in sizes)

    @property
    def title(self) -> str:
        """Returns how many units there are, and what they are called."""
        number = int(self.unit_of.max()) + 1
        return f"{number:,} {self.name}" if number > 1 else "1 " + re.sub(r"s\b", "", self.name, count=1)


def with_neighbours(influences: Sequence[np.ndarray], effective: float) -> tuple[list[np.ndarray], float]:
    """Scales what blocks of a text move for what neighbouring ones have in common; joins blocks if that is too much.

    A document that ends in the next block makes both move alike, so the sum of all varies more than independent blocks
    would. The variance of a sum is 1 + 2 r times as large, where r is the correlation of neighbours, over all rows.
    But r is only estimated. To be on the safe side, 1 + 3 (r + half its standard error) is used. Documents that are
    longer than blocks make r large: then neighbours are joined, as often as it takes.

    influences: of each row, (seeds, U), with units in the order of the text. effective: the effective number of blocks.
    Returns both for the blocks that are left. If these are too few, nothing is known of other documents: 0.
    """
    influences = list(influences)
    while (blocks := influences[0].shape[1]) >= FEWEST_BLOCKS:
        moves = np.stack([one.mean(0) for one in influences])
        moves = moves - moves.mean(0) if len(moves) > 1 else moves
        moves = moves - moves.mean(1, keepdims=True)
        r = float((moves[:, 1:] * moves[:, :-1]).sum()) / max(1e-30, float((moves**2).sum()))
        r += 1 / blocks  # of independent blocks it is -1 / U on average
        error = (blocks * max(1, len(moves) - 1)) ** -0.5
        if r + error * (effective < FEW_UNITS) <= MOST_IN_COMMON:
            return [one * (1 + 3 * max(0.0, r + error / 2)) ** 0.5 for one in influences], effective
        pairs = np.arange(0, blocks, 2)
        larger = (1 - 1 / blocks) / (1 - 1 / len(pairs))  # of the share that leaving one out allows for
        influences = [np.add.reduceat(one, pairs, axis=1) * larger for one in influences]
        effective /= 2
    return influences, 0.0
