"""Tags text with a saved probe. A temporary feature store holds the text's vectors, so it is read as in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from probe.config import Config, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.data.tags import Tags
from probe.encoders.checkpoint import open_encoder
from probe.probes.batches import TaggedWords
from probe.probes.combine import Streamed
from probe.runs.records import RunRecord
from probe.runs.weights import load_probe, selection_of
from probe.system.machine import resolve_device
from probe.vectors.extraction import ensure_features
from probe.vectors.pooled import vectors_to_read


def tag_splits(file: Path, record: RunRecord, cfg: Config, splits: Sequence[Split]) -> Iterator[Tags]:
    """Yields the tags of each sentence of each split.

    file: of the record. The store holds only the layers that the probe reads, and is deleted at the end. Raises
    UserError if the encoder is not the one of the record.
    """
    device = resolve_device(cfg.device)
    tagger, normalization = load_probe(file, record, device)
    encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
    if encoder.fingerprint != record.encoder.fingerprint:
        raise UserError(
            f"{encoder.folder} is not the encoder that the probe was trained with, {record.encoder.name}. "
            "To say where that is: encoder.path=DIR."
        )
    if cfg.features.context == "document":
        splits = [replace(split, documents=split.documents or [0] * len(split.words)) for split in splits]
    corpus = Corpus("texts", {f"text{number}": split for number, split in enumerate(splits, 1)}, record.task)
    Path(cfg.features.cache_dir).mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".tagging-", dir=cfg.features.cache_dir) as folder:
        features = replace(cfg.features, cache_dir=folder, layers=sorted(set(record.layers.indices)))
        vectors = vectors_to_read(ensure_features(corpus, encoder, features, device), corpus, features)
        if device == "cpu":
            torch.set_num_threads(1)  # as in training
        for name, split in corpus.splits.items():
            read = Streamed(vectors, name, selection_of(record), normalization=normalization)
            sizes = split.by_unit(record.task.units).lengths
            tags, _ = tagger.predict(TaggedWords(read, [["O"] * size for size in sizes], {}, device))
            yield tags
