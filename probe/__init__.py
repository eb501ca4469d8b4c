"""Answers which layers of a frozen BERT to use as features: a harness for layer-selection experiments."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, overload

import probe.features as _features_folder
import probe.screen as _screen_folder

if TYPE_CHECKING:
    import torch

    from probe.api import Results, Screen
    from probe.export.export import Splits
    from probe.runs.records import RunRecord

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


def results(folder: str | Path, margin: float | None = None) -> Results:
    """Reads a results folder: its table and runs as pandas DataFrames, and which row to use. Trains nothing.

    margin: by how many points of dev score a row may be worse than the best (default: `margin` in conf/config.yaml).
    Scores are fractions. Raises probe.config.UserError, a ValueError, if the folder holds neither records nor a sweep.

    >>> import probe
    >>> found = probe.results("results/demo-minilm")
    >>> found.recommendation.use.row, found.recommendation.use.layers, found.recommendation.margin
    ('concat_last_four', '3..6', 0.5)
    >>> print(found.recommendation)  # doctest: +ELLIPSIS
    Use concat_last_four (layers 3..6): ...
    >>> found.table[["row", "indices", "n", "label"]].tail(2).values.tolist()
    [['concat_last_four', '3 4 5 6', 3, 'best'], ['sum_all', '1 2 3 4 5 6', 3, 'worse']]
    >>> len(found.runs), found.runs.row[found.runs.dev.idxmax()]
    (18, 'concat_last_four')
    """
    from probe.api import read_results

    return read_results(Path(folder), margin)


def run(*settings: str) -> RunRecord:
    """Trains one run as `probe train` does, prints nothing, and returns its record. A run that is done is read.

    settings: as on the command line. Raises probe.config.UserError, a ValueError, for mistakes in them.

    >>> import probe
    >>> record = probe.run("data=demo", "encoder=minilm_l6", "layers=last", "probe=linear", "results_dir=results/mine")
    >>> record.row, record.layers.indices, record.seed
    ('last', [6], 1)
    >>> 0.4 < record.scores.dev.headline < 0.5
    True
    """
    from probe.api import run_one

    return run_one(settings)


def sweep(*settings: str) -> Results:
    """Trains the runs of a sweep as `probe -m` does, prints nothing, and returns the results folder as `results` does.

    settings: as on the command line, including a sweep file (`+sweep=quickstart`). Runs that are done are not repeated;
    failures are in `problems`. Raises probe.config.UserError, a ValueError, for mistakes in the settings.

    >>> import probe
    >>> found = probe.sweep("layers=last,embeddings", "data=demo", "encoder=minilm_l6", "probe=linear",
    ...                     "results_dir=results/mine")
    >>> found.table.row.tolist(), len(found.runs), found.problems
    (['embeddings', 'last'], 2, [])
    """
    from probe.api import run_sweep

    return run_sweep(settings)


class _Screen(ModuleType):
    """Makes the package `probe.screen` callable too: `screen(...)` ranks layers."""

    def __call__(self, *settings: str) -> Screen:
        """Ranks layers and combinations without training, as `probe screen` does, prints nothing, and returns them.

        settings: as on the command line. A screen that is done is read. Raises probe.config.UserError, a ValueError,
        for mistakes in them.

        >>> import probe
        >>> found = probe.screen("data=demo", "encoder=minilm_l6", "screen.sentences=200", "screen.max_layers=1",
        ...                      "results_dir=results/mine")
        >>> found.table.place.tolist() == list(range(1, len(found.table) + 1))
        True
        >>> found.table.columns.tolist()[:6]
        ['place', 'encoder', 'name', 'alike', 'indices', 'combine']
        """
        from probe.api import run_screen

        return run_screen(settings)


class _Features(ModuleType):
    """Makes the package `probe.features` callable too: `features(...)` returns a corpus with its features."""

    def __call__(self, *settings: str, each: bool = False) -> Splits:
        """Returns words, tags and vectors of a corpus under a frozen encoder: train, dev and test.

        settings: as on the command line: "data=conll2003", "encoder.path=DIR", "layers=concat_last_four". Missing
        features are extracted first. each: does not combine the layers: (words, layers, H).

        In each split, `words`, `tags` and the rows of `vectors` are aligned, one row per word; `sentences` are slices
        of them. Slicing `vectors` reads those rows from the store into a torch tensor; converting it to a NumPy array
        reads all of it. Corpus and encoder are read again at each call. Raises probe.config.UserError, a ValueError,
        for invalid settings.

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
        from probe.export.export import read_splits
        from probe.runs.plan import forget_inputs
        from probe.settings import config_of

        forget_inputs()
        return read_splits(config_of(list(settings)), each)


# Importing a module of either package would overwrite a function of its name.
if TYPE_CHECKING:
    features = _Features("probe.features")
    screen = _Screen("probe.screen")
else:
    _features_folder.__class__ = _Features
    _screen_folder.__class__ = _Screen
