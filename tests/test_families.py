"""Encoders of other families, tiny and random, against a plain forward over running text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conftest import encoder_config, features_config
from test_extraction import stored
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.pre_tokenizers import ByteLevel

from probe.config import UserError
from probe.corpus import Corpus, Split
from probe.encoder import load_model, open_encoder
from probe.extraction import ensure_features

T = transformers
TEXT = ["ana met smith in paris , may be nice .", "The bank of England won at Leeds", "Jordan lost to Chelsea"] * 20
WORDS = ["Paris", "may", "be", "nicely", "met", ",", "England", "X"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
NAMED: dict[str, Any] = dict(
    zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True)
)
SIZE: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=350, special_tokens=SPECIAL, initial_alphabet=ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT, trainer)
    merges = [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
    return {"vocab": tokenizer.get_vocab(), "merges": merges}


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        TEXT, trainers.UnigramTrainer(vocab_size=80, special_tokens=SPECIAL, unk_token="<unk>")
    )
    return [tuple(entry) for entry in json.loads(tokenizer.to_str())["model"]["vocab"]]


def word_pieces():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    return {piece: i for i, piece in enumerate([*pieces, *"paris may be nice ##ly met , eng ##land x".split()])}


def generic_byte_level():
    """As ModernBERT has it: no class of its own, whose options could repair the prefix space."""
    parts = byte_level()
    backend = Tokenizer(models.BPE(parts["vocab"], parts["merges"]))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", parts["vocab"]["<s>"]), ("</s>", parts["vocab"]["</s>"])]
    )
    return T.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=32, **NAMED)


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "roberta": lambda: (
        T.RobertaTokenizer(**byte_level()),
        T.RobertaModel(T.RobertaConfig(vocab_size=400, max_position_embeddings=34, pad_token_id=1, **SIZE)),
    ),
    "xlm-roberta": lambda: (
        T.XLMRobertaTokenizer(vocab=unigram()),
        T.XLMRobertaModel(T.XLMRobertaConfig(vocab_size=100, max_position_embeddings=66, pad_token_id=1, **SIZE)),
    ),
    "distilbert": lambda: (
        T.DistilBertTokenizer(vocab=word_pieces()),
        T.DistilBertModel(T.DistilBertConfig(vocab_size=30, dim=16, n_layers=3, n_heads=2, hidden_dim=32)),
    ),
    "electra": lambda: (
        T.BertTokenizer(vocab=word_pieces()),
        T.ElectraModel(T.ElectraConfig(vocab_size=30, embedding_size=8, **SIZE)),
    ),
    "albert": lambda: (
        T.AlbertTokenizer(vocab=unigram(), cls_token="<s>", sep_token="</s>", **NAMED),
        T.AlbertModel(T.AlbertConfig(vocab_size=100, embedding_size=8, **SIZE)),
    ),
    "deberta-v2": lambda: (
        T.DebertaV2Tokenizer(vocab=unigram(), cls_token="<s>", sep_token="</s>", **NAMED),
        T.DebertaV2Model(
            T.DebertaV2Config(vocab_size=100, relative_attention=True, pos_att_type=["p2c", "c2p"], **SIZE)
        ),
    ),
    "mpnet": lambda: (
        T.MPNetTokenizer(vocab=word_pieces()),
        T.MPNetModel(T.MPNetConfig(vocab_size=30, max_position_embeddings=34, **SIZE)),
    ),
    "modernbert": lambda: (
        generic_byte_level(),
        T.ModernBertModel(
            T.ModernBertConfig(vocab_size=400, pad_token_id=1, local_attention=8, **SIZE)
        ),
    ),
    "t5": lambda: (
        T.T5Tokenizer(vocab=unigram(), extra_ids=0, model_max_length=64),
        T.T5Model(T.T5Config(vocab_size=100, d_model=16, d_kv=8, d_ff=32, num_layers=3, num_heads=2)),
    ),
    "bart": lambda: (
        T.BartTokenizer(**byte_level()),
        T.BartModel(
            T.BartConfig(
                vocab_size=400, d_model=16, encoder_layers=3, decoder_layers=2, encoder_attention_heads=2,
                decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=32,
            )
        ),
    ),
    "gpt2": lambda: (
        T.GPT2Tokenizer(**byte_level()),
        T.GPT2Model(T.GPT2Config(vocab_size=400, n_embd=16, n_layer=3, n_head=2, n_positions=32)),
    ),
}  # fmt: skip


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a tiny random encoder of one family."""
    torch.manual_seed(0)
    tokenizer, model = FAMILIES[request.param]()
    tokenizer.save_pretrained(tmp_path / request.param)
    model.save_pretrained(tmp_path / request.param)
    return tmp_path / request.param


def over_running_text(folder: Path, words: list[str]) -> torch.Tensor:
    """(L + 1, W, H): the text as one string, each piece given to its word by its place among the characters."""
    tokenizer = T.AutoTokenizer.from_pretrained(folder)
    starts_with_space = isinstance(tokenizer.backend_tokenizer.pre_tokenizer, ByteLevel)
    text = " " * starts_with_space + " ".join(words)
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True, return_special_tokens_mask=True)
    ends, at = [], int(starts_with_space)
    for word in words:
        at += len(word)
        ends.append(at)
        at += 1
    first_piece: dict[int, int] = {}
    for piece, ((_, end), special) in enumerate(
        zip(encoded.pop("offset_mapping")[0].tolist(), encoded.pop("special_tokens_mask")[0].tolist(), strict=True)
    ):
        if not special:
            first_piece.setdefault(next(i for i, word_end in enumerate(ends) if word_end >= end), piece)
    model = T.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
        encoded.pop("token_type_ids", None)
    with torch.no_grad():
        states = torch.stack(model(**encoded, output_hidden_states=True).hidden_states)[:, 0]
    return states[:, [first_piece[i] for i in range(len(words))]]


def test_vectors_are_those_of_a_plain_forward_over_running_text(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path / "hashes.json")
    split = Split([WORDS, WORDS[3:], WORDS[:2]], [["O"] * 8, ["O"] * 5, ["O"] * 2], None, [1, 2, 3], "text")
    cfg = features_config(tmp_path / "cache", dtype="float32")
    features = stored(ensure_features(Corpus("families", {"dev": split}), encoder, cfg, "cpu"), "dev")
    expected = torch.cat([over_running_text(family, words) for words in split.words], 1)
    assert features.shape == expected.shape == (4, 15, 16)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)


def test_windows_hold_what_the_encoder_takes_and_no_more(family: Path, tmp_path: Path):
    encoder = open_encoder(encoder_config(family), tmp_path / "hashes.json")
    if encoder.limit > 100:
        assert encoder.limit in (512, 8192)
        return
    assert encoder.limit in (32, 64)
    words = ["be"] * encoder.room * 2
    split = Split([words], [["O"] * len(words)], None, [1], "text")
    store = ensure_features(Corpus("long", {"dev": split}), encoder, features_config(tmp_path / "cache"), "cpu")
    assert stored(store, "dev").isfinite().all()


def test_a_causal_encoder_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tokenizer, model = FAMILIES["gpt2"]()
    tokenizer.save_pretrained(tmp_path / "gpt2")
    model.save_pretrained(tmp_path / "gpt2")
    encoder = open_encoder(encoder_config(tmp_path / "gpt2"), tmp_path / "hashes.json")
    split = Split([WORDS], [["O"] * 8], None, [1], "text")
    ensure_features(Corpus("x", {"dev": split}), encoder, features_config(tmp_path / "cache"), "cpu")
    assert "causal: a word's vector knows only what stands before it" in capsys.readouterr().err


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path):
    tokenizer, _ = FAMILIES["electra"]()
    tokenizer.save_pretrained(tmp_path / "mixed")
    T.BertModel(T.BertConfig(vocab_size=30, **SIZE)).save_pretrained(tmp_path / "mixed")
    T.ElectraConfig(vocab_size=30, embedding_size=16, **SIZE).save_pretrained(tmp_path / "mixed")
    config = json.loads((tmp_path / "mixed/config.json").read_text())
    (tmp_path / "mixed/config.json").write_text(json.dumps({**config, "model_type": "distilbert", "dim": 16}))
    with pytest.raises(UserError):
        load_model(open_encoder(encoder_config(tmp_path / "mixed"), tmp_path / "h.json"), "cpu")
