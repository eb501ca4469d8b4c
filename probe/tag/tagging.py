"""Tags text with a saved probe, or gives its features. A temporary store holds its vectors, read as in training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from probe.config import Config, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.encoder import Encoder
from probe.probes.batches import TaggedWords
from probe.probes.combine import Streamed, mix
from probe.probes.normalization import Normalization, normalization_of
from probe.probes.tagger import Tagger
from probe.runs.config_from_record import read_exported
from probe.runs.plan import plan
from probe.runs.records import RunRecord
from probe.runs.weights import load_probe
from probe.scoring.tags import Tags
from probe.system.machine import resolve_device
from probe.vectors.extraction import load_reported
from probe.vectors.sources import complete_store, open_text_encoder
from probe.vectors.store import FeatureStore, read_again_if_damaged


class TrainedRow:
    """Reads new text as a record's run read its corpus, and tags it or gives its features.

    The encoder and the probe are loaded once, when they are first needed. file: of the record.
    """

    def __init__(self, file: Path, record: RunRecord, cfg: Config) -> None:
        self.file, self.record, self.cfg, self.device = file, record, cfg, resolve_device(cfg.device)

    @cached_property
    def probe(self) -> tuple[Tagger, Normalization | None]:
        """Raises UserError if its weights were not saved."""
        return load_probe(self.file, self.record, self.device)

    @cached_property
    def encoder(self) -> Encoder:
        """Raises UserError if it is not the encoder of the record, or of the export that the record lies in."""
        encoder = open_text_encoder(self.cfg.encoder, self.cfg.features.cache_dir)
        exported = read_exported(self.file.parent.parent)
        if encoder.fingerprint != (exported.fingerprint if exported else self.record.encoder.fingerprint):
            raise UserError(
                f"{encoder.folder} is not the encoder that the probe was trained with, {self.record.encoder.name}. "
                "To say where that is: encoder.path=DIR."
            )
        return encoder

    @cached_property
    def model(self) -> torch.nn.Module:
        return load_reported(self.encoder, self.cfg.features, self.device, deepest=max(self.record.layers.indices))

    @cached_property
    def normalization(self) -> Normalization | None:
        """Computed again, from the features of train, where the probe's weights were not saved."""
        if self.record.sha256.weights:
            return self.probe[1]
        if not self.record.identity.layers.normalize:
            return None
        store = plan(self.cfg).store
        return read_again_if_damaged(
            lambda: normalization_of(complete_store(store, self.device), self.record.selection)
        )

    def tag(self, splits: Sequence[Split]) -> Iterator[tuple[Tags, list[float]]]:
        """Yields the tags of each sentence of each split, and the probability of each tag. Raises UserError.

        Of a detection, a label is decided at the record's threshold, its probability is that at log-odds of 0.
        """
        tagger, _ = self.probe
        with self._read(splits) as vectors:
            if self.device == "cpu":
                torch.set_num_threads(1)  # as in training
            for streamed, split in zip(vectors, splits, strict=True):
                sizes = split.by_unit(self.record.task.units).lengths
                tags, scores = tagger.tag(TaggedWords(streamed, [["O"] * size for size in sizes], {}, self.device))
                if labels := self.record.data.labels:  # of a detection, which gives log-odds
                    above = self.record.threshold or 0.0
                    tags = [[labels[float(value) > above]] for (value,) in tags]
                yield tags, scores

    def features(self, splits: Sequence[Split]) -> Iterator[torch.Tensor]:
        """Yields the features of each split's words (or sentences) as the probe had them, (words, width), float32.

        A mix is the learned one, (words, H), if the probe's weights were saved, else its layers, (words, layers, H).
        """
        tagger = self.probe[0] if self.record.sha256.weights else None
        with self._read(splits) as vectors:
            for streamed in vectors:
                whole = streamed.between(0, len(streamed)).float()
                if tagger is not None and tagger.is_mix:
                    whole = mix(whole, tagger.mix_weights.detach().cpu(), tagger.mix_scale.detach().cpu())
                yield whole

    @contextmanager
    def _read(self, splits: Sequence[Split]) -> Iterator[list[Streamed]]:
        """Gives the combined features of each split, from a store with only the needed layers, deleted at the end."""
        cfg, normalization = self.cfg.features, self.normalization
        if cfg.context == "document":
            splits = [replace(split, documents=split.documents or [0] * len(split.words)) for split in splits]
        texts = {f"text{number}": split for number, split in enumerate(splits, 1)}
        corpus = Corpus("texts", texts, self.record.task)
        Path(cfg.cache_dir).mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".tagging-", dir=cfg.cache_dir) as folder:
            features = replace(cfg, cache_dir=folder, layers=sorted(set(self.record.layers.indices)))
            store = complete_store(FeatureStore.of(corpus, self.encoder, features), self.device, self.model)
            yield [Streamed(store, name, self.record.selection, normalization=normalization) for name in texts]
