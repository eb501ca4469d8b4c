"""A kept probe gives the very predictions of its record."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
from safetensors import safe_open
from support.commands import TINY, exit_code, flip_a_bit, interpreted, python
from support.facts import names
from support.inputs import data_config, overrides, small_corpus, write_columns
from support.records import make_record

import probe
from probe.config import UserError
from probe.data.corpus import Corpus
from probe.probes import frozen
from probe.runs.plan import plan
from probe.runs.records import load_records
from probe.runs.run import run
from probe.runs.weights import how_to_save, load_probe
from probe.settings import configs_of
from probe.tag.io import read_running, read_untagged, select_saved_probe
from probe.vectors import words
from probe.verify.checks import check_files
from probe.verify.reruns import choose_runs

pytestmark = pytest.mark.usefixtures("short_epochs")
RATE = "probe.learning_rate=0.05"  # so that short epochs learn tags other than O


def make(inputs: list[str], *more: str) -> tuple[Path, str]:
    """A run with its weights kept; its results folder and its row."""
    cfg = configs_of([*inputs, RATE, "save_probe=true", "results_dir=results", *more])[0][0]
    record = run(cfg, log=lambda _: None)
    return Path("results").absolute(), record.row


def predictions_of(folder: Path, split: str = "test") -> bytes:
    (file,) = (folder / "predictions").glob(f"*.{split}.conll")
    return file.read_bytes()


def words_of(tagged: subprocess.CompletedProcess[str]) -> bytes:
    """What was tagged, without the lines between documents."""
    return tagged.stdout.replace("-DOCSTART- O O\n\n", "").encode()


@pytest.fixture(scope="module")
def kept_once(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("kept")
    data = write_columns(home / "data", small_corpus())
    sure = [f"results_dir={home / 'results'}", f"features.cache_dir={home / 'cache'}", "save_probe=true"]
    run(configs_of([*overrides(tiny_bert, data), *TINY, "layers=last", *sure])[0][0], log=lambda _: None)
    return home


@pytest.fixture
def kept(here: Callable, kept_once: Path, tmp_path: Path) -> tuple[Path, str]:
    """The results folder of a run of the last layer with its weights, to spoil, and its row."""
    shutil.copytree(kept_once, tmp_path, dirs_exist_ok=True)
    return tmp_path / "results", "last"


@pytest.fixture
def here(typed: Callable, inputs: list[str]) -> Callable:
    """The command in a folder of its own, with its cache."""
    return typed


@pytest.mark.parametrize(
    "settings",
    [
        ["layers=last"],
        ["layers=mix_all", "features.subword=mean"],
        ["layers=concat_last_four", "features.context=document", "features.dtype=float32"],
        ["layers=embeddings", "probe=linear"],
        ["layers=single", "layers.indices=[2]", "probe.precision=bfloat16"],
        ["layers=sum_all", "data.task=tags"],
        ["layers=sum_last_four", "layers.normalize=scale"],
        ["layers=concat_last_four", "layers.normalize=train", "features.placement=stream"],
        ["layers=mix_all", "layers.normalize=train"],
    ],
    ids=" ".join,
)
def test_tagging_the_test_file_gives_the_very_predictions_of_the_record(
    here: Callable, inputs: list[str], tiny_data: Path, settings: list[str]
):
    folder, row = make(inputs, *settings)
    done = here("tag", str(folder), "--row", row, str(tiny_data / "test.conll"))
    assert done.returncode == 0, done.stderr
    assert words_of(done) == predictions_of(folder)


def test_a_text_of_many_shards_is_tagged_like_one_and_leaves_no_features(
    here: Callable, kept: tuple[Path, str], tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, row = kept
    before = sorted((tmp_path / "cache").iterdir())
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 20)
    done = here("tag", str(folder), "--row", row, str(tiny_data / "test.conll"))
    assert words_of(done) == predictions_of(folder)
    assert sorted((tmp_path / "cache").iterdir()) == before


def test_the_encoder_stops_after_the_deepest_layer_that_the_probe_reads(
    here: Callable, inputs: list[str], tiny_data: Path, monkeypatch: pytest.MonkeyPatch
):
    folder, row = make(inputs, "layers.indices=[1,3]", "layers.combine=sum")
    seen: list[int] = []
    whole = words.hidden_states

    def counted(*given):
        states = whole(*given)
        seen.append(len(states) - 1)
        return states

    monkeypatch.setattr(words, "hidden_states", counted)
    done = here("tag", str(folder), "--row", row, str(tiny_data / "test.conll"))
    assert set(seen) == {3}
    assert words_of(done) == predictions_of(folder)


def test_weights_are_safetensors_and_part_of_no_key(kept: tuple[Path, str], inputs: list[str]):
    folder, _ = kept
    ((file, record),) = load_records(folder).items()
    (weights,) = (folder / "weights").iterdir()
    assert weights.suffix == ".safetensors"
    with safe_open(weights, framework="pt") as opened:
        header = json.loads(opened.metadata()["probe"])
        num = sum(opened.get_tensor(name).numel() for name in opened.keys())  # noqa: SIM118
    assert header["key"] == record.key
    assert num == record.parameters
    assert "save_probe" not in json.dumps(json.loads(file.read_text()))
    again = configs_of([*inputs, "layers=last", "results_dir=results"])[0][0]
    assert run(again, log=lambda _: None).finished == record.finished, "one run, with or without its weights"
    assert all(check.ok for check in check_files(folder) if check.name == file.name)
    flip_a_bit(weights)
    (check,) = [check for check in check_files(folder) if check.name == file.name]
    names(check.detail, weights.name, "sha256")
    with pytest.raises(UserError, match=r"\.safetensors.*sha256"):
        load_probe(file, record)
    weights.unlink()
    for make in (lambda: None, lambda: weights.symlink_to("/dev/zero"), lambda: os.mkfifo(weights)):
        make()
        with pytest.raises(UserError, match=weights.name):
            load_probe(file, record)
        weights.unlink(missing_ok=True)


def test_what_has_no_weights_is_done_all_the_same(here: Callable, inputs: list[str], monkeypatch: pytest.MonkeyPatch):
    whole = frozen.fit
    monkeypatch.setattr(frozen, "fit", lambda *given: replace(whole(*given), weights=None))
    folder, row = make(inputs, "layers=last")
    ((file, record),) = load_records(folder).items()
    assert record.sha256.weights == ""
    assert plan(configs_of([*inputs, RATE, "layers=last", "save_probe=true", "results_dir=results"])[0][0]).is_done
    done = here("tag", str(folder), "--row", row, "x")
    assert (done.returncode, "last seed 1 has no weights" in done.stderr) == (2, True)
    assert all(check.ok for check in check_files(folder) if check.name == file.name)


@pytest.mark.slow
def test_a_run_without_weights_names_the_command_that_saves_them(here: Callable, inputs: list[str], tiny_data: Path):
    sweep = ["-m", *inputs, "layers=last,embeddings", "seed=1,2", "jobs=1", "results_dir=results"]
    assert here(*sweep).returncode == 0
    for file in Path("results/records").iterdir():
        content = json.loads(file.read_text())
        content["software"]["command"] = shlex.join(["probe", *sweep])  # workers of a test were typed by pytest
        file.write_text(json.dumps(content))
    done = here("tag", "results", "--row", "last", "--seed", "2", "x")
    assert done.returncode == 2
    command = re.search(r"To save them: (.*)$", done.stderr, flags=re.M)
    assert command is not None
    before = {record.label: record for record in load_records(Path("results")).values()}
    assert here(*shlex.split(command[1])[1:]).returncode == 0
    after = {record.label: record for record in load_records(Path("results")).values()}
    kept = {label for label, record in after.items() if record.sha256.weights}
    assert kept == {"last seed 2"}
    assert after["last seed 2"].scores == before["last seed 2"].scores
    assert after["last seed 2"].key == before["last seed 2"].key
    done = here("tag", "results", "--row", "last", str(tiny_data / "test.conll"))
    assert "last seed 2" in done.stderr, "the one that was kept, whatever its dev score"


def test_a_command_that_trained_nothing_is_not_invented(kept: tuple[Path, str]):
    folder, _ = kept
    ((file, record),) = load_records(folder).items()
    names(how_to_save(record, file), "save_probe=true", f"results_dir={folder}")
    for command in (record.software.command, "probe train 'open"):
        software = replace(record.software, command=command)
        assert "probe " not in how_to_save(replace(record, software=software), file), "no command"


def test_columns_keep_their_columns_and_markers_and_a_text_is_split_into_words(here: Callable, kept: tuple[Path, str]):
    folder, row = kept
    in_json = here("tag", str(folder), "--row", row, "ana met smith in paris.", "--format", "json")
    (line,) = in_json.stdout.splitlines()
    running = json.loads(line)
    assert running["tokens"] == ["ana", "met", "smith", "in", "paris", "."]
    Path("one.txt").write_text("ana\nmet\nsmith\nin\nparis\n.\n\nacme\nwon\n")
    words = here("tag", str(folder), "--row", row, "one.txt")
    names(words.stderr, "one.txt", "2 sentences", "8 words")
    first = words.stdout.split("\n\n")[0].splitlines()
    assert [line.split(" ") for line in first] == [list(pair) for pair in zip(*list(running.values())[:2], strict=True)]
    four = Path("four.txt")
    four.write_text(
        "-DOCSTART- -X- O O\n\nana NNP x B-PER\nwon VBD y O\n\n-DOCSTART- (2)\n\nacme NNP z B-ORG\n\n-DOCSTART- (3)\n"
    )
    untagged, tagged = (text.splitlines() for text in (four.read_text(), here("tag", str(folder), "four.txt").stdout))
    assert tagged[0] == "-DOCSTART- -X- O O O"
    assert [line if line[:1] in ("", "-") else line.rpartition(" ")[0] for line in tagged[1:]] == untagged[1:]
    assert [len(line.split(" ")) for line in tagged] == [5, 1, 5, 5, 1, 2, 1, 5, 1, 2]
    Path("lines.txt").write_text("Ana met Smith\nAcme won Leeds\n")
    names(here("tag", str(folder), "lines.txt").stderr, "2 sentences", "6 words")
    names(here("tag", str(folder), "lines.txt", "--input", "columns").stderr, "1 sentence", "2 words", "3 columns")


def test_json_lines_give_the_tags_of_the_same_columns(
    here: Callable, kept: tuple[Path, str], tiny_corpus: Corpus, tmp_path: Path
):
    folder, row = kept
    lines = "".join(json.dumps({"tokens": words}) + "\n" for words in tiny_corpus.splits["test"].words)
    (tmp_path / "test.jsonl").write_text(lines)
    done = here("tag", str(folder), "--row", row, "test.jsonl")
    recorded = [line.split(" ")[::2] for line in predictions_of(folder).decode().splitlines()]
    assert [line.split(" ") for line in done.stdout.splitlines()] == [pair or [""] for pair in recorded]
    (tmp_path / "test.jsonl").write_text(lines.replace("tokens", "words"))
    named = here("tag", str(folder), "--row", row, "test.jsonl", "data.words_field=words", "data.document_field=doc")
    assert named.stdout == done.stdout, named.stderr


def test_a_file_has_one_separator(here: Callable, kept: tuple[Path, str]):
    folder, row = kept
    Path("tabs.tsv").write_text("ana\tO\nmet\tO\n\nnew york\tO\nwon\tO\n")
    done = here("tag", str(folder), "--row", row, "tabs.tsv")
    assert [line.count("\t") for line in done.stdout.splitlines()] == [2, 2, 0, 2, 2]
    done = here("tag", str(folder), "--row", row, "ana won", "acme met smith")
    assert [len(line.split()) for line in done.stdout.splitlines()] == [2, 2, 0, 2, 2, 2]
    assert here("tag", str(folder), "--row", row, "ana won " * 200).stdout.count("\n") == 400, "longer than a file name"


def test_the_only_row_needs_no_name_and_of_several_all_are_named(
    here: Callable, kept: tuple[Path, str], inputs: list[str]
):
    folder, row = kept
    done = here("tag", str(folder), "ana won")
    assert done.stdout == here("tag", str(folder), "--row", row, "ana won").stdout
    names(done.stderr, "1 sentence", "2 words")
    make([*inputs, "layers=embeddings"])  # with weights too
    several = here("tag", "results", "ana won")
    assert (several.returncode, several.stdout) == (2, "")
    names(several.stderr, "--row", "embeddings", row)
    mistyped = here("tag", "resutls", "ana won")
    assert mistyped.returncode == 2
    names(mistyped.stderr, "resutls", "results")


def test_what_cannot_be_tagged_is_refused_in_a_line(here: Callable, kept: tuple[Path, str]):
    folder, row = kept
    Path("uneven.conll").write_text("ana x\nwon\n")
    Path("long.txt").write_text("ana won\n" + "ana " * 10_001 + "\n")
    refused: list[tuple[list[object], list[str]]] = [
        (["nowhere/x.txt", "no such file"], ["nowhere/x.txt"]),
        (["test.conll", "no such file"], ["test.conll"]),
        (["text"], [""]),
        (["uneven.conll:2", "one column", "'won'", 2, "--input text"], ["uneven.conll"]),
        ([folder, "last", "--seed 7"], ["x", "--seed", "7"]),
        (["encoder.path=other"], ["x", "encoder.path=other"]),
        (["probe tag DIR"], []),
        (["probe tag DIR", "'x=y.txt'", "- < FILE"], ["x=y.txt"]),
        (["probe: results", "directory"], ["results"]),
        (["long.txt:2", 10001, 10000], ["long.txt", "--input", "text"]),
        (["'typo'"], ["x", "+typo=1"]),
    ]
    for facts, given in refused:
        done = here("tag", str(folder), "--row", row, *given)
        assert (done.returncode, done.stdout) == (2, ""), facts
        names(done.stderr, *facts)
        assert done.stderr.count("\n") <= 3


def test_invisible_characters_beside_the_words_of_a_text_are_dropped_as_in_training():
    split = read_running(["\u200bAna\u200b won\u2060 .", "", "x\ufeff"], "text")
    assert split.words == [["Ana", "won", "."], ["x"]]
    assert split.skipped["blanks around words"] == 3


def test_a_folder_without_runs_is_named_without_torch(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was loaded')")
    done = interpreted("tag", "kept", "--row", "last", "ana won", cwd=tmp_path)
    assert done.returncode == 2
    names(done.stderr, "kept", "probe sweep-status kept")
    assert len(done.stderr.splitlines()) == 1


def test_another_encoder_than_the_trained_on_is_refused(
    here: Callable, kept: tuple[Path, str], tiny_bert: Path, tmp_path: Path
):
    folder, row = kept
    shutil.copytree(tiny_bert, tmp_path / "other")
    config = json.loads((tmp_path / "other/config.json").read_text())
    (tmp_path / "other/config.json").write_text(json.dumps({**config, "layer_norm_eps": 1e-3}))
    done = here("tag", str(folder), "--row", row, "ana won", f"encoder.path={tmp_path / 'other'}")
    assert done.returncode == 2
    names(done.stderr, "encoder.path=DIR")


def test_a_text_without_marks_is_one_document(here: Callable, inputs: list[str], tiny_corpus: Corpus, tmp_path: Path):
    folder, row = make(inputs, "layers=last", "features.context=document")
    corpus = Corpus("one", {"test": tiny_corpus.splits["test"]})
    file = write_columns(tmp_path / "one", corpus) / "test.conll"
    text = file.read_text()
    file.write_text("-DOCSTART- O\n\n" + text.replace("-DOCSTART- O\n\n", ""))
    marked = here("tag", str(folder), "--row", row, str(file))
    file.write_text(text.replace("-DOCSTART- O\n\n", ""))
    assert words_of(here("tag", str(folder), "--row", row, str(file))) == words_of(marked)


def test_verify_of_a_folder_with_weights_needs_no_torch(kept: tuple[Path, str]):
    code = "import sys, probe.cli; probe.cli.dispatch(['verify', sys.argv[1]]); assert 'torch' not in sys.modules"
    done = python(code, str(kept[0]))
    assert done.returncode == 0, done.stderr


def test_of_several_encoders_a_row_is_chosen_as_tables_name_it(tmp_path: Path):
    for encoder in ("some/bert", "other/roberta"):
        fields = make_record(tmp_path / "one", "last", 1, 0.8, 0.7, weights=encoder).encoder
        for seed in (1, 2):
            make_record(
                tmp_path / "both", "last", seed, 0.8, 0.7, weights=encoder, encoder=replace(fields, name=encoder)
            )
    assert select_saved_probe(tmp_path / "both", "last of roberta", 2)[1].encoder.name == "other/roberta"
    assert {run.encoder.name for run in choose_runs(tmp_path / "both", "last of bert", None)} == {"some/bert"}
    with pytest.raises(UserError, match="last of bert; last of roberta"):
        select_saved_probe(tmp_path / "both", "last", None)


def test_a_name_is_escaped_on_stderr_if_that_is_a_terminal(
    here: Callable, kept: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
):
    Path("\x1b[31m.txt").write_text("Paris")
    for is_terminal in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda told=is_terminal: told)
        monkeypatch.setattr(sys, "stderr", stream)
        assert exit_code("tag", str(kept[0]), "\x1b[31m.txt") == 0
        assert ("\x1b" in stream.getvalue()) != is_terminal


@pytest.mark.parametrize("end", ["", "\n", " b"])
def test_a_long_text_of_slashes_or_dots_is_looked_at_in_time_that_grows_with_it(end: str):
    for text in ("a/" * 400_000 + end, "a.bc" * 200_000 + "." + end):
        began = time.process_time()
        with contextlib.suppress(UserError):
            read_untagged(text, data_config(None), None)
        assert time.process_time() - began < 20


def test_spans_of_an_export_come_back_in_every_form(here: Callable, inputs: list[str], tiny_corpus: Corpus):
    texts = [f"{' '.join(words)}\r\n(ana), \U0001f600 smith won." for words in tiny_corpus.splits["test"].words[:6]]
    rows = [{"id": number, "text": text, "label": []} for number, text in enumerate(texts)]
    Path("all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sure = ("probe.num_layers=0", "probe.learning_rate=0.3", "features.context=document")
    folder, _ = make(inputs, "layers=embeddings", *sure)
    done = {form: here("tag", str(folder), "all.jsonl", "--format", form) for form in ("spans", "doccano", "spacy")}
    found = {form: [json.loads(line) for line in one.stdout.splitlines()] for form, one in done.items()}
    assert [line["text"] for line in found["spans"]] == texts
    for form in ("spans", "doccano"):
        assert [line["id"] for line in found[form]] == [row["id"] for row in rows]
    spans = [[[span["start"], span["end"], span["label"]] for span in line["spans"]] for line in found["spans"]]
    assert spans == [line["label"] for line in found["doccano"]] == [line[1]["entities"] for line in found["spacy"]]
    words = [text[start:end] for text, some in zip(texts, spans, strict=True) for start, end, _ in some]
    assert {*words} <= {*" ".join(texts).replace("(", "").replace(")", "").split()}, "whole words of the text"
    assert any(span[0] > text.index("\U0001f600") for text, some in zip(texts, spans, strict=True) for span in some)
    scores = [span["score"] for line in found["spans"] for span in line["spans"]]
    assert all(0 < score <= 1 for score in scores)
    names(done["spans"].stderr, "12 sentences")
    by_python = probe.load(folder).spans(texts)
    assert [[[one["start"], one["end"], one["entity_group"]] for one in some] for some in by_python] == spans
    assert [one["score"] for some in by_python for one in some] == pytest.approx(scores)
    assert [one["word"] for some in by_python for one in some] == words
    tagged = probe.load(folder).tag(texts)
    behind = ["(", "ana", ")", ",", "\U0001f600", "smith", "won", "."]
    assert [word for word, _ in tagged[0]] == [*tiny_corpus.splits["test"].words[0], *behind]
    Path("made.jsonl").write_text(done["spans"].stdout)
    again = here("tag", str(folder), "made.jsonl", "--format", "spans")
    assert again.stdout == done["spans"].stdout, "what is written can be read"


def test_words_without_a_text_have_spans_in_their_joined_text(here: Callable, kept: tuple[Path, str]):
    Path("one.conll").write_text("ana O\nmet O\nsmith O\n\nacme O\nwon O\n")
    in_words, in_text = (
        here("tag", str(kept[0]), given, "--format", "spans") for given in ("one.conll", "ana met smith\nacme won")
    )
    assert in_words.stdout == in_text.stdout
    assert [json.loads(line)["text"] for line in in_words.stdout.splitlines()] == ["ana met smith", "acme won"]


def test_what_is_no_text_is_tagged_too(here: Callable, kept: tuple[Path, str]):
    Path("pair").mkdir()
    Path("pair/one.txt").write_text("ana met smith\nacme won")
    Path("pair/one.ann").write_text("T1\tPER 0 3\tana\n")
    datasets.Dataset.from_dict({"tokens": [["ana", "met", "smith"], ["acme", "won"]]}).to_parquet("one.parquet")
    pair, table, text = (
        here("tag", str(kept[0]), given) for given in ("pair", "one.parquet", "ana met smith\nacme won")
    )
    assert text.stdout
    assert pair.stdout == table.stdout == text.stdout


def test_a_probe_of_another_task_has_no_spans(here: Callable, inputs: list[str]):
    folder, _ = make(inputs, "layers=last", "data.task=tags")
    done = here("tag", str(folder), "ana won", "--format", "spans")
    assert (done.returncode, done.stdout) == (2, "")
    names(done.stderr, "--format spans", "data.task=spans", "data.task=tags")
    with pytest.raises(UserError, match="data.task=tags"):
        probe.load(folder).spans(["ana won"])
