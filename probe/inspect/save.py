"""Writes the results of `probe inspect` for programs: JSON, and vectors as safetensors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from probe.inspect.encoded_text import EncodedText, TextEncoder
from probe.inspect.similarity import Comparison, cosines, sentence_vector
from probe.system.files import write_atomically


def as_json(
    readings: Sequence[EncodedText], reader: TextEncoder, sentence: str | None, comparison: Comparison | None
) -> dict[str, Any]:
    """Returns the results as JSON values, without the vectors, which `--save` writes.

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


def save_vectors(file: Path, readings: Sequence[EncodedText], reader: TextEncoder, sentence: str | None) -> None:
    """Writes a tensor (W, L + 1, H) per text, "text1", "text2", ..., and with `sentence` also (texts, H').

    The latter is named "sentence". The file's metadata holds the words of each text as JSON, and the encoder. It is
    written completely or not at all.
    """
    tensors = {f"text{i + 1}": reading.vectors for i, reading in enumerate(readings)}
    if sentence:
        tensors["sentence"] = torch.stack([sentence_vector(reading, sentence, reader) for reading in readings])
    metadata = {
        "words": json.dumps([reading.words for reading in readings], ensure_ascii=False),
        "encoder": reader.encoder.name,
        **{f"encoder_{part}": digest for part, digest in reader.encoder.fingerprint.items()},
        "subword": reader.features.subword,
        "sentence": f"{sentence}, {reader.selection.as_text()}" if sentence else "",
    }
    write_atomically(file, safetensors.torch.save(tensors, metadata))
