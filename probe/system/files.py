"""The feature store: every hidden layer of a text under a frozen encoder, written once, read by every run.

    <cache_dir>/<key>/manifest.json              what this is; comes last, so: present means complete
    <cache_dir>/<key>/train-00000.safetensors    a shard: about 8,192 words, one tensor (words, H) a layer, "0".."L"

A shard carries, in its header, the key it belongs to, its place, and a checksum for each layer; it is written under a
temporary name, synced and renamed, so present means whole. Readers map a shard into memory and touch only the layers
they ask for, each checked against its checksum. Safety rests on unique temporary names and atomic renames alone; locks
only keep two processes from doing the same shard twice.

W words, H hidden size, layer 0 = the embedding output, 1..L = the encoder blocks.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any


def canonical(value: Any) -> str:
    """JSON with one spelling for one value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def key_of(identity: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(identity).encode()).hexdigest()


def write_atomically(path: Path, content: str | bytes) -> None:
    """The whole content under this name, or what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        with temporary.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@functools.cache
def umask() -> int:
    mask = os.umask(0)  # it can only be read by setting it
    os.umask(mask)
    return mask


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
