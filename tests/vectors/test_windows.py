"""Alignment of words and pieces, and windows over long texts, against slow and plain references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.inputs import features_config, make_split
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.encoder import Encoder
from probe.encoders.pieces import SAMPLE, check_words, cut_split, keep_prefix_spaces
from probe.vectors.store import FeatureStore
from probe.vectors.words import Text, batches, pieces_at_once, plan_windows


def one_split(words: list[list[str]], documents: list[int] | None = None) -> Split:
    return Split(words, [["O"] * len(w) for w in words], documents, list(range(1, len(words) + 1)), "text")


def test_pieces_equal_those_of_the_whole_sentence(tiny_encoder: Encoder):
    split = make_split(40, 5)
    pieces = cut_split(tiny_encoder.tokenizer, split)
    starts, first = pieces.starts(0, split.num_words), 0
    for words in split.words:
        together = tiny_encoder.tokenizer(words, is_split_into_words=True, add_special_tokens=False)
        assert pieces.ids(first, first + len(words)) == together["input_ids"]
        of_word = [together.word_ids().index(i) for i in range(len(words))]
        assert (starts[first : first + len(words)] - starts[first]).tolist() == of_word
        assert pieces.starts(first, first + len(words)).tolist() == [*of_word, len(together["input_ids"])]
        assert pieces.count(first, first + len(words)) == len(together["input_ids"])
        first += len(words)


@pytest.mark.parametrize("word", ["", "\u200b", "\ufe0f", "\u00ad", "\u00a0", "\x07"])
def test_word_without_pieces_gets_the_unknown_piece_and_is_counted(tiny_encoder: Encoder, word: str):
    pieces = cut_split(tiny_encoder.tokenizer, one_split([["the", word, "bank"]]))
    assert pieces.empty == [1]
    assert pieces.ids(1, 2) == [tiny_encoder.tokenizer.unk_token_id]
    assert len(pieces.starts(0, 3)) == 4


def brute_force(starts: np.ndarray, first: int, last: int, windows: list[tuple[int, int]]) -> list[float]:
    """For each word the largest possible smaller distance to the ends of a window that holds it."""
    best = []
    for word in range(first, last):
        middle = (starts[word] + starts[word + 1]) / 2
        best.append(max(min(middle - starts[a], starts[b] - middle) for a, b in windows if a <= word < b))
    return best


@pytest.mark.parametrize("stride", [0.1, 0.34, 0.5, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_every_word_is_kept_once_from_its_most_central_window(tiny_encoder: Encoder, stride: float, seed: int):
    split = make_split(6, seed, longest=120)
    pieces = cut_split(tiny_encoder.tokenizer, split)
    windows = list(plan_windows(split, pieces, "sentence", tiny_encoder.max_text_pieces, stride))
    kept = [word for window in windows for word in range(window.keep_first, window.keep_last)]
    assert kept == list(range(split.num_words))
    starts, first = pieces.starts(0, split.num_words), 0
    for words in split.words:
        here = [w for w in windows if first <= w.first < first + len(words)]
        assert all(w.last <= first + len(words) for w in here)
        assert all(starts[w.last] - starts[w.first] <= tiny_encoder.max_text_pieces for w in here)
        best = brute_force(starts, first, first + len(words), [(w.first, w.last) for w in here])
        for window in here:
            for word in range(window.keep_first, window.keep_last):
                middle = (starts[word] + starts[word + 1]) / 2
                margin = min(middle - starts[window.first], starts[window.last] - middle)
                assert margin == best[word - first]
        first += len(words)


def test_document_context_joins_the_sentences_of_a_document_and_no_others(tiny_encoder: Encoder):
    split = one_split([["the", "bank"], ["ana", "won"], ["leeds", "lost"]], documents=[0, 0, 1])
    pieces = cut_split(tiny_encoder.tokenizer, split)
    windows = list(plan_windows(split, pieces, "document", tiny_encoder.max_text_pieces, 0.5))
    assert [(w.first, w.last) for w in windows] == [(0, 4), (4, 6)]


def test_document_context_without_documents_is_refused(tiny_encoder: Encoder):
    split = one_split([["the", "bank"]])
    with pytest.raises(UserError, match=r"features\.context=document.*features\.context=sentence"):
        list(plan_windows(split, cut_split(tiny_encoder.tokenizer, split), "document", 20, 0.5))


def test_a_word_longer_than_a_window_is_named_with_its_place(tiny_encoder: Encoder):
    split = one_split([["the", "bank"], ["at", "port" + "s" * 40]])
    with pytest.raises(UserError, match=r"text:2, word 2 of the sentence.*41 pieces.*22"):
        list(
            plan_windows(split, cut_split(tiny_encoder.tokenizer, split), "sentence", tiny_encoder.max_text_pieces, 0.5)
        )


def test_a_tokenizer_that_cuts_given_words_otherwise_is_refused():
    """Its pieces go across the spaces between words."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    backend.train_from_iterator([" ".join(SAMPLE)] * 3, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    keep_prefix_spaces(tokenizer)
    with pytest.raises(UserError, match=r"\btokenizer of made\b"):
        check_words(tokenizer, "made")


def test_a_gpu_takes_few_large_batches_by_its_free_memory(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    taken = []
    for free in (0, 300 * 2**20, 600 * 2**20, 80 * 2**30):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 80 * 2**30))
        taken.append(pieces_at_once("auto", tiny_encoder, "cuda"))
    assert (taken[0], taken[-1]) == (1024, 16384)
    assert taken == sorted(taken)
    assert all(number.bit_count() == 1 for number in taken)
    assert pieces_at_once("auto", tiny_encoder, "cpu") == 1024
    assert pieces_at_once(7, tiny_encoder, "cpu") == pieces_at_once(7, tiny_encoder, "cuda") == 7

    cfg = features_config(tmp_path)
    text = Text(tiny_corpus, "train", tiny_encoder, cfg)
    (shard,) = FeatureStore.of(tiny_corpus, tiny_encoder, cfg).shards["train"]
    small, large = (batches(text, shard, *by) for by in ((1024, "cpu"), (16384, "cuda")))
    assert len(large) == 1 < len(small)
    windows = sorted(text.windows_of(shard))
    assert sorted(window for batch in small for window in batch) == windows == sorted(large[0])
