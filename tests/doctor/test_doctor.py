"""The doctor says what is there, what is missing and what to type, and whether a run would work."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.facts import names
from support.families import FAMILIES
from support.inputs import data_config, encoder_config, features_config, make_split, run_config
from support.records import make_record

from probe.config import Config, LayersConfig, ProbeConfig
from probe.data.corpus import load_corpus
from probe.doctor.data_warnings import data_warnings
from probe.doctor.doctor import examine
from probe.doctor.report import first_sentence, last_lines, part_lines
from probe.features.extraction import ensure_features
from probe.runs.plan import plan
from probe.settings import configs_of
from probe.system import bfloat16
from probe.tables.paper import CONLL2003


@pytest.fixture
def config(tiny_bert: Path, tiny_data: Path, tmp_path: Path) -> Config:
    probe = ProbeConfig(1, 4, 0.0, 0.01, 1, 8, 40, 3, 1.0, "float32")
    return run_config(
        data=data_config(tiny_data, name="tiny"),
        encoder=encoder_config(tiny_bert),
        features=features_config(tmp_path / "cache"),
        layers=LayersConfig([-1], "concat"),
        probe=probe,
        results_dir=str(tmp_path / "out"),
    )


def told(config: Config, sweep: Sequence[Config] = ()) -> tuple[bool, str]:
    found = examine(config, sweep)
    return found.works, "\n".join([*(line for part in found.parts for line in part_lines(part)), *last_lines(found)])


def test_a_run_that_would_work(config: Config, tmp_path: Path):
    works, text = told(config)
    assert works
    names(text, "tiny", "IOB2", "0 to 5", 16, 24, "layer 5", "0 of 3 shards", "0.00 GB")
    names(text.splitlines()[-1], "a small corpus")
    assert not (tmp_path / "out").exists(), "it only looks"
    assert not list((tmp_path / "cache").glob("*/"))

    planned = plan(config)
    ensure_features(planned.text, planned.encoder, config.features, "cpu")
    works, text = told(config)
    assert works
    names(text, "3 of 3 shards")


@pytest.mark.parametrize("works", [True, False])
def test_how_this_cpu_does_bfloat16_is_told_before_a_sweep(config: Config, works: bool, monkeypatch):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: True)
    monkeypatch.setattr(bfloat16, "_lstm_works", lambda: works)
    assert "bfloat16" not in told(config)[1].partition("versions")[0]
    config.probe.precision = "bfloat16"
    assert ("bfloat16: native" in told(config)[1]) == works
    names(told(config)[1], "bfloat16")
    config.probe.num_layers = config.probe.hidden_size = 0
    assert "bfloat16: native" in told(config)[1]


def test_all_that_is_missing_is_told_at_once(config: Config, tmp_path: Path):
    config.data.dev = "nope.conll"
    config.encoder.path = "/nowhere"
    (tmp_path / "file").write_text("")
    config.results_dir = str(tmp_path / "file")
    works, text = told(config)
    assert not works
    names(text, "nope.conll", "data.dev=NAME", "encoder.path=/nowhere")
    names(text.splitlines()[-1], "data, encoder, results")


def test_a_context_that_the_source_cannot_give_fails_and_says_so(config: Config, tiny_data: Path):
    for file in tiny_data.iterdir():
        file.write_text(file.read_text().replace("-DOCSTART- O\n", ""))
    config.features.context = "document"
    works, text = told(config)
    assert not works
    (missing,) = [line for line in text.splitlines() if "ERROR" in line]
    names(missing, "features.context=document", "features.context=sentence")


def test_notes_on_the_data_are_told(config: Config, tiny_data: Path):
    with (tiny_data / "dev.conll").open("a") as file:
        file.write("\nx I-NEW\n\ny B-ME\u200dN\n")
    works, text = told(config)
    assert works
    names(text, "dev.conll", "I-NEW", "IOB2")
    assert re.search(r" kinds: .*, ME\\u200dN 1", text)


@pytest.mark.parametrize("mark", ["-docstart-", "-DOCSTART-X-", "DOCSTART"])
def test_a_word_that_looks_like_a_document_mark_is_reported(config: Config, tiny_data: Path, mark: str):
    file = tiny_data / "train.conll"
    assert "document_marker" not in told(config)[1]
    file.write_text(file.read_text().replace("-DOCSTART- O\n", f"{mark} O\n", 2))
    works, text = told(config)
    assert works
    names(text, "WARNING", mark, "2 sentences", f"data.document_marker={mark}")
    names(text.splitlines()[-1], "marks between documents")


def test_one_of_a_thing_is_told_in_the_singular(config: Config, tiny_data: Path):
    (tiny_data / "train.conll").write_text("ana B-PER\nwon O\n")
    _, text = told(config)
    names(text, "1 sentence", "1 update")


def test_what_is_named_after_conll2003_is_held_against_its_known_counts(
    config: Config, monkeypatch: pytest.MonkeyPatch
):
    config.data.name = "conll2003"
    _, text = told(config)
    names(text, "CoNLL-2003", "train", "30 documents", 946)
    for name, counts in plan(config).corpus.counts().items():
        monkeypatch.setitem(CONLL2003, name, counts)
    assert "946" not in told(config)[1]


def test_the_first_sentence_is_shown_and_each_warning_named_last(config: Config, tiny_data: Path):
    text = (tiny_data / "train.conll").read_text()
    (tiny_data / "train.conll").write_text("a\u00a0b O\nAna B-PER\n\n" + text)
    config.encoder.path = "/nowhere"
    works, text = told(config)
    assert not works
    names(text, "a\\xa0b O | Ana B-PER\n", "61 sentences", "8 updates")
    names(text.splitlines()[-1], "encoder", "a small corpus")


def found(config: Config, folder: Path, texts: dict[str, str], **changes: object) -> dict[str, str]:
    """The oddities of three files, by name."""
    for name, text in texts.items():
        (folder / f"{name}.conll").write_text(text)
    config.data = data_config(folder, **changes)
    corpus = load_corpus(config.data)
    return {odd.name: odd.message for odd in data_warnings(corpus, [config])}


def as_columns(line: str, num_train: int = 400) -> dict[str, str]:
    """Three files whose lines are made of {i}, {word} and {tag}."""
    texts = {}
    for seed, (name, number) in enumerate({"train": num_train, "dev": 50, "test": 50}.items(), 1):
        split = make_split(number, seed)
        pairs = (zip(words, tags, strict=True) for words, tags in zip(split.words, split.tags, strict=True))
        texts[name] = "\n".join(
            "".join(line.format(i=i, word=word, tag=tag) + "\n" for i, (word, tag) in enumerate(sentence, 1))
            for sentence in pairs
        )
    return texts


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


def test_a_corpus_with_nothing_odd_has_no_warning(config: Config, folder: Path):
    assert found(config, folder, as_columns("{word}\t{tag}")) == {}
    config.probe.batch_size = 32
    config.data = data_config("bundled")
    demo = load_corpus(config.data)
    assert data_warnings(demo, [config]) == []
    words, tags = demo.splits["train"].words[0], demo.splits["train"].tags[0]
    assert first_sentence([*zip(words, tags, strict=True)]).endswith("OFF O")


def test_a_prefix_of_all_words_is_noticed(config: Config, folder: Path):
    texts = as_columns("en:{word}\t{tag}")
    odd = found(config, folder, texts)
    assert odd.keys() == {"a prefix of all words"}
    names(odd["a prefix of all words"], "data.word_prefix=en:")
    assert found(config, folder, texts, word_prefix="en:") == {}
    hashed = found(config, folder, as_columns("#{word}\t{tag}"))
    names(hashed["a prefix of all words"], "data.word_prefix='\"#\"'")


def test_a_line_of_column_names_is_noticed(config: Config, folder: Path):
    texts = {name: f"Wort\tMarke\n{text}" for name, text in as_columns("{word}\t{tag}").items()}
    names(found(config, folder, texts, task="tags")["a header"], "Wort Marke", "data.comment=Wort")
    assert "a header" not in found(config, folder, texts, task="tags", comment="Wort")


@pytest.mark.parametrize("spoilt", ["records", "logs"])
def test_a_results_folder_in_which_a_run_could_not_write_fails(config: Config, tmp_path: Path, spoilt: str):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / spoilt).write_text("")
    for folder, named in (("/proc/x", "/proc"), (str(tmp_path / "out"), spoilt)):
        config.results_dir = folder
        works, text = told(config)
        assert not works
        names(text, f"results_dir={folder}", named)
        assert re.findall(r"^results +(\w+)", text, re.MULTILINE) == ["ERROR"]


def test_a_wrong_tag_is_no_missing_file(config: Config, tiny_data: Path):
    file = tiny_data / config.data.train
    file.write_text(file.read_text() + "\nOslo B_LOC\n")
    works, text = told(config)
    assert not works
    names(text, "B_LOC")
    assert re.findall(r"^data +(\w+)", text, re.MULTILINE) == ["ERROR"]


def test_fine_tuning_has_windows_and_done_means_a_sound_record(config: Config, folder: Path, tmp_path: Path):
    tuned = configs_of(["probe=finetune", "data=demo", "encoder=minilm_l6", f"results_dir={tmp_path}"])[0][0]
    tuned.data, tuned.encoder, tuned.features.cache_dir = config.data, config.encoder, config.features.cache_dir
    works, text = told(tuned)
    assert works
    assert "windows   ok       train " in text
    tuned.features.context = "document"
    tuned.data = replace(config.data, document_marker=None)
    works, text = told(tuned)
    assert not works
    assert "windows   ERROR    features.context=document" in text

    record = plan(config).record_path
    record.parent.mkdir(parents=True)
    for unreadable in ("{}", '{"schema": 3, "ke'):
        record.write_text(unreadable)
        text = told(config)[1]
        assert "already done" not in text
        names(text, record)
    make_record(tmp_path / "made", "last", 1, 0.5, 0.5)
    shutil.copy(next((tmp_path / "made/records").iterdir()), record)
    assert "already done" in told(config)[1]
    config.save_probe = True
    assert "already done" not in told(config)[1], "its weights were not kept"


def test_an_index_column_and_an_empty_layer_are_noticed(config: Config, folder: Path):
    texts = as_columns("{i}\t{word}\t{tag}\tO")
    texts = {name: text.replace("\tO\n", "\tB-X\n", 1) for name, text in texts.items()}
    odd = found(config, folder, texts)
    assert odd.keys() == {"words that are numbers", "the tags' column"}
    names(odd["words that are numbers"], "1, 2, 3", "column 1", "data.word_column=1")
    names(odd["the tags' column"], "O", "column 2", "data.tag_column=2")
    assert found(config, folder, texts, word_column=1, tag_column=2) == {}


def test_a_column_that_is_probably_not_the_tags_is_noticed(config: Config, folder: Path):
    assert found(config, folder, as_columns("{word}\t{tag}\tO"), tag_column=1) == {}
    texts = {name: text.replace("\tthe\n", "\tO\n") for name, text in as_columns("{word}\t{tag}\t{word}").items()}
    names(found(config, folder, texts)["the tags' column"], "data.tag_column=1")
    long = "".join(f"word{n}\tT{n % 5}\tlemma{n}\n" + "\n" * (n % 7 == 0) for n in range(3000))
    texts = {"train": long, "dev": "x\tT1\tlemma1\n", "test": "y\tT2\tlemma2\n"}
    odd = found(config, folder, texts, task="tags")
    names(odd["the tags' column"], "column 1", 5, "T0, T1, T2, T3", "data.tag_column=1")
    assert "the tags' column" not in found(config, folder, texts, task="tags", tag_column=1)


def test_tags_that_are_nearly_all_one_are_noticed(config: Config, folder: Path):
    texts = as_columns("{word}\t{tag}")
    texts["train"] = re.sub(r"\t[BI]-\w+", "\tO", texts["train"]) + "\nHull\tB-LOC\nAcme\tB-ORG\nAna\tB-PER\n"
    odd = found(config, folder, texts)
    assert odd.keys() == {"tags that are nearly all one"}
    names(odd["tags that are nearly all one"], "99.9 %", "O")


def test_splits_that_share_many_long_sentences_are_noticed(config: Config, folder: Path):
    texts = as_columns("{word}\t{tag}")
    of_train = [sentence.strip() for sentence in texts["train"].split("\n\n")]
    long = [sentence for sentence in of_train if sentence.count("\n") >= 4]
    short = [sentence for sentence in of_train if sentence.count("\n") < 4]

    def with_these(sentences: list[str]) -> dict[str, str]:
        return found(config, folder, texts | {"test": texts["test"] + "\n" + "\n\n".join(sentences) + "\n"})

    odd = with_these(long[:30])
    assert odd.keys() == {"splits that share sentences"}
    names(odd["splits that share sentences"], "5 words", 30, "test", "train")
    assert with_these(long[:1]) == {}
    assert with_these(short) == {}


def test_a_small_corpus_is_reported_with_what_to_do(config: Config, folder: Path):
    odd = found(config, folder, as_columns("{word}\t{tag}", num_train=199))
    assert odd.keys() == {"a small corpus"}
    names(odd["a small corpus"], "199 sentences", "25 updates", "probe -m seed=1,2,3,4,5", "probe.batch_size=2")
    config.probe.batch_size = 1
    odd = found(config, folder, as_columns("{word}\t{tag}", num_train=199))
    names(odd["a small corpus"], "probe -m seed=1,2,3,4,5")
    assert "probe.batch_size" not in odd["a small corpus"]
    config.probe.batch_size = 16
    names(found(config, folder, as_columns("{word}\t{tag}"))["a small corpus"], "25 updates")


def test_fewer_epochs_than_any_training_takes_to_converge_are_noticed(config: Config, folder: Path):
    config.probe.max_epochs = 17
    odd = found(config, folder, as_columns("{word}\t{tag}"))
    assert odd.keys() == {"too few epochs"}
    names(odd["too few epochs"], "probe.max_epochs=17", "1,700", "1,900", "probe.max_epochs=38")
    config.probe.max_epochs = 19
    assert found(config, folder, as_columns("{word}\t{tag}")) == {}
    config.probe.max_epochs = 17
    config.layers = LayersConfig([], "none")
    assert found(config, folder, as_columns("{word}\t{tag}")) == {}


def test_a_sweep_reports_its_shortest_training_and_largest_batch(config: Config, tiny_data: Path):
    larger = replace(config, probe=replace(config.probe, batch_size=2 * config.probe.batch_size))
    shorter = replace(config, probe=replace(config.probe, max_epochs=12))
    _, text = told(config, [config, larger, shorter])
    sentences = len(load_corpus(config.data).splits["train"].words)
    names(text, f"{sentences} sentences", "probe.max_epochs=12")
    (warned,) = [line for line in text.splitlines() if "probe -m seed=" in line]
    names(warned, "WARNING", "4 updates")
    names(text.splitlines()[-1], "a small corpus", "too few epochs")


def test_a_sweep_is_typed_as_for_training(typed: Callable, inputs: list[str]):
    done = typed("doctor", "-m", "layers=last,embeddings", "seed=1,2", *inputs)
    assert done.returncode == 0, done.stdout
    assert re.search(r"sweep +ok +4 runs, 4 not done yet\n", done.stdout)
    done = typed("doctor", "layers=last,embeddings", *inputs)
    assert done.returncode == 2
    names(done.stderr, "probe doctor -m")


def test_it_says_whose_vectors_depend_on_their_batch(config: Config, tmp_path: Path):
    for part in FAMILIES["fnet"]():
        part.save_pretrained(tmp_path / "fnet")
    fnet = replace(config, encoder=encoder_config(tmp_path / "fnet"))
    assert ["padding" in told(given)[1] for given in (fnet, config)] == [True, False]


def test_json_has_the_facts_of_every_part(typed: Callable, inputs: list[str]):
    done = typed("doctor", "layers=last", *inputs, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    parts = {part["name"]: part["facts"] for part in found["parts"]}
    assert list(parts) == ["data", "encoder", "device", "layers", "store", "results"]
    assert (found["works"], found["failed"]) == (True, [])
    assert set(found["warnings"]) == {
        warning["name"] for facts in parts.values() for warning in facts.get("warnings", ())
    }
    assert parts["encoder"]["takes_padding"] is True
    assert parts["encoder"]["num_layers"] == parts["layers"]["of"] == parts["layers"]["indices"][-1] == 5
    assert (parts["store"]["shards_there"], parts["store"]["shards"]) == (0, 3)
    assert len(parts["store"]["norms"]) == 6
    failed = typed("doctor", "layers=last", *inputs, "data.train=nope.conll", "--format", "json")
    assert failed.returncode == 1
    data, *_ = json.loads(failed.stdout)["parts"]
    names(data["problem"], "nope.conll")


def test_every_corpus_of_a_sweep_is_looked_at_once(config: Config, folder: Path):
    beside = replace(config)
    assert found(beside, folder, as_columns("en:{word}\t{tag}"), name="prefixed")
    other = replace(config, data=beside.data)
    control = replace(other, data=replace(other.data, control=1), seed=2)
    works, text = told(config, [config, other, control])
    assert works
    assert re.findall(r"^data +ok +(\w+), from", text, re.MULTILINE) == ["tiny", "prefixed"]
    names(text.splitlines()[-1], "a small corpus", "a prefix of all words")


def test_a_missing_part_of_several_corpora_is_named_once(config: Config, tmp_path: Path):
    away = [replace(config, data=replace(config.data, path=str(tmp_path / name))) for name in ("one", "two")]
    examined = examine(away[0], away)
    assert not examined.works
    assert [part.name for part in examined.parts if part.problem] == ["data", "data"]
    assert examined.failed == ["data"]


def test_a_sweep_has_its_runs_stores_and_times(config: Config):
    def sweep(**data: Any) -> list[Config]:
        weights = [replace(config.encoder, weights=kind) for kind in ("pretrained", "random")]
        layers = [LayersConfig([-1], "concat"), LayersConfig([1, 2], "mix"), LayersConfig([], "none")]
        chosen = replace(config.data, **data)
        return [replace(config, encoder=e, layers=one, data=chosen) for e in weights for one in layers]

    works, text = told(config, sweep())
    assert works
    assert re.search(r"sweep +ok +5 runs, 5 not done yet\n", text), "the majority tag is one run"
    assert re.search(r"to extract: 2 stores, 0.00 GB, about \d+ (s|min)\n", text)
    (training,) = [line for line in text.splitlines() if "to train: " in line]
    assert len(re.findall(r"\b\d+ (?:s|min)\b", training)) == 2, "at least and at most"
    names(training, "1 at once", "18 to 40 epochs")
