"""Writes a split's features as safetensors and JSON lines, part by part. An unfinished file is continued.

    train.safetensors   "vectors" as in the store, "sentences" (S + 1,), "documents" (S,)
    train.jsonl         one line per sentence: words, tags, document

Row k of vectors is word k of the split. Sentence i has the rows from sentences[i] to sentences[i + 1].

S sentences.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probe.data.split import Split
from probe.export.splits import Vectors
from probe.features.windows import bounds
from probe.system.files import written_whole

Parts = Sequence[tuple[int, int]]  # rows of vectors, first..last, one part after another
Advance = Callable[[int], object]  # called with the number of words just written
SAFETENSORS_NAMES = {torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32"}


def write_split(folder: Path, name: str, split: Split, vectors: Vectors, parts: Parts, advance: Advance) -> None:
    """Writes one split. parts: rows that are read at once."""
    _write_sentences(folder / f"{name}.jsonl", split)
    documents = None if split.documents is None else np.array(split.documents, dtype=np.int64)
    small = {"sentences": bounds(split.lengths), "documents": documents}
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
    _append(folder / f"{name}.safetensors", content, vectors, parts, advance)


def _append(path: Path, head: bytes, vectors: Vectors, parts: Parts, advance: Advance) -> None:
    """Writes the header and then all rows, part by part, into a file that only grows.

    Its length shows how much is done. An unfinished part is written again.
    """
    row_bytes = math.prod(vectors.shape[1:]) * vectors.dtype.itemsize
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
                stream.write(vectors[first:last].view(torch.uint8).numpy().data)
                vectors.close()
                advance(last - first)
        stream.flush()
        os.fsync(stream.fileno())


def _write_sentences(path: Path, split: Split) -> None:
    """Writes one line of JSON per sentence, unless the file exists."""
    if path.exists():
        return
    with written_whole(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        for number, (words, tags) in enumerate(zip(split.words, split.tags, strict=True)):
            document = None if split.documents is None else split.documents[number]
            line = {"words": words, "tags": tags, "document": document}
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
