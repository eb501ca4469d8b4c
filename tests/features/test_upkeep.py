"""Looking after the store: what serves a config and why not, what is whole, and what may go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import flip_a_bit, probe
from support.inputs import features_config

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.features.checkpoint import Encoder
from probe.features.extraction import ensure_features
from probe.features.upkeep import entries, prunable, remove


@pytest.mark.slow
def test_list_explain_verify_and_prune_as_a_user_types_them(inputs: list[str], tmp_path: Path):
    assert "0 stores" in probe("cache", "list", cwd=tmp_path).stdout
    assert probe("extract", *inputs, cwd=tmp_path).returncode == 0
    assert probe("extract", "features.dtype=float32", "features.subword=mean", *inputs, cwd=tmp_path).returncode == 0
    listed = probe("cache", "list", cwd=tmp_path).stdout
    assert "2 stores" in listed
    assert "tiny (595 words)" in listed
    told = probe("cache", "explain", "features.dtype=float32", "features.subword=mean", *inputs, cwd=tmp_path).stdout
    assert "serves this config: complete" in told
    assert "does not: subword is first, here mean; dtype is float16, here float32." in told

    whole = probe("cache", "verify", "--sample", "20", *inputs, cwd=tmp_path)
    assert whole.returncode == 0, whole.stdout + whole.stderr
    assert "every shard is whole" in whole.stdout
    assert "computed again" in whole.stdout
    shard = next(p for p in (tmp_path / "cache").glob("*/dev-00000.safetensors") if p.stat().st_size < 40_000)
    flip_a_bit(shard)
    broken = [
        probe("cache", "verify", *o, *inputs, cwd=tmp_path)
        for o in ([], ["features.dtype=float32", "features.subword=mean"])
    ]
    assert sorted(done.returncode for done in broken) == [0, 1]
    assert "dev-00000.safetensors: layer 5 does not match its checksum" in "".join(done.stdout for done in broken)

    dry = probe("cache", "prune", "--keep", "1", cwd=tmp_path)
    assert "would delete" in dry.stdout
    assert len(entries(tmp_path / "cache")) == 2
    real = probe("cache", "prune", "--keep", "1", "--yes", cwd=tmp_path)
    assert real.returncode == 0
    assert len(entries(tmp_path / "cache")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "invalid choice"),
        ([], "required"),
        (["prune"], "needs a rule"),
        (["prune", "--keep", "x"], "--keep: invalid number, 0 or more"),
        (["prune", "--older-than", "-1"], "--older-than: "),
        (["verify", "--sample", "-1"], "--sample: "),
    ],
)
def test_misuse_is_one_line(arguments: list[str], message: str, typed):
    done = typed("cache", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_sample_of_other_vectors_is_found_out(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    """Checksums cannot see features that were wrong from the start; computing again can."""
    from probe.features import extraction
    from probe.features.upkeep import verify_sample

    cfg = features_config(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        honest = extraction.states_of
        patch.setattr(extraction, "states_of", lambda *a: (honest(*a)[0].roll(1, 1), honest(*a)[1]))
        store = ensure_features(tiny_corpus, tiny_encoder, cfg, "cpu")
    _, worst, allowed = verify_sample(store, tiny_corpus, tiny_encoder, cfg, 10)
    assert worst > 100 * allowed


def test_what_a_running_job_holds_is_not_deleted(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    store = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")
    from probe.features.store import _HELD

    _HELD.pop(store.directory).__exit__()  # this process is done with it
    code = (
        "import sys; from pathlib import Path; from probe.system.locks import Hold\n"
        "hold = Hold(Path(sys.argv[1]) / '.in-use'); print(hold.held, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(store.directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "True\n"
        (entry,) = entries(tmp_path)
        with pytest.raises(UserError, match="in use by a running job"):
            remove(entry)
        assert not store.missing()
        job.kill()
        job.wait()
        (tmp_path / f".pruned-{entry.key}").mkdir()  # left by a prune that was interrupted
        remove(entry)  # a killed job holds nothing
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_age_and_number_choose_what_goes(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    old = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")
    new = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path, subword="last"), "cpu")
    ten_days_ago = time.time() - 10 * 86400
    for file in old.directory.iterdir():
        os.utime(file, (ten_days_ago, ten_days_ago))
    assert [entry.key for entry in prunable(tmp_path, 9, None)] == [old.key]
    assert [entry.key for entry in prunable(tmp_path, 11, None)] == []
    assert [entry.key for entry in prunable(tmp_path, None, 1)] == [old.key]
    assert {entry.key for entry in prunable(tmp_path, None, 0)} == {old.key, new.key}


def test_a_path_in_a_manifest_is_never_followed(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    import json

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
