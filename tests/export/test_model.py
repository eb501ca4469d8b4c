"""An exported model gives the tags and the features that were measured, of each kind of encoder."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from support.commands import TINY, python
from support.families import FAMILIES
from support.inputs import overrides, write_splits

import probe
from probe.config import UserError
from probe.runs.run import run
from probe.settings import configs_of

pytestmark = pytest.mark.usefixtures("short_epochs")
TEXTS = ["Paris may be nice .", "ana met smith in Paris"]


def kept(encoder: Path, data: Path, *settings: str) -> Path:
    """A results folder with a run whose weights were saved, of layer 1 unless settings say otherwise."""
    chosen = any(setting.startswith("layers=") for setting in settings)
    layers = [] if chosen else ["layers=single", "layers.indices=[1]"]
    inputs = [*overrides(encoder, data), *TINY, "probe.learning_rate=0.05", "save_probe=true", "results_dir=results"]
    run(configs_of([*inputs, *layers, *settings])[0][0], log=lambda _: None)
    return Path("results").absolute()


def predictions(folder: Path) -> str:
    (file,) = (folder / "predictions").glob("*.test.conll")
    return file.read_text()


def about(folder: Path) -> tuple[int, str]:
    """How many blocks a model has, and its class."""
    (kind,) = json.loads((folder / "config.json").read_text())["architectures"]
    return json.loads((folder / "model.json").read_text())["blocks"], kind


@pytest.mark.parametrize(
    ("family", "final_norm", "blocks", "kind"),
    [
        ("distilbert", "last", 1, "DistilBertForTokenClassification"),
        ("deberta-v2", "last", 1, "DebertaV2ForTokenClassification"),
        ("mpnet", "last", 1, "MPNetForTokenClassification"),
        ("albert", "last", 1, "AlbertForTokenClassification"),
        ("modernbert", "last", 2, "ModernBertModel"),
        ("llama", "last", 2, "LlamaModel"),
        ("qwen3", "last", 2, "Qwen3Model"),
        ("gpt2", "last", 2, "GPT2Model"),
        ("modernbert", "each", 1, "ModernBertModel"),  # its classification head has a layer more
        ("llama", "each", 1, "LlamaForTokenClassification"),
        ("qwen3", "each", 1, "Qwen3ForTokenClassification"),
        ("gpt2", "each", 1, "GPT2ForTokenClassification"),
    ],
)
def test_a_cut_encoder_gives_the_tags_of_the_record(
    typed: Callable, tiny_data: Path, tmp_path: Path, family: str, final_norm: str, blocks: int, kind: str
):
    torch.manual_seed(0)  # the encoder has random weights
    for part in FAMILIES[family]():
        part.save_pretrained(tmp_path / "encoder")
    results = kept(
        tmp_path / "encoder",
        tiny_data,
        "probe.num_layers=0",
        "features.dtype=float32",
        f"features.final_norm={final_norm}",
    )
    assert typed("export", str(results), "--model", "model").returncode == 0
    assert about(Path("model")) == (blocks, kind), "a final norm behind the last layer alone needs one block more"
    tagged = typed("tag", "model", str(tiny_data / "test.conll")).stdout
    assert tagged.replace("-DOCSTART- O O\n\n", "") == predictions(results)
    before, after = probe.load(results).features(TEXTS), probe.load("model").features(TEXTS)
    for one, other in zip(before, after, strict=True):
        assert torch.allclose(one.vectors, other.vectors, atol=1e-5)


@pytest.mark.parametrize("normalize", ["none", "scale", "train"])
def test_transformers_alone_gives_the_scores_of_the_probe(
    typed: Callable, tiny_bert: Path, tiny_data: Path, normalize: str
):
    settings = ("probe.num_layers=0", "features.dtype=float32", f"layers.normalize={normalize}")
    results = kept(tiny_bert, tiny_data, *settings)
    assert typed("export", str(results), "--model", "model").returncode == 0
    tag = transformers.pipeline("token-classification", "model", aggregation_strategy="first")
    words = [line.split() for line in predictions(results).split("\n\n")[0].splitlines()]
    text = " ".join(word for word, *_ in words)
    entities = {group["start"]: group["entity_group"] for group in tag(text)}
    for one, other in zip(probe.load("model").spans([text])[0], tag(text), strict=True):
        assert (one["start"], one["end"], one["entity_group"]) == (other["start"], other["end"], other["entity_group"])
        assert one["score"] == pytest.approx(float(other["score"]), abs=1e-3)
    at, expected = 0, {}
    for word, *_, label in words:
        if label.startswith("B-"):
            expected[at] = label[2:]
        at += len(word) + 1
    assert entities == expected


@pytest.mark.parametrize(
    ("family", "has_pipeline"),
    [("distilbert", True), ("roberta", False), ("xlm-roberta", False), ("qwen3", False), ("llama-3", False)],
)
def test_the_call_of_the_model_card_gives_the_same_tags_without_this_package(
    typed: Callable, tmp_path: Path, family: str, has_pipeline: bool
):
    torch.manual_seed(1)  # the encoder has random weights
    for part in FAMILIES[family]():
        for weights in getattr(part, "parameters", list)():
            weights.data *= 1 if weights.dim() == 1 else 15  # so that words differ
        part.save_pretrained(tmp_path / "encoder")
    norm = "each" if family in ("qwen3", "llama-3") else "last"
    learns = ("probe.num_layers=0", "probe.max_epochs=20", "probe.learning_rate=0.3")
    settings = (*learns, "features.dtype=float32", f"features.final_norm={norm}")
    words = random.Random(0).choices(["paris B-LOC", "may O", "be O", "nice O", ", O", ". O"], k=1200)
    sentences = ["\n".join(words[at : at + 5]) + "\n\n" for at in range(0, len(words), 5)]
    write_splits(tmp_path, **{name: "".join(sentences[at::3]) for at, name in enumerate(("train", "dev", "test"))})
    results = kept(tmp_path / "encoder", tmp_path, *settings)
    exported = typed("export", str(results), "--model", "model")
    assert exported.returncode == 0
    text = '(paris), "may" be: paris.'
    pairs = probe.load("model").tag([text])[0]
    assert len({tag for _, tag in pairs}) > 1, "else any call would give the same"
    call = (Path("model") / "README.md").read_text().split("```python\n")[1].split("```")[0]
    assert ("pipeline" in call) == ("pipeline" in exported.stdout) == has_pipeline
    call = call.replace('"Angela Merkel came to Paris."', repr(text))
    shown = f"[[g['start'], g['end'], g['entity_group']] for g in tag({text!r})]" if has_pipeline else "tags"
    done = python(f"import json, sys\nsys.modules['probe'] = None\n{call}print(json.dumps({shown}))")
    tagged, at = json.loads(done.stdout), 0
    if not has_pipeline:
        assert tagged == [list(pair) for pair in pairs]
        return
    for word, tag in pairs:
        at = text.index(word, at)
        assert [kind for first, last, kind in tagged if first <= at < last] == [tag[2:]] * (tag != "O"), word


@pytest.mark.parametrize(
    "settings",
    [
        ["layers=mix_last_four", "layers.normalize=scale"],
        ["layers=sum_all", "features.subword=mean"],
        ["layers=single", "layers.indices=[1,3]", "layers.combine=concat", "features.context=document"],
        [
            "layers=single",
            "layers.indices=[2]",
            "layers.normalize=train",
            "features.subword=last",
            "probe.num_layers=0",
        ],
    ],
    ids=" ".join,
)
def test_other_probes_are_loaded_by_this_package(
    typed: Callable, tiny_bert: Path, tiny_data: Path, settings: list[str]
):
    results = kept(tiny_bert, tiny_data, *settings)
    assert typed("export", str(results), "--model", "model").returncode == 0
    tagged = typed("tag", "model", str(tiny_data / "test.conll")).stdout
    assert tagged.replace("-DOCSTART- O O\n\n", "") == predictions(results)
    assert about(Path("model"))[1] == "BertModel"
    pairs = probe.load("model").tag(TEXTS)
    assert [[word for word, _ in text] for text in pairs] == [text.split() for text in TEXTS]


def test_the_scale_is_computed_again_where_no_weights_were_saved(typed: Callable, tiny_bert: Path, tiny_data: Path):
    settings = ["layers=sum_all", "layers.normalize=train"]
    saved = probe.load(kept(tiny_bert, tiny_data, *settings)).features(TEXTS)
    others = kept(tiny_bert, tiny_data, *settings, "save_probe=false", "results_dir=others")
    unsaved = probe.load(others).features(TEXTS)
    for one, other in zip(saved, unsaved, strict=True):
        assert torch.equal(one.vectors, other.vectors)


def test_what_cannot_be_exported_leaves_nothing(typed: Callable, tiny_bert: Path, tiny_data: Path):
    results = kept(tiny_bert, tiny_data, "save_probe=false")
    refused = typed("export", str(results), "--model", "model")
    assert refused.returncode == 2
    assert "save_probe=true" in refused.stderr
    assert not [*Path().glob("model*")]
    Path("model").mkdir()
    assert typed("export", str(results), "--model", "model").returncode == 2
    with pytest.raises(UserError, match="none"):
        probe.load("none")
