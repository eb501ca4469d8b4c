"""Stores every hidden layer of a text under a frozen encoder: written once, read by every run.

    <cache_dir>/<key>/manifest.json              what this is; written last, so present means complete
    <cache_dir>/<key>/train-00000.safetensors    a shard: about 8,192 words, one tensor (words, H) per layer, "0".."L"

With `features.layers`, a store holds only some layers and has another key. Its vectors are bit for bit those of the
store with all layers, so runs name the key of the latter.

Layer k is `hidden_states[k]`: 0 = the embedding output, 1..L = the encoder blocks. A typed index may count from the
end; inside the code every index is absolute.

A shard's header has its key, its position, and a checksum for each layer. Readers map a shard into memory and touch
only the layers they need, each checked against its checksum. Safety rests only on unique temporary names and atomic
renames, so present means complete. Locks save work, and keep a store that is in use from being pruned.

W words, H hidden size.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import xxhash

from probe.config import FeaturesConfig, UserError
from probe.data.corpus import Corpus
from probe.system.files import DAY_S, canonical, key_of, read_regular, why_not_writable, write_json, written_whole
from probe.system.locks import FileLock

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
FORMAT = 1
MANIFEST = "manifest.json"
OF_A_STORE = re.compile(rf"{re.escape(MANIFEST)}|\w+-\d{{5}}\.safetensors|\..*")  # what its folder holds, and no other
HALF_WRITTEN = re.compile(r"\..*\.(safetensors|json)\.|\.tmp")  # our temporary names, and those of safetensors
IN_USE = ".in-use"  # locked by every process that uses the store
WORDS_IN_SHARD = 8192
TEXTS_IN_SHARD = 512
SLICE = re.compile(r"\s*([+-]?\d+)?\s*:\s*([+-]?\d+)?\s*")
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


class DamagedShard(RuntimeError):
    """Says that a shard was damaged. It has been removed, so that the next extraction makes it again."""

    def __init__(self, path: Path, problem: object) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path


def read_again_if_damaged(read: Callable[[], T], log: Callable[[str], object] = print) -> T:
    """Returns what `read` returns, which opens a store, extracts what is missing of it and reads it.

    Where it meets a damaged shard it is called again. Raises UserError if one is damaged right after its repair.
    """
    repaired: set[Path] = set()
    while True:
        try:
            return read()
        except DamagedShard as damaged:
            if damaged.path in repaired:
                raise UserError(f"{damaged}. It was extracted again just before. Check the disk.") from None
            log(f"{damaged}. Extracting it again.")
            repaired.add(damaged.path)


class Shard(NamedTuple):
    """Describes a shard: words first..last of a split."""

    split: str
    number: int
    first: int
    last: int


class Source(Protocol):
    """Says what a store needs of what fills it. An encoder that reads text is one kind.

    kind: its name in `sources.SOURCES`. settings: those of `features` that it reads. source: how it was found, for
    messages and records. fingerprint: its content. num_layers: L. It gives L + 1 layers, 0 to L. lower_cases: whether
    words are the same to it in any case. commit: of the Hub. pretrained: of random weights, the fingerprint of the
    trained ones.
    """

    kind: ClassVar[str]
    settings: ClassVar[tuple[str, ...]]
    name: str
    source: str
    fingerprint: dict[str, str]
    num_layers: int
    hidden_size: int
    lower_cases: bool
    commit: str | None
    pretrained: dict[str, str] | None

    def reading(self, is_per_word: bool, cfg: FeaturesConfig) -> dict[str, Any]:
        """Returns what of the settings changes its vectors of words, or of whole texts. Raises UserError."""


@runtime_checkable
class HoldsVectors(Source, Protocol):
    """Says what a store needs of a source that holds its vectors itself, so that none are stored.

    dtype: of these. layer_names: as they are called there; None: by their numbers.
    """

    dtype: str
    layer_names: list[str] | None

    def rows(self, corpus: Corpus, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        """Returns the vectors of a shard, (W, H) for each layer. Raises UserError."""

    def places_of(self, corpus: Corpus, split: str) -> Any:
        """Finds the vectors of a split. Raises UserError if they are not those of the split's units."""


def feature_identity(corpus: Corpus, source: Source, cfg: FeaturesConfig) -> dict[str, Any]:
    """Returns everything that can change a stored vector, and nothing else.

    Omitted, with the reason: tags (NER and POS on one text share features); batch size, device, threads, and whether
    oneDNN or PyTorch's own kernels computed bfloat16 (they change a vector only by rounding, the last by bfloat16's
    own); which layers are stored and which a run reads (a layer's vectors have the same bits with any others); names
    and paths (only content counts).
    """
    reading = source.reading(corpus.task.is_per_word, cfg)
    text = corpus.text_fingerprint(with_documents=reading.get("context") == "document")
    return {"format": FORMAT, "encoder": source.fingerprint, "text": text, **reading}


def stored_layers(cfg: FeaturesConfig, num_layers: int) -> tuple[int, ...]:
    """Returns the layers to extract and store, in ascending order: all L + 1, unless `features.layers` names some."""
    if cfg.layers is None:
        return tuple(range(num_layers + 1))
    return tuple(sorted(absolute(cfg.layers, num_layers, "features.layers")))


def absolute(wanted: Any, num_layers: int, setting: str) -> tuple[int, ...]:
    """Resolves a list of indices or a slice for an encoder of `num_layers` blocks, in their order. Raises UserError."""
    valid = f"layers are 0 (embeddings) to {num_layers}, or -1 to -{num_layers + 1} from the end"
    wanted = [wanted] if isinstance(wanted, int) else wanted
    if isinstance(wanted, list) and all(isinstance(k, int) and not isinstance(k, bool) for k in wanted):
        outside = [k for k in wanted if not -num_layers - 1 <= k <= num_layers]
        indices = [k % (num_layers + 1) for k in wanted]
    elif isinstance(wanted, str) and (found := SLICE.fullmatch(wanted)):
        start, stop = (int(end) if end else None for end in found.groups())
        outside = [end for end in (start, stop) if end is not None and not -num_layers - 1 <= end <= num_layers + 1]
        indices = list(range(num_layers + 1))[start:stop]
    else:
        raise UserError(f"{setting}={wanted!r} is neither a list like [9,10] nor a slice like '1:'; {valid}.")
    if outside:
        raise UserError(f"{setting}={wanted!r}: {outside[0]} is out of range; {valid}.")
    if not indices:
        raise UserError(f"{setting}={wanted!r} names no layer; {valid}.")
    doubled = next((k for k in indices if indices.count(k) > 1), None)
    if doubled is not None:
        raise UserError(f"{setting}={wanted!r} names layer {doubled} more than once; {valid}.")
    return tuple(indices)


def bounds(lengths: Sequence[int]) -> np.ndarray:
    """Returns (n + 1,), the offsets of n consecutive runs."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, dtype=np.int64))])


def _some(layers: Sequence[int], num_layers: int) -> dict[str, list[int]]:
    """Returns what a store's identity says of its layers: nothing if they are all."""
    return {} if len(layers) == num_layers + 1 else {"layers": list(layers)}


def cut_shards(split: str, sentence_lengths: Sequence[int], size: int) -> list[Shard]:
    """Cuts a split into shards of whole sentences, `size` words or a few more; cuts only a longer sentence."""
    ends = bounds(sentence_lengths)[1:].tolist()
    shards: list[Shard] = []
    first = 0
    for end in ends:
        while end - first >= size:
            last = end if end - first < 2 * size else first + size
            shards.append(Shard(split, len(shards), first, last))
            first = last
    if ends and first < ends[-1]:
        shards.append(Shard(split, len(shards), first, ends[-1]))
    return shards


@dataclass
class FeatureStore:
    """Describes the stored features of one corpus from one source; `missing` lists the shards that are not on disk.

    key: of this store. identity: see `feature_identity`. layers: the stored ones in ascending order. held: the source,
    if it holds the vectors itself.
    """

    corpus: Corpus
    source: Source
    cfg: FeaturesConfig
    directory: Path
    key: str
    identity: dict[str, Any]
    num_layers: int
    hidden_size: int
    dtype: str
    shards: dict[str, list[Shard]]
    layers: tuple[int, ...]
    held: HoldsVectors | None = None

    @classmethod
    def of(cls, corpus: Corpus, source: Source, cfg: FeaturesConfig) -> FeatureStore:
        identity, layers = feature_identity(corpus, source, cfg), stored_layers(cfg, source.num_layers)
        key = key_of(identity | _some(layers, source.num_layers))
        is_per_word = corpus.task.is_per_word
        in_shard = WORDS_IN_SHARD if is_per_word else TEXTS_IN_SHARD
        shards = {
            name: cut_shards(name, split.lengths if is_per_word else [1] * len(split.words), in_shard)
            for name, split in corpus.splits.items()
        }
        size = source.num_layers, source.hidden_size
        directory = Path(cfg.cache_dir) / key
        held = source if isinstance(source, HoldsVectors) else None
        dtype = held.dtype if held else cfg.dtype
        return cls(corpus, source, cfg, directory, key, identity, *size, dtype, shards, layers, held)

    @property
    def vectors_key(self) -> str:
        """Returns the key of the store with all layers, which identifies the vectors."""
        return key_of(self.identity)

    def path(self, shard: Shard) -> Path:
        return self.directory / f"{shard.split}-{shard.number:05d}.safetensors"

    def hold(self) -> None:
        """Protects the store from pruning while this process lives."""
        if self.directory.is_dir() and self.directory not in _HELD:
            hold = FileLock(self.directory / IN_USE)
            if hold.held:
                _HELD[self.directory] = hold

    def missing(self) -> list[Shard]:
        if self.held:
            return []
        return [shard for shards in self.shards.values() for shard in shards if not self.path(shard).exists()]

    def bytes_of(self, shards: Sequence[Shard]) -> int:
        """Returns the bytes of all stored layers of some shards."""
        words = sum(shard.last - shard.first for shard in shards)
        return words * len(self.layers) * self.hidden_size * ITEM_BYTES[self.dtype]

    def prepare(self, shards: Sequence[Shard]) -> None:
        """Makes the store's folder and holds it. Raises UserError if these shards cannot be written there."""
        if reason := why_not_writable(self.directory, self.bytes_of(shards)):
            raise UserError(f"Features: {reason}. To use another folder: features.cache_dir=DIR.")
        self.directory.mkdir(parents=True, exist_ok=True)
        self.hold()

    def write(self, shard: Shard, layers: torch.Tensor) -> None:
        """Writes a shard completely or not at all; drops it if another process was first. layers: (stored, W, H)."""
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        header = {"key": self.key, "shard": list(shard), "checksums": [checksum(layer) for layer in layers]}
        try:
            with written_whole(self.path(shard), replace=False) as temporary:
                named = {str(k): layer for k, layer in zip(self.layers, layers, strict=True)}
                save_file(named, temporary, {"probe": canonical(header)})
        except (OSError, SafetensorError) as error:  # the latter for a full disk or a quota
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"{self.path(shard)} cannot be written: {reason}.") from None

    def read(self, split: str, layers: Sequence[int]) -> Iterator[tuple[Shard, list[torch.Tensor]]]:
        """Yields the requested layers shard by shard, in the requested order, each (W, H), memory-mapped and checked.

        Raises DamagedShard for a damaged shard, after removing it.
        """
        for shard in self.shards[split]:
            yield shard, self.read_shard(shard, layers)

    def read_shard(self, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        """Reads one shard's layers, like `read`."""
        from safetensors import SafetensorError

        assert set(layers) <= set(self.layers), "a layer that was never stored is not damage"
        if self.held:
            return self.held.rows(self.corpus, shard, layers)
        try:
            return self._load(shard, layers)
        except (OSError, SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
            path = self.path(shard)
            try:
                path.unlink(missing_ok=True)
            except OSError as why:
                raise UserError(f"{path} is damaged ({error}) and cannot be removed: {why.strerror}.") from None
            raise DamagedShard(path, error) from None

    def _load(self, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        """Loads one shard's layers. Raises ValueError, or the error of reading a broken file, if something is wrong."""
        from safetensors import safe_open

        with safe_open(self.path(shard), framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("probe", "null"))
            if not isinstance(header, dict) or header.get("key") != self.key or header.get("shard") != list(shard):
                raise ValueError("its header names another store or another place")
            tensors = [file.get_tensor(str(layer)) for layer in layers]
        expected = (shard.last - shard.first, self.hidden_size)
        for layer, tensor in zip(layers, tensors, strict=True):
            if tuple(tensor.shape) != expected or str(tensor.dtype) != f"torch.{self.dtype}":
                raise ValueError(
                    f"layer {layer} is {tuple(tensor.shape)} {tensor.dtype}, expected {expected} {self.dtype}"
                )
            if checksum(tensor) != header["checksums"][self.layers.index(layer)]:
                raise ValueError(f"layer {layer} does not match its checksum")
        return tensors

    def write_manifest(self, without_pieces: dict[str, int]) -> None:
        """Writes what the store holds, once every shard exists. without_pieces: words without a piece in each split."""
        manifest: dict[str, Any] = {
            "key": self.key,
            "identity": self.identity | _some(self.layers, self.num_layers),
            "about": {"encoder": self.source.name, "data": self.corpus.name},  # for readers
            "num_layers": self.num_layers,
            "hidden_size": self.hidden_size,
            "splits": {
                name: {
                    "words": shards[-1].last,
                    "shards": len(shards),
                    "words_without_pieces": without_pieces[name],
                }
                for name, shards in self.shards.items()
            },
        }
        manifest["sha256"] = key_of(manifest)
        write_json(self.directory / MANIFEST, manifest)

    def tidy(self) -> None:
        """Removes unneeded locks from a complete store, and what killed writers left half-written a day ago."""
        yesterday = time.time() - DAY_S
        for path in [*self.directory.iterdir(), *self.directory.parent.glob(".*.json.*")]:
            is_half_written = HALF_WRITTEN.match(path.name)
            with contextlib.suppress(OSError):  # another process tidies too, or the store belongs to another user
                if path.suffix == ".lock" or (is_half_written and path.stat().st_mtime <= yesterday):
                    path.unlink()


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """Reads a store's manifest; None if there is none, or if its hashes do not match its content or folder name."""
    try:
        manifest = json.loads(read_regular(directory / MANIFEST))
        recorded = manifest.pop("sha256")
        whole = recorded == key_of(manifest) and key_of(manifest["identity"]) == manifest["key"] == directory.name
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return manifest if whole else None


_HELD: dict[Path, FileLock] = {}  # the stores this process uses


def checksum(tensor: torch.Tensor) -> str:
    import torch

    return xxhash.xxh3_64_hexdigest(tensor.contiguous().view(torch.uint8).numpy().data)
