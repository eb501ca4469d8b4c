"""Opens what `encoder` names, and completes the stores of its vectors. The kinds of sources: SOURCES.

A new kind is an entry in `SOURCES`, and a file with its functions and a class that is a `vectors.store.Source`. All
above its store is the same for all kinds, except what reads new text, which asks for a `text_encoder`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from probe.config import EncoderConfig, UserError
from probe.encoders.encoder import Encoder, open_encoder, stated_layers
from probe.vectors import given
from probe.vectors.store import FeatureStore, Source, read_manifest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class SourceKind:
    """Describes a kind of source.

    fits: whether settings of `encoder` name one. open: finds it and computes its identity, given the folder of the
    feature store, for hashes that are known. num_layers: what it states before it is opened; None: not known.
    filled_by: the module whose `fill` computes missing shards, imported when it is used. See `extraction.fill`.
    """

    fits: Callable[[EncoderConfig], bool]
    open: Callable[[EncoderConfig, Path], Source]
    num_layers: Callable[[EncoderConfig], int | None]
    filled_by: str


SOURCES = {  # the first that fits; the last fits anything, and says what is wrong with it
    "vectors": SourceKind(given.is_given, given.open_vectors, given.stated_layers, "probe.vectors.given"),
    "text": SourceKind(lambda cfg: True, open_encoder, stated_layers, "probe.vectors.extraction"),
}


def source_kind(cfg: EncoderConfig) -> SourceKind:
    """Returns the kind of what `encoder` names."""
    return next(kind for kind in SOURCES.values() if kind.fits(cfg))


def open_source(cfg: EncoderConfig, cache_dir: Path) -> Source:
    """Opens what `encoder` names: what a store needs of it is known then. Raises UserError."""
    return source_kind(cfg).open(cfg, cache_dir)


def open_text_encoder(cfg: EncoderConfig, cache_dir: str) -> Encoder:
    """Opens what `encoder` names, to read new text with it. cache_dir: features.cache_dir. Raises UserError."""
    return text_encoder(open_source(cfg, Path(cache_dir)))


def text_encoder(source: Source) -> Encoder:
    """Returns an opened source that reads text. Raises UserError for one that cannot."""
    if not isinstance(source, Encoder):
        raise UserError(f"{source.name}, from {source.source}, reads no text. Type encoder.name=OWNER/NAME.")
    return source


def complete_store(store: FeatureStore, device: str, model: torch.nn.Module | None = None) -> FeatureStore:
    """Computes the missing shards of a store, and returns it.

    model: an encoder as it was loaded before, to the deepest stored layer; None: it is loaded if it is needed.
    """
    store.hold()
    missing = store.missing()
    if missing or read_manifest(store.directory) is None:
        store.prepare(missing)
        filling = importlib.import_module(SOURCES[store.source.kind].filled_by)
        without_pieces = filling.fill(store, missing, device, model)
        if device == "cuda":
            import torch

            torch.cuda.empty_cache()  # an encoder's memory is for the probes now
        store.write_manifest(without_pieces)
    store.tidy()
    return store
