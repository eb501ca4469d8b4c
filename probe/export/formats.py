"""Writes features in formats of other programs, part by part. An unfinished file is continued.

    safetensors   train.safetensors: "vectors" as in the store, "sentences" (S + 1,), "documents" (S,); train.jsonl
    npy           train.vectors.npy, train.sentences.npy, train.documents.npy, for memory maps; train.jsonl
    parquet       train-00000-of-00027.parquet ...: one row per sentence; README.md tells `datasets` the splits

A line of train.jsonl is a sentence: words, tags, document. Row k of vectors is word k of the split. Sentence i has the
rows from sentences[i] to sentences[i + 1]. NumPy and Parquet have no bfloat16; there it becomes float32.

S sentences.
"""

from __future__ import annotations

import functools
import io
import json
import math
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probe.data.split import Split
from probe.export.splits import Vectors, as_numpy
from probe.features.windows import bounds
from probe.system.files import written_whole

Parts = Sequence[tuple[int, int]]  # rows of vectors, first..last, one part after another
Advance = Callable[[int], object]  # called with the number of words just written
SAFETENSORS_NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}


def as_safetensors(folder: Path, name: str, split: Split, vectors: Vectors, parts: Parts, advance: Advance) -> None:
    _write_sentences(folder / f"{name}.jsonl", split)
    small = {"sentences": _sentences(split), "documents": _documents(split)}
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for tensor, values in small.items():
        if values is not None:
            end = offset + values.nbytes
            head[tensor] = {"dtype": "I64", "shape": list(values.shape), "data_offsets": [offset, end]}
            offset = end
    size = math.prod(vectors.shape) * vectors.dtype.itemsize
    head["vectors"] = {
        "dtype": SAFETENSORS_NAMES[vectors.dtype],
        "shape": list(vectors.shape),
        "data_offsets": [offset, offset + size],
    }
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    numbers = b"".join(values.tobytes() for values in small.values() if values is not None)
    content = len(text).to_bytes(8, "little") + text + numbers
    _append(
        folder / f"{name}.safetensors", content, vectors, parts, advance, lambda rows: rows.view(torch.uint8).numpy()
    )


def as_npy(folder: Path, name: str, split: Split, vectors: Vectors, parts: Parts, advance: Advance) -> None:
    _write_sentences(folder / f"{name}.jsonl", split)
    for column, values in (("sentences", _sentences(split)), ("documents", _documents(split))):
        if values is not None:
            _whole(folder / f"{name}.{column}.npy", functools.partial(_save_npy, values))
    head = io.BytesIO()
    dtype = as_numpy(torch.empty(0, dtype=vectors.dtype)).dtype
    about = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": vectors.shape}
    np.lib.format.write_array_header_1_0(head, about)
    _append(folder / f"{name}.vectors.npy", head.getvalue(), vectors, parts, advance, as_numpy)


def as_parquet(folder: Path, name: str, split: Split, vectors: Vectors, parts: Parts, advance: Advance) -> None:
    import pyarrow.parquet

    _whole(folder / "README.md", lambda path: path.write_text(CARD, encoding="utf-8"))
    ends = _sentences(split)
    cuts = np.searchsorted(ends[:-1], [0, *(last for _, last in parts)]).tolist()
    groups = [(begin, end) for begin, end in pairwise(cuts) if begin < end]
    for number, (begin, end) in enumerate(groups):  # the sentences that begin in a part
        path = folder / f"{name}-{number:05d}-of-{len(groups):05d}.parquet"
        if not path.exists():
            table = _table(split, vectors, ends, begin, end)
            with written_whole(path) as temporary:
                repeating = ["words.list.element", "tags.list.element"]
                pyarrow.parquet.write_table(table, temporary, use_dictionary=repeating)
        vectors.close()
        advance(int(ends[end] - ends[begin]))


FORMATS = {"safetensors": as_safetensors, "npy": as_npy, "parquet": as_parquet}

CARD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: train-*.parquet
  - split: dev
    path: dev-*.parquet
  - split: test
    path: test-*.parquet
---

Words, tags, and the vector of each word from a frozen encoder, one sentence per row: `datasets.load_dataset("DIR")`.
`export.json` names the text, the encoder and the layers.
"""


def _sentences(split: Split) -> np.ndarray:
    """Returns (S + 1,), where each sentence begins and the last ends."""
    return bounds(split.lengths)


def _documents(split: Split) -> np.ndarray | None:
    return None if split.documents is None else np.array(split.documents, dtype=np.int64)


def _append(
    path: Path,
    head: bytes,
    vectors: Vectors,
    parts: Parts,
    advance: Advance,
    as_array: Callable[[torch.Tensor], np.ndarray],
) -> None:
    """Writes the header and then all rows, part by part, into a file that only grows.

    Its length shows how much is done. An unfinished part is written again.
    """
    row_bytes = as_array(torch.empty((1, *vectors.shape[1:]), dtype=vectors.dtype)).nbytes
    path.touch()
    with path.open("r+b") as stream:
        whole_rows = (stream.seek(0, io.SEEK_END) - len(head)) // row_bytes
        stream.seek(0)
        if stream.read(len(head)) != head:
            stream.seek(0)
            stream.write(head)
            whole_rows = 0
        done = max((last for _, last in parts if last <= whole_rows), default=0)
        stream.truncate(len(head) + done * row_bytes)
        stream.seek(0, io.SEEK_END)
        advance(done)
        for first, last in parts:
            if first >= done:
                stream.write(as_array(vectors[first:last]).data)
                vectors.close()
                advance(last - first)
        stream.flush()
        os.fsync(stream.fileno())


def _table(split: Split, vectors: Vectors, ends: np.ndarray, begin: int, end: int) -> Any:
    """Returns sentences begin..end as rows."""
    import pyarrow as pa

    rows = as_numpy(vectors[int(ends[begin]) : int(ends[end])])
    values = pa.array(rows.reshape(-1))
    for size in reversed(rows.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, size)
    documents = [None] * (end - begin) if split.documents is None else split.documents[begin:end]
    columns = {
        "words": pa.array(split.words[begin:end], pa.list_(pa.string())),
        "tags": pa.array(split.tags[begin:end], pa.list_(pa.string())),
        "document": pa.array(documents, pa.int64()),
        "vectors": pa.ListArray.from_arrays(pa.array(ends[begin : end + 1] - ends[begin], pa.int32()), values),
    }
    return pa.table(columns)


def _save_npy(values: np.ndarray, path: Path) -> None:
    with path.open("wb") as stream:  # given the path, NumPy would append .npy
        np.save(stream, values)


def _write_sentences(path: Path, split: Split) -> None:
    """Writes one line of JSON per sentence."""

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as stream:
            for number, (words, tags) in enumerate(zip(split.words, split.tags, strict=True)):
                document = None if split.documents is None else split.documents[number]
                line = {"words": words, "tags": tags, "document": document}
                stream.write(json.dumps(line, ensure_ascii=False) + "\n")

    _whole(path, write)


def _whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a whole file at once, unless it exists."""
    if not path.exists():
        with written_whole(path) as temporary:
            write(temporary)
