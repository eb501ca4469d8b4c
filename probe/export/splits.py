"""Gives Python programs the words, tags and vectors of a corpus. Vectors stay in the store until they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from probe.config import Config, UserError
from probe.data.split import Split
from probe.features.pooled import PooledVectors, vectors_to_read
from probe.features.store import FeatureStore, read_again_if_damaged
from probe.features.windows import bounds
from probe.probes.combine import Streamed
from probe.probes.kinds import PROBES
from probe.probes.normalization import Normalization, normalization_of
from probe.probes.selection import Selection
from probe.runs.plan import Plan, plan
from probe.runs.run import extract


class Vectors:
    """Reads the vectors of a split's words from the store on demand.

    shape: (words, width), or (words, layers, H) if layers are not combined. `vectors[rows]` is a torch tensor on the
    CPU in the stored dtype (sums and means: float32). Rows are a number, a slice, a list, an array, or a mask; indices
    within each vector may follow: `vectors[:, 0]`. `numpy.asarray(vectors)` reads everything into memory; bfloat16,
    which NumPy lacks, becomes float32.
    """

    def __init__(self, open_split: Callable[[], Streamed]) -> None:
        self._open = open_split
        self._streamed = self._open()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._streamed.shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self._streamed.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (self[row] for row in range(len(self)))

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray | torch.Tensor | tuple) -> torch.Tensor:
        if isinstance(rows, tuple):  # rows, then indices within each
            chosen = self[rows[0]]
            return chosen[(slice(None),) * (chosen.ndim - self.ndim + 1) + rows[1:]]
        if isinstance(rows, slice):
            wanted = range(len(self))[rows]
            if wanted.step == 1:
                return self._read(lambda: self._streamed.between(wanted.start, max(wanted.start, wanted.stop)))
            places = np.asarray(wanted, dtype=np.int64)
        else:
            places = _places(rows, len(self))
        return self._read(lambda: self._streamed[torch.from_numpy(places)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("vectors are in a store, so one array of them must be a copy")
        whole = as_numpy(self[:])
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"Vectors({' x '.join(map(str, self.shape))}, {self.dtype})"

    def close(self) -> None:
        """Unmaps the files that were read."""
        self._streamed.close()

    def _read(self, read: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Returns the result of `read`, after extracting damaged shards again."""

        def reopen(damage: str) -> None:
            print(damage, flush=True)
            self._streamed = self._open()

        return read_again_if_damaged(read, reopen)


def _places(rows: Any, length: int) -> np.ndarray:
    """Turns rows as NumPy understands them into positions from 0, of any shape. Raises IndexError."""
    asked = np.asarray(rows)
    if asked.dtype == bool:
        if asked.shape != (length,):
            raise IndexError(f"a mask of shape {asked.shape} for {length} words")
        return np.flatnonzero(asked)
    if asked.size == 0:
        return asked.astype(np.int64)
    if asked.dtype.kind not in "iu":
        raise IndexError(f"rows are whole numbers, slices or masks, not {asked.dtype}")
    if asked.min() < -length or asked.max() >= length:
        raise IndexError(f"row {int(asked.min() if asked.min() < -length else asked.max())} of {length} words")
    return np.where(asked < 0, asked + length, asked).astype(np.int64)


def as_numpy(vectors: torch.Tensor) -> np.ndarray:
    """Converts a tensor to NumPy; bfloat16 becomes float32, which can hold its values."""
    return (vectors.float() if vectors.dtype == torch.bfloat16 else vectors).numpy()


@dataclass(frozen=True)
class SplitFeatures:
    """Holds one split, one row per word, or one per sentence if these have the labels.

    words, tags: one per row of vectors; spans are tagged in IOB2. sentences: the rows of each sentence, as slices of
    all three. documents: the number of each sentence's document, ascending, maybe with gaps; None if the corpus has
    none.
    """

    words: list[str]
    tags: list[str]
    sentences: list[slice]
    documents: list[int] | None
    vectors: Vectors

    @classmethod
    def of(cls, split: Split, vectors: Vectors) -> SplitFeatures:
        ends = bounds(split.lengths).tolist()
        return cls(
            [word for words in split.words for word in words],
            [tag for tags in split.tags for tag in tags],
            [slice(first, last) for first, last in pairwise(ends)],
            split.documents,
            vectors,
        )


class Splits(NamedTuple):
    """Holds the three splits of a corpus with their features."""

    train: SplitFeatures
    dev: SplitFeatures
    test: SplitFeatures


def read_splits(cfg: Config, each: bool = False) -> Splits:
    """Returns the splits of a config's corpus with features of the chosen layers, after extracting missing ones.

    each: does not combine the layers: (words, layers, H). A mix, whose weights are learned, is never combined here.
    Raises UserError.
    """
    corpus, vectors = plan_to_read(cfg).corpus, read_vectors(cfg, each)
    splits = {name: split.by_unit(corpus.task) for name, split in corpus.splits.items()}
    return Splits(**{name: SplitFeatures.of(split, vectors[name]) for name, split in splits.items()})


def read_vectors(cfg: Config, each: bool = False) -> dict[str, Vectors]:
    """Returns only each split's vectors; see `read_splits`."""
    planned = plan_to_read(cfg)
    selection = chosen(planned.selection, each)
    # Layers that are not combined are normalized one by one, as in a concatenation.
    normalized = replace(selection, combine="concat") if each else selection
    normalization = cache(lambda: _normalization(planned, normalized))

    def opened(split: str) -> Streamed:
        return Streamed(_stored(planned), split, selection, lazy=True, normalization=normalization())

    return {name: Vectors(partial(opened, name)) for name in planned.corpus.splits}


def _stored(planned: Plan) -> FeatureStore | PooledVectors:
    """Returns the complete store, or its sentences, after extracting what is missing."""
    return vectors_to_read(extract(planned.cfg), planned.text, planned.cfg.features)


def _normalization(planned: Plan, selection: Selection) -> Normalization | None:
    """Returns how features are normalized, after extracting damaged shards of train again."""
    return read_again_if_damaged(lambda: normalization_of(_stored(planned), selection))


def plan_to_read(cfg: Config) -> Plan:
    """Returns the plan whose vectors are read.

    Raises UserError for runs without stored vectors: a fine-tuned encoder, no layer.
    """
    if not PROBES[cfg.probe.kind].reads_features:
        raise UserError(f"Features come from a frozen encoder: omit probe={cfg.probe.kind}.")
    # No probe is trained here. One with LSTM layers would be refused where a whole text has one label.
    planned = plan(replace(cfg, probe=replace(cfg.probe, num_layers=0)))
    if not planned.kind.reads_features:
        raise UserError(f"layers={planned.selection.name} names no layer, so there are no vectors. Type layers=last.")
    return planned


def chosen(selection: Selection, each: bool) -> Selection:
    """Returns the selection; with `each`, its layers uncombined, as for a mix, which the probe combines itself."""
    return replace(selection, combine="mix") if each else selection
