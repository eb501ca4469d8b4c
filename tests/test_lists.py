"""Lists, tables and arrays of a program become files that commands read, and a result that a notebook shows."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest
import torch
from matplotlib.figure import Figure
from support.commands import here
from support.facts import names
from support.records import make_record

import probe
from probe.config import UserError
from probe.data.corpus import BUNDLED_FOLDER, Corpus, load_corpus
from probe.encoders.encoder import Encoder
from probe.lists import write_inputs
from probe.settings import configs_of
from probe.system.progress import run_with_bar
from probe.vectors.given import open_vectors

ROOT = Path(__file__).parent.parent

PLACES, PEOPLE = "paris jordan leeds amman".split(), "ana smith chelsea acme".split()
TEXTS = [f"{name} {verb} {where}." for where in "home at,to the bank,from england".split(",") for verb in
         "won lost went met".split() for name in PLACES + PEOPLE]  # fmt: skip
LABELS = ["place" if text.split()[0] in PLACES else "person" for text in TEXTS]
GROUPS = [number // 4 for number in range(len(TEXTS))]
WORDS = [text.removesuffix(".").split() for text in TEXTS]
TAGS = [["B-LOC" if word in PLACES else "O" for word in words] for words in WORDS]
SHORT = ("probe.max_epochs=2", "jobs=1", "screen.seeds=2", "device=cpu")


def corpus_of(folder: Path, texts: Any, labels: Any = None, *typed: str, groups: Any = None, **more: Any) -> Corpus:
    splits = {"train": (texts, labels, groups), "dev": None, "test": None} | more
    return load_corpus(configs_of(["-m", *write_inputs("minilm_l6", splits, typed, folder)])[0][0].data)


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api_here: None) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_a_text_is_the_same_from_lists_arrays_and_tables(tmp_path: Path):
    number = [["person", "place"].index(label) for label in LABELS]
    frame = pandas.DataFrame({"said": TEXTS, "kind": LABELS, "other": GROUPS})
    kind = datasets.ClassLabel(names=["person", "place"])
    table = datasets.Dataset.from_dict({"text": TEXTS, "label": number}).cast_column("label", kind)
    fields = ("data.words_field=said", "data.tags_field=kind")
    made = {
        "lists": corpus_of(tmp_path / "lists", TEXTS, LABELS),
        "arrays": corpus_of(tmp_path / "arrays", np.array(TEXTS), np.array(LABELS)),
        "columns": corpus_of(tmp_path / "columns", frame["said"], frame["kind"]),
        "frame": corpus_of(tmp_path / "frame", frame, None, *fields),
        "table": corpus_of(tmp_path / "table", table),
        "numbers": corpus_of(tmp_path / "numbers", TEXTS, np.array(number), "data.labels=[person,place]"),
    }
    assert len({corpus.key for corpus in made.values()}) == 1
    assert [corpus.name for corpus in made.values()] == [*made]
    splits = made["lists"].splits
    assert {name: len(split.words) for name, split in splits.items()} == {"train": 58, "dev": 19, "test": 19}
    assert sorted(chain.from_iterable(split.raw or [] for split in splits.values())) == sorted(TEXTS)
    assert corpus_of(tmp_path / "own", TEXTS, np.array(number)).splits["dev"].tags[0] in (["0"], ["1"])


def test_words_are_the_same_from_lists_and_tables(tmp_path: Path):
    lists = corpus_of(tmp_path / "lists", WORDS, TAGS)
    frame = pandas.DataFrame({"tokens": [np.array(words) for words in WORDS], "ner_tags": TAGS})
    kind = datasets.Sequence(datasets.ClassLabel(names=["O", "B-LOC"]))
    numbers = [[["O", "B-LOC"].index(tag) for tag in tags] for tags in TAGS]
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": kind})
    table = datasets.Dataset.from_dict({"tokens": WORDS, "ner_tags": numbers}, features=features)
    keys = {corpus_of(tmp_path / "frame", frame).key, corpus_of(tmp_path / "table", table).key}
    assert keys == {lists.key}
    assert lists.task.name == "spans"


@pytest.mark.parametrize(("texts", "labels"), [(TEXTS, LABELS), (WORDS, TAGS)], ids=["texts", "words"])
def test_each_group_lies_in_one_split_wherever_its_texts_stand(texts: list, labels: list, tmp_path: Path):
    of_text = {tuple(words): number % 24 for number, words in enumerate(WORDS)}
    splits = corpus_of(tmp_path / "some", texts, labels, groups=[*of_text.values()]).splits
    groups = [
        {of_text[tuple(word for word in words if word != ".")] for words in split.words} for split in splits.values()
    ]
    assert [len(one) for one in groups] == [14, 5, 5]
    assert len(set.union(*groups)) == 24
    assert [len({*(split.documents or [])}) for split in splits.values()] == [14, 5, 5]


def test_dev_and_test_may_be_given(tmp_path: Path):
    dev, test = (TEXTS[:30], LABELS[:30]), pandas.DataFrame({"text": TEXTS[30:50], "label": LABELS[30:50]})
    splits = corpus_of(tmp_path / "some", TEXTS[50:], LABELS[50:], dev=dev, test=test).splits
    assert {name: split.raw for name, split in splits.items()} == {
        "train": TEXTS[50:],
        "dev": TEXTS[:30],
        "test": TEXTS[30:50],
    }


@pytest.mark.parametrize("shape", [(96, 4, 8), (96, 8)])
def test_vectors_keep_their_labels(shape: tuple[int, ...], tmp_path: Path):
    vectors = np.arange(96.0).reshape(96, *[1] * (len(shape) - 1)) * np.ones(shape)
    settings = write_inputs(
        None, {"train": (vectors, LABELS, GROUPS), "dev": None, "test": None}, [], tmp_path / "some"
    )
    cfg = configs_of(["-m", *settings])[0][0]
    corpus, source = load_corpus(cfg.data), open_vectors(cfg.encoder, tmp_path)
    assert (source.num_layers, source.hidden_size, source.dtype) == (len(shape) % 2 * 3, 8, "float32")
    assert corpus.task.name == "sentence"
    for name, split in corpus.splits.items():
        (found,) = source.vectors_at(torch.from_numpy(source.places_of(corpus, name)), name, [0])
        numbers = [int(value) for value in found[:, 0]]
        assert [LABELS[number] for number in numbers] == [label for (label,) in split.tags]
        assert len({GROUPS[number] for number in numbers}) == len({*(split.documents or [])})


def test_a_folder_holds_the_results_of_one_text(tmp_path: Path):
    splits = {"train": (TEXTS, LABELS), "dev": None, "test": None}
    settings = write_inputs("minilm_l6", splits, [], tmp_path)
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    kept = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert write_inputs("minilm_l6", splits, [], tmp_path) == settings
    for other in ({"train": (TEXTS[1:], LABELS[1:])}, {"train": (WORDS, TAGS)}, {"dev": (TEXTS[:9], LABELS[:9])}):
        with pytest.raises(UserError, match="results_dir") as caught:
            write_inputs("minilm_l6", splits | other, [], tmp_path)
        names(caught.value, tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == kept


def test_what_could_not_be_read_is_corrected_in_the_same_folder(in_folder: Path, tiny_bert: Path):
    with pytest.raises(UserError, match="jsonl:2"):
        probe.choose(str(tiny_bert), TEXTS, [LABELS[0], 0.5, *LABELS[2:]], *SHORT, results_dir="some")
    for typed, fact in (("probe.lr=1", "probe.learning_rate"), (GROUPS, "encoder=minilm_l6")):
        with pytest.raises(UserError) as caught:
            probe.choose(str(tiny_bert), TEXTS, LABELS, typed, results_dir="some")  # type: ignore[arg-type]
        names(caught.value, fact)
    found = probe.choose(str(tiny_bert), TEXTS, LABELS, "layers=last", *SHORT, results_dir="some")
    assert len(found.runs) == 3


@pytest.mark.parametrize(
    ("encoder", "given", "facts"),
    [
        ("minilm_l6", (TEXTS, LABELS[1:]), ["train", 96, 95]),
        ("minilm_l6", (TEXTS, LABELS, GROUPS[1:]), ["train", 96, 95]),
        ("minilm_l6", ([], []), ["train"]),
        ("minilm_l6", (TEXTS,), ["train", "labels"]),
        ("minilm_l6", ("a text", LABELS), ["train"]),
        ("minilm_l6", (dict(zip(TEXTS, LABELS, strict=True)), LABELS), ["train"]),
        ("minilm_l6", (pandas.DataFrame({"text": TEXTS, "label": LABELS}), LABELS), ["train", "data.tags_field"]),
        ("minilm_l6", (TEXTS, [object()] * 96), ["train", "object"]),
        ("minilm_l6", (pandas.DataFrame({"a": TEXTS, "b": LABELS}),), ["a, b", "data.words_field", "data.tags_field"]),
        ("minilm_l7", (TEXTS, LABELS), ["minilm_l6"]),
        (torch.nn.Identity(), (TEXTS, LABELS), ["encoder", "Identity"]),
        (None, (TEXTS, LABELS), ["units, layers, H"]),
        (None, (np.zeros((95, 2)), LABELS), [96, 95]),
    ],
)
def test_what_does_not_fit_together_is_refused_before_a_file_is_written(
    encoder: Any, given: tuple, facts: list, tmp_path: Path
):
    with pytest.raises(UserError) as caught:
        write_inputs(encoder, {"train": given, "dev": None, "test": None}, [], tmp_path / "some")
    names(caught.value, *facts)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_the_choice_is_an_experiment_that_commands_can_repeat(in_folder: Path, tiny_bert: Path):
    found = probe.choose(str(tiny_bert), TEXTS, LABELS, *SHORT, groups=GROUPS, results_dir="some")
    assert "last" in {*found.runs["row"]}
    assert (found.runs.groupby("row").seed.agg(list).map(sorted).map(str) == "[1, 2, 3]").all()
    assert len(found.table) >= 2
    assert [file.name for file in Path("some/data").glob("*/*")] == ["train.jsonl"]
    names(found.notes, 20, "data.dev_fraction")
    settings = json.loads(Path(found.runs["record"][0]).read_text())["config"]
    assert (settings["probe"]["num_layers"], settings["layers"]["normalize"]) == (0, "scale")
    verified = here("verify", "some", "--rerun", "last", "--seed", "1")
    assert verified.returncode == 0, verified.stdout
    records = {*Path("some/records").iterdir()}
    again = probe.choose(str(tiny_bert), TEXTS, LABELS, *SHORT, groups=GROUPS, results_dir="some")
    assert {*Path("some/records").iterdir()} == records
    assert again.table["dev_mean"].tolist() == found.table["dev_mean"].tolist()


def test_rows_that_are_named_need_no_screen(in_folder: Path, tiny_bert: Path):
    frame = pandas.DataFrame({"tokens": WORDS, "ner_tags": TAGS})
    found = probe.choose(str(tiny_bert), frame, "layers=last,layer_1", *SHORT, results_dir="some")
    assert {*found.table["row"]} == {"last", "layer_1"}
    assert len(found.runs) == 6
    assert not Path("some/screen.json").exists()


@pytest.mark.slow
def test_of_vectors_the_layer_that_knows_the_labels_is_found(in_folder: Path):
    random = np.random.default_rng(0)
    vectors = random.normal(size=(96, 4, 8)).astype("float32")
    vectors[:, 2, 0] = [5 if label == "place" else -5 for label in LABELS]
    found = probe.choose(
        None,
        vectors,
        LABELS,
        "jobs=1",
        "screen.seeds=2",
        "probe.learning_rate=0.1",
        "data.order=independent",
        results_dir="some",
    )
    assert found.recommendation.best is not None
    assert 2 in found.recommendation.best.indices
    with pytest.raises(UserError, match="vectors"):
        found.features(["Ana."], "last")


def test_a_notebook_shows_the_sentence_the_table_and_the_picture():
    found = probe.results(ROOT / "results/demo-quickstart")
    shown = found._repr_html_()
    names(shown, str(found.recommendation))
    assert shown.index("Use ") < shown.index("<table>") < shown.index("data:image/png;base64,")
    assert repr(found.recommendation) == str(found.recommendation) == found.recommendation.text
    figure = found.plot()
    assert isinstance(figure, Figure)
    assert {label.get_text() for label in figure.axes[0].get_yticklabels()} == {*found.table["row"]}


def test_features_of_an_undecided_result_need_the_name_of_a_row():
    found = probe.results(ROOT / "results/demo-quickstart")
    assert not found.recommendation.within
    with pytest.raises(UserError) as caught:
        found.features(["Ana left."])
    names(caught.value, found.recommendation.best.name if found.recommendation.best else "")
    assert probe.results(ROOT / "results/conll2003-mpnet").recommendation.within


def test_ipython_shows_the_message_of_a_mistake_and_no_traceback():
    assert UserError("one\ntwo")._render_traceback_() == ["UserError: one", "two"]


@pytest.mark.parametrize("is_notebook", [True, False])
def test_a_bar_counts_the_runs_of_a_command_where_somebody_sees_it(
    is_notebook: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    if is_notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    code = "import sys, time; print('run 3 of 7, 1 min left', flush=True); time.sleep(1.2); print('end'); sys.exit(1)"
    done = run_with_bar([sys.executable, "-c", code], "train")
    assert (done.returncode, done.stdout) == (1, "run 3 of 7, 1 min left\nend\n")
    out, errors = capfd.readouterr()
    assert (out, "3/7" in errors, bool(errors)) == ("", is_notebook, is_notebook)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("size", [60, 600])
def test_few_texts_decide_nothing_and_more_say_how_far_the_best_row_may_be_behind(
    size: int, minilm: Encoder, in_folder: Path
):
    lines = (BUNDLED_FOLDER / "train.person.jsonl").read_text().splitlines()[:size]
    texts, labels, groups = zip(*(json.loads(line).values() for line in lines), strict=True)
    found = probe.choose("minilm_l6", texts, labels, "jobs=1", groups=groups, results_dir="some")
    use = found.recommendation.use
    assert not found.recommendation.within
    assert {*found.table["label"]} == {"best", "undecided"}
    assert use is not None
    if size == 60:
        assert use.most_behind > 0.2
        assert "Use" not in str(found.recommendation)
    else:
        assert use.most_behind < 0.1
        names(found.recommendation, f"Use {use.name}", f"{100 * use.most_behind:.2f}")
