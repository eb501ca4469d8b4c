"""Tags text with a saved probe, or gives its features. A temporary store holds its vectors, read as in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from probe.probes.combine import Streamed, mix
from probe.probes.normalization import Normalization, normalization_of
from probe.runs.exported import read_exported
from probe.runs.plan import plan
from probe.runs.records import RunRecord
from probe.runs.run import extract
from probe.runs.weights import load_probe, selection_of
from probe.system.machine import resolve_device
from probe.vectors.extraction import ensure_features
from probe.vectors.pooled import vectors_to_read


def tag_splits(file: Path, record: RunRecord, cfg: Config, splits: Sequence[Split]) -> Iterator[Tags]:
    """Yields the tags of each sentence of each split. file: of the record. Raises UserError."""
    device = resolve_device(cfg.device)
    tagger, normalization = load_probe(file, record, device)
    with read_as_in_training(file, record, cfg, splits, normalization) as found:
        if device == "cpu":
            torch.set_num_threads(1)  # as in training
        for read, split in zip(found, splits, strict=True):
            sizes = split.by_unit(record.task.units).lengths
            tags, _ = tagger.predict(TaggedWords(read, [["O"] * size for size in sizes], {}, device))
            yield tags


def features_of_splits(file: Path, record: RunRecord, cfg: Config, splits: Sequence[Split]) -> Iterator[torch.Tensor]:
    """Yields the features of each split's words (or sentences) as the record's probe had them, (words, width), float32.

    A mix is the learned one, (words, H), if the probe's weights were saved, else its layers, (words, layers, H).
    Without saved weights the normalization is computed again, from the features of train.
    """
    tagger, normalization = None, None
    if record.sha256.weights:
        tagger, normalization = load_probe(file, record)
    elif record.identity.layers.normalize:
        planned = plan(cfg)
        stored = vectors_to_read(extract(planned), planned.text, planned.cfg.features)
        normalization = normalization_of(stored, selection_of(record))
    with read_as_in_training(file, record, cfg, splits, normalization) as found:
        for read in found:
            whole = read.between(0, len(read)).float()
            yield mix(whole, tagger.mix_weights, tagger.mix_scale).detach() if tagger and tagger.is_mix else whole


@contextmanager
def read_as_in_training(
    file: Path, record: RunRecord, cfg: Config, splits: Sequence[Split], normalization: Normalization | None
) -> Iterator[list[Streamed]]:
    """Gives the combined features of each split, from a store with only the needed layers, deleted at the end.

    Raises UserError if the encoder is not the one of the record, or of the export that the record lies in.
    """
    device, encoder = resolve_device(cfg.device), open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
    exported = read_exported(file.parent.parent)
    if encoder.fingerprint != (exported.fingerprint if exported else record.encoder.fingerprint):
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
        yield [Streamed(vectors, name, selection_of(record), normalization=normalization) for name in corpus.splits]
