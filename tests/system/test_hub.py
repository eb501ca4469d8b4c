"""The Hub's bad days, from a stand-in on this machine: silence has a limit, Ctrl-C ends a download; and its good."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path

import pytest
from support.commands import TINY, interpreted, interpreter
from support.facts import names
from support.hub import Hub, forget, old_layout, parquet, sha
from support.inputs import make_bert

from probe.config import UserError
from probe.system import hub
from probe.system.hub import Repo

BERT = Repo("model", "some/bert")
FILES: dict[str, bytes | str] = {"config.json": "{}", "model.safetensors": b"weights"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hub.LIMIT, "0.5")


@pytest.mark.parametrize("silent", ["^/$", "/api/"])
def test_a_silent_hub_is_left_after_the_limit(stand_in: Hub, impatient: None, silent: str):
    commit = stand_in.put("model", "some/bert", FILES)
    assert hub.commit_of(BERT) == commit
    hub.fetch(BERT, list(FILES))
    forget()
    stand_in.silent = silent
    assert hub.commit_of(BERT) == commit
    assert hub.is_from_cache(BERT)
    assert (hub.fetch(BERT, list(FILES)) / "model.safetensors").read_bytes() == b"weights"
    with pytest.raises(UserError, match=r"encoder\.name=other/bert\b"):
        hub.commit_of(Repo("model", "other/bert"))
    assert not stand_in.given_up


@pytest.mark.parametrize("silent", ["/resolve/", "/cdn/"])
def test_files_that_do_not_come_end_in_an_error_too(
    stand_in: Hub, impatient: None, monkeypatch: pytest.MonkeyPatch, silent: str
):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    stand_in.put("model", "some/bert", FILES)
    stand_in.silent = silent
    told = rf"model\.safetensors.*\(\w*Time\w*\).*{hub.LIMIT}=60"
    with pytest.raises(UserError, match=told):
        hub.fetch(BERT, ["model.safetensors"])
    assert not stand_in.given_up


@pytest.mark.parametrize("how", ["no word", "no body", "half a body", "half a large body"])
def test_a_silent_file_ends_the_wait_after_the_limit(stand_in: Hub, impatient: None, how: str):
    file = "weights.safetensors" if "large" in how else "tokenizer_config.json"
    content = bytes(range(256)) * 400
    stand_in.put("model", "some/bert", {**FILES, file: content})
    if how == "no word":
        stand_in.silent = file
    else:
        stand_in.stalled[sha(content)] = len(content) // 2 if "half" in how else 0
    begun = time.monotonic()
    with pytest.raises(UserError, match=rf"{file}.*\(\w*Time\w*\)") as error:
        hub.fetch(BERT, ["config.json", file, "model.safetensors"])
    assert time.monotonic() - begun < 15, "the limit is half a second, a loaded machine is slow"
    assert "\n" not in str(error.value)
    assert [path.name for path in hub.folder_of(BERT).iterdir()] == ["config.json"]


def test_a_slow_file_is_waited_for_in_every_process(stand_in: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(hub.LIMIT, "2")
    content = bytes(range(256)) * 700
    stand_in.put("model", "some/bert", {"model.safetensors": content})
    stand_in.pause_s = 0.5  # for each of 11 parts
    hub.commit_of(BERT)
    others: list[Path] = []
    other = threading.Thread(target=lambda: others.append(hub.fetch(BERT, ["model.safetensors"])))
    other.start()
    folder = hub.fetch(BERT, ["model.safetensors"])
    other.join(60)
    assert others == [folder]
    assert (folder / "model.safetensors").read_bytes() == content
    assert stand_in.files_asked() == ["model.safetensors"], "it came once"


PAGE = b"<html>Log in to this network</html>"


@pytest.mark.parametrize(
    "answer", [(200, PAGE), (200, b"[]"), (200, b"{}"), (200, b'{"id": "some/bert"}'), (404, PAGE)]
)
def test_an_answer_that_is_no_hubs_is_named(stand_in: Hub, answer: tuple[int, bytes]):
    commit = stand_in.put("model", "some/bert", FILES)
    hub.fetch(BERT, ["config.json"])
    forget()
    stand_in.instead = ("", *answer)
    assert hub.commit_of(BERT) == commit
    assert hub.is_from_cache(BERT)
    assert hub.fetch(BERT, ["config.json"]) == hub.folder_of(BERT)
    told = rf"^HF_ENDPOINT={stand_in.endpoint} .*encoder\.name={{}} "
    with pytest.raises(UserError, match=told.format("some/bert")):
        hub.fetch(BERT, ["model.safetensors"])
    with pytest.raises(UserError, match=told.format("other/bert")) as error:
        hub.commit_of(Repo("model", "other/bert"))
    assert "its address: HF_ENDPOINT" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_refusal_without_a_reason_has_its_number(stand_in: Hub):
    stand_in.put("model", "some/bert", FILES)
    stand_in.instead = ("/resolve/", 403, b"")
    with pytest.raises(UserError, match=r"\b403\b.*hf auth login") as error:
        hub.fetch(BERT, ["config.json"])
    assert "None" not in str(error.value)


def test_a_file_missing_on_the_hub_says_what_to_type(stand_in: Hub):
    stand_in.put("model", "some/bert", FILES)
    with pytest.raises(UserError, match=r"model-2\.safetensors\b.*encoder\.revision=NAME"):
        hub.fetch(BERT, ["config.json", "model-2.safetensors"])


def test_a_slow_hub_is_waited_for_as_set(stand_in: Hub, monkeypatch: pytest.MonkeyPatch):
    commit = stand_in.put("model", "some/bert", FILES)
    stand_in.delay_s = 1.0
    monkeypatch.setenv(hub.LIMIT, "0.2")
    with pytest.raises(UserError, match="cannot be reached"):
        hub.commit_of(BERT)
    forget()
    monkeypatch.setenv(hub.LIMIT, "30")
    assert hub.commit_of(BERT) == commit


@pytest.mark.parametrize("stated", ["soon", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_no_number_of_seconds_is_refused(stated: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(hub.LIMIT, stated)
    with pytest.raises(UserError, match=f"{hub.LIMIT}={stated} "):
        hub.limit_s()


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
    known = hub.commits()
    stand_in.put("model", "some/bert", {**FILES, "config.json": '{"new": 1}'})
    forget()
    hub.pin(known)
    stand_in.asked.clear()
    assert hub.commit_of(BERT) == old
    assert not stand_in.asked
    assert (hub.fetch(BERT, hub.files_of(BERT)) / "config.json").read_text() == "{}"


def test_a_signal_ends_the_wait_without_waking_it(monkeypatch: pytest.MonkeyPatch):
    """As one does that comes just before the wait begins: it is taken, and the wait never hears of it."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    stopped, waited_for = threading.Event(), []

    def work() -> None:
        time.sleep(0.5)  # until the other waits
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)  # to this thread, so that the other sleeps on
        waited_for.append(not stopped.wait(20))

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            hub.run_with_timeout(work)
        assert not waited_for
    finally:
        stopped.set()
        signal.signal(signal.SIGUSR1, before)


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
    arguments = ["+sweep=paper_table", "seed=1", "jobs=2", "results_dir=out", *TINY, "probe.max_epochs=1"]
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
