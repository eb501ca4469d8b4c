"""Encodes a text: pieces, hidden states, and one vector per word and layer.

The functions are those that fill the feature store, but results stay in memory, in float32. Each text is encoded by
itself (or two as a pair). A text longer than the encoder's window goes through it in overlapping windows, as in
extraction.

B windows, P pieces in each, W words, K pieces without repetition and padding, L + 1 layers, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from probe.config import Config, UserError
from probe.data.corpus import Corpus
from probe.data.running_text import split_text
from probe.data.split import Split
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.encoders.encoder import load_model, outputs
from probe.encoders.pieces import special_pair
from probe.encoders.traits import traits_of
from probe.features.extraction import report_empty_words, report_encoder, report_slow_bfloat16
from probe.features.windows import Window
from probe.features.words import Text, check_states, kept_pieces, padded, to_tensors, word_states
from probe.probes.selection import Selection, select
from probe.system.machine import resolve_device

# The embeddings that encoders of BERT's kind add up, as transformers names them.
PARTS = {"word": "word_embeddings", "position": "position_embeddings", "segment": "token_type_embeddings"}


@dataclass(frozen=True)
class FirstLayer:
    """Holds the parts of layer 0, each (P, H): the embeddings that are added up, by name, and the LayerNorm of the sum.

    is_layer_0: whether that LayerNorm's output already is layer 0 (ELECTRA and ALBERT still project it).
    """

    parts: dict[str, torch.Tensor]
    normed: torch.Tensor
    is_layer_0: bool


@dataclass(frozen=True)
class EncodedText:
    """Holds the encoder's output for one text or a pair.

    ids, mask and types (None if the encoder has no segments): (B, P). word_of_piece: (B, P), the number of its word
    from 0, or None for special pieces and padding. vectors: (W, L + 1, H), one per word and layer. pieces: (L + 1, K,
    H), every piece once, in order, with special ones and without padding; if windows overlap, the pieces of a word come
    from the same window as the word. pooled: (H,), the pooler's output for the first window. first_layer: for the first
    window; None if this encoder's parts are not known.
    """

    texts: tuple[str, ...]
    words: list[str]
    windows: list[Window]
    ids: torch.Tensor
    mask: torch.Tensor
    types: torch.Tensor | None
    word_of_piece: list[list[int | None]]
    vectors: torch.Tensor
    pieces: torch.Tensor
    pooled: torch.Tensor | None
    first_layer: FirstLayer | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Returns (B, P, H), of each hidden state."""
        return self.ids.shape[0], self.ids.shape[1], self.vectors.shape[2]


class _Input(NamedTuple):
    """Holds one window for the encoder, each tensor (1, P).

    runs: the runs of words in the window, each with its shift: how many pieces further right it starts than if it were
    encoded alone.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    types: torch.Tensor | None
    runs: list[tuple[Window, int]]


class TextEncoder:
    """Holds an encoder with its weights and the chosen layers, and encodes texts."""

    def __init__(self, cfg: Config) -> None:
        if cfg.encoder.num_layers is not None:
            select(cfg.layers, cfg.encoder.num_layers, hidden_size=1)  # refuses a wrong layer before a download
        if cfg.layers.is_empty:
            raise UserError("layers=majority_tag reads no layer, so there is nothing to inspect. Type layers=last.")
        self.features = replace(cfg.features, context="sentence", layers=None)  # each text by itself, every layer
        self.device = resolve_device(cfg.device)
        self.encoder: Encoder = open_encoder(cfg.encoder, Path(cfg.features.cache_dir))
        layers = replace(cfg.layers, normalize=None)  # texts have no train split that gives statistics
        self.selection: Selection = select(layers, self.encoder.num_layers, self.encoder.hidden_size)
        report_slow_bfloat16(cfg.features, self.device)
        self.model = load_model(self.encoder, self.device, cfg.features.precision, keep_pooler=True)
        self.traits = traits_of(self.model, self.encoder, self.device)
        report_encoder(self.encoder, self.traits, cfg.features.subword)

    @torch.no_grad()  # not inference mode, whose tensors cannot be used in training
    def read(self, *texts: str, number: int = 1, pad: int = 0, segment: int | None = None) -> EncodedText:
        """Encodes one text, or two as a pair.

        number: of the text, for messages. pad: the least number of pieces in a window. segment: replaces the
        tokenizer's segment ids. Raises UserError for a text that cannot be read.
        """
        name = f"text {number}"
        try:
            words = [split_text(text) for text in texts]
        except UnicodeEncodeError:  # Python turns other bytes of the command line into surrogates
            raise UserError(f"{name} is not UTF-8, or holds half a character.") from None
        tags = [["O"] * len(sentence) for sentence in words]
        split = Split(words, tags, None, [number + i for i in range(len(texts))], "text")
        text = Text(Corpus("texts", {name: split}), name, self.encoder, self.features)
        report_empty_words(Corpus("texts", {name: split}), {name: text})
        inputs = [self._pair(text, pad)] if len(texts) == 2 else self._windows(text, pad, name)
        if segment is not None:
            inputs = [self._with_segment(given, segment) for given in inputs]

        vectors, pieces, word_of_piece = [], [], []
        pooled, first_layer = None, None
        for i, given in enumerate(inputs):
            with _capture_embeddings(self.model) as captured:
                output = outputs(self.model, *(None if t is None else t.to(self.device) for t in given[:3]))  # type: ignore[arg-type]
            states: tuple[torch.Tensor, ...] = output.hidden_states
            check_states(states, given.ids.shape, self.encoder)
            if i == 0:
                pooled = getattr(output, "pooler_output", None)
                first_layer = _first_layer(captured, states[0], int(given.mask.sum()))
            vectors.append(self._word_vectors(states, given, text))
            positions = self._piece_positions(given, text, is_first=i == 0, is_last=i == len(inputs) - 1)
            pieces.append(torch.stack([state[0, positions] for state in states]).float().cpu())
            word_of_piece.append(self._word_of_piece(given, text))
        types = [given.types for given in inputs if given.types is not None]
        return EncodedText(
            texts,
            [word for sentence in words for word in sentence],
            text.windows if len(inputs) > 1 else [Window(0, split.num_words, 0, split.num_words)],
            torch.cat([given.ids for given in inputs]),
            torch.cat([given.mask for given in inputs]),
            torch.cat(types) if types else None,
            word_of_piece,
            torch.cat(vectors, 1).transpose(0, 1).contiguous(),
            torch.cat(pieces, 1),
            None if pooled is None else pooled[0].float().cpu(),
            first_layer,
        )

    def _windows(self, text: Text, pad: int, name: str) -> list[_Input]:
        """Returns a text's windows, all of one width."""
        widest = max(text.pieces.count(w.first, w.last) for w in text.windows) + self.encoder.special.count
        if not widest:
            raise UserError(f"{name} is empty, and {self.encoder.name} adds no special pieces to a text.")
        self._check_pad(pad, widest, name)
        width = max(widest, pad)
        return [_Input(*to_tensors([w], text.pieces, self.encoder, width), [(w, 0)]) for w in text.windows]

    def _pair(self, text: Text, pad: int) -> _Input:
        """Puts two texts into one window, as the tokenizer does with a pair."""
        special, (first, second) = special_pair(self.encoder.tokenizer), _two(text.windows)
        ids_1, ids_2 = (text.pieces.ids(window.first, window.last) for window in (first, second))
        ids = special.prefix + ids_1 + special.middle + ids_2 + special.suffix
        if not 0 < len(ids) <= self.encoder.limit:
            raise UserError(
                f"--pair: {len(ids)} pieces, but {self.encoder.name} takes 1 to {self.encoder.limit} at once. "
                "A pair is not cut into windows; shorten the texts."
            )
        self._check_pad(pad, len(ids), "the pair")
        types = (
            special.prefix_types
            + [special.first_type] * len(ids_1)
            + special.middle_types
            + [special.second_type] * len(ids_2)
            + special.suffix_types
        )
        shift = len(special.prefix) - len(self.encoder.special.prefix)
        runs = [(first, shift), (second, shift + len(ids_1) + len(special.middle))]
        return _Input(*padded([ids], [types], self.encoder, pad), runs)

    def _check_pad(self, pad: int, width: int, name: str) -> None:
        if pad and not width <= pad <= self.encoder.limit:
            raise UserError(
                f"--pad {pad}: {name} has {width} pieces, and {self.encoder.name} takes at most {self.encoder.limit}; "
                f"pad to {width} to {self.encoder.limit}."
            )

    def _with_segment(self, given: _Input, segment: int) -> _Input:
        known = getattr(self.encoder.config, "type_vocab_size", 0) if given.types is not None else 0
        if not 0 <= segment < known:
            allowed = f"segments are 0 to {known - 1}" if known else "it has no segments"
            raise UserError(f"--segment {segment} is not for {self.encoder.name}: {allowed}.")
        assert given.types is not None
        return given._replace(types=given.types.masked_fill(given.mask == 1, segment))

    def _word_vectors(self, states: tuple[torch.Tensor, ...], given: _Input, text: Text) -> torch.Tensor:
        """Returns (L + 1, words taken from this window, H)."""
        subword, width = self.features.subword, given.ids.shape[1]
        kept = [kept_pieces([window], text.pieces, self.encoder, subword, width) for window, _ in given.runs]
        positions = torch.cat([at + shift for (at, _, _), (_, shift) in zip(kept, given.runs, strict=True)])
        lengths = None if kept[0][1] is None else torch.cat([n for _, n, _ in kept if n is not None])
        lengths = None if lengths is None else lengths.to(self.device)
        return word_states(states, positions.to(self.device), lengths, subword).float().cpu()

    def _piece_positions(self, given: _Input, text: Text, is_first: bool, is_last: bool) -> torch.Tensor:
        """Returns the positions of the pieces that are taken from a window."""
        num = int(given.mask.sum())
        if is_first and is_last:
            return torch.arange(num)
        special = self.encoder.special
        kept, _, _ = kept_pieces([given.runs[0][0]], text.pieces, self.encoder, "mean", num)
        ends = [torch.arange(len(special.prefix) * is_first), torch.arange(num - len(special.suffix) * is_last, num)]
        return torch.cat([ends[0], kept, ends[1]])

    def _word_of_piece(self, given: _Input, text: Text) -> list[int | None]:
        word_of_piece: list[int | None] = [None] * given.ids.shape[1]
        for window, shift in given.runs:
            everything = window._replace(keep_first=window.first, keep_last=window.last)
            at, lengths, words = kept_pieces([everything], text.pieces, self.encoder, "mean", 0)
            assert lengths is not None
            for position, word in zip((at + shift).tolist(), words.repeat_interleave(lengths).tolist(), strict=True):
                word_of_piece[position] = word
        return word_of_piece


def _two(windows: list[Window]) -> tuple[Window, Window]:
    if len(windows) != 2:
        raise UserError("--pair: a text of the pair is longer than the encoder's window. Shorten it.")
    return windows[0], windows[1]


@contextmanager
def _capture_embeddings(model: torch.nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Captures the outputs of a BERT-like embedding layer's parts in a forward pass, for the first text of a batch."""
    captured: dict[str, torch.Tensor] = {}

    def keep(name: str, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        captured[name] = output[0].float().cpu()
        if name == "normed":
            captured["sum"] = given[0][0].float().cpu()

    embeddings = getattr(model, "embeddings", None)
    hooks = []
    for name, attribute in {**PARTS, "normed": "LayerNorm"}.items():
        if isinstance(module := getattr(embeddings, attribute, None), torch.nn.Module):
            hooks.append(module.register_forward_hook(lambda _, given, output, name=name: keep(name, given, output)))
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()


def _first_layer(captured: dict[str, torch.Tensor], layer_0: torch.Tensor, num: int) -> FirstLayer | None:
    """Returns the parts of layer 0; None unless they add up to LayerNorm's input. Zeros stand at unread padding."""
    shapes = {captured[name].shape for name in PARTS if name in captured}
    if "sum" not in captured or len(shapes) != 1:
        return None
    unread = (0, 0, 0, layer_0.shape[1] - len(captured["sum"]))
    captured = {name: torch.nn.functional.pad(part, unread) for name, part in captured.items()}
    parts = {name: captured[name] for name in PARTS if name in captured}
    tolerance = 16 * torch.finfo(layer_0.dtype).eps

    def same(a: torch.Tensor, b: torch.Tensor) -> bool:  # except for padding, which some encoders set to zero
        return a.shape == b.shape and torch.allclose(a[:num], b[:num], rtol=tolerance, atol=tolerance)

    if not same(torch.stack([*parts.values()]).sum(0), captured["sum"]):
        return None
    return FirstLayer(parts, captured["normed"], same(captured["normed"], layer_0[0].float().cpu()))
