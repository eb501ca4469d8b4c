"""Gives other programs the words, tags and vectors of a corpus: Python directly, all others as files.

    train.safetensors       "vectors", as in the store; row k is word k of the split
    train.jsonl             one line per sentence: words, tags, document
    normalize.safetensors   with layers.normalize: by how much each layer was shifted and multiplied
    export.json             what these files are

An export is a complete folder or none: it is written under another name and renamed at the end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save

from probe.config import Config, UserError
from probe.data.split import Split
from probe.probes.combine import Streamed, bytes_needed
from probe.probes.kinds import PROBES
from probe.probes.normalization import Normalization, normalization_of
from probe.runs.plan import Plan, plan, settings_of
from probe.system.files import key_of, now, to_jsonable, why_not_writable, write_atomically, write_json, written_whole
from probe.system.machine import resolve_device
from probe.system.progress import progress_bar
from probe.system.provenance import provenance
from probe.vectors.sources import complete_store
from probe.vectors.store import Shard, bounds, read_again_if_damaged

ABOUT = "export.json"
LAYOUT = 2  # raise it when the files change
SAFETENSORS_NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}


class Vectors:
    """Reads the vectors of a split's words from the store on demand.

    shape: (words, width), or (words, layers, H) if layers are not combined. `vectors[rows]` is a torch tensor on the
    CPU in the stored dtype (sums and means: float32). Rows are what NumPy takes: a number, a slice, a list, an array,
    or a mask; indices within each vector may follow: `vectors[:, 0]`. `numpy.asarray(vectors)` reads everything into
    memory; bfloat16, which NumPy lacks, becomes float32. `.std()` of float16 overflows: `.astype(numpy.float32)`.
    normalization: what `layers.normalize` did to each layer, a function of a list of layers, each (words, H), so that
    vectors of new text can be brought to the same scale; None if nothing.
    """

    def __init__(self, open_split: Callable[[], Streamed]) -> None:
        self._open, self._streamed = open_split, open_split()
        self.shape, self.dtype = self._streamed.shape, self._streamed.dtype
        self.normalization = self._streamed.normalization
        self._positions = np.arange(len(self))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray | torch.Tensor | tuple) -> torch.Tensor:
        if isinstance(rows, tuple):  # rows, then indices within each
            chosen = self[rows[0]]
            return chosen[(slice(None),) * (chosen.ndim - len(self.shape) + 1) + rows[1:]]
        if isinstance(rows, slice) and rows.step in (None, 1):
            first, last, _ = rows.indices(len(self))
            return self._read(lambda: self._streamed.between(first, max(first, last)))
        places = torch.from_numpy(np.array(self._positions[rows], order="C"))
        return self._read(lambda: self._streamed[places])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("vectors are in a store, so one array of them must be a copy")
        whole = self[:].float() if self.dtype == torch.bfloat16 else self[:]
        return whole.numpy() if dtype is None else whole.numpy().astype(dtype, copy=False)

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


@dataclass(frozen=True)
class SplitFeatures:
    """Holds one split, one row per word, or one per sentence if these have the labels.

    words, tags: one per row of vectors; spans are tagged in IOB2. sentences: the rows of each sentence, as slices of
    all three. documents: the number of each sentence's document, ascending, maybe with gaps; None if the corpus has
    none.
    """

    words: list[str] = field(repr=False)
    tags: list[str] = field(repr=False)
    sentences: list[slice] = field(repr=False)
    documents: list[int] | None = field(repr=False)
    vectors: Vectors


class Splits(NamedTuple):
    """Holds the three splits of a corpus with their features."""

    train: SplitFeatures
    dev: SplitFeatures
    test: SplitFeatures


def splits_with_features(cfg: Config, each: bool = False) -> Splits:
    """Returns the splits of a config's corpus with features of the chosen layers, after extracting missing ones.

    each: does not combine the layers: (words, layers, H). A mix, whose weights are learned, is never combined here.
    """
    planned = plan_to_read(cfg, each)
    vectors = read_vectors(planned, each)
    features, labels = {}, planned.corpus.about.get("labels")
    for name, split in units_of(planned).items():
        features[name] = SplitFeatures(
            [word for words in split.words for word in words],
            [labels[int(tag)] if labels else tag for tags in split.tags for tag in tags],
            [slice(first, last) for first, last in pairwise(bounds(split.lengths).tolist())],
            split.documents,
            vectors[name],
        )
    return Splits(**features)


def plan_to_read(cfg: Config, each: bool) -> Plan:
    """Returns the plan whose vectors are read; with `each`, its layers uncombined, as for a mix. Raises UserError."""
    if not PROBES[cfg.probe.kind].reads_features:
        raise UserError(f"Features come from a frozen encoder: omit probe={cfg.probe.kind}.")
    # No probe is trained here. One with LSTM layers would be refused where a whole text has one label.
    planned = plan(replace(cfg, probe=replace(cfg.probe, num_layers=0)))
    if not planned.kind.reads_features:
        raise UserError(f"layers={planned.selection.name} names no layer, so there are no vectors. Type layers=last.")
    return replace(planned, selection=replace(planned.selection, combine="mix")) if each else planned


def units_of(planned: Plan) -> dict[str, Split]:
    """Returns the splits with one word per row of vectors."""
    return {name: split.by_unit(planned.corpus.task.units) for name, split in planned.corpus.splits.items()}


def read_vectors(planned: Plan, each: bool) -> dict[str, Vectors]:
    selection, device = planned.selection, resolve_device(planned.cfg.device)
    # Layers that are not combined are normalized one by one, as in a concatenation.
    normalized = replace(selection, combine="concat") if each else selection

    @cache
    def normalization() -> Normalization | None:
        return read_again_if_damaged(lambda: normalization_of(complete_store(planned.store, device), normalized))

    def opened(split: str) -> Streamed:
        return Streamed(
            complete_store(planned.store, device), split, selection, lazy=True, normalization=normalization()
        )

    return {name: Vectors(partial(opened, name)) for name in planned.corpus.splits}


def export(cfg: Config, target: Path, each: bool, log: Callable[[str], None]) -> None:
    """Writes a config's corpus and features into a new folder. each: see `splits_with_features`."""
    with new_folder(target) as part:
        planned = plan_to_read(cfg, each)
        needed = bytes_needed(planned.store, planned.selection)
        if reason := why_not_writable(target.parent, needed):
            raise UserError(f"{target}: {reason}. To use another folder: --to DIR.")
        splits = units_of(planned)
        num_rows = sum(split.num_words for split in splits.values())
        log(f"{num_rows} words, {needed / 1e9:.2f} GB, to {target}")
        vectors = read_vectors(planned, each)
        with progress_bar(num_rows, "exporting") as bar:
            for name in splits:
                write_sentences(part / f"{name}.jsonl", planned.corpus.splits[name], planned.corpus.about.get("labels"))
                _write_vectors(part / f"{name}.safetensors", vectors[name], planned.store.shards[name], bar.update)
        if normalization := vectors["train"].normalization:
            write_atomically(part / "normalize.safetensors", save(normalization.tensors))
        write_json(part / ABOUT, _about(planned, vectors))


@contextmanager
def new_folder(target: Path, option: str = "--to") -> Iterator[Path]:
    """Gives a folder to write to, which becomes the target at the end of the block, or is removed if that fails.

    option: of the command, that names the folder. Raises UserError for a target that exists or cannot be written.
    """
    if target.exists() or target.is_symlink():
        raise UserError(f"{target} already exists and was not changed. To use another folder: {option} DIR.")
    try:
        with written_whole(target) as part:
            part.mkdir(parents=True)
            yield part
    except OSError as error:
        place = error.filename2 or error.filename
        raise UserError(f"{place} cannot be written: {error.strerror}. To use another folder: {option} DIR.") from None


def write_sentences(path: Path, split: Split, labels: Sequence[str] | None) -> None:
    """Writes one line of JSON per sentence, as data=json reads it; with one label per text, as data=sentences does.

    labels: of a detection, see `RecordedData`. What has ids is written as data=items reads it. Documents of texts get
    names that no other split has.
    """
    with written_whole(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for number, tags in enumerate(split.tags):
            line: dict[str, Any] = {"tokens": split.words[number], "ner_tags": tags}
            if split.raw and not split.starts:
                words, raw = split.words[number], split.raw[number]
                line = {"id": split.ids[number]} if split.ids else {}
                line["text"] = words if raw == " ".join(words) else raw
                line["label"] = labels[int(tags[0])] if labels else tags[0]
            if split.documents:
                document = split.documents[number]
                line["group" if split.ids else "document"] = f"{path.stem} {document}" if "text" in line else document
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def _write_vectors(path: Path, vectors: Vectors, shards: Sequence[Shard], advance: Callable[[int], object]) -> None:
    """Writes the header of a safetensors file and then all rows, a shard of the store at a time."""
    size = math.prod(vectors.shape) * vectors.dtype.itemsize
    tensor = {"dtype": SAFETENSORS_NAMES[vectors.dtype], "shape": list(vectors.shape), "data_offsets": [0, size]}
    head = json.dumps({"__metadata__": {"format": "pt"}, "vectors": tensor}).encode()
    head += b" " * (-len(head) % 8)
    with written_whole(path) as temporary, temporary.open("wb") as stream:
        stream.write(len(head).to_bytes(8, "little") + head)
        for shard in shards:
            stream.write(vectors[shard.first : shard.last].view(torch.uint8).numpy().data)
            vectors.close()
            advance(shard.last - shard.first)


def _about(planned: Plan, vectors: dict[str, Vectors]) -> dict[str, Any]:
    """Returns the content of export.json."""
    corpus, encoder, selection = planned.corpus, planned.encoder, planned.selection
    settings = settings_of(planned.cfg, encoder)
    identity = {
        "layout": LAYOUT,
        "corpus": planned.identity.corpus,
        "features": planned.store.vectors_key,
        "layers": list(selection.indices),
        "combine": "none" if selection.combine == "mix" else selection.combine,
        "normalize": selection.normalize,
        "sentence": planned.identity.sentence,
    }
    return {
        "key": key_of(identity),
        **identity,
        "shapes": {name: list(rows.shape) for name, rows in vectors.items()},
        "data": {"name": corpus.name, "task": corpus.task.name, **to_jsonable(corpus.counts()), "about": corpus.about},
        "encoder": {
            "name": encoder.name,
            "source": encoder.source,
            "commit": encoder.commit,
            **encoder.fingerprint,
            "num_layers": encoder.num_layers,
            "hidden_size": encoder.hidden_size,
        },
        "vectors": planned.store.identity,
        "settings": {"data": settings.data, "encoder": settings.encoder, "features": settings.features},
        "software": to_jsonable(provenance()),
        "made": now(),
    }
