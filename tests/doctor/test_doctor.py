"""The doctor says what is there, what is missing and what to type, and whether a run would work."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.facts import names
from support.inputs import data_config, encoder_config, ensure_features, features_config, make_split, run_config
from support.records import make_record

from probe.config import Config, LayersConfig, ProbeConfig
from probe.data.corpus import load_corpus
from probe.data.warnings import WARNING
from probe.doctor.doctor import examine
from probe.doctor.power import dev_line
from probe.runs.plan import plan
from probe.runs.run import run
from probe.settings import configs_of
from probe.system import speed


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures shorter than for a user: what is measured is looked at, how well it is not."""
    monkeypatch.setattr(speed, "MEASURE_S", 0.1)


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


def told(*configs: Config) -> tuple[bool, str]:
    parts = list(examine(configs))
    return all(part.ok for part in parts), "\n".join(part.text() for part in parts)


def parts(text: str, result: str) -> list[str]:
    """The names of the parts that have this result."""
    return re.findall(rf"^(\w+) +{result} ", text, re.MULTILINE)


def test_a_run_that_would_work(config: Config, tmp_path: Path):
    works, text = told(config)
    assert works
    assert parts(text, "ok") == ["data", "encoder", "device", "results", "cost"]
    names(text, "tiny", "IOB2", "0 to 5", 16, 24, "layer 5", "0 of 3 shards", "to extract: 1 store, 0.00 GB")
    assert not (tmp_path / "out").exists(), "it only looks"
    assert not list((tmp_path / "cache").glob("*/"))

    planned = plan(config)
    ensure_features(planned.corpus, planned.encoder, config.features, "cpu")
    works, text = told(config)
    assert works
    names(text, "3 of 3 shards")
    assert "to extract" not in text


def test_what_dev_can_show_is_said_before_training_and_a_sentence_with_a_label_is_shown():
    demo = load_corpus(configs_of(["data=demo"])[0][0].data)
    (found,) = re.findall(r"(\d+\.\d\d) points", dev_line(demo, None))
    assert 3 < float(found) < 5, "4.3 in the committed quickstart, in 80 % of tables"
    one = replace(demo, splits={**demo.splits, "dev": replace(demo.splits["dev"], documents=[1] * 372)})
    assert not re.findall(r"\d+\.\d\d", dev_line(one, None))
    unmarked = replace(demo, splits={**demo.splits, "dev": replace(demo.splits["dev"], documents=None)})
    (shuffled,) = re.findall(r"(\d+\.\d\d) points", dev_line(unmarked, None))
    (independent,) = re.findall(r"(\d+\.\d\d) points", dev_line(unmarked, "independent"))
    assert float(independent) < float(shuffled)


def test_the_first_sentence_with_a_label_is_shown(config: Config, tiny_data: Path):
    file = tiny_data / str(config.data.train)
    file.write_text("so O\nit O\n\n" + file.read_text())
    text = told(config)[1]
    assert "sentence 2: " in text
    assert re.search(r"^ +tags: .*B-", text, re.MULTILINE)


def test_what_more_seeds_would_show_is_told_from_a_folders_variances(config: Config, tmp_path: Path):
    for seed in (1, 2, 3):
        for at, row in enumerate(("last", "embeddings")):
            make_record(tmp_path / "other", row, seed, 0.8 + seed / 1000, 0.7, (at,))
    *_, power = examine([config], like=tmp_path / "other")
    numbers = [[float(number) for number in re.findall(r"\d+\.\d\d", line)] for line in power.lines[1:]]
    assert all(len(line) == 4 and line == sorted(line, reverse=True) for line in numbers)
    assert all(larger > smaller for larger, smaller in zip(*numbers, strict=True))
    *_, power = examine([config], like=tmp_path / "none")
    assert (power.name, power.ok) == ("power", False)


def test_all_that_is_missing_is_told_at_once(config: Config, tmp_path: Path):
    config.data.dev = "nope.conll"
    config.encoder.path = "/nowhere"
    (tmp_path / "file").write_text("")
    config.results_dir = str(tmp_path / "file")
    works, text = told(config)
    assert not works
    names(text, "nope.conll", "data.dev=NAME", "encoder.path=/nowhere")
    assert parts(text, "ERROR") == ["data", "encoder", "results"]


def test_a_context_that_the_source_cannot_give_fails_and_says_so(config: Config, tiny_data: Path):
    for file in tiny_data.iterdir():
        file.write_text(file.read_text().replace("-DOCSTART- O\n", ""))
    config.features.context = "document"
    works, text = told(config)
    assert not works
    (missing,) = [line for line in text.splitlines() if "ERROR" in line]
    names(missing, "features.context=document", "features.context=sentence")


def test_notes_on_the_data_are_told(config: Config, tiny_data: Path):
    text = (tiny_data / "train.conll").read_text()
    (tiny_data / "train.conll").write_text("a\u00a0b O\nAna B-PER\n\n" + text)
    with (tiny_data / "dev.conll").open("a") as file:
        file.write("\nx I-NEW\n\ny B-ME\u200dN\n")
    works, text = told(config)
    assert works
    names(text, "dev.conll", "I-NEW", "IOB2", "sentences 61", "a\\xa0b | Ana\n", "O | B-PER\n")
    assert re.search(r" kinds: .*, ME\\u200dN 1", text)


def on_data(config: Config) -> list[str]:
    return [note.removeprefix(WARNING) for note in load_corpus(config.data).notes if note.startswith(WARNING)]


def warned(config: Config, folder: Path, texts: dict[str, str], **changes: object) -> list[str]:
    """The warnings for three files."""
    for name, text in texts.items():
        (folder / f"{name}.conll").write_text(text)
    config.data = data_config(folder, **changes)
    return on_data(config)


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
    assert warned(config, folder, as_columns("{word}\t{tag}")) == []
    config.data = data_config("bundled")
    assert on_data(config) == []


@pytest.mark.parametrize("spoilt", ["records", "logs"])
def test_a_results_folder_in_which_a_run_could_not_write_fails(config: Config, tmp_path: Path, spoilt: str):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / spoilt).write_text("")
    for folder, named in (("/proc/x", "/proc"), (str(tmp_path / "out"), spoilt)):
        config.results_dir = folder
        _, text = told(config)
        names(text, f"results_dir={folder}", named)
        assert parts(text, "ERROR") == ["results"]


def test_a_wrong_tag_is_no_missing_file(config: Config, tiny_data: Path):
    file = tiny_data / config.data.train
    file.write_text(file.read_text() + "\nOslo B_LOC\n")
    _, text = told(config)
    names(text, "B_LOC")
    assert parts(text, "ERROR") == ["data"]


def test_done_means_a_record_and_the_weights_that_are_asked_for(config: Config, tmp_path: Path):
    names(told(config)[1], "1 run, 1 not done yet")
    run(config, log=lambda line: None)
    names(told(config)[1], "1 run, 0 not done yet")
    config.save_probe = True
    names(told(config)[1], "1 run, 1 not done yet")  # its weights were not kept


def test_an_index_column_and_an_empty_layer_are_noticed(config: Config, folder: Path):
    texts = as_columns("{i}\t{word}\t{tag}\tO")
    texts = {name: text.replace("\tO\n", "\tB-X\n", 1) for name, text in texts.items()}
    words, tags = warned(config, folder, texts)
    names(words, "1, 2, 3", "data.word_column=1")
    names(tags, "O", "data.tag_column=2")
    assert warned(config, folder, texts, word_column=1, tag_column=2) == []


def test_a_column_that_is_probably_not_the_tags_is_noticed(config: Config, folder: Path):
    assert warned(config, folder, as_columns("{word}\t{tag}\tO"), tag_column=1) == []
    long = "".join(f"word{n}\tT{n % 5}\tlemma{n}\n" + "\n" * (n % 7 == 0) for n in range(3000))
    texts = {"train": long, "dev": "x\tT1\tlemma1\n", "test": "y\tT2\tlemma2\n"}
    (odd,) = warned(config, folder, texts, task="tags")
    names(odd, "3000 different ones", "data.tag_column=1", "5 different ones: T0 600, T1 600, T2 600, T3 600")
    assert warned(config, folder, texts, task="tags", tag_column=1) == []


def test_digits_behind_words_a_shared_beginning_and_names_of_columns_are_noticed(config: Config, folder: Path):
    (odd,) = warned(config, folder, as_columns("{word}1\t{tag}"))
    assert re.search(r"\b[a-z]+1, [a-z]+1\b", odd)
    (odd,) = warned(config, folder, as_columns("en:{word}\t{tag}"))
    names(odd, "data.word_prefix=en:")
    texts = {name: f"Token\tpos\n{text}" for name, text in as_columns("{word}\tT{tag}").items()}
    (odd,) = warned(config, folder, texts, task="tags")
    names(odd, "data.comment=Token")
    for comment in ("Token", ["Token", "# "]):
        assert warned(config, folder, texts, task="tags", comment=comment) == []


def test_a_text_without_empty_lines_is_noticed(config: Config, folder: Path):
    texts = {name: re.sub("\n+", "\n", text) for name, text in as_columns("{word}\t{tag}").items()}
    (odd,) = warned(config, folder, texts)
    names(odd, load_corpus(config.data).splits["train"].num_words)


def test_tags_that_are_nearly_all_one_are_noticed(config: Config, folder: Path):
    texts = as_columns("{word}\t{tag}")
    texts["train"] = re.sub(r"\t[BI]-\w+", "\tO", texts["train"]) + "\nHull\tB-LOC\nAcme\tB-ORG\nAna\tB-PER\n"
    (odd,) = warned(config, folder, texts)
    names(odd, "4 different ones: O", "B-LOC 1")


def test_splits_that_share_many_long_sentences_are_noticed(config: Config, folder: Path):
    texts = as_columns("{word}\t{tag}")
    of_train = [sentence.strip() for sentence in texts["train"].split("\n\n")]
    long = [sentence for sentence in of_train if sentence.count("\n") >= 4]
    short = [sentence for sentence in of_train if sentence.count("\n") < 4]

    def with_these(sentences: list[str]) -> list[str]:
        return warned(config, folder, texts | {"test": texts["test"] + "\n" + "\n\n".join(sentences) + "\n"})

    (odd,) = with_these(long[:30])
    names(odd, "5 words", 30, "test", "train")
    assert with_these(long[:1]) == []
    assert with_these(short) == []


def test_a_sweep_is_typed_as_for_training(typed: Callable, inputs: list[str]):
    done = typed("doctor", "-m", "layers=last,embeddings", "seed=1,2", *inputs)
    assert done.returncode == 0, done.stdout
    names(done.stdout, "4 runs, 4 not done yet")
    done = typed("doctor", "layers=last,embeddings", *inputs)
    assert done.returncode == 2
    names(done.stderr, "probe doctor -m")


def test_what_fails_is_named_once_in_the_last_line(typed: Callable, inputs: list[str], tmp_path: Path):
    (tmp_path / "one").mkdir()
    done = typed("doctor", "-m", "layers=last", *inputs, "data.train=no.conll,none.conll", "encoder.path=/nowhere")
    assert done.returncode == 1
    assert parts(done.stdout, "ERROR") == ["data", "data", "encoder"]
    names(done.stdout.splitlines()[-1], ": data, encoder.")


def test_every_corpus_of_a_sweep_is_looked_at_once(config: Config, tiny_data: Path, tmp_path: Path):
    other = replace(config, data=replace(config.data, name="other"))
    control = replace(other, data=replace(other.data, control=1), seed=2)
    works, text = told(config, other, control)
    assert works
    assert re.findall(r"^data +ok +(\w+), from", text, re.MULTILINE) == ["tiny", "other"]


def test_every_encoder_of_a_sweep_is_looked_at(config: Config):
    text = told(*(replace(config, encoder=replace(config.encoder, weights=kind)) for kind in ("pretrained", "random")))[
        1
    ]
    assert parts(text, "ok").count("encoder") == 2


def test_a_sweep_has_its_runs_stores_and_times(config: Config):
    weights = [replace(config.encoder, weights=kind) for kind in ("pretrained", "random")]
    layers = [LayersConfig([-1], "concat"), LayersConfig([1, 2], "mix"), LayersConfig([], "none")]
    works, text = told(*(replace(config, encoder=encoder, layers=one) for encoder in weights for one in layers))
    assert works
    names(text, "5 runs, 5 not done yet")  # the majority tag is one run
    assert re.search(r"to extract: 2 stores, 0.00 GB, about \d+ (s|min)\n", text)
    (training,) = [line for line in text.splitlines() if "to train: " in line]
    assert len(re.findall(r"\b\d+ (?:s|min)\b", training)) == 2, "at least and at most"
    names(training, "1 at once", "18 to 40 epochs")
