"""Data sets of the Hub, from a stand-in on this machine: the commit that was asked for, or a refusal that helps."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import datasets
import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.facts import names
from support.hub import Hub, forget, offline, parquet
from support.inputs import data_config

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.settings import configs_of

SPLITS = ("train", "validation", "test")


def files(word: str, **names: str) -> dict[str, bytes]:
    """A data set of three splits of one sentence each, with this word in all."""
    splits = {"train": "train", "validation": "validation", "test": "test", **names}
    return {
        f"data/{theirs}-00000-of-00001.parquet": parquet(f"Ana met {word} {split}") for split, theirs in splits.items()
    }


def load(name: str = "some/set", **settings: object) -> Corpus:
    return load_corpus(data_config(None, hub=name, **settings))


def text(corpus: Corpus) -> list[str]:
    return [" ".join(sentence) for split in corpus.splits.values() for sentence in split.words]


def test_a_text_once_read_needs_the_hub_no_more(stand_in: Hub, monkeypatch: pytest.MonkeyPatch):
    commit = stand_in.put("dataset", "some/set", files("Bo"))
    corpus = load()
    assert text(corpus) == ["Ana met Bo train", "Ana met Bo validation", "Ana met Bo test"]
    assert corpus.splits["train"].tags == [["B-PER", "O", "O", "O"]]
    assert corpus.about["commit"] == commit
    assert not corpus.notes
    stand_in.asked.clear()
    forget()
    assert text(load(revision=commit))[0] == "Ana met Bo train"
    assert not stand_in.asked, "a commit cannot change"
    offline(monkeypatch)
    assert load().about["commit"] == commit
    assert not stand_in.asked


def test_no_file_that_a_row_names_is_copied(stand_in: Hub, tmp_path: Path):
    (tmp_path / "secret.txt").write_text("a secret")
    image = pa.array([{"bytes": None, "path": str(tmp_path / "secret.txt")}], datasets.Image().pa_type)
    splits = files("Bo")
    for name, content in splits.items():
        table = pq.read_table(io.BytesIO(content))
        features = datasets.Features({**datasets.Features.from_arrow_schema(table.schema), "image": datasets.Image()})
        out = io.BytesIO()
        table = table.append_column("image", image).replace_schema_metadata(features.arrow_schema.metadata)
        pq.write_table(table, out)
        splits[name] = out.getvalue()
    stand_in.put("dataset", "some/set", splits)
    assert text(load())[0] == "Ana met Bo train"
    copies = list(Path(datasets.config.HF_DATASETS_CACHE, "layer-probe").rglob("*.arrow"))
    assert copies
    assert not [copy for copy in copies if b"a secret" in copy.read_bytes()]


def test_offline_each_revision_gives_its_own_text(stand_in: Hub, monkeypatch: pytest.MonkeyPatch):
    old = stand_in.put("dataset", "some/set", files("old"))
    assert "old" in text(load())[0]
    stand_in.put("dataset", "some/set", files("branch"), revision="refs/pr/1")
    assert "branch" in text(load(revision="refs/pr/1"))[0]
    forget()
    new = stand_in.put("dataset", "some/set", files("new"))
    assert "new" in text(load())[0]
    offline(monkeypatch)
    for revision, word in {None: "new", "main": "new", old: "old", new: "new", "refs/pr/1": "branch"}.items():
        assert word in text(load(revision=revision))[0], revision
    with pytest.raises(UserError, match=r"data\.hub=some/set:"):
        load(subset="de")
    for revision in ("other", "1" * 40):
        with pytest.raises(UserError, match=rf"data\.hub=some/set at {revision}\b"):
            load(revision=revision)


def test_an_unavailable_revision_is_never_replaced_by_another(stand_in: Hub):
    stand_in.put("dataset", "some/set", files("main"))
    stand_in.put("dataset", "some/set", files("other"), revision="other")
    load()
    for broken in ("/other", "/cdn/"):
        stand_in.broken = broken
        with pytest.raises(UserError, match=r"data\.hub=some/set at other\b"):
            load(revision="other")
    stand_in.broken = None
    assert "other" in text(load(revision="other"))[0]


def test_a_damaged_copy_is_named_with_what_to_type(stand_in: Hub, tmp_path: Path):
    stand_in.put("dataset", "some/set", files("Bo"))
    before = text(load())
    (kept,) = (tmp_path / "hf/datasets/layer-probe").glob("*/*/default")
    (kept / "dataset_dict.json").unlink()
    with pytest.raises(UserError, match=rf"^{re.escape(str(kept))} .*: rm -r (\S+),"):
        load()
    shutil.rmtree(kept)
    assert text(load()) == before


def test_a_branch_means_one_commit_throughout_a_process_and_without_an_answer(stand_in: Hub):
    first = stand_in.put("dataset", "some/set", files("first"))
    assert load().about["commit"] == first
    stand_in.put("dataset", "some/set", files("second"))
    assert load().about["commit"] == first
    stand_in.broken = "/api/"
    forget()
    corpus = load()
    assert "first" in text(corpus)[0]
    (note,) = corpus.notes
    names(note, "Hub", first, "cache")


def test_without_the_hub_the_error_names_the_ways_out(stand_in: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(UserError, match=r"data\.path=DIR.*data=demo encoder=minilm_l6"):
        load()
    assert not stand_in.asked


# What is asked for that is not there.


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"hub": "some/sett"}, ["data.hub=some/sett", "private", "hf auth login"]),
        ({"hub": "a/b/c"}, ["data.hub=a/b/c", "OWNER/NAME", "data.path=DIR"]),
        ({"revision": "mian"}, ["data.revision=mian", "some/set"]),
        ({"hub": "closed/set"}, ["data.hub=closed/set", "/datasets/closed/set", "hf auth login"]),
        ({"hub": "old/script"}, ["old/script", "script", "data.revision=refs/convert/parquet"]),
        ({"hub": "no/dev"}, ["no/dev", "'validation'", "dev", "data.hub_dev=NAME", "data.dev_fraction=0.1"]),
        ({"hub": "many/languages"}, ["many/languages", "de, en", "data.subset=NAME"]),
        ({"hub": "many/languages", "subset": "fr"}, ["many/languages", "'fr'", "de, en", "data.subset=NAME"]),
        ({"subset": "fr"}, ["some/set", "'fr'", "default", "data.subset=NAME"]),
        (
            {"hub": "many/languages", "revision": "refs/convert/parquet"},
            ["many/languages", "de, en", "data.subset=NAME"],
        ),
        ({"hub": "half/set", "revision": "refs/convert/parquet"}, ["half/set", "refs/convert/parquet", "default"]),
        ({"hub": "no/data"}, ["no/data", "EmptyDatasetError"]),
    ],
)
def test_what_is_not_there_is_refused_with_what_there_is(stand_in: Hub, settings: dict, facts: list[str]):
    stand_in.put("dataset", "some/set", files("Bo"))
    stand_in.put("dataset", "closed/set", files("Bo"))
    stand_in.gated.add("closed/set")
    stand_in.put("dataset", "old/script", {"script.py": "raise SystemExit"})
    stand_in.put("dataset", "no/dev", files("Bo", validation="dev"))
    stand_in.put("dataset", "many/languages", languages())
    stand_in.put("dataset", "many/languages", converted("de", "en"), "refs/convert/parquet")
    half = {path.replace("train", "partial-train"): part for path, part in converted("default").items()}
    stand_in.put("dataset", "half/set", half, "refs/convert/parquet")
    stand_in.put("dataset", "no/data", {"README.md": "# Soon"})
    with pytest.raises(UserError) as error:
        load(**{"name": "some/set", **{"name" if key == "hub" else key: value for key, value in settings.items()}})
    names(error.value, *facts)
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)


def converted(*subsets: str) -> dict[str, bytes]:
    """As the Hub's branch refs/convert/parquet has it."""
    return {
        f"{subset}/{split}/0000.parquet": parquet(f"Ana {subset} {split}") for subset in subsets for split in SPLITS
    }


def card(*subsets: str, path: str) -> str:
    """A README that says which files are of which subset and split."""
    configs = "".join(
        f"- config_name: {subset}\n  data_files:\n"
        + "".join(f"  - split: {split}\n    path: {path.format(subset, split)}\n" for split in SPLITS)
        for subset in subsets
    )
    return f"---\nconfigs:\n{configs}---\n# Languages\n"


def languages() -> dict[str, bytes | str]:
    return {"README.md": card("de", "en", path="{}/{}/*"), **converted("de", "en")}


@pytest.mark.parametrize("revision", [None, "refs/convert/parquet", "a commit"])
def test_only_the_files_of_the_subset_come(stand_in: Hub, revision: str | None):
    stand_in.put("dataset", "many/languages", languages())
    branch: dict[str, bytes | str] = {".gitattributes": "", **converted("de", "en")}
    commit = stand_in.put("dataset", "many/languages", branch, "refs/convert/parquet")
    for subset in ("de", "en"):
        corpus = load("many/languages", subset=subset, revision=commit if revision == "a commit" else revision)
        assert text(corpus) == [f"Ana {subset} {split}" for split in SPLITS]
        data = [file for file in stand_in.files_asked() if file.endswith(".parquet")]
        assert sorted(data) == sorted(f"{subset}/{split}/0000.parquet" for split in SPLITS)
        stand_in.asked.clear()


def test_splits_may_have_any_name(stand_in: Hub):
    stand_in.put("dataset", "some/set", files("Bo", train="training", validation="dev", test="eval"))
    with pytest.raises(UserError, match=r"'train'.*training.*data\.hub_train=NAME"):
        load()
    corpus = load(hub_train="training", hub_dev="dev", hub_test="eval")
    assert text(corpus) == ["Ana met Bo train", "Ana met Bo validation", "Ana met Bo test"]


def test_splits_may_be_taken_from_train_or_left_out(stand_in: Hub):
    rows = '{"tokens": ["Ana", "x"], "ner_tags": ["B-PER", "O"]}\n' * 10
    stand_in.put("dataset", "some/set", {f"data/{split}.jsonl": rows for split in ("train", "test")})
    for test, test_fraction, sizes in (("test", None, [9, 1, 10]), (None, 0.2, [7, 1, 2])):
        corpus = load(dev_fraction=0.1, test=test, test_fraction=test_fraction)
        assert [len(split.words) for split in corpus.splits.values()] == sizes


def test_rows_of_json_take_the_readmes_word_for_their_labels(stand_in: Hub):
    card = (
        "---\ndataset_info:\n  features:\n  - name: tokens\n    sequence: string\n  - name: ner_tags\n    sequence:\n"
        "      class_label:\n        names:\n          '0': O\n          '1': B-PER\n---\n"
    )
    rows = {
        f"{name}.jsonl": f'{{"tokens": ["Ana", "{name}"], "ner_tags": [1, 0]}}\n' for name in ("train", "dev", "test")
    }
    stand_in.put("dataset", "some/set", {"README.md": card, **rows})
    corpus = load()
    assert text(corpus) == ["Ana train", "Ana dev", "Ana test"]
    assert corpus.splits["dev"].tags == [["B-PER", "O"]]


# The presets, on stand-ins that have the columns of their repositories.

CONLL = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]
PARTS = "data/{}-00000-of-00001.parquet"
ROW = {"id": ["0"], "pos_tags": [[1, 2, 3]], "chunk_tags": [[1, 2, 3]]}
TOMAARSEN = {**ROW, "document_id": [1], "sentence_id": [0]}


@pytest.mark.parametrize(
    ("preset", "repository", "path", "labels", "tags", "fields"),
    [
        ("conll2003", "lhoestq/conll2003", PARTS, CONLL, "B-PER O O", ROW),
        ("conll2003_documents", "tomaarsen/conll2003", "default/{}/0000.parquet", CONLL, "B-PER O O", TOMAARSEN),
        ("conll2003_pos", "lhoestq/conll2003", PARTS, ["NN", "NNP", "VBD"], "NNP VBD NN", {"ner_tags": [[1, 0, 0]]}),
        (
            "conll2003_chunks",
            "lhoestq/conll2003",
            PARTS,
            ["O", "B-NP", "I-NP"],
            "B-NP I-NP O",
            {"ner_tags": [[1, 0, 0]]},
        ),
        ("wnut17", "leondz/wnut_17", "wnut_17/{}/0000.parquet", None, "B-person O O", {"id": ["0"]}),
    ],
)
def test_every_preset_reads_a_data_set_of_its_repositorys_shape(
    stand_in: Hub, preset: str, repository: str, path: str, labels: list[str] | None, tags: str, fields: dict
):
    cfg = configs_of([f"data={preset}"])[0][0].data
    labels = cfg.labels or labels or []
    ids = [labels.index(tag) for tag in tags.split()]
    content: dict[str, bytes | str] = {
        path.format(split): parquet(f"Ana saw {split}", ids, labels, cfg.tags_field, **fields) for split in SPLITS
    }
    commit = stand_in.put("dataset", repository, content, "main" if path == PARTS else "refs/convert/parquet")
    if path != PARTS:
        name = repository.split("/")[1]
        stand_in.put("dataset", repository, {f"{name}.py": "raise SystemExit", "README.md": "# A script"})
    corpus = load_corpus(cfg)
    assert text(corpus) == ["Ana saw train", "Ana saw validation", "Ana saw test"]
    assert corpus.splits["dev"].tags == [tags.split()]
    assert (corpus.splits["dev"].documents is not None) == (preset == "conll2003_documents")
    assert corpus.about["commit"] == commit


def test_sst2_has_a_label_per_text_and_secret_ones_in_its_test_split(stand_in: Hub):
    content: dict[str, bytes | str] = {}
    for split in SPLITS:
        labels = [-1 if split == "test" else i % 2 for i in range(30)]
        rows = [{"sentence": f"It is {split} {i}.", "label": label, "idx": i} for i, label in enumerate(labels)]
        table = datasets.Dataset.from_list(rows)
        stream = io.BytesIO()
        table.cast_column("label", datasets.ClassLabel(names=["negative", "positive"])).to_parquet(stream)
        content[PARTS.format(split)] = stream.getvalue()
    commit = stand_in.put("dataset", "stanfordnlp/sst2", content)
    corpus = load_corpus(configs_of(["data=sst2", "probe=linear"])[0][0].data)
    assert corpus.about["commit"] == commit
    assert ["It", "is", "train", "0", "."] in corpus.splits["train"].words
    assert all(corpus.splits[name].words for name in ("dev", "test"))
    assert {tag for split in corpus.splits.values() for (tag,) in split.tags} == {"negative", "positive"}
