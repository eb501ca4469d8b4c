"""Texts with one label: each layer against a plain forward pass of the whole text, and sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from support.inputs import ensure_features
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from probe.config import UserError
from probe.data.corpus import Corpus, load_corpus
from probe.encoders.encoder import Encoder, open_encoder
from probe.settings import config_of

TEXTS = [
    "ana met smith .",
    "The bank,\nof the river!  Two blanks",
    "o'neil's $3.50 (x)",
    " leading",
    "a b " * 40,
    "Bank",
]
POOLED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda pieces: pieces.mean(0),
    "max": lambda pieces: pieces.max(0).values,
    "cls": lambda pieces: pieces[0],
    "first": lambda pieces: pieces[0],
    "last": lambda pieces: pieces[-1],
}
TEMPLATE = "{% for one in messages %}<{{ one.role }}>{{ one.content }}</s>{% endfor %}"


def decoder(folder: Path) -> Path:
    """A tiny Qwen2 with a byte-level tokenizer, which pads on the left and puts nothing around a text."""
    torch.manual_seed(0)
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<pad>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    backend.train_from_iterator(TEXTS, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", padding_side="left", chat_template=TEMPLATE
    )
    config = transformers.Qwen2Config(
        vocab_size=300, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2,
        intermediate_size=32, max_position_embeddings=512,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    transformers.Qwen2Model(config).save_pretrained(folder)
    return folder


def corpus_of(folder: Path, rows: list[Any], field: str = "text") -> Corpus:
    folder.mkdir(exist_ok=True)
    for split in ("train", "dev", "test"):
        lines = [{field: row, "label": "ab"[n % 2]} for n, row in enumerate([*rows, f"{split} text"])]
        if field == "messages":
            lines[-1][field] = [{"role": "user", "content": f"{split} text"}]
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return load_corpus(config_of(["data=sentences", f"data.path={folder}", f"data.words_field={field}"]).data)


def read(corpus: Corpus, encoder: str, how: str, folder: Path) -> tuple[torch.Tensor, Encoder]:
    """The vectors of train's texts, (L + 1, S, H), by the product."""
    settings = [encoder, f"features.sentence={how}", "features.dtype=float32", f"features.cache_dir={folder}"]
    cfg = config_of(["data=sentences", "data.path=.", *settings, "features.batch_pieces=200"])
    opened = open_encoder(cfg.encoder, folder)
    store = ensure_features(corpus, opened, cfg.features, "cpu")
    shards = [layers for _, layers in store.read("train", range(opened.num_layers + 1))]
    return torch.stack([torch.cat(layer) for layer in zip(*shards, strict=True)]), opened


def plain(folder: Path, texts: list[Any], most: int) -> tuple[list[list[torch.Tensor]], list[list[torch.Tensor]]]:
    """The pieces of each text, (P, H) by layer, through transformers: each text alone, and all in one padded batch."""
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)  # which reads tokenizer.json as it is
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    chat = [one if isinstance(one, str) else str(tokenizer.apply_chat_template(one, tokenize=False)) for one in texts]

    def forward(some: list[str], **padding: Any) -> list[list[torch.Tensor]]:
        batch = tokenizer(some, return_tensors="pt", truncation=True, max_length=most, **padding)
        with torch.inference_mode():
            states = model(**batch, output_hidden_states=True).hidden_states
        return [[state[n][mask.bool()] for state in states] for n, mask in enumerate(batch["attention_mask"])]

    return [forward([text])[0] for text in chat], forward(chat, padding=True)


def assert_read_as_plain(corpus: Corpus, encoder: Path, how: str, folder: Path) -> None:
    """Compares every layer of train's texts with a forward pass through transformers, alone and padded."""
    vectors, opened = read(corpus, f"encoder.path={encoder}", how, folder)
    for found in plain(encoder, list(corpus.splits["train"].texts), opened.limit):
        for number, layers in enumerate(found):
            for layer, pieces in enumerate(layers):
                torch.testing.assert_close(vectors[layer, number], POOLED[how](pieces), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("how", ["mean", "max", "cls", "first", "last"])
def test_every_layer_is_that_of_a_plain_forward_pass(how: str, tiny_bert: Path, tmp_path: Path):
    corpus = corpus_of(tmp_path / "data", TEXTS)
    assert_read_as_plain(corpus, tiny_bert, how, tmp_path)


@pytest.mark.parametrize("how", ["mean", "last"])
def test_a_decoder_that_pads_on_the_left_is_read_alike(how: str, tmp_path: Path):
    folder = decoder(tmp_path / "decoder")
    corpus = corpus_of(tmp_path / "data", TEXTS)
    assert_read_as_plain(corpus, folder, how, tmp_path)
    with pytest.raises(UserError, match="cls"):
        read(corpus, f"encoder.path={folder}", "cls", tmp_path)


def test_a_conversation_is_read_by_its_chat_template(tiny_bert: Path, tmp_path: Path):
    folder = decoder(tmp_path / "decoder")
    talk = [[{"role": "system", "content": "be\nkind"}, {"role": "user", "content": "The bank?"}]]
    talk += [[{"role": "user", "content": "ana met smith"}]]
    corpus = corpus_of(tmp_path / "data", talk, "messages")
    assert corpus.splits["train"].words[1] == ["ana", "met", "smith"], "what baselines read"
    vectors, encoder = read(corpus, f"encoder.path={folder}", "last", tmp_path)
    alone, _ = plain(folder, talk, encoder.limit)
    for number, layers in enumerate(alone):
        for layer, pieces in enumerate(layers):
            torch.testing.assert_close(vectors[layer, number], pieces[-1], atol=1e-5, rtol=1e-4)
    with pytest.raises(UserError, match="chat template"):
        read(corpus, f"encoder.path={tiny_bert}", "mean", tmp_path)


def test_line_breaks_and_the_way_of_pooling_are_part_of_the_key(tiny_bert: Path, tmp_path: Path):
    from probe.vectors.store import FeatureStore

    keys = []
    for name, text in (("blank", "the bank"), ("break", "the\nbank")):
        corpus = corpus_of(tmp_path / name, [text])
        for how in ("mean", "last"):
            cfg = config_of(["data=sentences", "data.path=.", f"encoder.path={tiny_bert}", f"features.sentence={how}"])
            keys.append(FeatureStore.of(corpus, open_encoder(cfg.encoder, tmp_path), cfg.features).key)
    assert len({*keys}) == 4


@pytest.mark.parametrize(
    ("modules", "pooling", "facts"),
    [
        (["Transformer", "Pooling", "Dense"], {"pooling_mode_mean_tokens": True}, "Dense"),
        (["Transformer", "Pooling"], {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, "max"),
        (["Transformer", "Pooling"], {"pooling_mode_weightedmean_tokens": True}, "weightedmean"),
        ([], {}, "modules.json"),
    ],
)
def test_a_pooling_that_is_not_known_is_refused(
    modules: list[str], pooling: dict[str, bool], facts: str, tmp_path: Path
):
    folder = decoder(tmp_path / "decoder")
    if modules:
        (folder / "1_Pooling").mkdir()
        paths = [
            {"type": f"sentence_transformers.models.{one}", "path": "1_Pooling" * (one == "Pooling")} for one in modules
        ]
        (folder / "modules.json").write_text(json.dumps(paths))
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(UserError, match=facts):
        read(corpus_of(tmp_path / "data", TEXTS), f"encoder.path={folder}", "model", tmp_path)


@pytest.mark.real
def test_the_last_layer_is_what_sentence_transformers_encodes(minilm: Encoder, tmp_path: Path):
    library = pytest.importorskip("sentence_transformers")
    corpus = corpus_of(tmp_path / "data", [*TEXTS, "word " * 400, "Ünïcode 北京 🙂"])
    vectors, encoder = read(corpus, "encoder=minilm_l6", "model", tmp_path)
    theirs = library.SentenceTransformer(str(encoder.folder), device="cpu").encode(list(corpus.splits["train"].texts))
    np.testing.assert_allclose(vectors[-1].numpy(), theirs, atol=1e-5)


def test_new_texts_are_read_as_those_of_training(tiny_bert: Path, tmp_path: Path, api_here: None):
    import probe

    corpus = corpus_of(tmp_path / "data", TEXTS * 3)
    data = ["data=sentences", f"data.path={tmp_path / 'data'}", f"encoder.path={tiny_bert}", "layers=last", "jobs=1"]
    settings = [*data, "features.dtype=float32", f"features.cache_dir={tmp_path}", f"results_dir={tmp_path / 'out'}"]
    probe.run(*settings, "probe=linear", "probe.max_epochs=1", "save_probe=true")
    texts = list(corpus.splits["train"].texts)[: len(TEXTS)]
    stored = probe.features(*settings).train.vectors
    for number, read in enumerate(probe.load(tmp_path / "out").features(texts)):
        assert read.words == [" ".join(corpus.splits["train"].words[number])]
        torch.testing.assert_close(read.vectors[0], torch.as_tensor(stored[number]), atol=1e-5, rtol=1e-4)
