"""Looking after the store: what serves a config and why not, what is whole, and what may go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import flip_a_bit, probe
from support.facts import names
from support.inputs import ensure_features, features_config

from probe.cli import dispatch
from probe.commands.cache import entries, prunable, remove
from probe.config import UserError
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder
from probe.system.files import short
from probe.system.locks import FileLock
from probe.vectors.store import _HELD, IN_USE, FeatureStore


@pytest.mark.slow
def test_list_and_prune_as_a_user_types_them(inputs: list[str], tmp_path: Path):
    assert "0 stores" in probe("cache", "list", cwd=tmp_path).stdout
    assert probe("extract", *inputs, cwd=tmp_path).returncode == 0
    assert probe("extract", "features.dtype=float32", "features.subword=mean", *inputs, cwd=tmp_path).returncode == 0
    names(probe("cache", "list", cwd=tmp_path).stdout, "2 stores", "tiny (595 words)")

    key = short(entries(tmp_path / "cache")[1].key)
    names(probe("cache", "prune", "--key", key, cwd=tmp_path).stdout, key, "1 store", "--yes")
    assert len(entries(tmp_path / "cache")) == 2
    real = probe("cache", "prune", "--key", key, "--yes", cwd=tmp_path)
    assert real.returncode == 0
    assert len(entries(tmp_path / "cache")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "invalid choice"),
        ([], "required"),
        (["prune"], "needs a rule"),
        (["prune", "--key", "0123456789"], "--key 0123456789: "),
        (["prune", "--older-than", "-1"], "--older-than: "),
    ],
)
def test_misuse_is_one_line(arguments: list[str], message: str, typed):
    done = typed("cache", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_what_a_running_job_holds_is_not_deleted(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    store = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")
    _HELD.pop(store.directory).__exit__()  # this process is done with it
    code = (
        "import sys; from pathlib import Path; from probe.system.locks import FileLock\n"
        "hold = FileLock(Path(sys.argv[1]) / '.in-use'); print(hold.held, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(store.directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "True\n"
        (entry,) = entries(tmp_path)
        with pytest.raises(UserError, match=rf"^{short(entry.key)} .*\bin use\b"):
            remove(entry)
        assert not store.missing()
        job.kill()
        job.wait()
        remove(entry)  # a killed job holds nothing
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_what_a_killed_prune_left_goes_with_the_next_also_where_no_store_is_left(tmp_path: Path, typed):
    (tmp_path / "cache/.pruned-a").mkdir(parents=True)
    for yes in ([], ["--yes"]):
        assert (tmp_path / "cache/.pruned-a").exists()
        assert typed("cache", "prune", "--older-than", "0", *yes, "features.cache_dir=cache").returncode == 0
    assert not list((tmp_path / "cache").iterdir())


def test_age_and_key_choose_what_goes(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    old = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")
    new = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path, subword="last"), "cpu")
    ten_days_ago = time.time() - 10 * 86400
    for file in old.directory.iterdir():
        os.utime(file, (ten_days_ago, ten_days_ago))
    assert [entry.key for entry in prunable(tmp_path, 9, [])] == [old.key]
    assert prunable(tmp_path, 11, []) == []
    assert {entry.key for entry in prunable(tmp_path, 0, [])} == {old.key, new.key}
    assert [entry.key for entry in prunable(tmp_path, None, [short(new.key)])] == [new.key]
    assert prunable(tmp_path, 9, [short(new.key)]) == []
    with pytest.raises(UserError, match="2 stores"):
        prunable(tmp_path, None, [""])


def test_what_is_no_store_of_the_folder_is_neither_listed_nor_pruned(tmp_path: Path, typed):
    cache, elsewhere = tmp_path / "cache", tmp_path / "elsewhere" / ("b" * 64)
    for folder in (cache / ("a" * 64), elsewhere, cache / ("c" * 64) / "sub", cache / ("z" * 64), cache / ("d" * 64)):
        folder.mkdir(parents=True)
    (cache / ("a" * 64) / "thesis.tex").touch()
    (elsewhere / "train-00000.safetensors").touch()
    (cache / ("b" * 64)).symlink_to(elsewhere)
    (cache / ("d" * 64) / "train-00000.safetensors").touch()
    done = typed("cache", "prune", "--older-than", "0", "--yes", f"features.cache_dir={cache}")
    assert done.returncode == 0
    names(done.stdout, "1 store", f"deleted {'d' * 10}")
    assert {path.name[0] for path in cache.iterdir()} == {"a", "b", "c", "z"}
    assert (elsewhere / "train-00000.safetensors").exists()


def test_a_path_in_a_manifest_is_never_followed(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    store = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "cache"), "cpu")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "train-00000.safetensors").write_bytes(b"not yours")
    manifest = json.loads((store.directory / "manifest.json").read_text())
    manifest["key"] = "../../outside"
    (store.directory / "manifest.json").write_text(json.dumps(manifest))
    (entry,) = entries(tmp_path / "cache")
    assert entry.manifest is None
    assert entry.directory == store.directory
    assert list(store.read("train", [0]))
    assert (outside / "train-00000.safetensors").read_bytes() == b"not yours"


YESTERDAY_S = 90_000  # seconds ago


def leave(store: FeatureStore, *names: str, age_s: float = YESTERDAY_S) -> None:
    """Files that writers left so long ago."""
    for name in names:
        (store.directory / name).write_bytes(b"x" * 1000)
        os.utime(store.directory / name, (time.time() - age_s,) * 2)


OURS, LIBRARYS = ".train-00000.safetensors.host.1.abc", ".tmpAbCdEf"


def test_who_takes_a_complete_store_removes_old_leftovers_and_nothing_else(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path
):
    store = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")
    whole = {path.name for path in store.directory.iterdir()}
    leave(store, OURS, LIBRARYS)
    leave(store, f"{OURS}2", f"{LIBRARYS}2", age_s=0)
    ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")
    assert {path.name for path in store.directory.iterdir()} == {*whole, f"{OURS}2", f"{LIBRARYS}2"}


def test_pruning_leaves_out_what_is_in_use(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    used = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")
    free = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path, subword="last"), "cpu")
    for store in (used, free):
        _HELD.pop(store.directory).__exit__()
    with FileLock(used.directory / IN_USE):
        assert dispatch(["cache", "prune", "--older-than", "0", f"features.cache_dir={tmp_path}", "--yes"]) == 0
    out = capsys.readouterr().out
    names(out, short(used.key), f"deleted {short(free.key)}", "1 store")
    assert [entry.key for entry in entries(tmp_path)] == [used.key]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_says_that_it_repairs_a_damaged_shard(inputs: list[str], tmp_path: Path, jobs: int):
    assert probe("extract", *inputs, cwd=tmp_path).returncode == 0
    (shard,) = (tmp_path / "cache").glob("*/dev-00000.safetensors")
    flip_a_bit(shard)
    sweep = ["-m", "layers=last", "seed=1,2", "results_dir=out", f"jobs={jobs}", *inputs, "probe.max_epochs=1"]
    done = probe(*sweep, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "Extracting it again" in line]
    assert 1 <= len(lines) <= jobs, "runs side by side may both have met it"
    for line in lines:
        names(line, "dev-00000.safetensors")
        assert line.startswith("last seed ")
    assert any("layer 5" in line for line in lines), "the other run may come when the shard is already removed"
