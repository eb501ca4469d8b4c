"""What is taken away is what the store and the files of the corpus hold, read with other people's readers."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import gethostname

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.commands import flip_a_bit
from support.facts import names

from probe.probes.combine import Streamed

Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 40)


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


def test_what_is_read_back_is_the_store_and_the_text(
    inputs: list[str], tiny_data: Path, tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 3)  # many sentences are cut
    done = typed("export", *inputs, "layers=concat_last_four", "--to", "out")
    assert done.returncode == 0, done.stderr
    assert "595 words" in done.stdout
    for split in ("train", "dev", "test"):
        lines = [json.loads(line) for line in (tmp_path / f"out/{split}.jsonl").read_text().splitlines()]
        words, tags, documents = written_text(tiny_data, split)
        assert [line["tokens"] for line in lines] == words
        assert [line["ner_tags"] for line in lines] == tags
        assert [line["document"] for line in lines] == [document + 1 for document in documents]
        vectors = load_file(tmp_path / f"out/{split}.safetensors")["vectors"].numpy()
        layers = stored_layers(tmp_path / "cache", split)
        expected = torch.cat([layers[k] for k in "2345"], 1).numpy()
        assert vectors.shape == expected.shape == (sum(map(len, words)), 64)
        assert vectors.dtype == np.float16
        assert np.array_equal(vectors, expected)
    about = json.loads((tmp_path / "out/export.json").read_text())
    assert (about["layers"], about["combine"], about["data"]["name"]) == ([2, 3, 4, 5], "concat", "tiny")
    assert about["shapes"]["dev"] == [about["data"]["dev"]["words"], 64]
    assert [path.name for path in tmp_path.glob("*out*")] == ["out"]
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
        exported = load_file(tmp_path / f"out/{split}.safetensors")["vectors"].double().numpy()
        assert np.allclose(exported, combined(alike(split)) / scale, rtol=2e-3, atol=2e-3)
    assert json.loads((tmp_path / "out/export.json").read_text())["normalize"] == "scale"
    of_layers = load_file(tmp_path / "out/normalize.safetensors")  # brings other text to the same scale
    new = np.stack(
        [layer.float().numpy() for k, layer in stored_layers(tmp_path / "cache", "dev").items() if k in "2345"]
    )
    shift, gain = (of_layers[f"normalize.{name}"].unsqueeze(1).numpy() for name in ("shift", "gain"))
    exported = load_file(tmp_path / "out/dev.safetensors")["vectors"].float().numpy()
    assert np.allclose(combined((new - shift) * gain), exported, rtol=2e-3, atol=2e-3)


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


def test_a_corpus_without_documents_and_with_odd_words_keeps_them(inputs: list[str], tmp_path: Path, typed: Typed):
    for name in ("train", "dev", "test"):
        (tmp_path / f"data/{name}.conll").write_text(f"Zoë\tB-PER\n\na\u00a0b\tO\n{name}\tO\n\nana\tB-PER\n")
    assert typed("export", *inputs, "layers=last", "--to", "out").returncode == 0
    first, second, _ = (tmp_path / "out/dev.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["tokens"] == ["Zoë"]
    assert json.loads(second) == {"tokens": ["a\u00a0b", "dev"], "ner_tags": ["O", "O"]}


@pytest.mark.parametrize("kind", ["folder", "file", "link to nothing"])
def test_an_existing_target_is_refused_and_left_alone(kind: str, inputs: list[str], tmp_path: Path, typed: Typed):
    target = tmp_path / "out"
    if kind == "folder":
        target.mkdir()
    elif kind == "file":
        target.write_text("precious")
    else:
        target.symlink_to(tmp_path / "nowhere")
    before = os.lstat(target)
    done = typed("export", *inputs, "layers=last", "--to", "out")
    assert done.returncode == 2
    names(done.stderr, "out", "--to DIR")
    assert len(done.stderr.splitlines()) == 1
    assert os.lstat(target).st_mtime_ns == before.st_mtime_ns
    assert not list((tmp_path / "cache").glob("*/*.safetensors")), "nothing was computed for it"


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ([], ["--to"]),
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
    assert not list(tmp_path.glob("out*"))
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
    assert not list(tmp_path.glob("*out*"))


def test_a_stop_leaves_nothing_and_what_a_killed_export_left_stops_no_other(
    inputs: list[str], tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Streamed, "between", stop)
        assert typed("export", *inputs, "layers=last", "--to", "out").returncode == 130
    assert not list(tmp_path.glob("*out*"))
    of_dead, of_living, own = (
        f".out.{gethostname()}.{2**22 + 1}.{8 * 'a'}",
        f".out.{gethostname()}.1.{8 * 'a'}",
        ".out.d",
    )
    for name in (of_dead, of_living, own):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text("half")
    assert typed("export", *inputs, "layers=last", "--to", "out").returncode == 0
    assert {path.name for path in tmp_path.glob("*out*")} == {"out", of_living, own}


def test_a_damaged_shard_is_extracted_again_on_the_way(
    inputs: list[str], tmp_path: Path, typed: Typed, small_shards: None
):
    assert typed("export", *inputs, "layers=last", "--to", "before").returncode == 0
    flip_a_bit(damaged := sorted((tmp_path / "cache").glob("*/train-*.safetensors"))[2])
    done = typed("export", *inputs, "layers=last", "--to", "after")
    assert done.returncode == 0, done.stderr
    names(done.stdout, damaged.name, "checksum")
    assert contents(tmp_path / "after") == contents(tmp_path / "before")
