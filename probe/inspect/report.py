"""Shows the results of `probe inspect` as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import torch
from tabulate import tabulate

from probe.config import Config
from probe.encoders.encoder import CAUSAL
from probe.inspect.encoded_text import ComparedWord, EncodedText, TextEncoder, compare, cosines, sentence_vector
from probe.probes.combine import combine

VALUES_SHOWN = 5  # of a vector
PAIRS_SHOWN = 15  # those of six occurrences; with more, a table shows the extremes


def lines_of_readings(
    cfg: Config, texts: list[str], *, pad: int, segment: int | None, sentence: str | None, word: str | None, format: str
) -> list[str]:
    """Returns the lines that `probe inspect` prints. Raises UserError."""
    reader = TextEncoder(cfg)
    readings = [reader.read(text, i + 1, pad, segment) for i, text in enumerate(texts)]
    comparison = None if word is None else compare(readings, word, reader)
    if format == "json":
        return [json.dumps(_as_json(readings, reader, sentence, comparison), ensure_ascii=False)]
    encoder = reader.encoder
    shown = [
        f"{encoder.name} ({encoder.source}): {encoder.num_layers} blocks of {encoder.hidden_size}, "
        f"at most {encoder.limit} pieces at once",
        CAUSAL[reader.model.is_causal],
    ]
    if sentence is None and comparison is None:
        for i, reading in enumerate(readings):
            shown += show_reading(reading, i + 1, reader)
    if sentence is not None:
        shown += show_sentences(readings, sentence, reader)
    if comparison is not None:
        shown += show_comparison(comparison, encoder.num_layers)
    return shown


def _as_json(
    readings: Sequence[EncodedText], reader: TextEncoder, sentence: str | None, comparison: ComparedWord | None
) -> dict[str, Any]:
    """Returns the results as JSON values, without the vectors.

    Lists by piece concatenate all windows of a text, each of shape[1] pieces. norms: of each layer, the mean norm of a
    word's vector. `cosines` are those of --sentence.
    """
    encoder, selection = reader.encoder, reader.selection
    content: dict[str, Any] = {
        "encoder": {"name": encoder.name, **encoder.fingerprint},
        "causal": reader.model.is_causal,
        "texts": [],
        "hidden_states": encoder.num_layers + 1,
        "layers": {"name": selection.name, "indices": list(selection.indices), "combine": selection.combine},
    }
    for reading in readings:
        ids = reading.ids.flatten().tolist()
        content["texts"].append(
            {
                "text": reading.text,
                "words": reading.words,
                "pieces": encoder.tokenizer.convert_ids_to_tokens(ids),
                "ids": ids,
                "attention_mask": reading.mask.flatten().tolist(),
                "segment_ids": None if reading.types is None else reading.types.flatten().tolist(),
                "word_of_piece": [word for window in reading.word_of_piece for word in window],
                "shape": list(reading.shape),
                "norms": reading.vectors.norm(dim=2).mean(0).tolist() if reading.words else None,
            }
        )
    if sentence is not None:
        vectors = torch.stack([sentence_vector(reading, sentence, reader) for reading in readings])
        content |= {"sentence": sentence, "cosines": cosines(vectors).tolist()}
    if comparison is not None:
        content["word"] = {
            "occurrences": [occurrence._asdict() for occurrence in comparison.occurrences],
            "cosines": {name: values.tolist() for name, values in comparison.cosines.items()},
        }
    return content


def show_reading(reading: EncodedText, number: int, reader: TextEncoder) -> Iterator[str]:
    """Yields pieces, hidden states, layer 0's parts and the chosen layers' vectors of one text, line by line."""
    last, batch = reader.encoder.num_layers, reading.shape[0]
    yield ""
    yield f"text {number}: {reading.text or 'empty'}"
    yield f"{len(reading.words)} words, {reading.pieces.shape[1]} pieces with the special ones"
    for i, window in enumerate(reading.windows):
        yield ""
        if batch > 1:
            yield (
                f"window {i + 1} of {batch}: words {window.first} to {window.last - 1}, "
                f"{window.keep_first} to {window.keep_last - 1} taken from here"
            )
        yield from _aligned(["#", "piece", "id", "mask", "segment", "word"], _piece_rows(reading, i, reader), "rlrrrl")
    yield ""
    yield f"{last + 1} hidden states, each {reading.shape}: windows, pieces, values"
    yield f"  0 = embedding output, 1..{last} = encoder blocks, {last} = last hidden state"
    if reading.words:
        norms = reading.vectors.norm(dim=2).mean(0).tolist()
        yield "  mean norm of a word's vector by layer"
        yield f"    {', '.join(f'{layer}: {norm:.2f}' for layer, norm in enumerate(norms))}"
    if reading.pooled is not None:
        yield f"  pooler output (1, {len(reading.pooled)}), computed from the first piece of layer {last}"
        yield f"    {_first(reading.pooled)}"
    yield ""
    yield from _show_parts(reading, reader)
    vectors = combine(reading.vectors.transpose(0, 1).contiguous(), reader.selection)  # (W, H')
    untrained = " with its initial equal weights" if reader.selection.combine == "mix" else ""
    how = f"{reader.selection.as_text()}{untrained}, features.subword={reader.features.subword}"
    yield f"{how}: {reader.selection.width} values for each word"
    rows = [
        [i, word, f"{vector.norm():.2f}", _first(vector)]
        for i, (word, vector) in enumerate(zip(reading.words, vectors, strict=True))
    ]
    yield from _aligned(["#", "word", "norm", "first values"], rows, "rlrl")


def _piece_rows(reading: EncodedText, window: int, reader: TextEncoder) -> Iterator[list[Any]]:
    ids, mask = reading.ids[window].tolist(), reading.mask[window].tolist()
    segments = ["-"] * len(ids) if reading.types is None else reading.types[window].tolist()
    for at, piece in enumerate(reader.encoder.tokenizer.convert_ids_to_tokens(ids)):
        word = reading.word_of_piece[window][at]
        shown = "-" if word is None else f"{word} {reading.words[word]}"
        yield [at, piece, ids[at], mask[at], segments[at], shown]


def _show_parts(reading: EncodedText, reader: TextEncoder) -> Iterator[str]:
    """Yields the norms of the embeddings that layer 0 is made of."""
    if reading.parts is None:
        yield f"layer 0: the parts of {reader.encoder.name}'s embeddings are not known"
    else:
        *added, _, _ = reading.parts
        yield f"layer 0 = LayerNorm({' + '.join(added)} embedding); the sum itself is not layer 0. Norms:"
        pieces = reader.encoder.tokenizer.convert_ids_to_tokens(reading.ids[0].tolist())
        norms = torch.stack([part.norm(dim=1) for part in reading.parts.values()], 1).tolist()  # by piece, then part
        rows = [[piece, *(f"{norm:.2f}" for norm in row)] for piece, row in zip(pieces, norms, strict=False)]
        yield from _aligned(["piece", *reading.parts], rows, "l" + "r" * len(reading.parts))
    yield ""


def show_sentences(readings: Sequence[EncodedText], how: str, reader: TextEncoder) -> Iterator[str]:
    """Yields the sentence vectors and the cosines between them."""
    vectors = torch.stack([sentence_vector(reading, how, reader) for reading in readings])
    layers = f" ({reader.selection.as_text()})" if how in ("cls", "mean", "max") else ""
    yield ""
    yield f"sentence vectors of {vectors.shape[1]} values: {how}{layers}"
    rows = [
        [i + 1, f"{vector.norm():.2f}", _first(vector), reading.text[:60]]
        for i, (vector, reading) in enumerate(zip(vectors, readings, strict=True))
    ]
    yield from _aligned(["#", "norm", "first values", "text"], rows, "rrll")
    yield ""
    yield "cosines"
    table = [[i + 1, *(f"{value:.3f}" for value in row)] for i, row in enumerate(cosines(vectors))]
    yield from _aligned(["", *range(1, len(table) + 1)], table, "r" * (len(table) + 1))


def show_comparison(comparison: ComparedWord, num_layers: int) -> Iterator[str]:
    """Yields a word's occurrences, and their cosines by layer."""
    num = len(comparison.occurrences)
    yield ""
    yield f"{num} occurrences"
    for i, occurrence in enumerate(comparison.occurrences):
        yield f"  {i + 1}  text {occurrence.text + 1}, word {occurrence.word}: {occurrence.around}"
    pairs = list(combinations(range(num), 2))
    is_short = len(pairs) <= PAIRS_SHOWN
    rows = []
    for k, (name, similarity) in enumerate(comparison.cosines.items()):
        label = {0: "0 embeddings", num_layers: f"{k} last"}.get(k, str(k) if k < num_layers else name)
        values = [float(similarity[pair]) for pair in pairs]
        values = values if is_short else [min(values), sum(values) / len(values), max(values)]
        rows.append([label, *(f"{value:.3f}" for value in values)])
    columns = [f"{i + 1}-{j + 1}" for i, j in pairs] if is_short else ["least", "mean", "greatest"]
    yield ""
    yield f"cosine between occurrences, by layer ({len(pairs)} pairs)"
    yield from _aligned(["layer", *columns], rows, "l" + "r" * len(columns))


def _aligned(head: list[Any], rows: Any, align: str) -> Iterator[str]:
    sides = ["left" if letter == "l" else "right" for letter in align]
    table = tabulate([head, *rows], tablefmt="plain", disable_numparse=True, colalign=sides)
    yield from (f"  {line}".rstrip() for line in table.splitlines())


def _first(vector: torch.Tensor) -> str:
    shown = " ".join(f"{value:+8.4f}" for value in vector[:VALUES_SHOWN].tolist())
    return shown + (" ..." if len(vector) > VALUES_SHOWN else "")
