"""Formats the results of `probe inspect` as text."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from probe.encoders.traits import describe
from probe.inspect.encoded_text import EncodedText, TextEncoder
from probe.inspect.similarity import Comparison, cosines, sentence_vector
from probe.probes.combine import combine
from probe.system.format import format_layers
from probe.tables.formats import TextTable

HEAT = "▁▂▃▄▅▆▇█"  # from the lowest cosine of a table to its highest
BINS = 11
PAIRS_SHOWN = 15  # those of six occurrences; with more, a table shows the extremes


def header(reader: TextEncoder) -> str:
    encoder = reader.encoder
    return (
        f"{encoder.name} ({encoder.source}): {encoder.num_layers} blocks of {encoder.hidden_size}, "
        f"at most {encoder.limit} pieces at once\n{describe(reader.traits, encoder.num_layers)}"
    )


def show_reading(reading: EncodedText, number: int, reader: TextEncoder, num_values: int) -> Iterator[str]:
    """Yields pieces, hidden states, layer 0's parts and the chosen layers' vectors of one text, line by line."""
    names = "text " + " and ".join(str(number + i) for i in range(len(reading.texts)))
    yield ""
    yield f"{names}: {' | '.join(reading.texts)}" if any(reading.texts) else f"{names}: empty"
    batch = reading.shape[0]
    num_pieces, num_pads = reading.pieces.shape[1], int((reading.mask == 0).sum())
    padding = f", and {num_pads} for padding" if num_pads else ""
    yield f"{len(reading.words)} words, {num_pieces} pieces with the special ones{padding}"
    if batch > 1:
        yield (
            f"longer than {reader.encoder.limit} pieces: {batch} overlapping windows; each word is taken from the one "
            "in which it is most central"
        )
    for i in range(batch):
        yield ""
        if batch > 1:
            window = reading.windows[i]
            yield (
                f"window {i + 1} of {batch}: words {window.first} to {window.last - 1}, "
                f"{window.keep_first} to {window.keep_last - 1} taken from here"
            )
        yield from _aligned(["#", "piece", "id", "mask", "segment", "word"], _piece_rows(reading, i, reader), "rlrrrl")
    yield ""
    yield from _show_states(reading, reader, num_values)
    yield ""
    yield from _show_first_layer(reading, reader, num_values)
    yield ""
    yield from _show_scales(reading)
    yield from _show_chosen(reading, reader, num_values)


def _piece_rows(reading: EncodedText, window: int, reader: TextEncoder) -> list[list[Any]]:
    ids = reading.ids[window].tolist()
    pieces = reader.encoder.tokenizer.convert_ids_to_tokens(ids)
    segments = ["-"] * len(ids) if reading.types is None else reading.types[window].tolist()
    return [
        [at, piece, ids[at], mask, segments[at], "-" if word is None else f"{word} {reading.words[word]}"]
        for at, (piece, mask, word) in enumerate(
            zip(pieces, reading.mask[window].tolist(), reading.word_of_piece[window], strict=True)
        )
    ]


def _show_states(reading: EncodedText, reader: TextEncoder, num_values: int) -> Iterator[str]:
    last = reader.encoder.num_layers
    yield f"{last + 1} hidden states, each {reading.shape}: windows, pieces, values"
    yield f"  0 = embedding output, 1..{last} = encoder blocks, {last} = last hidden state"
    if reading.pooled is None:
        yield "  no pooler output: this encoder has no pooler, or its checkpoint has no weights for it"
    else:
        yield f"  pooler output (1, {len(reading.pooled)}), computed from the first piece of layer {last}:"
        yield f"    {_first(reading.pooled, num_values)}"


def _show_first_layer(reading: EncodedText, reader: TextEncoder, num_values: int) -> Iterator[str]:
    first_layer = reading.first_layer
    if first_layer is None:
        yield f"layer 0: the parts of {reader.encoder.name}'s embeddings are not known"
        return
    parts = first_layer.parts
    yield (
        f"layer 0 = LayerNorm({' + '.join(parts)} embedding)"
        + ("" if first_layer.is_layer_0 else ", then projected to the width of the blocks")
        + "; the sum itself is not layer 0. Norms:"
    )
    total = torch.stack([*parts.values()]).sum(0)
    pieces = reader.encoder.tokenizer.convert_ids_to_tokens(reading.ids[0].tolist())
    columns = [part.norm(dim=1).tolist() for part in (*parts.values(), total, first_layer.normed)]
    names = [*parts, "sum", "layer 0" if first_layer.is_layer_0 else "LayerNorm"]
    rows = [[piece, *(f"{norm:.2f}" for norm in norms)] for piece, *norms in zip(pieces, *columns, strict=True)]
    yield from _aligned(["piece", *names], rows, "l" + "r" * len(names))
    at = next((i for i, word in enumerate(reading.word_of_piece[0]) if word is not None), 0)
    yield f"  first values of piece {at}, {pieces[at]}:"
    for name, part in zip(names, (*parts.values(), total, first_layer.normed), strict=True):
        yield f"    {name:<9} {_first(part[at], num_values)}"


def _show_scales(reading: EncodedText) -> Iterator[str]:
    """Yields the scale of each layer. A sum, a mean or a mix adds layers without changing it."""
    if not len(reading.vectors):
        return
    norms = reading.vectors.norm(dim=2).mean(0).tolist()
    yield "mean norm of a word's vector by layer"
    yield f"  {', '.join(f'{layer}: {norm:.2f}' for layer, norm in enumerate(norms))}"
    yield ""


def _show_chosen(reading: EncodedText, reader: TextEncoder, num_values: int) -> Iterator[str]:
    selection = reader.selection
    vectors = combine(reading.vectors.transpose(0, 1).contiguous(), selection)  # (W, H')
    untrained = " with its initial equal weights" if selection.combine == "mix" else ""
    piece = {"first": "its first piece", "last": "its last piece"}.get(
        reader.features.subword, f"the {reader.features.subword} of its pieces"
    )
    yield f"{selection.as_text()}{untrained}: a vector of {selection.width} values for each word, from {piece}"
    if not len(vectors):
        yield "  no words"
        return
    rows = [
        [i, word, f"{vector.norm():.2f}", _first(vector, num_values)]
        for i, (word, vector) in enumerate(zip(reading.words, vectors, strict=True))
    ]
    yield from _aligned(["#", "word", "norm", f"first {num_values} values"], rows, "rlrl")
    yield ""
    yield from histogram(vectors.numpy())


def histogram(values: np.ndarray) -> Iterator[str]:
    """Yields the lines of a histogram. Its range includes outliers, because they are of interest."""
    yield (
        f"  {values.size} values: mean {values.mean():.3f}, standard deviation {values.std():.3f}, "
        f"from {values.min():.3f} to {values.max():.3f}"
    )
    counts, edges = np.histogram(values, bins=BINS)
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        bar = "█" * round(40 * count / counts.max()) or ("▏" if count else "")
        yield f"  {low:8.2f} to {high:6.2f}  {bar} {count}".rstrip()


def show_sentences(readings: Sequence[EncodedText], how: str, reader: TextEncoder, num_values: int) -> Iterator[str]:
    """Yields the sentence vectors and the cosines between them."""
    vectors = torch.stack([sentence_vector(reading, how, reader) for reading in readings])
    of = {
        "cls": f"first piece, {reader.selection.as_text()}",
        "mean": f"mean of all pieces, special ones included, {reader.selection.as_text()}",
        "max": f"largest of all pieces, special ones included, {reader.selection.as_text()}",
        "mean_second_to_last": f"mean of all pieces, special ones included, layer {reader.encoder.num_layers - 1}",
        "pooler": "the pooler's output",
    }[how]
    yield ""
    yield f"sentence vectors of {vectors.shape[1]} values: {how} ({of})"
    if how in ("cls", "pooler"):
        for i, reading in enumerate(readings):
            if len(reading.windows) > 1:
                yield f"  text {i + 1} is longer than the encoder's window; this is the vector of its first window"
    rows = [
        [i + 1, f"{vector.norm():.2f}", _first(vector, num_values), _shortened(" | ".join(reading.texts))]
        for i, (vector, reading) in enumerate(zip(vectors, readings, strict=True))
    ]
    yield from _aligned(["#", "norm", f"first {num_values} values", "text"], rows, "rrll")
    if len(readings) > 1:
        yield ""
        yield "cosines"
        similarity = cosines(vectors)
        n = len(similarity)
        heat = _heat(similarity[~np.eye(n, dtype=bool)])
        table = [[i + 1, *(heat(c) if i != j else "" for j, c in enumerate(row))] for i, row in enumerate(similarity)]
        yield from _aligned(["", *map(str, range(1, n + 1))], table, "r" * (n + 1))


def show_comparison(comparison: Comparison, reader: TextEncoder) -> Iterator[str]:
    """Yields a word's occurrences, their cosines by layer and combination, and the two groups."""
    occurrences = comparison.occurrences
    yield ""
    yield f"{comparison.word}: {len(occurrences)} occurrences"
    for i, occurrence in enumerate(occurrences):
        yield f"  {i + 1}  text {occurrence.text + 1}, word {occurrence.word}: {occurrence.around}"
    pairs = comparison.pairs()
    heat = _heat(np.stack([comparison.cosines[:, i, j] for i, j in pairs]))
    margins = comparison.margins()
    names = {selection.name: k for k, selection in enumerate(comparison.rows[: reader.encoder.num_layers + 1])}
    presets = {0: " embeddings", reader.encoder.num_layers: " last"}
    rows = []
    for k, (selection, similarity) in enumerate(zip(comparison.rows, comparison.cosines, strict=True)):
        label = f"{k}{presets.get(k, '')}" if selection.name in names else selection.name
        values = [similarity[pair] for pair in pairs]
        cells = values if len(pairs) <= PAIRS_SHOWN else [min(values), float(np.mean(values)), max(values)]
        rows.append([label, *map(heat, cells)])
    columns = [f"{i + 1}-{j + 1}" for i, j in pairs] if len(pairs) <= PAIRS_SHOWN else ["least", "mean", "greatest"]
    yield ""
    yield "cosine between occurrences, by layer" + (f" (of {len(pairs)} pairs)" if len(pairs) > PAIRS_SHOWN else "")
    width = max(20, shutil.get_terminal_size().columns - 30)
    step = max(1, width // 9)
    for begin in range(0, len(columns), step):
        part = [[row[0], *row[1 + begin : 1 + begin + step]] for row in rows]
        head = ["layer", *columns[begin : begin + step]]
        if margins and begin + step >= len(columns):
            head.append("gap")
            part = [[*row, f"{margin:+.3f}"] for row, margin in zip(part, margins, strict=True)]
        yield from _aligned(head, part, "l" + "r" * (len(head) - 1))
    yield "sum, mean and mix (before training) have the same direction, so they have the same cosines."
    yield ""
    yield from _separation(comparison, reader)


def _separation(comparison: Comparison, reader: TextEncoder) -> Iterator[str]:
    """Says at which layers the occurrences differ most, or their two groups are separated."""
    margins, groups = comparison.margins(), comparison.groups
    if margins is None or groups is None:
        by_layer = comparison.cosines[: reader.encoder.num_layers + 1, 0, 1]
        yield f"The two are least similar at layer {by_layer.argmin()} ({by_layer.min():.3f})."
        return
    by_layer = np.array(margins[: reader.encoder.num_layers + 1])
    named = " and ".join("{" + ", ".join(str(i + 1) for i in group) + "}" for group in groups)
    yield f"Two groups, by the cosines of all blocks: {named}. gap = least cosine within one - greatest between them."
    separated = np.flatnonzero(by_layer > 0)
    if not len(separated):
        yield (
            "At no layer is every pair within a group more similar than every pair between groups (gap above 0). "
            f"The largest gap is at layer {by_layer.argmax()} ({by_layer.max():+.3f})."
        )
        return
    yield (
        f"The groups are separated (gap above 0) at layers {format_layers(separated.tolist())}, most at layer "
        f"{by_layer.argmax()} ({by_layer.max():+.3f})."
    )
    if separated[0] == 0:
        yield "Layer 0 depends only on a word's form and position, so there similarity reflects position in the text."


def _heat(values: np.ndarray) -> Any:
    """Returns a function that formats a cosine with a bar, whose height shows its position in the range of `values`."""
    low, high = float(values.min()), float(values.max())

    def cell(value: float) -> str:
        share = (value - low) / (high - low) if high > low else 1.0
        return f"{value:.3f} {HEAT[min(int(share * len(HEAT)), len(HEAT) - 1)]}"

    return cell


def _aligned(head: list[str], rows: list[list[Any]], align: str) -> Iterator[str]:
    text = TextTable(head, rows, [letter == "l" for letter in align]).body("plain")
    yield from (f"  {line}".rstrip() for line in text.splitlines())


def _first(vector: torch.Tensor, num: int) -> str:
    shown = " ".join(f"{value:+8.4f}" for value in vector[:num].tolist())
    return shown + (" ..." if num < len(vector) else "")


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
