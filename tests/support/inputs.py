"""Small corpora, encoders and stores, made anew: nothing of the network, nothing that takes long."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers

from probe.config import Config, DataConfig, EncoderConfig, FeaturesConfig, preset_values
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.scoring.tags import to_iob2
from probe.settings import configs_of
from probe.vectors.sources import complete_store
from probe.vectors.store import FeatureStore, Shard, Source

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


def make_bert(folder: Path, num_layers: int, limit: int, hidden_size: int = 16) -> Path:
    """Writes a random BERT of so many layers of 16 that takes `limit` pieces, and its tokenizer."""
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=limit).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=limit,
        initializer_range=0.5,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@functools.cache
def plain_encoder(folder: Path) -> tuple[Any, Any]:
    """Tokenizer and model as transformers itself loads them; once, so the folder must stay as it is."""
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    return transformers.AutoTokenizer.from_pretrained(folder), model


def encoder_config(folder: Path) -> EncoderConfig:
    return EncoderConfig(
        name="", path=str(folder), revision=None, num_layers=None, weights="pretrained", weights_seed=0
    )


def data_config(path: Path | str | None, **changes: object) -> DataConfig:
    """Files train.conll, dev.conll and test.conll, and for the rest what conf/data/columns.yaml says."""
    files = {"train": "train.conll", "dev": "dev.conll", "test": "test.conll"}
    values: dict = preset_values("data", "columns") | files | {"path": None if path is None else str(path)} | changes
    return DataConfig(**values)


def features_config(cache_dir: Path, **changes: object) -> FeaturesConfig:
    values: dict = {
        "context": "sentence",
        "subword": "first",
        "stride": 0.5,
        "precision": "float32",
        "dtype": "float16",
        "final_norm": "last",
        "sentence": "mean",
        "layers": None,
        "batch_pieces": 64,
        "cache_dir": str(cache_dir),
        "placement": "auto",
    }
    return FeaturesConfig(**{**values, **changes})


def run_config(**parts: Any) -> Config:
    """A run's config: these parts, on the CPU in this process, and for the rest what `conf/` says."""
    return replace(configs_of([])[0][0], **{"jobs": 1, "device": "cpu", **parts})


def make_split(num_sentences: int, seed: int, origin: str = "made", longest: int = 12) -> Split:
    """Random sentences in which a few words are always names; two sentences a document."""
    choose = random.Random(seed)
    sentences, tags = [], []
    for _ in range(num_sentences):
        words = [
            choose.choice(list(NAMES)) if choose.random() < 0.3 else choose.choice(COMMON)
            for _ in range(choose.randint(1, longest))
        ]
        sentences.append(words)
        tags.append(to_iob2([f"I-{NAMES[word]}" if word in NAMES else "O" for word in words]))
    numbers = range(num_sentences)
    return Split(sentences, tags, [number // 2 for number in numbers], [number + 1 for number in numbers], origin)


def random_store(folder: Path, num_words: dict[str, int], words_in_shard: int = 50) -> FeatureStore:
    """A store of 6 layers of 16 random values in many shards, for what does not care who made it."""
    shards = {
        split: [
            Shard(split, number, first, min(first + words_in_shard, words))
            for number, first in enumerate(range(0, words, words_in_shard))
        ]
        for split, words in num_words.items()
    }
    nobody: Any = None
    somebody: Any = SimpleNamespace(dtype=None)
    store = FeatureStore(nobody, somebody, nobody, folder, "key", {}, 5, 16, "float16", shards, tuple(range(6)))
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for shard in (shard for split in shards.values() for shard in split):
        store.write(shard, torch.randn(6, shard.last - shard.first, 16, generator=generator).half())
    return store


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


def small_corpus() -> Corpus:
    """Splits of 60, 20 and 20 sentences."""
    return Corpus("tiny", {"train": make_split(60, 1), "dev": make_split(20, 2), "test": make_split(20, 3)})


def overrides(encoder: Path, data: Path) -> list[str]:
    """What is typed for an encoder's folder and for a corpus that `write_columns` wrote."""
    files = [f"data.{name}={name}.conll" for name in ("train", "dev", "test")]
    return [f"encoder.path={encoder}", "data=columns", f"data.path={data}", "data.name=tiny", *files]


def write_splits(folder: Path, **texts: str | bytes) -> Path:
    """Files train.conll, dev.conll and test.conll with these contents, each with a name where none is given."""
    for name in ("train", "dev", "test"):
        text = texts.get(name, f"{name} O\nAna B-PER\n")
        (folder / f"{name}.conll").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def write_file(folder: Path, content: str | bytes, name: str = "some.conll") -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def stored(store: FeatureStore, split: str) -> torch.Tensor:
    """(L + 1, W, H) in float32."""
    layers = list(range(store.num_layers + 1))
    return torch.cat([torch.stack([t.float() for t in tensors]) for _, tensors in store.read(split, layers)], 1)


Span = tuple[str, int, int]
SCHEMES = ("IOB1", "IOB2", "BIOES", "BILOU", "BMES", "IO")


def written(length: int, entities: list[Span], scheme: str) -> list[str]:
    """Tags of spans in a scheme, by the scheme's definition; in IO spans of one type must not touch."""
    tags = ["O"] * length
    ends = {(end, kind) for kind, _, end in entities}
    begin, end_mark, alone = {"BIOES": ("B", "E", "S"), "BILOU": ("B", "L", "U"), "BMES": ("B", "E", "S")}.get(
        scheme, ("B", "I", "B")
    )
    for kind, start, end in entities:
        for position in range(start, end):
            prefix = "M" if scheme == "BMES" else "I"
            if scheme in ("BIOES", "BILOU", "BMES"):
                prefix = alone if end - start == 1 else end_mark if position == end - 1 else prefix
            if position == start and (end - start > 1 or scheme == "IOB2"):
                prefix = begin if scheme in ("IOB2", "BIOES", "BILOU", "BMES") else "I"
            if position == start and scheme == "IOB1" and (start, kind) in ends:
                prefix = "B"
            tags[position] = f"{prefix}-{kind}"
    return tags


def random_spans(choose: random.Random, length: int, touching: bool = True) -> list[Span]:
    found: list[Span] = []
    position = 0
    while position < length:
        if choose.random() < 0.4:
            end = min(length, position + choose.randint(1, 3))
            kind = choose.choice(["PER", "LOC", "work-of-art"])
            if touching or not found or found[-1][2] < position or found[-1][0] != kind:
                found.append((kind, position, end))
            position = end
        else:
            position += 1
    return found


def ensure_features(
    corpus: Corpus, source: Source, cfg: FeaturesConfig, device: str = "cpu", model: torch.nn.Module | None = None
) -> FeatureStore:
    """A complete store."""
    return complete_store(FeatureStore.of(corpus, source, cfg), device, model)
