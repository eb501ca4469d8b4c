"""What cannot be read stops nothing: it is named, the rest is shown, and the exit code is 1."""

from __future__ import annotations

import contextlib
import functools
import json
import lzma
import os
import re
import shutil
from pathlib import Path

import pytest
from support.facts import names
from support.records import RESULTS, expect, make_record

from probe.cli import dispatch
from probe.config import UserError
from probe.report.page import write_report
from probe.runs import outputs
from probe.runs.outputs import load_counts
from probe.runs.progress import status_lines, status_of
from probe.runs.sweep_plan import write_expected
from probe.system.files import key_of, short
from probe.tables.rows import build_rows


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    """Two rows of two seeds that a sweep asked for, the second record without its scores; returns that file."""
    runs = [
        make_record(tmp_path, row, seed, 0.8, 0.7, (layer,))
        for row, layer in (("last", 6), ("x", 2))
        for seed in (1, 2)
    ]
    write_expected(tmp_path, [expect(run) for run in runs])
    file = next((tmp_path / "records").glob("last-seed2*"))
    content = json.loads(file.read_text())
    del content["scores"]
    file.write_text(json.dumps(content))
    return file


@pytest.mark.parametrize("command", ["table", "report"])
def test_table_and_report_name_it_and_show_the_rest(spoilt: Path, command: str, capsys):
    folder = spoilt.parent.parent
    assert [(row.n, row.missing) for row in build_rows(folder)] == [(1, 1), (2, 0)]
    assert dispatch([command, str(folder)]) == 1
    said = capsys.readouterr()
    names(said.err, spoilt, "scores")
    assert len(said.err.splitlines()) == 1
    if command == "table":
        assert "1 of 2" in said.out
    else:
        names((folder / "report.html").read_text(), spoilt.name)


def test_tables_that_are_compared_name_it_too(spoilt: Path, tmp_path: Path, capsys):
    assert dispatch(["table", "--compare", str(tmp_path), str(tmp_path)]) == 1
    names(capsys.readouterr().err, "scores")


def test_where_a_sweep_stands_is_told_without_it(spoilt: Path, tmp_path: Path):
    odd = next((tmp_path / "records").glob("x-seed1*"))
    odd.write_text(odd.read_text().replace("2026-01-01T10:00:00+00:00", "soon"))
    told = list(status_lines(status_of(tmp_path)))
    names(told[0], "4 runs", "3 done", "0 running", "0 failed", "0 waiting", 1)
    names(told[1], "last seed 2", spoilt, "scores")


@pytest.mark.parametrize("kind", ["failed", "running", "attempts"])
@pytest.mark.parametrize("what", ["fifo", "endless", "bytes", "folder"])
def test_notes_that_are_no_text_neither_hang_nor_stop_where_a_sweep_stands(
    spoilt: Path, tmp_path: Path, kind: str, what: str, capsys: pytest.CaptureFixture[str]
):
    spoilt.unlink()
    key = spoilt.stem[-10:]
    note = tmp_path / "logs" / f"{spoilt.stem if kind == 'failed' else key}.{kind}.txt"
    note.parent.mkdir(exist_ok=True)
    if what == "fifo":
        os.mkfifo(note)
    elif what == "endless":
        note.symlink_to("/dev/zero")
    elif what == "bytes":
        note.write_bytes(b"\xff\xfe broken")
    else:
        note.mkdir()
    assert dispatch(["sweep-status", str(tmp_path)]) == 0
    told = capsys.readouterr().out.splitlines()
    names(told[0], "4 runs", "3 done", "1 failed" if kind == "failed" else "1 waiting")
    assert [note.name in line for line in told[1:]] == [True] * (kind == "failed")


@pytest.mark.parametrize("command", ["table", "report", "sweep-status", "verify"])
def test_a_record_nested_without_end_is_no_traceback(spoilt: Path, tmp_path: Path, command: str, capsys):
    spoilt.write_text("[" * 200_000)
    assert dispatch([command, str(tmp_path)]) == 1
    said = capsys.readouterr()
    names(said.out + said.err, spoilt)


FEW = {"words": [5], "right_tags": [5]}


def rewrite(file: Path, counts: dict) -> None:
    file.write_bytes(lzma.compress(json.dumps(counts).encode()))


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """Two rows of five seeds that differ significantly, with counts; returns the counts of the first."""
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.8 + seed / 1000, 0.8, (6,), sentences=[(2, 2, 2)] * 20)
        make_record(tmp_path, "x", seed, 0.5 + seed / 1000, 0.5, (2,), sentences=[(2, 2, 1)] * 20)
    return next((tmp_path / "counts").glob("last-seed1-*"))


def test_a_copy_of_a_record_is_named(compared: Path, tmp_path: Path, capsys):
    shown = [(row.label, row.n) for row in build_rows(tmp_path)]
    assert shown == [("best", 5), ("worse", 5)]
    file = next((tmp_path / "records").glob("last-seed1-*"))
    for name in (file.name.replace("seed1", "seed1copy"), f"{file.stem} (copy).json", f"a{file.name}.json"):
        copy = file.with_name(name)
        copy.write_bytes(file.read_bytes())
        assert [(row.label, row.n) for row in build_rows(tmp_path)] == shown
        assert dispatch(["table", str(tmp_path)]) == 1
        (told,) = capsys.readouterr().err.splitlines()
        assert told.startswith("probe: ")
        names(told, copy)
        copy.unlink()


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), ["cannot be read"]),
        (lambda file: file.write_bytes(b"x"), ["cannot be read"]),
        (lambda file: rewrite(file, {"dev": {}, "test": {}}), ["dev", "words"]),
        (lambda file: rewrite(file, {"dev": FEW}), ["counts of test"]),
        (lambda file: rewrite(file, {"dev": FEW, "test": {"words": [5]}}), ["test", "right_tags"]),
        (lambda file: rewrite(file, {"dev": FEW | {"gold:X": [1]}, "test": FEW}), ["dev", "predicted:X"]),
        (lambda file: rewrite(file, {"dev": {**FEW, "words": []}, "test": FEW}), ["dev", "sentence"]),
        (
            lambda file: rewrite(file, {"dev": FEW, "test": {**FEW, "right_tags": []}}),
            ["test", "1 sentences", "words"],
        ),
    ],
)
def test_counts_that_are_none_are_named_and_the_rest_is_shown(compared: Path, tmp_path: Path, spoil, facts, capsys):
    spoil(compared)
    for command in (["table"], ["report"], ["table", "--compare", str(tmp_path)]):
        assert dispatch([*command, str(tmp_path)]) == 1
        told = capsys.readouterr()
        (line,) = set(told.err.splitlines())
        assert re.match(rf"probe: [^/]*{re.escape(str(compared))}[: ]", line)
        names(line.partition(str(compared))[2], *facts)


def test_counts_that_are_left_out_are_nothing_to_mend(compared: Path, tmp_path: Path, capsys):
    shutil.rmtree(compared.parent)
    assert dispatch(["table", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


ODD = [
    ("scores.dev.span.f1", "NaN"),
    ("scores.dev.span.f1", "1e999"),
    ("scores.dev.span.f1", "1.5"),
    ("scores.dev.span", "null"),
    ("parameters", "-1"),
    ("parameters", "1" + "0" * 30),
    ("encoder.num_layers", "1000000000"),
    ("identity.layers.indices", "[7]"),
    ("identity.layers.indices", "[-1]"),
    ("identity.probe.learning_rate", '"high"'),
    ("identity.probe.max_epochs", '"auto"'),
    ("identity.probe.dropout", "[1]"),
    ("identity.condition", '{"ids": []}'),
    ("config.features.context", "[" * 100_000),
    ("config.data.name", "[" * 500 + "]" * 500),
    ("config.probe.num_layers", '"\\ud800"'),
    ("row", '"half \\ud800"'),
    ("mix", '{"weights": [0.5, 0.5], "scale": 1}'),
]


@pytest.mark.parametrize(("place", "value"), ODD, ids=[f"{place} {value[:9]}" for place, value in ODD])
def test_an_odd_value_makes_a_bad_record_and_stops_nothing(tmp_path: Path, place: str, value: str, capsys):
    for seed in (1, 2):
        make_record(tmp_path, "last", seed, 0.8, 0.7)
    file = next((tmp_path / "records").glob("last-seed2*"))
    content = json.loads(file.read_text())
    *inner, last = place.split(".")
    functools.reduce(dict.__getitem__, inner, content)[last] = "@"
    text = json.dumps(content).replace('"@"', value)
    with contextlib.suppress(ValueError, RecursionError):  # as whoever changes a record on purpose
        identity = json.loads(text, parse_constant=None)["identity"]
        text = text.replace(content["key"], key_of(identity))
        file.unlink()
        file = file.with_name(f"last-seed2-{short(key_of(identity))}.json")
    file.write_text(text)
    for command in ("table", "report", "verify"):
        assert dispatch([command, str(tmp_path)]) == 1
        said = capsys.readouterr()
        names(said.err + said.out, file.name)
    assert [row.n for row in build_rows(tmp_path)] == [1]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_of_the_folder_is_a_bad_record(tmp_path: Path, kind: str, capsys):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    odd = tmp_path / "records/last-seed2-0123456789.json"
    {"link": lambda: odd.symlink_to("/dev/zero"), "pipe": lambda: os.mkfifo(odd), "folder": odd.mkdir}[kind]()
    for command in ("table", "verify"):
        assert dispatch([command, str(tmp_path)]) == 1
        said = capsys.readouterr()
        names(said.err + said.out, odd.name)


def test_counts_that_unpack_to_more_than_any_run_has_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_record(tmp_path, "last", 1, 0.8, 0.7, sentences=[(1, 1, 1)])
    (record,), (counts,) = (tmp_path / "records").iterdir(), (tmp_path / "counts").iterdir()
    assert load_counts(record)[0]["dev"]["words"] == [5]
    counts.write_bytes(lzma.compress(b" " * 1_000_000 + lzma.decompress(counts.read_bytes())))
    assert load_counts(record)[0]["dev"]["words"] == [5]
    monkeypatch.setattr(outputs, "MOST_BYTES", 900_000)
    with pytest.raises(UserError, match=counts.name):
        load_counts(record)


SCREEN = RESULTS / "demo-quickstart/screen.json"


@pytest.mark.parametrize(
    ("place", "value"),
    [("words", {}), ("identity.screen", {}), ("identity.task", "x"), ("ranked.0.layers.indices", 3),
     ("ranked.0.layers.indices", [1, 99]), ("ranked.0.scores", []), ("ranked.0.behind", [0.5])],
)  # fmt: skip
def test_an_odd_value_of_a_screen_is_named(tmp_path: Path, place: str, value: object):
    content = json.loads(SCREEN.read_text())
    *inner, last = place.split(".")
    functools.reduce(lambda part, name: part[int(name) if name.isdigit() else name], inner, content)[last] = value
    content["key"] = key_of(content["identity"])
    (tmp_path / "screen.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"screen\.json"):
        write_report(tmp_path)
