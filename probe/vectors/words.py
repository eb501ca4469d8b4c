"""Cuts texts into windows that an encoder can take, and turns windows into vectors: one per word and layer.

Windows are runs of whole words. If a text needs several, they overlap, and a word is taken from the one in which it is
most central. Nothing here reads or writes files.

B windows in a batch, P pieces, W words, H hidden size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from probe.config import FeaturesConfig, UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.encoder import Encoder
from probe.encoders.model import check_states, hidden_states
from probe.encoders.pieces import Pieces, cut_split
from probe.system.machine import to_device
from probe.vectors.store import Shard, bounds, stored_layers
from probe.vectors.texts import cut_texts

# What starting a forward pass costs, in pieces. CPU: measured with a small encoder, 8 ms at 7,400 pieces per second.
# GPU: measured with BERT-base on an H200, 14 ms of launches at 140,000 pieces per second in float32.
BATCH_COST = {"cpu": 64, "cuda": 2048}
CPU_PIECES = 1024  # per forward pass, unless another number is set
GPU_PIECES = (1024, 16384)  # per forward pass: least, most


class Window(NamedTuple):
    """Describes a window: words first..last are encoded together; keep_first..keep_last are taken from it."""

    first: int
    last: int
    keep_first: int
    keep_last: int


def plan_windows(split: Split, pieces: Pieces, context: str, max_text_pieces: int, stride: float) -> Iterator[Window]:
    """Plans windows of at most `max_text_pieces` pieces that cover a split; each word is taken from exactly one.

    A text that fits is one window. A longer text gets the widest possible windows. Each begins `stride` of a window
    after the previous one, and the last ends with the text. A word is taken from the window in which its smaller
    distance to the two ends is largest. Raises UserError for a word that is longer than a window.
    """
    for position, ids in enumerate(pieces.of_word):
        if len(ids) > max_text_pieces:
            raise UserError(
                f"{split.place(position)}: {len(ids)} pieces, but the encoder takes at most {max_text_pieces} at once. "
                "Split the word or use an encoder with a longer window."
            )
    texts = bounds(split.lengths)
    if context == "document":
        if split.documents is None:
            raise UserError(
                f"features.context=document: {split.origin} marks no documents. "
                "Use features.context=sentence, or a source with document marks."
            )
        texts = texts[[0, *(np.flatnonzero(np.diff([*split.documents, -1])) + 1)]]
    for first, last in pairwise(texts.tolist()):
        if pieces.count(first, last) <= max_text_pieces:
            yield Window(first, last, first, last)
        else:
            windows = _overlapping(pieces.starts(first, last), max_text_pieces, stride)
            yield from (Window(*(first + word for word in window)) for window in windows)


def _overlapping(starts: np.ndarray, max_text_pieces: int, stride: float) -> list[Window]:
    """Plans overlapping windows over a text of more than `max_text_pieces` pieces; its words are counted from 0."""
    last = len(starts) - 1
    step = max(1, int(max_text_pieces * stride))
    spans: list[tuple[int, int]] = []
    begin = 0
    while True:
        end = int(np.searchsorted(starts, starts[begin] + max_text_pieces, side="right")) - 1
        if end >= last:
            break
        spans.append((begin, end))
        begin = max(begin + 1, int(np.searchsorted(starts, starts[begin] + step, side="right")) - 1)
    widest_at_end = int(np.searchsorted(starts, starts[last] - max_text_pieces, side="left"))
    spans.append((widest_at_end, last))

    centre = (starts[:-1] + starts[1:]) / 2
    best = np.full(last, -1.0)
    chosen = np.zeros(last, dtype=np.int64)
    for number, (begin, end) in enumerate(spans):
        inside = slice(begin, end)
        margin = np.minimum(centre[inside] - starts[begin], starts[end] - centre[inside])
        chosen[inside][margin > best[inside]] = number
        best[inside] = np.maximum(best[inside], margin)
    numbers, firsts = np.unique(chosen, return_index=True)  # `chosen` ascends, as the spans do
    kept = pairwise([*firsts.tolist(), last])
    return [Window(*spans[int(number)], *own) for number, own in zip(numbers, kept, strict=True)]


class Text:
    """Holds a split, cut into pieces and windows. If each text has one label, it is one window and counts as one word.

    encoder, cfg: with the special pieces and the pooling of this split. normalized: whether its vectors get length 1.
    """

    pieces: Pieces

    def __init__(self, corpus: Corpus, split: str, encoder: Encoder, cfg: FeaturesConfig) -> None:
        self.encoder, self.cfg, self.normalized = encoder, cfg, False
        if not corpus.task.is_per_word:
            reading = encoder.reading(False, cfg)["texts"]
            self.pieces, self.encoder = cut_texts(corpus.splits[split], encoder, reading["pieces"])
            self.cfg, self.normalized = replace(cfg, subword=reading["pooling"]), reading["normalized"]
            self.windows = [Window(at, at + 1, at, at + 1) for at in range(len(self.pieces.of_word))]
            return
        rows = getattr(encoder.config, "vocab_size", None)
        self.pieces = cut_split(encoder.tokenizer, corpus.splits[split], rows)
        windows = plan_windows(corpus.splits[split], self.pieces, cfg.context, encoder.max_text_pieces, cfg.stride)
        self.windows = list(windows)

    def windows_of(self, shard: Shard) -> list[Window]:
        """Returns the windows that hold words of this shard; each keeps only words of this shard."""
        begin = bisect_right(self.windows, shard.first, key=lambda window: window.keep_last)
        end = bisect_left(self.windows, shard.last, key=lambda window: window.keep_first)
        return [
            window._replace(keep_first=max(window.keep_first, shard.first), keep_last=min(window.keep_last, shard.last))
            for window in self.windows[begin:end]
        ]


@torch.inference_mode()
def states_of(
    windows: list[Window], text: Text, model: torch.nn.Module, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs one batch of a text. Returns the vectors of the kept words, (stored layers, W, H), and their places, (W,).

    model: whole, or stopped at the deepest stored layer. All inputs are sent to a GPU before it starts. The only wait
    for it is in transformers, below `hidden_states`: the check whether the mask masks anything.
    """
    encoder, cfg = text.encoder, text.cfg
    layers = stored_layers(cfg, encoder.num_layers)
    ids, mask, types = to_tensors(windows, text.pieces, encoder)
    positions, lengths, rows = kept_pieces(windows, text.pieces, encoder, cfg.subword, ids.shape[1])
    positions, rows = to_device(positions, device), to_device(rows, device)
    lengths = None if lengths is None else to_device(lengths, device)
    types = None if types is None else to_device(types, device)
    states = hidden_states(model, to_device(ids, device), to_device(mask, device), types)
    check_states(states, ids.shape, encoder, layers[-1])
    return word_states(tuple(states[k] for k in layers), positions, lengths, cfg.subword), rows


def word_states(
    states: tuple[torch.Tensor, ...], positions: torch.Tensor, lengths: torch.Tensor | None, subword: str
) -> torch.Tensor:
    """Turns hidden states, each (B, P, H), into one vector per word and layer, (states, W, H). See `kept_pieces`."""
    flat = (state.reshape(-1, state.shape[-1]) for state in states)  # each (B * P, H)
    return torch.stack([pool(state[positions], lengths, subword) for state in flat])


def pieces_at_once(setting: int | str, encoder: Encoder, device: str) -> int:
    """Returns `features.batch_pieces` as a number.

    auto: on a CPU always the same, because the stored bits depend on it. On a GPU the largest power of two whose hidden
    states, inner layers and attention take at most a quarter of the free memory. This is a rough bound; BERT-base
    reaches the allowed maximum with 13 GB free.
    """
    if setting != "auto":
        return int(setting)
    if device == "cpu":
        return CPU_PIECES
    heads = getattr(encoder.config, "num_attention_heads", None) or max(1, encoder.hidden_size // 64)
    values = encoder.hidden_size * (encoder.num_layers + 1 + 24) + 3 * heads * encoder.limit
    least, most = GPU_PIECES
    fit = torch.cuda.mem_get_info()[0] // 4 // (4 * values)
    return min(most, max(least, (1 << fit.bit_length()) // 2))


def batches(text: Text, shard: Shard, batch_pieces: int, device: str) -> list[list[Window]]:
    """Sorts a shard's windows by length and cuts them into batches of at most `batch_pieces` pieces with padding.

    It chooses the cuts with the least work: computed pieces with padding, plus the device's BATCH_COST per batch.
    """
    windows = sorted(text.windows_of(shard), key=lambda window: text.pieces.count(window.first, window.last))
    widths = [text.pieces.count(window.first, window.last) + text.encoder.special.count for window in windows]
    least = np.zeros(len(windows) + 1, dtype=np.int64)  # work for the first n windows ...
    begin_of = [0] * (len(windows) + 1)  # ... and where the last of their batches begins
    for end, width in enumerate(widths, 1):
        most = max(1, batch_pieces // max(1, width))
        begins = np.arange(end - 1, max(0, end - most) - 1, -1)  # of the last batch; ties go to the shortest batch
        work = least[begins] + (end - begins) * width + BATCH_COST[device]
        best = int(work.argmin())
        least[end], begin_of[end] = work[best], begins[best]
    chosen: list[list[Window]] = []
    end = len(windows)
    while end:
        chosen.append(windows[begin_of[end] : end])
        end = begin_of[end]
    return chosen


def to_tensors(
    windows: list[Window], pieces: Pieces, encoder: Encoder
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Returns ids, mask and segment ids of a batch, each (B, P), padded on the right."""
    special = encoder.special
    texts = [pieces.ids(window.first, window.last) for window in windows]
    width = special.count + max(map(len, texts))
    ids = np.full((len(texts), width), encoder.padding, dtype=np.int64)
    mask, types = np.zeros_like(ids), np.zeros_like(ids)
    for i, text in enumerate(texts):
        row = special.prefix + text + special.suffix
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
        types[i, : len(row)] = special.prefix_types + [special.text_type] * len(text) + special.suffix_types
    return torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(types) if special.has_types else None


def kept_pieces(
    windows: list[Window], pieces: Pieces, encoder: Encoder, subword: str, width: int
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Returns the positions of the words' pieces in the flattened (B * P), the number of pieces of each word (None: one
    per word), and the words' positions in the split.
    """
    positions, lengths, rows = [], [], []
    for i, window in enumerate(windows):
        offset = i * width + len(encoder.special.prefix)
        starts = pieces.starts(window.first, window.last)
        kept = starts[window.keep_first - window.first : window.keep_last - window.first + 1]
        if pieces.whole:
            kept = np.array([kept[0] - len(encoder.special.prefix), kept[1] + len(encoder.special.suffix)])
        if subword == "cls":
            positions.append(np.full(len(kept) - 1, i * width))
        elif subword == "first":
            positions.append(kept[:-1] + offset)
        elif subword == "last":
            positions.append(kept[1:] - 1 + offset)
        else:
            positions.append(np.arange(kept[0], kept[-1]) + offset)
            lengths.append(np.diff(kept))
        rows.append(np.arange(window.keep_first, window.keep_last))
    return (
        torch.from_numpy(np.concatenate(positions)),
        torch.from_numpy(np.concatenate(lengths)) if lengths else None,
        torch.from_numpy(np.concatenate(rows)),
    )


def pool(chosen: torch.Tensor, lengths: torch.Tensor | None, subword: str) -> torch.Tensor:
    """Pools (pieces, H) to (words, H): word i has the next lengths[i] pieces; None: one piece per word."""
    if lengths is None or not len(lengths):
        return chosen
    # The lengths sum up to the pieces, see `kept_pieces`. A check would wait for the GPU.
    return torch.segment_reduce(chosen.float(), subword, lengths=lengths, unsafe=True)
