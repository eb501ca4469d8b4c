"""A tiny random encoder of each family that is supported."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers.pre_tokenizers import ByteLevel

T = transformers
TEXT = ["ana met smith in paris , may be nice .", "The bank of England won at Leeds", "Jordan lost to Chelsea"] * 20
WORDS = ["Paris", "may", "be", "nicely", "met", ",", "England", "X"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
NAMED: dict[str, Any] = dict(
    zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True)
)
HEADS: dict[str, Any] = {"num_key_value_heads": 1, "head_dim": 8}
BOTH_WAYS: dict[str, Any] = {"is_causal": False}  # as embedders made of decoders say
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


def space_as_piece():
    """A BPE vocabulary in which the space before a word is a sign of its own kind, as Llama 2 and Gemma have it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=150, special_tokens=SPECIAL))
    merges = [tuple(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]
    return {"vocab": tokenizer.get_vocab(), "merges": merges}


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


def llama_3():
    """A pattern that splits at spaces first, then bytes: no setting of the library puts a space before a word."""
    parts = byte_level()
    backend = Tokenizer(models.BPE(parts["vocab"], parts["merges"], ignore_merges=True))
    pattern = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(pattern, "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", parts["vocab"]["<s>"])]
    )
    return T.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=32, bos_token="<s>", eos_token="</s>")


def in_python(kind: str, **settings: Any) -> Any:
    """A tokenizer that exists in Python alone, with the few files that it is read from."""
    folder = Path(tempfile.mkdtemp())
    letters = sorted({letter for text in [*TEXT, *WORDS] for letter in text if letter != " "})
    if kind == "BertJapaneseTokenizer":
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "東京", "大学", "に", "行く", "Paris", "may", "nice"]
        pieces += ["##ly", "##学", "##京", *letters, *(f"##{letter}" for letter in letters)]
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
        return T.BertJapaneseTokenizer(str(folder / "vocab.txt"), model_max_length=32, **settings)
    if kind == "FlaubertTokenizer":
        pieces = ["<s>", "</s>", "<pad>", "<unk>", *letters, *(f"{letter}</w>" for letter in letters), "ma", "may</w>"]
        (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
        (folder / "merges.txt").write_text("m a 1\nma y</w> 1\n")
        return T.FlaubertTokenizer(
            str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=32, **settings
        )
    pieces = [*letters, *(f"{letter}@@" for letter in letters), "may", "Par@@"]
    (folder / "vocab.txt").write_text("".join(f"{piece} 1\n" for piece in pieces))
    (folder / "bpe.codes").write_text("m a 1\nma y</w> 1\nP a 1\nPa r 1\n")
    return getattr(T, kind)(str(folder / "vocab.txt"), str(folder / "bpe.codes"), model_max_length=32, **settings)


def mobilebert():
    config = T.MobileBertConfig(
        vocab_size=30,
        embedding_size=8,
        intra_bottleneck_size=8,
        max_position_embeddings=64,
        num_feedforward_networks=1,
        **{**SIZE, "intermediate_size": 16},
    )
    model = T.MobileBertModel(config)
    model.embeddings.word_embeddings.weight.data[0] = 0.02  # of padding, which is not zero in a trained model
    return T.MobileBertTokenizer(vocab=word_pieces(), model_max_length=64), model


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
    "mobilebert": mobilebert,
    "fnet": lambda: (
        T.BertTokenizer(vocab=word_pieces(), model_max_length=64),
        T.FNetModel(
            T.FNetConfig(
                vocab_size=30, max_position_embeddings=64, hidden_size=16, num_hidden_layers=3, intermediate_size=32
            )
        ),
    ),
    "bigbird": lambda: (
        T.RobertaTokenizer(**byte_level(), model_max_length=64),
        T.BigBirdModel(
            T.BigBirdConfig(
                vocab_size=400, block_size=2, num_random_blocks=1, max_position_embeddings=66, pad_token_id=1, **SIZE
            )
        ),
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
    "llama": lambda: (
        T.LlamaTokenizer(**space_as_piece(), model_max_length=32),
        T.LlamaModel(T.LlamaConfig(vocab_size=200, **HEADS, **SIZE)),
    ),
    "llama-3": lambda: (llama_3(), T.LlamaModel(T.LlamaConfig(vocab_size=400, **HEADS, **SIZE))),
    "llama-both-ways": lambda: (
        llama_3(),
        T.LlamaModel(T.LlamaConfig(vocab_size=400, **BOTH_WAYS, **HEADS, **SIZE)),
    ),
    "qwen3": lambda: (
        T.Qwen2Tokenizer(**byte_level(), model_max_length=32),
        T.Qwen3Model(T.Qwen3Config(vocab_size=400, **HEADS, **SIZE)),
    ),
    "gemma-3-text": lambda: (
        T.GemmaTokenizer(**space_as_piece(), model_max_length=32),
        T.Gemma3TextModel(T.Gemma3TextConfig(vocab_size=200, sliding_window=8, **HEADS, **SIZE)),
    ),
    "gemma-3": lambda: (
        T.GemmaTokenizer(**space_as_piece(), model_max_length=32),
        T.Gemma3Model(
            T.Gemma3Config(
                text_config={"vocab_size": 200, "sliding_window": 8, **HEADS, **SIZE},
                vision_config={"image_size": 14, "patch_size": 7, **SIZE},
            )
        ),
    ),
    "qwen2-vl": lambda: (
        T.Qwen2Tokenizer(**byte_level(), model_max_length=32),
        T.Qwen2VLModel(
            T.Qwen2VLConfig(
                text_config={
                    "vocab_size": 400, "num_key_value_heads": 1,
                    "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}, **SIZE,
                },
                vision_config={"depth": 1, "embed_dim": 8, "num_heads": 2, "hidden_size": 16, "mlp_ratio": 1},
            )
        ),
    ),
    "olmo-2": lambda: (
        generic_byte_level(),
        T.Olmo2Model(T.Olmo2Config(vocab_size=400, num_key_value_heads=1, **SIZE)),
    ),
    "bertweet": lambda: (
        in_python("BertweetTokenizer"),
        T.RobertaModel(T.RobertaConfig(vocab_size=150, max_position_embeddings=34, pad_token_id=1, **SIZE)),
    ),
    "phobert": lambda: (
        in_python("PhobertTokenizer"),
        T.RobertaModel(T.RobertaConfig(vocab_size=150, max_position_embeddings=34, pad_token_id=1, **SIZE)),
    ),
    "bert-japanese": lambda: (
        in_python("BertJapaneseTokenizer"),
        T.BertModel(T.BertConfig(vocab_size=150, max_position_embeddings=32, **SIZE)),
    ),
    "flaubert": lambda: (
        in_python("FlaubertTokenizer"),
        T.FlaubertModel(
            T.FlaubertConfig(vocab_size=150, emb_dim=16, n_layers=3, n_heads=2, max_position_embeddings=32)
        ),
    ),
}  # fmt: skip
