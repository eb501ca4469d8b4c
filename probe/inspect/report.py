"""Shows the results of `probe inspect` as text or JSON."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import torch
from tabulate import tabulate

from probe.config import Config
from probe.encoders.model import CAUSAL
from probe.inspect.encoded_text import EncodedText, Occurrence, TextEncoder, compare, cosines, sentence_vector
from probe.probes.combine import combine

VALUES_SHOWN = 5  # of a vector
PAIRS_SHOWN = 15  # those of six occurrences; with more, a table shows the extremes
OF_A_TEXT = ("text", "words", "pieces", "ids", "word_of_piece", "norms")  # in JSON, which has no vectors


def lines_of_readings(cfg: Config, texts: list[str], sentence: str | None, word: str | None, format: str) -> list[str]:
    """Returns the lines that `probe inspect` prints. Raises UserError."""
    reader = TextEncoder(cfg)
    encoder, selection = reader.encoder, reader.selection
    readings = [reader.read(text, number) for number, text in enumerate(texts, 1)]
    content: dict[str, Any] = {
        "encoder": {"name": encoder.name, **encoder.fingerprint},
        "causal": reader.model.is_causal,
        "hidden_states": encoder.num_layers + 1,
        "hidden_size": encoder.hidden_size,
        "layers": {"name": selection.name, "indices": list(selection.indices), "combine": selection.combine},
        "texts": [{name: getattr(reading, name) for name in OF_A_TEXT} for reading in readings],
    }
    lines = [
        f"{encoder.name} ({encoder.source}): {encoder.num_layers} blocks of {encoder.hidden_size}, "
        f"at most {encoder.limit} pieces at once",
        CAUSAL[reader.model.is_causal],
    ]
    if sentence is not None:
        vectors = torch.stack([sentence_vector(reading, sentence, reader) for reading in readings])
        content |= {"sentence": sentence, "cosines": cosines(vectors).tolist()}
        lines += show_sentences(texts, vectors, f"{sentence} ({selection.as_text()})")
    if word is not None:
        occurrences, by_layer = compare(readings, word, reader)
        as_lists = {name: values.tolist() for name, values in by_layer.items()}
        content["word"] = {"occurrences": [place._asdict() for place in occurrences], "cosines": as_lists}
        lines += show_comparison(occurrences, by_layer, encoder.num_layers)
    if sentence is None and word is None:
        for number, reading in enumerate(readings, 1):
            lines += show_reading(reading, number, reader)
    return [json.dumps(content, ensure_ascii=False)] if format == "json" else lines


def show_reading(reading: EncodedText, number: int, reader: TextEncoder) -> list[str]:
    last, selection, words = reader.encoder.num_layers, reader.selection, reading.words
    windows = f", in {reading.num_windows} overlapping windows" if reading.num_windows > 1 else ""
    owners = ["-" if word is None else f"{word} {words[word]}" for word in reading.word_of_piece]
    pieces = zip(range(len(owners)), reading.pieces, reading.ids, owners, strict=True)
    norms = ", ".join(f"{layer}: {norm:.2f}" for layer, norm in enumerate(reading.norms or []))
    untrained = " with its initial equal weights" if selection.combine == "mix" else ""
    vectors = combine(reading.vectors, selection)  # (W, H')
    return [
        "",
        f"text {number}: {reading.text or 'empty'}",
        f"{len(words)} words, {len(owners)} pieces with the special ones{windows}",
        "",
        *_aligned(["#", "piece", "id", "word"], pieces, "rlrl"),
        "",
        f"{last + 1} hidden states, each {tuple(reading.states.shape[1:])}: pieces, values",
        f"  0 = embedding output, 1..{last} = encoder blocks, {last} = last hidden state",
        *(["  mean norm of a word's vector by layer", f"    {norms}"] if norms else []),
        "",
        f"{selection.as_text()}{untrained}, features.subword={reader.features.subword}: "
        f"{selection.width} values for each word",
        *_aligned(["#", "word", "norm", "first values"], map(_row, range(len(words)), words, vectors), "rlrl"),
    ]


def show_sentences(texts: list[str], vectors: torch.Tensor, how: str) -> list[str]:
    """Returns lines with the texts' vectors, (n, H'), and the cosines between them."""
    numbers = range(1, len(texts) + 1)
    table = [[i, *(f"{value:.3f}" for value in row)] for i, row in zip(numbers, cosines(vectors), strict=True)]
    return [
        "",
        f"sentence vectors of {vectors.shape[1]} values: {how}",
        *_aligned(["#", "text", "norm", "first values"], map(_row, numbers, texts, vectors), "rlrl"),
        "",
        "cosines",
        *_aligned(["", *numbers], table, "r" * (len(texts) + 1)),
    ]


def show_comparison(occurrences: list[Occurrence], by_layer: dict[str, Any], num_layers: int) -> list[str]:
    pairs = list(combinations(range(len(occurrences)), 2))
    columns, rows = [f"{i + 1}-{j + 1}" for i, j in pairs], []
    for k, (name, similarity) in enumerate(by_layer.items()):
        label = {0: "0 embeddings", num_layers: f"{k} last"}.get(k, str(k) if k < num_layers else name)
        values = [float(similarity[pair]) for pair in pairs]
        if len(pairs) > PAIRS_SHOWN:
            columns, values = ["least", "mean", "greatest"], [min(values), sum(values) / len(values), max(values)]
        rows.append([label, *(f"{value:.3f}" for value in values)])
    return [
        "",
        f"{len(occurrences)} occurrences",
        *(f"  {i}  text {text + 1}, word {at}: {around}" for i, (text, at, around) in enumerate(occurrences, 1)),
        "",
        f"cosine between occurrences, by layer ({len(pairs)} pairs)",
        *_aligned(["layer", *columns], rows, "l" + "r" * len(columns)),
    ]


def _aligned(head: list[Any], rows: Any, align: str) -> list[str]:
    sides = ["left" if letter == "l" else "right" for letter in align]
    table = tabulate([head, *rows], tablefmt="plain", disable_numparse=True, colalign=sides)
    return [f"  {line}".rstrip() for line in table.splitlines()]


def _row(number: int, text: str, vector: torch.Tensor) -> list[Any]:
    shown = " ".join(f"{value:+8.4f}" for value in vector[:VALUES_SHOWN].tolist())
    return [number, text[:60], f"{vector.norm():.2f}", shown + (" ..." if len(vector) > VALUES_SHOWN else "")]
