"""Which layers of a frozen BERT should I use as features? An experiment harness for layer-selection probing."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, overload

import probe.features as _folder

if TYPE_CHECKING:
    import torch

    from probe.export.splits import Splits

__version__ = "0.1.0"


class WordVectors(NamedTuple):
    """Holds a text's words and vectors, on the CPU in float32: (words, layers, H), layer 0 = embedding output."""

    words: list[str]
    vectors: torch.Tensor


@overload
def word_vectors(texts: str, *settings: str) -> WordVectors: ...


@overload
def word_vectors(texts: list[str], *settings: str) -> list[WordVectors]: ...


def word_vectors(texts: str | list[str], *settings: str) -> WordVectors | list[WordVectors]:
    """Returns the vector of each word of a text at every layer of a frozen encoder; for several texts, a list.

    settings: as on the command line, for example "encoder=minilm_l6", "encoder.path=DIR" or "features.subword=mean".
    Each text is split into words as `probe inspect` does (punctuation marks are words) and encoded by itself. The
    encoder is loaded at each call, so pass many texts at once. Raises probe.config.UserError, a ValueError, for invalid
    settings and texts.
    """
    from probe.inspect.encoded_text import TextEncoder
    from probe.settings import config_of

    reader = TextEncoder(config_of(list(settings)))
    given = [texts] if isinstance(texts, str) else texts
    readings = (reader.read(text, number=i + 1) for i, text in enumerate(given))
    read = [WordVectors(reading.words, reading.vectors) for reading in readings]
    return read[0] if isinstance(texts, str) else read


class _Features(ModuleType):
    """Makes the package `probe.features` callable too: `features(...)` returns a corpus with its features."""

    def __call__(self, *settings: str, each: bool = False) -> Splits:
        """Returns words, tags and vectors of a corpus under a frozen encoder: train, dev and test.

        settings: as on the command line: "data=conll2003", "encoder.path=DIR", "layers=concat_last_four". Missing
        features are extracted first. each: does not combine the layers: (words, layers, H).

        In each split, `words`, `tags` and the rows of `vectors` are aligned, one row per word; `sentences` are slices
        of them. Slicing `vectors` reads those rows from the store into a torch tensor; converting it to a NumPy array
        reads all of it. Corpus and encoder are read anew at each call. Raises probe.config.UserError, a ValueError, for
        invalid settings.

        >>> from probe import features
        >>> train, dev, test = features("data=demo", "encoder=minilm_l6", "layers=concat_last_four")
        >>> dev.vectors.shape
        (6622, 1536)
        >>> first = dev.sentences[0]
        >>> list(zip(dev.words[first], dev.tags[first]))[:3]
        [('HEADLESS', 'O'), ('RAKVERE', 'B-ORG'), ('TARVAS', 'I-ORG')]
        >>> dev.vectors[first].dtype
        torch.float16
        """
        from probe.export.splits import read_splits
        from probe.runs.plan import forget_inputs
        from probe.settings import config_of

        forget_inputs()
        return read_splits(config_of(list(settings)), each)


if TYPE_CHECKING:
    features = _Features("probe.features")
else:
    _folder.__class__ = _Features  # importing a module of the package would overwrite a function of this name
