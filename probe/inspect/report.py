"""Checks the options of `probe inspect`, encodes the texts, and shows or writes the results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from probe.config import Config, UserError
from probe.inspect.encoded_text import TextEncoder
from probe.inspect.save import as_json, save_vectors
from probe.inspect.similarity import compare
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
    figure: Path | None,
    save: Path | None,
    format: str,
) -> Iterator[str]:
    """Returns the lines that `probe inspect` prints, after writing the requested files. Raises UserError."""
    if figure is not None and word is None:
        raise UserError(f"--figure {figure} draws the occurrences of a word: add --word WORD.")
    for option, file, endings in (("--figure", figure, (".png", ".svg")), ("--save", save, (".safetensors",))):
        if file is not None and file.suffix.lower() not in endings:
            raise UserError(f"{option} {file}: the name must end in {' or '.join(endings)}.")
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
        shown = [json.dumps(as_json(readings, reader, sentence, comparison), ensure_ascii=False)]
    else:
        shown.append(header(reader))
        if sentence is None and comparison is None:
            for i, reading in enumerate(readings):
                shown += show_reading(reading, i + 1, reader, values)
        if sentence is not None:
            shown += show_sentences(readings, sentence, reader, values)
        if comparison is not None:
            shown += show_comparison(comparison, reader)
    if save is not None:
        save_vectors(save, readings, reader, sentence)
    if figure is not None and comparison is not None:
        from probe.inspect.figure import draw

        draw(comparison, reader, figure)
    for file in (save, figure):
        if file is not None and format == "text":
            shown += ["", f"written: {file}"]
    return iter(shown)
