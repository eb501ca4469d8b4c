"""A tiny random encoder of each family that is supported."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.pre_tokenizers import ByteLevel

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
