"""Vectors of elsewhere: what an export has gives the bits of the encoder itself, and nothing is matched by position."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.commands import TINY
from support.facts import names

from probe.runs.records import load_records

LINEAR = ["probe=linear", "probe.max_epochs=2", "layers=last"]
TEXTS = ["a red fox", "two foxes", "no fox", "one hen", "hens, all of them", "a cock"]


def checksums(folder: Path) -> list[dict[str, str]]:
    return [dict(record.sha256.predictions) for record in load_records(folder).values()]


@pytest.fixture
def exported(typed: Callable, inputs: list[str], tmp_path: Path) -> list[str]:
    """What is typed for the vectors of an export of the tiny encoder, with the labels of its own files."""
    assert typed("export", *inputs, "layers=single", "layers.indices='0:'", "--each", "--to", "given").returncode == 0
    others = [word for word in inputs if not word.startswith("encoder.path=")]
    return ["encoder=vectors", f"encoder.path={tmp_path / 'given'}", *others]


def test_an_export_trains_to_the_same_bits(typed: Callable, inputs: list[str], exported: list[str], tmp_path: Path):
    for settings, out in ((inputs, "own"), (exported, "given")):
        for layers in ("layers=last", "layers=sum_last_four"):
            done = typed(*settings, *TINY, layers, "layers.normalize=scale", f"results_dir=out-{out}")
            assert done.returncode == 0, done.stderr
    assert checksums(tmp_path / "out-own") == checksums(tmp_path / "out-given")
    losses = [
        [[epoch.loss for epoch in record.curve] for record in load_records(tmp_path / f"out-{out}").values()]
        for out in ("own", "given")
    ]
    assert losses[0] == losses[1]
    screened = typed("screen", *exported, "screen.max_layers=1", "screen.seeds=2", "results_dir=out-given")
    assert screened.returncode == 0, screened.stderr
    assert typed("verify", "out-given").returncode == 0
    table = typed("table", "out-given").stdout
    assert "tiny, given," in table
    assert "piece" not in table
    names(typed("cache", "list").stdout, "2 stores", "given, 6 layers of 16")
    assert not list((tmp_path / "cache").glob("*/*.safetensors")) or len(list((tmp_path / "cache").glob("*/"))) > 1


def test_words_in_another_order_or_number_are_refused(typed: Callable, exported: list[str], tmp_path: Path):
    file = tmp_path / "given" / "dev.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[1], lines[0], *lines[2:]]))
    done = typed(*exported, *LINEAR, "results_dir=out")
    assert done.returncode == 2
    names(done.stderr, "dev.safetensors", "order")


def texts_of(split: str) -> list[str]:
    return [f"{text} {split}" for text in TEXTS]


def items(folder: Path, order: list[int]) -> None:
    """Writes six texts of two classes with their vectors, (units, 3 layers, 4), in this order."""
    folder.mkdir(exist_ok=True)
    states = torch.arange(6 * 12, dtype=torch.float32).view(6, 3, 4).sin() + 2
    for split in ("train", "dev", "test"):
        texts = texts_of(split)
        rows = [{"text": text, "label": "hen" if k > 2 else "fox"} for k, text in enumerate(texts)]
        (folder / f"{split}.json").write_text("\n".join(map(json.dumps, rows)))
        save_file({"vectors": states[order].contiguous()}, folder / f"{split}.safetensors")
        (folder / f"{split}.ids.txt").write_text("\n".join(texts[k] for k in order))


def settings(folder: Path) -> list[str]:
    files = [f"data.{split}={split}.json" for split in ("train", "dev", "test")]
    return ["encoder=vectors", f"encoder.path={folder}", "data=sentences", f"data.path={folder}", *files, *LINEAR]


def test_texts_are_matched_by_id(typed: Callable, tmp_path: Path):
    for number, order in enumerate(([0, 1, 2, 3, 4, 5], [3, 1, 5, 0, 2, 4])):
        items(tmp_path / f"items{number}", order)
        done = typed(*settings(tmp_path / f"items{number}"), f"results_dir=out{number}")
        assert done.returncode == 0, done.stderr
    assert checksums(tmp_path / "out0") == checksums(tmp_path / "out1")
    losses = [
        [epoch.loss for record in load_records(tmp_path / out).values() for epoch in record.curve]
        for out in ("out0", "out1")
    ]
    assert losses[0] == losses[1]


def test_one_tensor_per_layer_is_the_same(typed: Callable, tmp_path: Path):
    for folder in ("whole", "each"):
        items(tmp_path / folder, [0, 1, 2, 3, 4, 5])
    for file in (tmp_path / "each").glob("*.safetensors"):
        whole = load_file(file)["vectors"]
        save_file({f"model.layers.{k}": whole[:, k].contiguous() for k in range(3)}, file)
    for folder in ("whole", "each"):
        done = typed(*settings(tmp_path / folder), f"results_dir=out-{folder}")
        assert done.returncode == 0, done.stderr
    assert checksums(tmp_path / "out-whole") == checksums(tmp_path / "out-each")
    items(tmp_path / "with-names", [0, 1, 2, 3, 4, 5])
    for file in (tmp_path / "with-names").glob("*.safetensors"):
        save_file(load_file(file), file, {"layers": '["3", "18", "33"]'})
    assert typed(*settings(tmp_path / "with-names"), "results_dir=named").returncode == 0
    assert checksums(tmp_path / "named") == checksums(tmp_path / "out-each")
    names(typed("table", "named").stdout, "1 is 18")
    assert "1 is" not in typed("table", "out-each").stdout, "the tensors' names say no more than their numbers"


def without_a_row(folder: Path) -> None:
    for split in ("train", "dev", "test"):
        file = folder / f"{split}.safetensors"
        save_file({"vectors": load_file(file)["vectors"][:5].contiguous()}, file)
        listed = folder / f"{split}.ids.txt"
        listed.write_text("\n".join(listed.read_text().splitlines()[:5]))


def spoiled(value: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        vectors = load_file(folder / "dev.safetensors")["vectors"]
        vectors[2, 1] = value
        save_file({"vectors": vectors}, folder / "dev.safetensors")

    return spoil


def ids_in_rows_alone(folder: Path) -> None:
    """Rows of labels may stand in any order, so their ids do not say which vector is whose."""
    (folder / "dev.ids.txt").unlink()
    (folder / "dev.jsonl").write_text(
        "".join(f'{{"id": "{k}", "text": "{one}"}}\n' for k, one in enumerate(texts_of("dev")))
    )


def truncated(folder: Path) -> None:
    file = folder / "test.safetensors"
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (without_a_row, ["train.safetensors", "'a cock train'"]),
        (lambda folder: (folder / "dev.ids.txt").write_text("\n".join(texts_of("dev")[:5])), ["dev.ids.txt", 5, 6]),
        (
            lambda folder: (folder / "dev.ids.txt").write_text("\n".join([*texts_of("dev")[:5], "a duck"])),
            ["'a cock dev'"],
        ),
        (
            lambda folder: (folder / "dev.ids.txt").write_text("\n".join([*texts_of("dev")[:5], texts_of("dev")[0]])),
            ["'a red fox dev'", "two"],
        ),
        (lambda folder: (folder / "dev.ids.txt").unlink(), ["dev.safetensors", "dev.ids.txt"]),
        (ids_in_rows_alone, ["dev.safetensors", "dev.ids.txt"]),
        (spoiled(float("nan")), ["dev.safetensors", "'no fox dev'", "layer 1", "finite"]),
        (spoiled(float("inf")), ["'no fox dev'", "finite"]),
        (spoiled(0.0), ["'no fox dev'", "layer 1", "zero"]),
        (truncated, ["test.safetensors"]),
        (lambda folder: (folder / "test.safetensors").unlink(), ["test.safetensors"]),
        (lambda folder: save_file({"vectors": torch.ones(6, 2, 4)}, folder / "dev.safetensors"), ["dev", "different"]),
        (lambda folder: save_file({"vectors": torch.ones(6, 3, 4).double()}, folder / "dev.safetensors"), ["F64"]),
    ],
)
def test_what_does_not_fit_is_one_line(typed: Callable, tmp_path: Path, spoil: Callable, facts: list):
    items(tmp_path / "items", [0, 1, 2, 3, 4, 5])
    spoil(tmp_path / "items")
    done = typed(*settings(tmp_path / "items"), "results_dir=out")
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    names(done.stderr.strip().splitlines()[-1], *facts)


def test_what_needs_text_refuses(typed: Callable, tmp_path: Path):
    items(tmp_path / "items", [0, 1, 2, 3, 4, 5])
    given = settings(tmp_path / "items")
    done = typed(*given, "encoder.weights=random", "results_dir=out")
    assert done.returncode == 2
    names(done.stderr, "encoder.weights")
    done = typed("inspect", "a hen", *given[:2], "layers=last")
    assert done.returncode == 2
    names(done.stderr, "items")
    assert len(typed("doctor", *given, "results_dir=out").stdout.splitlines()) > 3
