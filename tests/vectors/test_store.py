"""The store: what is in its key, and that nothing broken, foreign or half-made is ever read as features."""

from __future__ import annotations

import copy
import errno
import fcntl
import json
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.commands import DEADLINE_S, Started, as_nobody, finish, flip_a_bit, wait_for
from support.facts import names
from support.inputs import encoder_config, ensure_features, features_config, random_store, stored

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder, open_encoder
from probe.system.locks import FileLock
from probe.vectors import extraction
from probe.vectors.store import DamagedShard, FeatureStore, read_again_if_damaged, read_manifest


@pytest.fixture
def store(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path) -> FeatureStore:
    return ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cache"), "cpu")


def read_all(store: FeatureStore) -> list[torch.Tensor]:
    layers = range(store.num_layers + 1)
    return [t.clone() for split in store.shards for _, tensors in store.read(split, layers) for t in tensors]


def key(encoder: Encoder, corpus: Corpus, **changes) -> str:
    return FeatureStore.of(corpus, encoder, features_config(Path("x"), **changes)).key


def test_whatever_changes_a_vector_changes_the_key(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tiny_bert: Path, tmp_path: Path
):
    other_text = copy.deepcopy(tiny_corpus)
    other_text.splits["dev"].words[0][0] = "other"
    other_bounds = copy.deepcopy(tiny_corpus)
    documents = other_bounds.splits["dev"].documents
    assert documents is not None
    documents[1] = documents[2]

    folder = shutil.copytree(tiny_bert, tmp_path / "edited")
    weights = load_file(folder / "model.safetensors")
    next(iter(weights.values())).view(-1)[0] += 1
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    edited = open_encoder(encoder_config(folder), tmp_path)

    keys = [
        key(tiny_encoder, tiny_corpus),
        key(tiny_encoder, other_text),
        key(edited, tiny_corpus),
        key(tiny_encoder, tiny_corpus, context="document"),
        key(tiny_encoder, other_bounds, context="document"),
        key(tiny_encoder, tiny_corpus, subword="mean"),
        key(tiny_encoder, tiny_corpus, stride=0.25),
        key(tiny_encoder, tiny_corpus, dtype="float32"),
        key(tiny_encoder, tiny_corpus, precision="bfloat16"),
    ]
    assert len(set(keys)) == len(keys)


def test_whatever_changes_no_vector_changes_no_key(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tiny_bert: Path, tmp_path: Path
):
    other_tags = copy.deepcopy(tiny_corpus)
    other_tags.splits["dev"].tags[0][0] = "B-OTHER"
    other_bounds = copy.deepcopy(tiny_corpus)
    other_bounds.splits["dev"].documents = None
    folder = shutil.copytree(tiny_bert, tmp_path / "moved")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "_name_or_path": "elsewhere", "transformers_version": "9"})
    )
    moved = open_encoder(encoder_config(folder), tmp_path)
    assert (
        key(tiny_encoder, tiny_corpus)
        == key(tiny_encoder, other_tags)
        == key(tiny_encoder, other_bounds)
        == key(moved, tiny_corpus)
        == key(tiny_encoder, tiny_corpus, batch_pieces=7)
    )


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble_the_header(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:20] + b"\xff" * 8 + content[28:])


def take_another_split(path: Path) -> None:
    path.write_bytes(path.with_name("test-00000.safetensors").read_bytes())


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, empty, garble_the_header, take_another_split])
def test_a_damaged_shard_is_named_removed_and_made_again(
    store: FeatureStore, tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, damage
):
    good = read_all(store)
    path = store.path(store.shards["train"][0])
    content = path.read_bytes()
    damage(path)
    with pytest.raises(DamagedShard, match=r"train-00000\.safetensors"):
        read_all(store)
    assert not path.exists()
    again = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cache"), "cpu")
    assert path.read_bytes() == content
    assert all(torch.equal(a, b) for a, b in zip(good, read_all(again), strict=True))


def test_any_number_of_damaged_shards_is_mended_and_none_twice(tmp_path: Path):
    store = random_store(tmp_path / "store", {"train": 500})
    whole, copies = stored(store, "train"), {path: path.read_bytes() for path in store.directory.iterdir()}
    for path in copies:
        flip_a_bit(path)
    told: list[str] = []

    def read() -> torch.Tensor:
        for path, content in copies.items():
            if not path.exists():
                path.write_bytes(content)
        return stored(store, "train")

    assert torch.equal(read_again_if_damaged(read, told.append), whole)
    assert len(told) == len(copies) == 10
    for path in copies:
        copies[path] = path.read_bytes()[:-1]
    store.path(store.shards["train"][3]).unlink()
    with pytest.raises(UserError, match=r"train-00003\.safetensors"):
        read_again_if_damaged(read, told.append)


def test_only_layers_that_are_read_are_checked(store: FeatureStore):
    path = store.path(store.shards["train"][0])
    flip_a_bit(path)  # at the file's end: the last layer
    assert len(list(store.read("train", [0, 2]))) == 1
    with pytest.raises(DamagedShard, match="layer 5"):
        list(store.read("train", [5]))


def test_a_missing_shard_is_extracted_and_no_other(
    store: FeatureStore,
    tiny_encoder: Encoder,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    store.path(store.shards["dev"][0]).unlink()
    made: list[str] = []
    compute = extraction.compute_shard

    def counted(*arguments):
        made.append(arguments[0].split)
        return compute(*arguments)

    monkeypatch.setattr(extraction, "compute_shard", counted)
    ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cache"), "cpu")
    assert made == ["dev"]


def test_an_edited_manifest_is_written_again(
    store: FeatureStore, tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path
):
    path = store.directory / "manifest.json"
    content = path.read_text()
    path.write_text(content.replace('"words": ', '"words": 9'))
    assert read_manifest(store.directory) is None
    ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cache"), "cpu")
    assert path.read_text() == content


def test_too_little_disk_is_said_before_anything_is_computed(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("probe.system.files.shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(UserError, match=r"\d GB .*\d GB .*features\.cache_dir=DIR"):
        ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cache"), "cpu")


def test_a_disk_that_fills_up_leaves_nothing_under_a_final_name(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path
):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails as it does at a quota
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(UserError, match=r"-00000\.safetensors.*File too large"):
            ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cache"), "cpu")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, kept)
    left = [path.name for path in tmp_path.rglob("*.safetensors*") if not path.name.endswith(".lock")]
    assert left == []
    assert not list(tmp_path.rglob("manifest.json"))


EXTRACT = """
import sys
from pathlib import Path
cache, bert, no_locks, together = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
import os
import probe.vectors.store
probe.vectors.store.WORDS_IN_SHARD = 20
from support.commands import DEADLINE_S, wait_for
from support.inputs import encoder_config, features_config, make_split
from probe.vectors import extraction
from probe.data.corpus import Corpus
from probe.encoders.encoder import open_encoder
if no_locks:
    import fcntl
    def flock(*_):
        raise OSError(no_locks, "no locks here")
    fcntl.flock = flock
from probe.vectors.sources import complete_store
from probe.vectors.store import FeatureStore
extraction.num_cores = lambda: 1
compute, made = extraction.compute_shard, []
extraction.compute_shard = lambda *a: (made.append(a[0]), compute(*a))[1]
encoder = open_encoder(encoder_config(bert), cache)
corpus = Corpus("tiny", {"train": make_split(400, 1), "dev": make_split(20, 2), "test": make_split(20, 3)})
(cache / f"{os.getpid()}.here").touch()
wait_for(lambda: len(list(cache.glob("*.here"))) >= together, DEADLINE_S, f"{together} processes")
store = complete_store(FeatureStore.of(corpus, encoder, features_config(cache)), "cpu")
print(len(made), sum(map(len, store.shards.values())))
"""


def extracting(tiny_bert: Path, cache: Path, no_locks: int = 0, together: int = 1) -> Started:
    """A process that fills the store in many small shards, once so many processes are ready to."""
    cache.mkdir(exist_ok=True)
    return Started([*map(str, (cache, tiny_bert, no_locks, together))], cache, {}, EXTRACT)


def shard_bytes(cache: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in cache.glob("*/*.safetensors")}


@pytest.mark.slow
@pytest.mark.parametrize("no_locks", [0, errno.ENOSYS, errno.ENOLCK])
def test_eight_processes_share_the_work_and_agree(tiny_bert: Path, tmp_path: Path, no_locks: int):
    finish(extracting(tiny_bert, tmp_path / "alone"))
    processes = [extracting(tiny_bert, tmp_path / "shared", no_locks, together=8) for _ in range(8)]
    results = [finish(process, 2 * DEADLINE_S) for process in processes]  # none begins before the last is there
    assert [process.returncode for process in processes] == [0] * 8, results
    made = [int(out.split()[0]) for out, _ in results]
    total = int(results[0][0].split()[1])
    assert sum(made) == total or (no_locks and sum(made) >= total)
    assert max(made) < total, "one that does it all shares nothing"
    assert shard_bytes(tmp_path / "shared") == shard_bytes(tmp_path / "alone")
    assert not list((tmp_path / "shared").glob("*/.*.safetensors.*.?*-*"))


@pytest.mark.slow
def test_after_any_kill_the_command_gives_the_same_bytes(tiny_bert: Path, tmp_path: Path):
    finish(extracting(tiny_bert, tmp_path / "alone"))
    expected = shard_bytes(tmp_path / "alone")
    choose = random.Random(0)
    present: dict[str, bytes] = {}
    killed_at = []
    for more in (0, 1, 2, 1, 3, 1, 2, 1):  # shards to be made before it is killed
        process = extracting(tiny_bert, tmp_path / "killed")
        enough = len(present) + more
        wait_for(lambda: len(shard_bytes(tmp_path / "killed")) >= enough, DEADLINE_S, f"{enough} shards", process)  # noqa: B023
        time.sleep(choose.uniform(0, 0.01))  # anywhere within a shard
        process.kill()
        finish(process)
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        now = shard_bytes(tmp_path / "killed")
        assert present.items() <= now.items(), "work that was done is never lost"
        present = now
        killed_at.append(len(now))
    assert sum(0 < count < len(expected) for count in killed_at) > 4, "killed too late, the test shows nothing"
    last = extracting(tiny_bert, tmp_path / "killed")
    finish(last)
    assert last.returncode == 0
    assert shard_bytes(tmp_path / "killed") == expected


def outcome(corpus: Corpus, encoder: Encoder, cache: Path) -> Callable[[], str]:
    def extract() -> str:
        try:
            store = ensure_features(corpus, encoder, features_config(cache), "cpu")
            return f"{sum(t.numel() for t in read_all(store))} values"
        except UserError as error:
            return str(error)

    return extract


def test_a_folder_that_cannot_be_written_is_named(tiny_encoder: Encoder, tiny_corpus: Corpus, open_to_all: Path):
    cache = open_to_all / "closed"
    cache.mkdir(mode=0o555)
    told = as_nobody(outcome(tiny_corpus, tiny_encoder, cache))
    names(told, cache, "features.cache_dir=DIR")


def test_a_read_only_store_can_be_read(tiny_encoder: Encoder, tiny_corpus: Corpus, open_to_all: Path):
    cache = open_to_all / "cache"
    store = ensure_features(tiny_corpus, tiny_encoder, features_config(cache), "cpu")
    expected = f"{sum(t.numel() for t in read_all(store))} values"
    for path in [*store.directory.iterdir(), store.directory, cache]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert as_nobody(outcome(tiny_corpus, tiny_encoder, cache)) == expected


def test_who_may_only_read_a_store_holds_it_too(open_to_all: Path):
    lock = open_to_all / ".in-use"
    lock.touch()
    lock.chmod(0o444)

    def outcome() -> str:
        shared = FileLock(lock)
        return f"{shared.held} {FileLock(lock, exclusive=True).busy}"

    assert as_nobody(outcome) == "True True"


def test_a_held_lock_is_busy_unless_locks_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lock = tmp_path / "lock"
    with FileLock(lock, exclusive=True) as first:
        second = FileLock(lock, exclusive=True)
        assert (first.held, first.busy, second.held, second.busy) == (True, False, False, True)
    with FileLock(lock, exclusive=True) as third:
        assert third.held

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    without = FileLock(lock, exclusive=True)
    assert (without.held, without.busy) == (False, False)


def test_two_processes_may_tidy_at_once(tiny_corpus: Corpus, tiny_encoder: Encoder, tmp_path: Path, monkeypatch):
    store = FeatureStore.of(tiny_corpus, tiny_encoder, features_config(tmp_path))
    store.directory.mkdir(parents=True)
    lock = store.directory / ".train-00000.safetensors.lock"
    lock.touch()
    found = Path.iterdir
    lost = []

    def list_and_lose(self: Path):
        paths = list(found(self))
        lock.unlink()  # the other one was here in between
        lost.extend(paths)
        return paths

    monkeypatch.setattr(Path, "iterdir", list_and_lose)
    store.tidy()
    assert lost == [lock], "it looked before the other one came"
