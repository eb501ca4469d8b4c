"""The Hub, from a stand-in on this machine: one commit for all, and a limit on silence."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from support.commands import TINY, interpreted, interpreter
from support.facts import names
from support.hub import Hub, forget, old_layout, parquet
from support.inputs import make_bert

from probe.config import UserError
from probe.system import hub
from probe.system.hub import Repo

BERT = Repo("model", "some/bert")
FILES: dict[str, bytes | str] = {"config.json": "{}", "model.safetensors": b"weights"}


@pytest.mark.parametrize("silent", ["^/$", "/api/"])
def test_a_silent_hub_is_left_after_the_limit(stand_in: Hub, silent: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT", 0.5)
    commit = stand_in.put("model", "some/bert", FILES)
    assert hub.commit_of(BERT) == commit
    hub.fetch(BERT, list(FILES))
    forget()
    stand_in.silent = silent
    assert hub.commit_of(BERT) == commit
    assert BERT in hub.from_cache
    assert (hub.fetch(BERT, list(FILES)) / "model.safetensors").read_bytes() == b"weights"
    with pytest.raises(UserError, match=r"encoder\.name=other/bert\b"):
        hub.commit_of(Repo("model", "other/bert"))
    assert not stand_in.given_up


def test_a_full_disk_is_named_as_what_it_is(stand_in: Hub, monkeypatch: pytest.MonkeyPatch):
    import huggingface_hub

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "blob")

    stand_in.put("model", "some/bert", FILES)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    with pytest.raises(OSError, match="No space left"):
        hub.fetch(BERT, ["model.safetensors"])


def test_a_name_that_was_passed_on_is_not_asked_for_again(stand_in: Hub):
    old = stand_in.put("model", "some/bert", FILES)
    hub.commit_of(BERT)
    known = dict(hub.commits)
    stand_in.put("model", "some/bert", {**FILES, "config.json": '{"new": 1}'})
    forget()
    hub.commits.update(known)
    stand_in.asked.clear()
    assert hub.commit_of(BERT) == old
    assert not stand_in.asked
    assert (hub.fetch(BERT, hub.files_of(BERT)) / "config.json").read_text() == "{}"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download_is_made_anew(stand_in: Hub, tmp_path: Path, how: signal.Signals):
    bert = make_bert_in(tmp_path)
    stand_in.put("model", "some/bert", bert)
    stand_in.silent = "/cdn/"
    env = stand_in.env(tmp_path / "home", HF_HUB_DOWNLOAD_TIMEOUT="600")
    command = ("extract", "data=demo", "encoder.name=some/bert")
    process = interpreter(*command, cwd=tmp_path, **env)
    try:
        deadline = time.monotonic() + 240
        while not any("/cdn/" in path for path in stand_in.asked):
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(how)
        _, told = process.communicate(timeout=50)
    finally:
        process.kill()
        process.communicate()  # or a failure here is told of the next test too
    if how == signal.SIGINT:
        assert process.returncode == 130
        names(told, "probe: stopped")
    assert not stand_in.given_up
    stand_in.silent = None
    done = interpreted(*command, cwd=tmp_path, **env)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_papers_table_comes_from_the_hub_with_both_commits(stand_in: Hub, tmp_path: Path):
    names = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
    bert = make_bert_in(tmp_path, num_layers=12)
    model = stand_in.put("model", "google-bert/bert-base-cased", old_layout(bert))
    data = {
        f"data/{split}-00000-of-00001.parquet": parquet(f"Ana met Smith in Paris {split}", [1, 0, 1, 0, 5, 0], names)
        for split in ("train", "validation", "test")
    }
    corpus = stand_in.put("dataset", "lhoestq/conll2003", data)
    arguments = [
        "+sweep=paper_table",
        "data=conll2003",
        "features.context=sentence",  # that data set marks no documents
        "seed=1",
        "jobs=2",
        "results_dir=out",
        *TINY,
        "probe.max_epochs=1",
    ]
    done = interpreted(*arguments, cwd=tmp_path, **stand_in.env(tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "out" / "records").glob("*.json")]
    assert len(records) == 8
    assert {(record["encoder"]["commit"], record["data"]["commit"]) for record in records} == {(model, corpus)}
    assert {record["config"]["data"]["revision"] for record in records} == {None}, "what was asked for stays"
    asked = [path for path in stand_in.asked if is_api(path)]
    assert len(asked) == 2, "the runs, in processes of their own, take the commits of the sweep"

    new = stand_in.put("dataset", "lhoestq/conll2003", {**data, "README.md": "# another"})
    assert new != corpus
    again = interpreted(
        "verify", "out", "--rerun", "last", "--seed", "1", cwd=tmp_path, **stand_in.env(tmp_path / "home")
    )
    assert again.returncode == 0, again.stdout
    assert "the same bits" in again.stdout
    assert not [path for path in stand_in.asked if is_api(path)][2:], "a commit that is here needs no Hub"


def is_api(path: str) -> bool:
    return path.startswith(("GET /api/models/", "GET /api/datasets/"))


def make_bert_in(folder: Path, num_layers: int = 5) -> Path:
    place = folder / "bert" / "files"
    place.mkdir(parents=True)
    return make_bert(place, num_layers, limit=24)
