"""Lists, explains, verifies and prunes feature stores. Listing reads only files."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import FeaturesConfig, UserError
from probe.data.corpus import Corpus
from probe.encoders.checkpoint import Encoder
from probe.features.indices import stored_layers
from probe.features.store import IN_USE, LEFT_FOR_S, FeatureStore, leftovers, read_manifest, with_layers
from probe.system.files import canonical, short
from probe.system.locks import FileLock, is_locked

PRUNED = ".pruned-"  # begins the name of a store that is being deleted
# Largest distance that rounding explains between one vector computed in two different batches, relative to its norm.
ARITHMETIC_NOISE = {"float32": 1e-4, "bfloat16": 5e-2}


@dataclass
class Entry:
    """Describes one store on disk, complete or not."""

    directory: Path
    manifest: dict[str, Any] | None  # None: extraction has not finished, or the manifest was changed
    num_bytes: int
    used: float  # seconds since the epoch
    leftovers: list[int]  # bytes of each file that nothing reads; they are part of num_bytes

    @property
    def key(self) -> str:
        return self.directory.name

    def line(self) -> str:
        age = (time.time() - self.used) / 86400
        size = f"{short(self.key)}  {_gb(self.num_bytes):>10}  used {age:5.1f} days ago  "
        if self.leftovers:
            size += f"{len(self.leftovers)} damaged or half-written files of {_gb(sum(self.leftovers))}  "
        if self.manifest is None:
            return size + "not complete"
        identity, about = self.manifest["identity"], self.manifest["about"]
        words = sum(split["words"] for split in self.manifest["splits"].values())
        some = identity.get("layers")
        layers = f"layers {canonical(some)}" if some else f"{self.manifest['num_layers'] + 1} layers"
        return size + (
            f"{about['data']} ({words} words), {about['encoder']}, {layers} of "
            f"{self.manifest['hidden_size']}, {identity['context']} context, {identity['subword']} piece, "
            f"{identity['dtype']}"
        )


def entries(cache_dir: Path) -> list[Entry]:
    """Returns every store under a folder, the last used first."""
    found = []
    for directory in sorted(cache_dir.iterdir()) if cache_dir.is_dir() else []:
        if not directory.is_dir() or len(directory.name) != 64:
            continue
        files = [file.stat() for file in directory.iterdir() if file.is_file()]
        used = max((status.st_mtime for status in files), default=directory.stat().st_mtime)
        unread = [num_bytes for _, num_bytes in leftovers(directory)]
        found.append(Entry(directory, read_manifest(directory), sum(status.st_size for status in files), used, unread))
    return sorted(found, key=lambda entry: -entry.used)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.3f} GB"


def explain(needed: FeatureStore) -> Iterator[str]:
    """Says for each store on disk whether a config can use it, and if not, which fields differ."""
    yield f"This config needs key {short(needed.key)} in {needed.directory.parent}:"
    ours = _flat(with_layers(needed.identity, needed.layers, needed.num_layers))
    for field, value in ours.items():
        yield f"  {field} = {_short(value)}"
    serving = needed.serving()
    stored = entries(needed.directory.parent)
    if not stored:
        yield "The store is empty."
    for entry in stored:
        if entry.key == serving.key:
            missing = len(serving.missing())
            state = "complete" if entry.manifest and not missing else f"{missing} shards missing"
            more = "" if serving.key == needed.key else f", with more layers ({serving.layers_as_text()})"
            yield f"{short(entry.key)} serves this config: {state}{more}."
        elif entry.manifest is None:
            yield f"{short(entry.key)} does not: its key differs, and it has no valid manifest that says why."
        else:
            theirs = _flat(entry.manifest["identity"])
            fields = [field for field in ours | theirs if ours.get(field) != theirs.get(field)]
            pairs = ((f, _short(theirs.get(f, "all")), _short(ours.get(f, "all"))) for f in fields)
            differences = "; ".join(f"{field} is {there}, here {here}" for field, there, here in pairs)
            yield f"{short(entry.key)} does not: {differences}."


def _flat(identity: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in identity.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _short(value: Any) -> str:
    return short(value) if isinstance(value, str) and len(value) == 64 else canonical(value).strip('"')


def verify_checksums(store: FeatureStore) -> Iterator[tuple[str, str]]:
    """Yields (file, problem) for each missing or damaged shard of a store; moves nothing."""
    for shards in store.shards.values():
        for shard in shards:
            problem = store.problem(shard)
            if problem:
                yield store.path(shard).name, problem


def verify_sample(
    store: FeatureStore, corpus: Corpus, encoder: Encoder, cfg: FeaturesConfig, num_sentences: int
) -> tuple[int, float, float]:
    """Recomputes a random sample of sentences, each window in its own batch, and compares.

    Returns the number of words, the largest distance between a stored vector and the recomputed one, relative to the
    latter's norm, and the largest distance that rounding explains.
    """
    import numpy as np
    import torch

    from probe.encoders.encoder import load_model
    from probe.features.windows import bounds
    from probe.features.words import Text, states_of

    model = load_model(encoder, "cpu", cfg.precision)
    choose = np.random.default_rng(0)
    sentences = [(name, i) for name, split in corpus.splits.items() for i in range(len(split.words))]
    chosen = choose.choice(len(sentences), min(num_sentences, len(sentences)), replace=False)
    num_words, worst = 0, 0.0
    for name, split in corpus.splits.items():
        text = Text(corpus, name, encoder, cfg)
        offsets = bounds(split.lengths)
        of_split = sorted(i for n, i in (sentences[c] for c in chosen) if n == name)
        for shard, layers in store.read(name, stored_layers(cfg, encoder.num_layers)):
            stacked = torch.stack(layers).float()
            for i in of_split:
                first, last = max(int(offsets[i]), shard.first), min(int(offsets[i + 1]), shard.last)
                if first >= last:
                    continue
                for window in text.windows_of(shard._replace(first=first, last=last)):
                    states, rows = states_of([window], text.pieces, model, encoder, cfg, "cpu")
                    norms = states.float().norm(dim=-1).clamp(min=1e-12)
                    distances = (stacked[:, rows - shard.first] - states.float()).norm(dim=-1) / norms
                    worst = max(worst, float(distances.nan_to_num(nan=torch.inf).max()))
                num_words += last - first
    return num_words, worst, max(torch.finfo(getattr(torch, store.dtype)).eps, ARITHMETIC_NOISE[cfg.precision])


def prunable(
    cache_dir: Path, older_than_days: float | None, keep: int | None, keys: Collection[str] = ()
) -> list[Entry]:
    """Returns the stores to prune: those not used for this many days, or not among the `keep` last used.

    keys: only the stores whose keys begin so. Raises UserError if one of them is no store's, or that of several.
    """
    found = entries(cache_dir)
    for key in keys:
        if (number := sum(entry.key.startswith(key) for entry in found)) != 1:
            raise UserError(f"--key {key}: {number or 'no'} stores begin with it. `probe cache list` shows the keys.")
    found = [entry for entry in found if not keys or entry.key.startswith(tuple(keys))]
    if older_than_days is not None:
        limit = time.time() - older_than_days * 86400
        found = [entry for entry in found if entry.used < limit]
    return found[keep:] if keep is not None else found


def is_used(entry: Entry) -> bool:
    """Returns whether a running job uses the store."""
    return is_locked(entry.directory / IN_USE, by_readers=True)


def remove_leftovers(entry: Entry, yes: bool) -> tuple[int, int]:
    """Deletes leftovers older than a day; without `yes`, only counts them. Returns their number and bytes."""
    found = list(leftovers(entry.directory, LEFT_FOR_S))
    for path, _ in found if yes else ():
        path.unlink(missing_ok=True)
    return len(found), sum(num_bytes for _, num_bytes in found)


def remove(entry: Entry) -> None:
    """Deletes a store, and the rest of an interrupted prune. Raises UserError if a running job uses it."""
    with FileLock(entry.directory / IN_USE, exclusive=True) as hold:
        if not hold.held:
            why = "is in use by a running job" if hold.busy else "cannot be locked (no permission, or no locks here)"
            raise UserError(f"{short(entry.key)} {why}; it stays.")
        doomed = entry.directory.with_name(f"{PRUNED}{entry.key}-{uuid.uuid4().hex[:8]}")
        entry.directory.rename(doomed)  # so that no process finds it half deleted
    shutil.rmtree(doomed)
    for interrupted in doomed.parent.glob(f"{PRUNED}*"):
        shutil.rmtree(interrupted, ignore_errors=True)
