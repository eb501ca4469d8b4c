"""Stored vectors against a plain one-sentence forward through transformers."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.inputs import (
    data_config,
    encoder_config,
    ensure_features,
    features_config,
    make_split,
    plain_encoder,
    stored,
)

from probe.config import FeaturesConfig, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.split import Split
from probe.encoders.encoder import Encoder, open_encoder
from probe.system import bfloat16
from probe.system.locks import FileLock
from probe.vectors import extraction, words
from probe.vectors.store import FeatureStore, Shard, read_manifest


def plain_forward(folder: Path, words: list[str], how: str = "first") -> torch.Tensor:
    """(L + 1, W, H): one sentence through transformers, as its documentation shows it."""
    tokenizer, model = plain_encoder(folder)
    encoded = tokenizer([words], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        states = torch.stack(model(**encoded, output_hidden_states=True).hidden_states)[:, 0]  # (L + 1, P, H)
    word_ids = encoded.word_ids(0)
    rows = []
    for number in range(len(words)):
        mine = states[:, [p for p, word in enumerate(word_ids) if word == number]]
        rows.append(
            {
                "first": mine[:, 0],
                "last": mine[:, -1],
                "mean": mine.mean(1),
                "sum": mine.sum(1),
                "max": mine.max(1).values,
            }[how]
        )
    return torch.stack(rows, 1)


def equal_as_float16(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether values differ by no more than one unit in float16's last place, or by float32's own noise near zero."""
    units = torch.from_numpy(np.spacing(np.maximum(a.abs().numpy(), b.abs().numpy()).astype(np.float16)))
    return bool(((a - b).abs() <= units.float().clamp(min=1e-5)).all())


@pytest.mark.parametrize("how", ["first", "last", "mean", "sum", "max"])
def test_every_vector_is_that_of_a_plain_forward(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, how: str):
    cfg = features_config(tmp_path / "cache", dtype="float32", subword=how)
    features = stored(ensure_features(tiny_corpus, tiny_encoder, cfg, "cpu"), "dev")
    expected = torch.cat([plain_forward(tiny_encoder.folder, w, how) for w in tiny_corpus.splits["dev"].words], 1)
    assert features.shape == expected.shape
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_stored_in_half_the_bytes_is_the_float32_rounded(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, dtype: str
):
    half = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path, dtype=dtype), "cpu")
    full = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path, dtype="float32"), "cpu")
    assert torch.equal(stored(half, "test"), stored(full, "test").to(getattr(torch, dtype)).float())


@pytest.mark.real
def test_packaged_encoder_gives_the_vectors_of_a_plain_forward(minilm: Encoder, tmp_path: Path):
    whole = load_corpus(data_config("bundled"))
    dev = whole.splits["dev"]
    chosen = random.Random(0).sample(range(len(dev.words)), 50)
    split = Split([dev.words[i] for i in chosen], [dev.tags[i] for i in chosen], None, chosen, dev.origin)
    corpus = Corpus("sample", {"dev": split})
    expected = torch.cat([plain_forward(minilm.folder, words) for words in split.words], 1)
    cfg = features_config(tmp_path, dtype="float32", batch_pieces=1024)
    torch.testing.assert_close(stored(ensure_features(corpus, minilm, cfg, "cpu"), "dev"), expected, atol=1e-5, rtol=0)
    cfg = features_config(tmp_path, batch_pieces=1024)
    assert equal_as_float16(stored(ensure_features(corpus, minilm, cfg, "cpu"), "dev"), expected)


def reference_in_document_context(encoder: Encoder, split: Split, stride: float) -> torch.Tensor:
    """Each document's windows one by one, straight from the words; each word from its most central window."""
    tokenizer, model = plain_encoder(encoder.folder)
    rows = []
    assert split.documents is not None
    for document in sorted(set(split.documents)):
        words = [w for ws, d in zip(split.words, split.documents, strict=True) if d == document for w in ws]
        pieces = [tokenizer(w, add_special_tokens=False)["input_ids"] for w in words]
        sizes = [len(p) for p in pieces]
        begins = [sum(sizes[:i]) for i in range(len(words) + 1)]
        room = encoder.max_text_pieces
        starts = [0]
        while begins[-1] - begins[starts[-1]] > room:
            step = begins[starts[-1]] + int(room * stride)
            following = max(starts[-1] + 1, max(i for i in range(len(words)) if begins[i] <= step))
            tail = min(i for i in range(len(words)) if begins[-1] - begins[i] <= room)
            ends = max(i for i in range(len(words) + 1) if begins[i] <= begins[following] + room)
            starts.append(tail if ends == len(words) else following)
        best: list[tuple[float, torch.Tensor]] = [(-1.0, torch.empty(0))] * len(words)
        for begin in starts:
            end = max(i for i in range(len(words) + 1) if begins[i] - begins[begin] <= room)
            ids = [piece for word in pieces[begin:end] for piece in word]
            with torch.no_grad():
                out = model(
                    torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]]),
                    output_hidden_states=True,
                )
            states = torch.stack(out.hidden_states)[:, 0]
            for word in range(begin, end):
                middle = (begins[word] + begins[word + 1]) / 2
                margin = min(middle - begins[begin], begins[end] - middle)
                if margin > best[word][0]:
                    best[word] = (margin, states[:, 1 + begins[word] - begins[begin]])
        rows += [vector for _, vector in best]
    return torch.stack(rows, 1)


@pytest.mark.parametrize("stride", [0.3, 0.5, 1.0])
def test_document_context_equals_each_documents_windows_one_by_one(
    tiny_encoder: Encoder, tmp_path: Path, stride: float
):
    split = make_split(12, 8, longest=40)
    cfg = features_config(tmp_path, dtype="float32", context="document", stride=stride)
    features = stored(ensure_features(Corpus("long", {"dev": split}), tiny_encoder, cfg, "cpu"), "dev")
    expected = reference_in_document_context(tiny_encoder, split, stride)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)


def test_a_vector_does_not_depend_on_its_batch_or_its_shard(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reference = stored(ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path / "a"), "cpu"), "train")
    for number, (batch_pieces, words_in_shard, num_shards) in enumerate(
        [(1, 8192, 1), (16384, 8192, 1), (64, 37, 10), (300, 100, 4)]
    ):
        monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", words_in_shard)
        cfg = features_config(tmp_path / f"b{number}", batch_pieces=batch_pieces)
        store = ensure_features(tiny_corpus, tiny_encoder, cfg, "cpu")
        again = stored(store, "train")
        assert len(store.shards["train"]) == num_shards
        assert (again == reference).float().mean() >= 0.99
        assert equal_as_float16(again, reference)


def test_document_windows_may_cross_shards(tiny_encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corpus = Corpus("long", {"dev": make_split(12, 8, longest=40)})
    cfg = features_config(tmp_path / "a", dtype="float32", context="document")
    whole = stored(ensure_features(corpus, tiny_encoder, cfg, "cpu"), "dev")
    monkeypatch.setattr("probe.vectors.store.WORDS_IN_SHARD", 23)
    cfg = features_config(tmp_path / "b", dtype="float32", context="document")
    store = ensure_features(corpus, tiny_encoder, cfg, "cpu")
    assert len(store.shards["dev"]) > 6, "more than there are documents"
    torch.testing.assert_close(stored(store, "dev"), whole, atol=1e-5, rtol=0)


def test_a_second_run_does_not_touch_the_encoder(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cfg: FeaturesConfig = features_config(tmp_path)
    ensure_features(tiny_corpus, tiny_encoder, cfg, "cpu")

    def never(*_: object) -> None:
        raise AssertionError("the encoder was loaded again")

    monkeypatch.setattr(extraction, "load_model", never)
    ensure_features(tiny_corpus, tiny_encoder, cfg, "cpu")


def test_weights_that_changed_since_the_encoder_was_opened_fill_no_store(
    tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path
):
    folder = shutil.copytree(tiny_bert, tmp_path / "encoder")
    encoder, cfg = open_encoder(encoder_config(folder), tmp_path), features_config(tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file({name: 1.3 * value for name, value in weights.items()}, folder / "model.safetensors")
    with pytest.raises(UserError, match=rf"^{re.escape(str(folder))}: .*\bweights\b"):
        ensure_features(tiny_corpus, encoder, cfg, "cpu")
    assert not list(tmp_path.glob("*/*-*.safetensors"))


def test_a_value_that_float16_cannot_hold_is_refused(tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path):
    folder = tmp_path / "huge"
    model = transformers.AutoModel.from_pretrained(tiny_bert, dtype=torch.float32)
    with torch.no_grad():
        model.encoder.layer[2].output.LayerNorm.weight.mul_(1e6)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    encoder = open_encoder(encoder_config(folder), tmp_path)
    with pytest.raises(UserError, match="features.dtype=float32"):
        ensure_features(tiny_corpus, encoder, features_config(tmp_path / "cache"), "cpu")
    store = FeatureStore.of(tiny_corpus, encoder, features_config(tmp_path / "cache"))
    assert len(store.missing()) == 3
    ensure_features(tiny_corpus, encoder, features_config(tmp_path / "cache", dtype="float32"), "cpu")


def test_words_without_pieces_keep_their_neighbours_in_place(tiny_encoder: Encoder, tmp_path: Path, capsys):
    split = Split([["the", "\u200b", "bank"]], [["O", "O", "O"]], None, [1], "text")
    cfg = features_config(tmp_path, dtype="float32")
    store = ensure_features(Corpus("odd", {"dev": split}), tiny_encoder, cfg, "cpu")
    expected = plain_forward(tiny_encoder.folder, ["the", "[UNK]", "bank"])
    torch.testing.assert_close(stored(store, "dev"), expected, atol=1e-5, rtol=0)
    manifest = read_manifest(store.directory)
    assert manifest is not None
    assert manifest["splits"]["dev"]["words_without_pieces"] == 1
    assert "text:1, word 2" in capsys.readouterr().err


def test_shards_hold_whole_sentences_and_every_word():
    from probe.vectors.store import cut_shards

    lengths = [4, 4, 4, 30, 1, 2, 9, 9]
    shards = cut_shards("train", lengths, 10)
    ends = set(np.cumsum(lengths).tolist())
    assert [s.first for s in shards[1:]] == [s.last for s in shards[:-1]]
    assert (shards[0].first, shards[-1].last) == (0, sum(lengths))
    assert all(s.last in ends or 12 < s.last < 42 for s in shards)  # only the long sentence is cut
    assert max(s.last - s.first for s in shards) < 20


@pytest.mark.parametrize("native", [True, False])
def test_bfloat16_arithmetic_is_another_key_and_close(
    tiny_encoder: Encoder,
    tiny_corpus: Corpus,
    tmp_path: Path,
    native: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: native)
    exact = ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path, dtype="float32"), "cpu")
    rough = ensure_features(
        tiny_corpus, tiny_encoder, features_config(tmp_path, dtype="float32", precision="bfloat16"), "cpu"
    )
    assert exact.key != rough.key
    a, b = stored(exact, "dev"), stored(rough, "dev")
    assert 0 < float((a - b).norm() / a.norm()) < 0.03
    assert torch.equal(b, b.bfloat16().float()), "hidden states are bfloat16's values either way"
    assert ("bfloat16" in capsys.readouterr().err) != native


def test_hidden_states_that_are_not_one_a_piece_are_refused(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    honest = words.hidden_states
    monkeypatch.setattr(words, "hidden_states", lambda *a: tuple(s.repeat(1, 2, 1) for s in honest(*a)))
    with pytest.raises(UserError, match=r"\b6\b.*\b16\b"):
        ensure_features(tiny_corpus, tiny_encoder, features_config(tmp_path), "cpu")


@pytest.mark.parametrize(("value", "named"), [(float("nan"), "NaN"), (float("inf"), "infinite"), (7e4, "float32")])
def test_vectors_that_are_no_numbers_are_not_called_too_large_for_a_dtype(
    value: float, named: str, tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path
):
    store = FeatureStore.of(tiny_corpus, tiny_encoder, features_config(tmp_path))
    released = FileLock(tmp_path / "lock", exclusive=True)
    layers = torch.zeros(1, 1, 16, dtype=torch.float16)
    with pytest.raises(UserError, match=named) as error:
        extraction._finish(store, Shard("dev", 0, 0, 1), layers, lambda: value, released)
    assert ("features.dtype" in str(error.value)) == (named == "float32")
