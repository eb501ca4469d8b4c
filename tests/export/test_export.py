"""What is taken away is what the store and the files of the corpus hold, read with other people's readers."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.commands import DEADLINE_S, Started, finish, flip_a_bit, wait_for
from support.facts import names

from probe.config import UserError
from probe.export import export as exporting
from probe.probes.combine import Streamed
from probe.system.locks import FileLock

Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe.features.store.WORDS_IN_SHARD", 40)


def stored_layers(cache: Path, split: str) -> dict[str, torch.Tensor]:
    """Every layer of a split, (W, H), straight from the only store's files."""
    shards = [load_file(path) for path in sorted(cache.glob(f"*/{split}-*.safetensors"))]
    return {layer: torch.cat([shard[layer] for shard in shards]) for layer in shards[0]}


def written_text(data: Path, split: str) -> tuple[list[list[str]], list[list[str]], list[int]]:
    """Words, tags and document of each sentence, as the column file has them."""
    words, tags, documents, document = [], [], [], -1
    for block in (data / f"{split}.conll").read_text().strip().split("\n\n"):
        if block.startswith("-DOCSTART-"):
            document += 1
            continue
        columns = [line.split() for line in block.splitlines()]
        words.append([word for word, _ in columns])
        tags.append([tag for _, tag in columns])
        documents.append(document)
    return words, tags, documents


Found = tuple[list[list[str]], list[list[str]], list[int | None], np.ndarray]


def read_back(folder: Path, split: str) -> Found:
    """Words, tags and documents of the sentences, and all vectors, as the users of the files read them."""
    lines = [json.loads(line) for line in (folder / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]
    tensors = load_file(folder / f"{split}.safetensors")
    vectors, ends, documents = (tensors[name].numpy() for name in ("vectors", "sentences", "documents"))
    assert np.diff(ends).tolist() == [len(line["words"]) for line in lines]
    assert documents.tolist() == [line["document"] for line in lines]
    return [line["words"] for line in lines], [line["tags"] for line in lines], documents.tolist(), vectors


def test_what_is_read_back_is_the_store_and_the_text(
    inputs: list[str], tiny_data: Path, tmp_path: Path, typed: Typed, small_shards: None
):
    done = typed("export", *inputs, "layers=concat_last_four", "--to", "out")
    assert done.returncode == 0, done.stderr
    assert "595 words" in done.stdout
    for split in ("train", "dev", "test"):
        words, tags, documents, vectors = read_back(tmp_path / "out", split)
        assert (words, tags) == written_text(tiny_data, split)[:2]
        assert documents == [d + 1 for d in written_text(tiny_data, split)[2]]
        layers = stored_layers(tmp_path / "cache", split)
        expected = torch.cat([layers[k] for k in "2345"], 1).numpy()
        assert vectors.shape == expected.shape == (sum(map(len, words)), 64)
        assert vectors.dtype == np.float16
        assert np.array_equal(vectors, expected)
    about = json.loads((tmp_path / "out/export.json").read_text())
    assert (about["layers"], about["combine"], about["data"]["name"]) == ([2, 3, 4, 5], "concat", "tiny")
    assert about["shapes"]["dev"] == [about["data"]["dev"]["words"], 64]
    assert not (tmp_path / "out.part").exists()
    assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize(
    ("settings", "combined"),
    [
        (["layers=sum_last_four"], lambda z: z.sum(0)),
        (["layers=concat_last_four"], lambda z: np.concatenate(z, 1)),
        (["layers=sum_last_four", "--each"], lambda z: z.swapaxes(0, 1)),
    ],
)
def test_normalized_vectors_are_exported_as_a_probe_reads_them(
    settings: list[str], combined: Callable, inputs: list[str], tmp_path: Path, typed: Typed, small_shards: None
):
    done = typed("export", *inputs, *settings, "layers.normalize=scale", "--to", "out")
    assert done.returncode == 0, done.stderr

    def alike(split: str) -> np.ndarray:
        layers, train = stored_layers(tmp_path / "cache", split), stored_layers(tmp_path / "cache", "train")
        of_train = {k: train[k].double().numpy() for k in "2345"}
        return np.stack(
            [(layers[k].double().numpy() - x.mean(0)) / np.sqrt(x.var(0).mean()) for k, x in of_train.items()]
        )

    scale = np.sqrt(combined(alike("train")).var(0).mean())
    for split in ("train", "dev", "test"):
        found = load_file(tmp_path / f"out/{split}.safetensors")["vectors"].double().numpy()
        assert np.allclose(found, combined(alike(split)) / scale, rtol=2e-3, atol=2e-3)
    assert json.loads((tmp_path / "out/export.json").read_text())["normalize"] == "scale"


def test_layers_can_be_kept_apart_summed_or_stored_in_bfloat16(inputs: list[str], tmp_path: Path, typed: Typed):
    choices = {
        "each": ["layers=single", "layers.indices=[4,0]", "layers.combine=sum", "--each"],
        "mix": ["layers=mix_last_four"],
        "sum": ["layers.indices=[0,4]", "layers.combine=sum"],
        "one": ["layers=last", "features.dtype=bfloat16"],
    }
    for name, choice in choices.items():
        cache = tmp_path / ("rough" if name == "one" else "exact")
        done = typed("export", *inputs, *choice, f"features.cache_dir={cache}", "--to", name)
        assert done.returncode == 0, done.stderr
        tensor = load_file(tmp_path / name / "dev.safetensors")["vectors"]
        assert (tensor.dtype == torch.bfloat16) == (name == "one")
        layers = {k: layer.float() for k, layer in stored_layers(cache, "dev").items()}
        if name in ("each", "mix"):
            expected = torch.stack([layers[k] for k in ("40" if name == "each" else "2345")], 1)
        else:
            expected = layers["0"] + layers["4"] if name == "sum" else layers["5"]
        assert torch.equal(tensor.float(), expected), name


def test_a_sentence_that_is_cut_between_shards_is_one_row(
    inputs: list[str], tiny_data: Path, tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("probe.features.store.WORDS_IN_SHARD", 3)
    assert typed("export", *inputs, "layers=last", "--to", "out").returncode == 0
    words, _, _, vectors = read_back(tmp_path / "out", "train")
    assert words == written_text(tiny_data, "train")[0]
    assert max(map(len, words)) > 6, "longer than two shards"
    assert np.array_equal(vectors, stored_layers(tmp_path / "cache", "train")["5"].numpy())


def test_a_corpus_without_documents_and_with_odd_words_keeps_them(inputs: list[str], tmp_path: Path, typed: Typed):
    for name in ("train", "dev", "test"):
        (tmp_path / f"data/{name}.conll").write_text(f"Zoë\tB-PER\n\na\u00a0b\tO\n{name}\tO\n\nana\tB-PER\n")
    assert typed("export", *inputs, "layers=last", "--to", "out").returncode == 0
    line = (tmp_path / "out/dev.jsonl").read_text(encoding="utf-8").splitlines()[1]
    assert json.loads(line) == {"words": ["a\u00a0b", "dev"], "tags": ["O", "O"], "document": None}
    assert load_file(tmp_path / "out/dev.safetensors").keys() == {"vectors", "sentences"}
    first = (tmp_path / "out/dev.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert json.loads(first)["words"] == ["Zoë"]


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "link to nothing"])
def test_an_existing_target_is_refused_and_left_alone(kind: str, inputs: list[str], tmp_path: Path, typed: Typed):
    target = tmp_path / "out"
    if "folder" in kind:
        target.mkdir()
    if kind == "folder":
        (target / "mine").write_text("precious")
    elif kind == "file":
        target.write_text("precious")
    elif kind == "link to nothing":
        target.symlink_to(tmp_path / "nowhere")
    before = os.lstat(target)
    done = typed("export", *inputs, "layers=last", "--to", "out")
    assert done.returncode == 2
    names(done.stderr, "out", "--to DIR")
    assert len(done.stderr.splitlines()) == 1
    assert os.lstat(target).st_mtime_ns == before.st_mtime_ns
    assert [path.read_text() for path in (target, target / "mine") if path.is_file()] == ["precious"] * (
        kind in ("folder", "file")
    )
    assert not list((tmp_path / "cache").glob("*/*.safetensors")), "nothing was computed for it"


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ([], ["--to"]),
        (["--to", "x.safetensors"], ["--to x.safetensors", "--to x."]),
        (["--to", "x", "layers=last,sum_all"], ["layers=last,sum_all"]),
        (["--to", "x", "features.layers=[1]"], ["features.layers=[1]", "features.layers=null"]),
        (["--to", "x", "layers=majority_tag"], ["layers=majority_tag", "layers=last"]),
        (["--to", "/proc/x"], ["/proc", "--to DIR"]),
    ],
)
def test_misuse_is_one_or_two_lines(arguments: list[str], facts: list[str], inputs: list[str], typed: Typed):
    done = typed("export", *inputs, *arguments)
    assert done.returncode == 2, done.stderr
    names(done.stderr, *facts)
    assert len(done.stderr.splitlines()) <= 2, "and nothing was extracted for it"


def contents(folder: Path) -> dict[str, bytes]:
    """The files of an export, without what says when it was made."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "export.json"}


@pytest.mark.parametrize("stop_after", [1, 4, 9])
def test_what_was_stopped_goes_on_with_the_same_command(
    stop_after: int,
    inputs: list[str],
    tmp_path: Path,
    typed: Typed,
    small_shards: None,
    monkeypatch: pytest.MonkeyPatch,
):
    command = ["export", *inputs, "layers=sum_last_four", "--to"]
    assert typed(*command, "whole").returncode == 0
    read: list[int] = []

    def count_and_stop(self: Streamed, first: int, last: int, between: Callable = Streamed.between) -> torch.Tensor:
        read.append(first)
        if len(read) == stop_after + 1:
            raise KeyboardInterrupt
        return between(self, first, last)

    with monkeypatch.context() as patch:
        patch.setattr(Streamed, "between", count_and_stop)
        assert typed(*command, "out").returncode == 130
    assert not (tmp_path / "out").exists()
    largest = max((tmp_path / "out.part").iterdir(), key=lambda path: (path.stat().st_mtime_ns, path.stat().st_size))
    assert largest.suffix == ".safetensors"
    with largest.open("ab") as stream:
        stream.write(b"half a row of what")  # as a kill within a part leaves it
    (tmp_path / "out.part/.train-00000.host.1.abc").write_bytes(b"half")
    total = len(read)
    with monkeypatch.context() as patch:
        between = Streamed.between

        def noted(self: Streamed, *rows: int) -> Any:
            read.append(rows[0])
            return between(self, *rows)

        patch.setattr(Streamed, "between", noted)
        done = typed(*command, "out")
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    parts = len(list((tmp_path / "cache").glob("*/*.safetensors")))
    assert len(read) - total <= parts - stop_after, "what was written is not written again"
    assert not (tmp_path / "out.part").exists()


EXPORT = """
import sys, time
from pathlib import Path
import probe.features.store
probe.features.store.WORDS_IN_SHARD = 20
from probe.features import extraction
extraction.num_cores = lambda: 1
from probe.probes.combine import Streamed
between = Streamed.between
Streamed.between = lambda *a: (time.sleep(float(sys.argv[1])), between(*a))[1]
from probe.cli import dispatch
dispatch(sys.argv[2:])
"""


def exporting_in_a_process(delay_s: float, arguments: list[str], home: Path) -> Started:
    return Started([str(delay_s), "export", *arguments], home, {}, EXPORT)


@pytest.mark.slow
def test_after_any_kill_the_command_gives_the_same_bytes(inputs: list[str], tmp_path: Path):
    arguments = [*inputs, "layers=last", "--to"]
    alone = exporting_in_a_process(0, [*arguments, "alone"], tmp_path)
    assert finish(alone)[1].count("Traceback") == 0
    expected = contents(tmp_path / "alone")
    part, sizes = tmp_path / "out.part", [0]
    for _ in range(3):
        process = exporting_in_a_process(0.1, [*arguments, "out"], tmp_path)
        more = sizes[-1] + 1500
        wait_for(lambda: size_of(part) > more, DEADLINE_S, f"{more} bytes", process)  # noqa: B023
        time.sleep(0.05)
        process.kill()
        finish(process)
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"
        sizes.append(size_of(part))
    assert not (tmp_path / "out").exists()
    last = exporting_in_a_process(0, [*arguments, "out"], tmp_path)
    finish(last)
    assert last.returncode == 0
    assert contents(tmp_path / "out") == expected
    assert not part.exists()


def size_of(folder: Path) -> int:
    """Bytes of vectors."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Writing more into a file fails as it does on a full disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, kept)


def test_a_full_disk_is_named_and_loses_nothing_written(inputs: list[str], tmp_path: Path, typed: Typed):
    command = ["export", *inputs, "layers=concat_last_four", "--to"]
    assert typed(*command, "whole").returncode == 0
    with files_of_at_most(9000):
        done = typed(*command, "out")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    assert typed(*command, "out").returncode == 0
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_too_little_room_is_said_before_anything_is_written(
    inputs: list[str], tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("probe.system.files.shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    done = typed("export", *inputs, "layers=last", "--to", "out")
    assert done.returncode == 2
    assert "GB are needed" in done.stderr
    assert "--to DIR" in done.stderr
    assert not (tmp_path / "out.part").exists()


def test_an_unfinished_export_of_something_else_is_left_alone(
    inputs: list[str], tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Streamed, "between", stop)
        assert typed("export", *inputs, "layers=last", "--to", "out").returncode == 130
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out.part").iterdir()}
    for other in (["layers=embeddings"], ["layers=last", "--each"], ["layers=last", "features.subword=mean"]):
        done = typed("export", *inputs, *other, "--to", "out")
        assert done.returncode == 2
        names(done.stderr, "out.part")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out.part").iterdir()} == before
    (tmp_path / "mine.part").mkdir()
    (tmp_path / "mine.part/thesis.txt").write_text("precious")
    done = typed("export", *inputs, "layers=last", "--to", "mine")
    names(done.stderr, "mine.part")
    assert [path.name for path in (tmp_path / "mine.part").iterdir()] == ["thesis.txt"]


def test_two_at_once_do_not_write_into_each_other(inputs: list[str], tmp_path: Path, typed: Typed):
    (tmp_path / "out.part").mkdir()
    with FileLock(tmp_path / "out.part/.lock", exclusive=True):
        done = typed("export", *inputs, "layers=last", "--to", "out")
    assert done.returncode == 2
    names(done.stderr, "out.part")
    assert typed("export", *inputs, "layers=last", "--to", "out").returncode == 0


def test_a_damaged_shard_is_extracted_again_on_the_way(
    inputs: list[str], tmp_path: Path, typed: Typed, small_shards: None
):
    assert typed("export", *inputs, "layers=last", "--to", "before").returncode == 0
    flip_a_bit(damaged := sorted((tmp_path / "cache").glob("*/train-*.safetensors"))[2])
    done = typed("export", *inputs, "layers=last", "--to", "after")
    assert done.returncode == 0, done.stderr
    names(done.stdout, damaged.name, "checksum")
    assert contents(tmp_path / "after") == contents(tmp_path / "before")


def test_the_target_is_not_replaced_by_what_took_long(
    inputs: list[str], tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    """Somebody else may make the target while an export is written."""
    write = exporting._write

    def and_somebody_else(*arguments: object) -> None:
        write(*arguments)  # type: ignore[arg-type]
        (tmp_path / "out").write_text("precious")

    monkeypatch.setattr(exporting, "_write", and_somebody_else)
    done = typed("export", *inputs, "layers=last", "--to", "out")
    assert done.returncode == 2
    assert (tmp_path / "out").read_text() == "precious"
    assert isinstance(UserError("x"), ValueError)
