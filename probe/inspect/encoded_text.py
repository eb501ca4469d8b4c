"""Encodes texts: pieces, hidden states, and one vector per word and layer; and compares such vectors.

The functions are those that fill the feature store, but results stay in memory, in float32. Each text is encoded by
itself. A text longer than the encoder's window goes through it in overlapping windows, as in extraction.

W words, P pieces, L + 1 layers, H hidden size, n vectors compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from probe.config import Config, UserError, suggestion
from probe.data.corpus import Corpus
from probe.data.running_text import split_text
from probe.data.split import Split
from probe.encoders.model import check_states, hidden_states
from probe.probes.combine import combine
from probe.probes.selection import select
from probe.system.machine import resolve_device
from probe.vectors.extraction import load_reported, report_empty_words
from probe.vectors.sources import open_text_encoder
from probe.vectors.words import Text, kept_pieces, to_tensors, word_states

NEIGHBOURS = 3  # words shown on either side of an occurrence


@dataclass(frozen=True)
class EncodedText:
    """Holds the encoder's output for one text.

    pieces, ids, word_of_piece: (P,), with the special pieces, whose word is None; words are counted from 0. states:
    (L + 1, P, H), of the pieces; if windows overlap, the pieces of a word come from the same window as the word.
    vectors: (L + 1, W, H), of the words.
    """

    text: str
    words: list[str]
    pieces: list[str]
    ids: list[int]
    word_of_piece: list[int | None]
    num_windows: int
    states: torch.Tensor
    vectors: torch.Tensor

    @property
    def norms(self) -> list[float] | None:
        """Returns the mean norm of a word's vector by layer; None if there are no words."""
        return self.vectors.norm(dim=2).mean(1).tolist() if self.words else None


class TextEncoder:
    """Holds an encoder with its weights and the chosen layers, and encodes texts."""

    def __init__(self, cfg: Config) -> None:
        if cfg.encoder.num_layers is not None:
            select(cfg.layers, cfg.encoder.num_layers, hidden_size=1)  # refuses a wrong layer before a download
        if cfg.layers.is_empty:
            raise UserError("layers=majority_tag reads no layer, so there is nothing to inspect. Type layers=last.")
        if cfg.layers.normalize is not None:
            raise UserError("layers.normalize needs a training text. Omit it, or type data=NAME in word_vectors.")
        self.features = replace(cfg.features, context="sentence", layers=None)  # each text by itself, every layer
        self.device = resolve_device(cfg.device)
        self.encoder = open_text_encoder(cfg.encoder, cfg.features.cache_dir)
        self.selection = select(cfg.layers, self.encoder.num_layers, self.encoder.hidden_size)
        self.model: Any = load_reported(self.encoder, cfg.features, self.device)

    @torch.no_grad()  # not inference mode, whose tensors cannot be used in training
    def read(self, text: str, number: int = 1) -> EncodedText:
        """Encodes one text. number: of the text, for messages. Raises UserError for a text that cannot be read."""
        name, encoder, subword = f"text {number}", self.encoder, self.features.subword
        words = split_text(text, name)
        corpus = Corpus("texts", {name: Split([words], [["O"] * len(words)], None, [number], "text")})
        cut = Text(corpus, name, encoder, self.features)
        report_empty_words(corpus, {name: cut})
        pieces, windows, special = cut.pieces, cut.windows, encoder.special
        ids = special.prefix + pieces.ids(0, len(words)) + special.suffix
        if not ids:
            raise UserError(f"{name} is empty, and {encoder.name} adds no special pieces to a text.")
        before, after = len(special.prefix), len(special.suffix)
        numbers = [number for number, ids in enumerate(pieces.of_word) for _ in ids]
        states, vectors = [], []  # of each window's own pieces and words
        for window in windows:
            inputs, mask, types = to_tensors([window], pieces, encoder)
            types = None if types is None else types.to(self.device)
            output = hidden_states(self.model, inputs.to(self.device), mask.to(self.device), types)
            check_states(output, inputs.shape, encoder, encoder.num_layers)
            layers = torch.stack(output).float().cpu()  # (L + 1, 1, pieces of the window, H)
            positions, lengths, _ = kept_pieces([window], pieces, encoder, subword, layers.shape[2])
            vectors.append(word_states(tuple(layers), positions, lengths, subword))
            first = before + pieces.count(window.first, window.keep_first) if window != windows[0] else 0
            last = before + pieces.count(window.first, window.keep_last) if window != windows[-1] else None
            states.append(layers[:, 0, first:last])
        names, of_piece = encoder.tokenizer.convert_ids_to_tokens(ids), [None] * before + numbers + [None] * after
        return EncodedText(text, words, names, ids, of_piece, len(windows), torch.cat(states, 1), torch.cat(vectors, 1))


def sentence_vector(reading: EncodedText, how: str, reader: TextEncoder) -> torch.Tensor:
    """Returns one vector (H',) for a whole text.

    cls: its first piece; mean, max: over all its pieces with special ones.
    """
    if how == "cls" and not reader.encoder.special.prefix:
        raise UserError(f"--sentence cls: {reader.encoder.name} adds no piece before a text. Type --sentence mean.")
    states = combine(reading.states, reader.selection)  # (P, H')
    return {"cls": states[0], "mean": states.mean(0), "max": states.amax(0)}[how]


def cosines(vectors: torch.Tensor) -> np.ndarray:
    """Returns the cosines (n, n) of vectors (n, H)."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1)
    return (unit @ unit.T).clamp(-1, 1).numpy()


class Occurrence(NamedTuple):
    """Describes word `word` of text `text`, both from 0, and the words around it."""

    text: int
    word: int
    around: str


def compare(readings: list[EncodedText], word: str, reader: TextEncoder) -> tuple[list[Occurrence], dict[str, Any]]:
    """Returns a word's occurrences in any case, and their cosines (n, n): by layer, then of several chosen layers."""
    occurrences = []
    for text, words in enumerate(reading.words for reading in readings):
        for at in (at for at, other in enumerate(words) if other.casefold() == word.casefold()):
            before, after = words[max(0, at - NEIGHBOURS) : at], words[at + 1 : at + 1 + NEIGHBOURS]
            occurrences.append(Occurrence(text, at, " ".join([*before, f"[{words[at]}]", *after])))
    if len(occurrences) < 2:
        hint = suggestion(word, sorted({other for reading in readings for other in reading.words} - {word}))
        raise UserError(f"--word {word}: expected 2 occurrences or more, found {len(occurrences)}.{hint}")
    layers = torch.stack([readings[text].vectors[:, at] for text, at, _ in occurrences], 1)  # (L + 1, n, H)
    by_layer = {f"layer_{k}": cosines(layer) for k, layer in enumerate(layers)}
    if len(reader.selection.indices) > 1:
        by_layer[reader.selection.name] = cosines(combine(layers, reader.selection))
    return occurrences, by_layer
