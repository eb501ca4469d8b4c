"""Tags text with a saved probe, by the functions that made its features: same pieces, windows, batches and pooling.

A text is processed in chunks of about CHUNK_WORDS words (of whole shards, as in a store), so memory does not grow with
it. The encoder stops after the deepest layer that the probe reads.

W words, L layers chosen, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm

from probe.config import Config, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.encoders.encoder import load_model
from probe.encoders.traits import traits_of
from probe.features.depth import stop_at
from probe.features.extraction import compute_shard, report_empty_words, report_encoder, report_slow_bfloat16
from probe.features.pooled import pool_sentences
from probe.features.store import Shard, cut_shards
from probe.features.windows import bounds
from probe.features.words import Text, pieces_at_once
from probe.probes.batches import TaggedWords
from probe.probes.combine import combine_stored
from probe.runs.records import RunRecord
from probe.runs.weights import load_probe, selection_of
from probe.system.machine import num_cores, resolve_device
from probe.system.progress import progress_bar

CHUNK_WORDS = 2**16
SHOW_FROM = 5_000  # words; longer texts show a progress bar


class CorpusTagger:
    """Holds a record's probe and its encoder, loaded once. Raises UserError if the encoder is another one."""

    def __init__(self, file: Path, record: RunRecord, cfg: Config) -> None:
        self.device = resolve_device(cfg.device)
        self.record = record
        stored = sorted(set(record.layers.indices))
        self.cfg = replace(cfg.features, layers=stored)
        self.places = [stored.index(k) for k in record.layers.indices]
        self.tagger, self.normalization = load_probe(file, record, self.device)
        self.encoder: Encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
        if self.encoder.fingerprint != record.encoder.fingerprint:
            raise UserError(
                f"{self.encoder.folder} is not the encoder that the probe was trained with, {record.encoder.name}. "
                "To say where that is: encoder.path=DIR."
            )
        self.selection = selection_of(record)
        report_slow_bfloat16(self.cfg, self.device)
        self.model = load_model(self.encoder, self.device, self.cfg.precision)
        at_once = pieces_at_once(self.cfg.batch_pieces, self.encoder, self.device)
        self.cfg = replace(self.cfg, batch_pieces=at_once)
        report_encoder(self.encoder, traits_of(self.model, self.encoder, self.device), self.cfg.subword)
        stop_at(stored[-1], self.model, self.encoder, self.device)

    def tag(self, split: Split) -> Iterator[list[str]]:
        """Yields the tags of each sentence, in order."""
        if self.cfg.context == "document" and split.documents is None:
            split = replace(split, documents=[0] * len(split.words))
        name = split.origin
        corpus = Corpus(name, {name: split})
        text = Text(corpus, name, self.encoder, self.cfg)
        report_empty_words(corpus, {name: text})
        ends = bounds(split.lengths)
        is_per_word = self.record.task.is_per_word
        least = CHUNK_WORDS if is_per_word else 1
        with progress_bar(split.num_words, "tagging", quiet=split.num_words < SHOW_FROM) as bar:
            for chunk in _chunks(cut_shards(name, split.lengths), set(ends.tolist()), least):
                torch.set_num_threads(num_cores())
                first, last = (int(ends.searchsorted(word)) for word in (chunk[0].first, chunk[-1].last))
                lengths = torch.tensor(split.lengths[first:last])
                if is_per_word:
                    features = torch.cat([self._combined(list(self._layers(text, shard, bar))) for shard in chunk])
                else:
                    words = torch.cat([self._layers(text, shard, bar) for shard in chunk], 1)
                    features = self._combined([pool_sentences(of, lengths, self.cfg.sentence) for of in words])
                if self.device == "cpu":
                    torch.set_num_threads(1)  # as in training
                sizes = lengths.tolist() if is_per_word else [1] * len(lengths)
                data = TaggedWords(features, [["O"] * size for size in sizes], {}, self.device)
                yield from (list(tags) for tags in self.tagger.predict(data))

    def _combined(self, layers: list[torch.Tensor]) -> torch.Tensor:
        return combine_stored(layers, self.selection, self.normalization)

    @torch.inference_mode()
    def _layers(self, text: Text, shard: Shard, bar: tqdm) -> torch.Tensor:
        """Computes the chosen layers of a shard's words, (L, W, H), as a store would give them."""
        layers, arrived = compute_shard(shard, text, self.model, self.encoder, self.cfg, self.device, bar)
        if not arrived() <= torch.finfo(layers.dtype).max:  # also true for NaN
            raise UserError(
                f"{self.cfg.dtype}, in which the probe was trained, cannot hold every value of this text's vectors."
            )
        return layers[self.places]


def _chunks(shards: list[Shard], sentence_ends: set[int], least: int) -> Iterator[list[Shard]]:
    """Groups consecutive shards into chunks of `least` words or a little more, up to the end of a sentence."""
    chunk: list[Shard] = []
    for shard in shards:
        chunk.append(shard)
        if shard.last - chunk[0].first >= least and shard.last in sentence_ends:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
