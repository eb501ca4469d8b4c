"""Measures the similarity of vectors: of whole texts, and of a word's occurrences at each layer and combination.

n vectors compared, L + 1 layers, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from probe.config import SENTENCES, LayersConfig, UserError
from probe.data.running_text import split_text
from probe.inspect.encoded_text import EncodedText, TextEncoder
from probe.probes.combine import combine
from probe.probes.selection import Selection, presets_of, select
from probe.system.format import closest

NEIGHBOURS = 3  # words shown on either side of an occurrence


def sentence_vector(reading: EncodedText, how: str, reader: TextEncoder) -> torch.Tensor:
    """Returns one vector (H',) for a whole text.

    cls: its first piece; mean, max: over all its pieces with special ones; all three with the chosen layers.
    mean_second_to_last: the mean of the second-to-last layer, for any chosen layers. pooler: the pooler's output.
    """
    if how == "pooler":
        if reading.pooled is None:
            raise UserError(
                f"--sentence pooler: {reader.encoder.name} has no pooler (or none with weights). "
                f"There are: {', '.join(name for name in SENTENCES if name != 'pooler')}."
            )
        return reading.pooled
    if how == "mean_second_to_last":
        return reading.pieces[-2].mean(0)
    pieces = combine(reading.pieces, reader.selection)  # (K, H')
    if how == "cls":
        if not reader.encoder.special.prefix:
            raise UserError(f"--sentence cls: {reader.encoder.name} adds no piece before a text. Try mean.")
        return pieces[0]
    return pieces.mean(0) if how == "mean" else pieces.amax(0)


def cosines(vectors: torch.Tensor) -> np.ndarray:
    """Returns the cosines (n, n) of vectors (n, H)."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1)
    return (unit @ unit.T).clamp(-1, 1).numpy()


class Occurrence(NamedTuple):
    """Describes word `word` of text `text`, both from 0, and the words around it."""

    text: int
    word: int
    around: str


@dataclass(frozen=True)
class Comparison:
    """Holds a word's occurrences and their similarity.

    rows: each single layer, then each combination. cosines: (rows, n, n), in their order.
    groups: the occurrences in two groups, by their cosines over all blocks; None for fewer than three.
    """

    word: str
    occurrences: list[Occurrence]
    rows: list[Selection]
    cosines: np.ndarray
    groups: tuple[list[int], list[int]] | None

    def pairs(self) -> list[tuple[int, int]]:
        n = len(self.occurrences)
        return [(i, j) for i in range(n) for j in range(i + 1, n)]

    def is_within(self, pair: tuple[int, int]) -> bool:
        """Returns whether both are in one group."""
        return self.groups is not None and (pair[0] in self.groups[0]) == (pair[1] in self.groups[0])

    def margins(self) -> list[float] | None:
        """Returns for each row the smallest cosine within a group minus the largest between groups."""
        if self.groups is None:
            return None
        within = [pair for pair in self.pairs() if self.is_within(pair)]
        between = [pair for pair in self.pairs() if not self.is_within(pair)]
        return [float(min(c[pair] for pair in within) - max(c[pair] for pair in between)) for c in self.cosines]


def compare(readings: Sequence[EncodedText], word: str, reader: TextEncoder) -> Comparison:
    """Compares every occurrence of a word in any case. Raises UserError if there are not two."""
    wanted = split_text(word)
    if len(wanted) != 1:
        raise UserError(f"--word {word!r}: one word is needed, not {len(wanted)}: {' '.join(wanted) or 'none'}.")
    occurrences = [
        Occurrence(text, at, _around(reading.words, at))
        for text, reading in enumerate(readings)
        for at, other in enumerate(reading.words)
        if other.casefold() == wanted[0].casefold()
    ]
    if not occurrences:
        words = sorted({other for reading in readings for other in reading.words})
        close = closest(wanted[0], words)
        raise UserError(f"--word {word}: no text has this word." + (f" Did you mean {close}?" if close else ""))
    if len(occurrences) < 2:
        raise UserError(f"--word {word}: the texts have it once; two are needed to compare. Add a text.")
    vectors = torch.stack([readings[occurrence.text].vectors[occurrence.word] for occurrence in occurrences])
    rows = _selections(reader)
    layers = vectors.transpose(0, 1).contiguous()  # (L + 1, n, H)
    by_row = np.stack([cosines(combine(layers, row)) for row in rows])
    groups = two_groups(by_row[1 : reader.encoder.num_layers + 1].mean(0)) if len(occurrences) > 2 else None
    return Comparison(wanted[0], occurrences, rows, by_row, groups)


def _around(words: list[str], at: int) -> str:
    before, after = words[max(0, at - NEIGHBOURS) : at], words[at + 1 : at + 1 + NEIGHBOURS]
    begin, end = "… " * (at > NEIGHBOURS), " …" * (at + 1 + NEIGHBOURS < len(words))
    return f"{begin}{' '.join([*before, f'[{words[at]}]', *after])}{end}"


def _selections(reader: TextEncoder) -> list[Selection]:
    """Returns each single layer, each preset of several layers that this encoder has, and the chosen layers."""
    num_layers, hidden_size = reader.encoder.num_layers, reader.encoder.hidden_size
    rows = [select(LayersConfig([k], "concat"), num_layers, hidden_size) for k in range(num_layers + 1)]
    rows += [preset for preset in presets_of(num_layers, hidden_size) if len(preset.indices) > 1]
    if len(reader.selection.indices) > 1 and reader.selection not in rows:
        rows.append(reader.selection)
    return rows


def two_groups(similarity: np.ndarray) -> tuple[list[int], list[int]]:
    """Clusters into two groups by average linkage. similarity: (n, n), cosines."""
    groups = [[i] for i in range(len(similarity))]
    while len(groups) > 2:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a + 1, len(groups))]
        a, b = max(pairs, key=lambda pair: similarity[np.ix_(groups[pair[0]], groups[pair[1]])].mean())
        groups[a] += groups.pop(b)
    return sorted(groups[0]), sorted(groups[1])
