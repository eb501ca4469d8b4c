"""Encodes a text: pieces, hidden states, and one vector per word and layer; and compares such vectors.

The functions are those that fill the feature store, but results stay in memory, in float32. Each text is encoded by
itself. A text longer than the encoder's window goes through it in overlapping windows, as in extraction.

B windows, P pieces in each, W words, K pieces without repetition and padding, L + 1 layers, H hidden size, n vectors
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from probe.config import SENTENCES, Config, UserError, suggestion
from probe.data.corpus import Corpus
from probe.data.running_text import split_text
from probe.data.split import Split
from probe.encoders.checkpoint import Encoder
from probe.encoders.encoder import check_states, load_model, outputs
from probe.probes.combine import combine
from probe.probes.selection import Selection, select
from probe.system.machine import resolve_device
from probe.vectors.extraction import report_empty_words, report_encoder
from probe.vectors.sources import open_text_encoder
from probe.vectors.words import Text, Window, kept_pieces, to_tensors, word_states

# The embeddings that encoders of BERT's kind add up, as transformers names them.
PARTS = {"word": "word_embeddings", "position": "position_embeddings", "segment": "token_type_embeddings"}
NEIGHBOURS = 3  # words shown on either side of an occurrence


@dataclass(frozen=True)
class EncodedText:
    """Holds the encoder's output for one text.

    ids, mask and types (None if the encoder has no segments): (B, P). word_of_piece: (B, P), the number of its word
    from 0, or None for special pieces and padding. vectors: (W, L + 1, H), one per word and layer. pieces: (L + 1, K,
    H), every piece once, in order, with special ones and without padding; if windows overlap, the pieces of a word come
    from the same window as the word. pooled: (H,), the pooler's output for the first window. parts: each (pieces of the
    first window, H): the embeddings that are added up, their sum, and layer 0, which is the LayerNorm of the sum; None
    if that does not hold for this encoder.
    """

    text: str
    words: list[str]
    windows: list[Window]
    ids: torch.Tensor
    mask: torch.Tensor
    types: torch.Tensor | None
    word_of_piece: list[list[int | None]]
    vectors: torch.Tensor
    pieces: torch.Tensor
    pooled: torch.Tensor | None
    parts: dict[str, torch.Tensor] | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Returns (B, P, H), of each hidden state."""
        return self.ids.shape[0], self.ids.shape[1], self.vectors.shape[2]


class TextEncoder:
    """Holds an encoder with its weights and the chosen layers, and encodes texts."""

    def __init__(self, cfg: Config) -> None:
        if cfg.encoder.num_layers is not None:
            select(cfg.layers, cfg.encoder.num_layers, hidden_size=1)  # refuses a wrong layer before a download
        if cfg.layers.is_empty:
            raise UserError("layers=majority_tag reads no layer, so there is nothing to inspect. Type layers=last.")
        if cfg.layers.normalize is not None:
            raise UserError(
                "layers.normalize needs a training text. Omit it, or from Python: word_vectors with data=NAME."
            )
        self.features = replace(cfg.features, context="sentence", layers=None)  # each text by itself, every layer
        self.device = resolve_device(cfg.device)
        self.encoder: Encoder = open_text_encoder(cfg.encoder, cfg.features.cache_dir)
        self.selection: Selection = select(cfg.layers, self.encoder.num_layers, self.encoder.hidden_size)
        precision, final_norm = cfg.features.precision, cfg.features.final_norm
        self.model: Any = load_model(self.encoder, self.device, precision, keep_pooler=True, final_norm=final_norm)
        report_encoder(self.encoder, self.model, cfg.features, self.device)
        self._parts: dict[str, torch.Tensor] = {}  # of the latest forward pass
        for name, attribute in PARTS.items():
            module = getattr(getattr(self.model, "embeddings", None), attribute, None)
            if isinstance(module, torch.nn.Module):
                module.register_forward_hook(partial(self._keep_part, name))

    @torch.no_grad()  # not inference mode, whose tensors cannot be used in training
    def read(self, text: str, number: int = 1, pad: int = 0, segment: int | None = None) -> EncodedText:
        """Encodes one text.

        number: of the text, for messages. pad: the least number of pieces in a window. segment: replaces the
        tokenizer's segment ids. Raises UserError for a text that cannot be read.
        """
        name, encoder, subword = f"text {number}", self.encoder, self.features.subword
        words = split_text(text, name)
        corpus = Corpus("texts", {name: Split([words], [["O"] * len(words)], None, [number], "text")})
        cut = Text(corpus, name, encoder, self.features)
        report_empty_words(corpus, {name: cut})
        ids, mask, types = to_tensors(cut.windows, cut.pieces, encoder, pad)
        num_pieces = mask.sum(1).tolist()
        if not max(num_pieces):
            raise UserError(f"{name} is empty, and {encoder.name} adds no special pieces to a text.")
        if pad and not max(num_pieces) <= pad <= encoder.limit:
            raise UserError(f"--pad {pad}: expected {max(num_pieces)} to {encoder.limit} for {name}.")
        if segment is not None:
            known = 0 if types is None else getattr(encoder.config, "type_vocab_size", 0)
            if types is None or not 0 <= segment < known:
                allowed = f"0 to {known - 1}" if known else "none, as it has no segments"
                raise UserError(f"--segment {segment}: expected {allowed} for {encoder.name}.")
            types = types.masked_fill(mask == 1, segment)

        vectors, pieces, word_of_piece = [], [], []
        pooled, parts = None, None
        prefix, width = len(encoder.special.prefix), ids.shape[1]
        for i, window in enumerate(cut.windows):
            batch = [None if part is None else part[i : i + 1].to(self.device) for part in (ids, mask, types)]
            output = outputs(self.model, *batch)  # type: ignore[arg-type]
            states: tuple[torch.Tensor, ...] = output.hidden_states
            check_states(states, ids[i : i + 1].shape, encoder)
            if i == 0:
                pooled = getattr(output, "pooler_output", None)
                parts = self._parts_of(states[0][0, : num_pieces[0]])
            at, lengths, _ = kept_pieces([window], cut.pieces, encoder, subword, width)
            lengths = None if lengths is None else lengths.to(self.device)
            vectors.append(word_states(states, at.to(self.device), lengths, subword).float().cpu())
            first = 0 if i == 0 else prefix + cut.pieces.count(window.first, window.keep_first)
            is_last = i == len(num_pieces) - 1
            last = num_pieces[i] if is_last else prefix + cut.pieces.count(window.first, window.keep_last)
            pieces.append(torch.stack([state[0, first:last] for state in states]).float().cpu())
            numbers = np.arange(window.first, window.last).repeat(cut.pieces.lengths(window.first, window.last))
            after = width - prefix - len(numbers)
            word_of_piece.append([*[None] * prefix, *numbers.tolist(), *[None] * after])
        return EncodedText(
            text,
            words,
            cut.windows,
            ids,
            mask,
            types,
            word_of_piece,
            torch.cat(vectors, 1).transpose(0, 1).contiguous(),
            torch.cat(pieces, 1),
            None if pooled is None else pooled[0].float().cpu(),
            parts,
        )

    def _keep_part(self, name: str, _: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self._parts[name] = output[0]

    def _parts_of(self, layer_0: torch.Tensor) -> dict[str, torch.Tensor] | None:
        """Returns the parts of layer 0, (P, H) without padding; None unless layer 0 is the LayerNorm of their sum."""
        parts = {name: self._parts[name][: len(layer_0)] for name in PARTS if name in self._parts}
        norm = getattr(getattr(self.model, "embeddings", None), "LayerNorm", None)
        if norm is None or not parts or any(part.shape != layer_0.shape for part in parts.values()):
            return None
        tolerance = 16 * torch.finfo(layer_0.dtype).eps
        total = torch.stack([*parts.values()]).sum(0)
        if not torch.allclose(norm(total), layer_0, rtol=tolerance, atol=tolerance):
            return None
        return {name: part.float().cpu() for name, part in {**parts, "sum": total, "layer 0": layer_0}.items()}


def sentence_vector(reading: EncodedText, how: str, reader: TextEncoder) -> torch.Tensor:
    """Returns one vector (H',) for a whole text.

    cls: its first piece; mean, max: over all its pieces with special ones; all three with the chosen layers.
    mean_second_to_last: the mean of the second-to-last layer, for any chosen layers. pooler: the pooler's output.
    """
    if how == "pooler" and reading.pooled is not None:
        return reading.pooled
    if how == "pooler" or (how == "cls" and not reader.encoder.special.prefix):
        others = ", ".join(name for name in SENTENCES if name not in ("pooler", how))
        raise UserError(f"--sentence {how}: {reader.encoder.name} has none. Expected one of {others}.")
    if how == "mean_second_to_last":
        return reading.pieces[-2].mean(0)
    pieces = combine(reading.pieces, reader.selection)  # (K, H')
    return {"cls": pieces[0], "mean": pieces.mean(0), "max": pieces.amax(0)}[how]


def cosines(vectors: torch.Tensor) -> np.ndarray:
    """Returns the cosines (n, n) of vectors (n, H)."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1)
    return (unit @ unit.T).clamp(-1, 1).numpy()


class Occurrence(NamedTuple):
    """Describes word `word` of text `text`, both from 0, and the words around it."""

    text: int
    word: int
    around: str


class ComparedWord(NamedTuple):
    """Holds a word's occurrences and their cosines (n, n), by single layer and, if there are several, chosen layers."""

    occurrences: list[Occurrence]
    cosines: dict[str, np.ndarray]


def compare(readings: Sequence[EncodedText], word: str, reader: TextEncoder) -> ComparedWord:
    """Compares every occurrence of a word in any case. Raises UserError if there are not two."""
    occurrences = [
        Occurrence(text, at, _around(reading.words, at))
        for text, reading in enumerate(readings)
        for at, other in enumerate(reading.words)
        if other.casefold() == word.casefold()
    ]
    if len(occurrences) < 2:
        hint = suggestion(word, sorted({other for reading in readings for other in reading.words} - {word}))
        raise UserError(f"--word {word}: expected 2 occurrences or more, found {len(occurrences)}.{hint}")
    vectors = torch.stack([readings[occurrence.text].vectors[occurrence.word] for occurrence in occurrences])
    layers = vectors.transpose(0, 1).contiguous()  # (L + 1, n, H)
    by_layer = {f"layer_{k}": cosines(layer) for k, layer in enumerate(layers)}
    if len(reader.selection.indices) > 1:
        by_layer[reader.selection.name] = cosines(combine(layers, reader.selection))
    return ComparedWord(occurrences, by_layer)


def _around(words: list[str], at: int) -> str:
    before, after = words[max(0, at - NEIGHBOURS) : at], words[at + 1 : at + 1 + NEIGHBOURS]
    begin, end = "… " * (at > NEIGHBOURS), " …" * (at + 1 + NEIGHBOURS < len(words))
    return f"{begin}{' '.join([*before, f'[{words[at]}]', *after])}{end}"
