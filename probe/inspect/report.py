"""Checks the options of `probe inspect`, encodes the texts, and shows the results as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from probe.config import Config, UserError
from probe.inspect.encoded_text import EncodedText, TextEncoder
from probe.inspect.similarity import Comparison, compare, cosines, sentence_vector
from probe.inspect.text import header, show_comparison, show_reading, show_sentences


def lines(
    cfg: Config,
    texts: list[str],
    *,
    pair: bool,
    pad: int,
    segment: int | None,
    values: int,
    sentence: str | None,
    word: str | None,
    format: str,
) -> Iterator[str]:
    """Returns the lines that `probe inspect` prints. Raises UserError."""
    if pair and len(texts) != 2:
        raise UserError(f"--pair needs two texts, not {len(texts)}.")
    if values < 0:
        raise UserError(f"--values {values}: 0 or more.")
    reader = TextEncoder(cfg)
    together = [tuple(texts)] if pair else [(text,) for text in texts]
    readings = [reader.read(*given, number=i + 1, pad=pad, segment=segment) for i, given in enumerate(together)]
    comparison = compare(readings, word, reader) if word is not None else None
    shown: list[str] = []
    if format == "json":
        shown = [json.dumps(_as_json(readings, reader, sentence, comparison), ensure_ascii=False)]
    else:
        shown.append(header(reader))
        if sentence is None and comparison is None:
            for i, reading in enumerate(readings):
                shown += show_reading(reading, i + 1, reader, values)
        if sentence is not None:
            shown += show_sentences(readings, sentence, reader, values)
        if comparison is not None:
            shown += show_comparison(comparison, reader)
    return iter(shown)


def _as_json(
    readings: Sequence[EncodedText], reader: TextEncoder, sentence: str | None, comparison: Comparison | None
) -> dict[str, Any]:
    """Returns the results as JSON values, without the vectors.

    Lists by piece concatenate all windows of a text, each of shape[1] pieces. norms: of each layer, the mean norm of a
    word's vector. `cosines` are those of --sentence.
    """
    tokenizer, selection = reader.encoder.tokenizer, reader.selection
    texts = []
    for reading in readings:
        ids = reading.ids.flatten().tolist()
        texts.append(
            {
                "text": list(reading.texts) if len(reading.texts) > 1 else reading.texts[0],
                "words": reading.words,
                "pieces": tokenizer.convert_ids_to_tokens(ids),
                "ids": ids,
                "attention_mask": reading.mask.flatten().tolist(),
                "segment_ids": None if reading.types is None else reading.types.flatten().tolist(),
                "word_of_piece": [word for window in reading.word_of_piece for word in window],
                "shape": list(reading.shape),
                "norms": reading.vectors.norm(dim=2).mean(0).tolist() if reading.words else None,
            }
        )
    found: dict[str, Any] = {
        "encoder": {"name": reader.encoder.name, **reader.encoder.fingerprint},
        "causal": reader.traits.causal,
        "final_norm": reader.traits.final_norm,
        "texts": texts,
        "hidden_states": reader.encoder.num_layers + 1,
        "layers": {"name": selection.name, "indices": list(selection.indices), "combine": selection.combine},
        "cosines": None,
    }
    if sentence:
        vectors = torch.stack([sentence_vector(reading, sentence, reader) for reading in readings])
        found["sentence"], found["cosines"] = sentence, cosines(vectors).tolist()
    if comparison:
        names = [row.name for row in comparison.rows]
        margins = comparison.margins()
        found["word"] = {
            "word": comparison.word,
            "occurrences": [occurrence._asdict() for occurrence in comparison.occurrences],
            "cosines": dict(zip(names, comparison.cosines.tolist(), strict=True)),
            "groups": comparison.groups,
            "gaps": dict(zip(names, margins, strict=True)) if margins else None,
        }
    return found
