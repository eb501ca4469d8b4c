"""Which layers of a frozen BERT should I use as features? An experiment harness for layer-selection probing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, overload

if TYPE_CHECKING:
    import torch

__version__ = "0.1.0"


class WordVectors(NamedTuple):
    """The words of a text, and their vectors on the CPU in float32: (words, layers, H), layer 0 = embedding output."""

    words: list[str]
    vectors: torch.Tensor


@overload
def word_vectors(texts: str, *settings: str) -> WordVectors: ...


@overload
def word_vectors(texts: list[str], *settings: str) -> list[WordVectors]: ...


def word_vectors(texts: str | list[str], *settings: str) -> WordVectors | list[WordVectors]:
    """The vector of each word of a text at every layer of a frozen encoder; for several texts, a list of these.

    settings: as on the command line, for example "encoder=minilm_l6", "encoder.path=DIR" or "features.subword=mean".
    Each text is split into words as `probe inspect` does it (punctuation marks are words of their own) and seen by
    itself. The encoder is loaded at each call: give many texts at once. Raises probe.config.UserError, a ValueError,
    for settings and texts that cannot be.
    """
    from probe.cli.settings import config_of
    from probe.inspection.reading import Reader

    reader = Reader(config_of(list(settings)))
    given = [texts] if isinstance(texts, str) else texts
    readings = (reader.read(text, number=i + 1) for i, text in enumerate(given))
    read = [WordVectors(reading.words, reading.vectors) for reading in readings]
    return read[0] if isinstance(texts, str) else read
