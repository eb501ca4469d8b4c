"""Opens vectors that another program computed: hidden states of an LLM, of images, of speech, or an export.

    DIR/train.safetensors   "vectors", (units, layers, H) or (units, H), or one tensor (units, H) a layer
    DIR/dev.safetensors     dev, and test, unless the data takes these splits from train
    DIR/train.ids.txt       the id of each unit, one per line; or "ids", a list as JSON in the file's metadata; or
    DIR/train.jsonl         the text of each unit, as `probe export --each` writes it

A unit is a word, or a text with one label. Texts are matched by id, in any order. Words are not unique, so they must be
those of the corpus, in its order. Vectors are read where they are; nothing is copied into the feature store.

W units, L + 1 layers, H values.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from probe.config import EncoderConfig, FeaturesConfig, UserError
from probe.data.corpus import SPLITS, Corpus
from probe.encoders.encoder import file_hash
from probe.format import reason_of
from probe.system.files import key_of
from probe.system.progress import progress_bar
from probe.vectors.store import TEXTS_IN_SHARD, FeatureStore, Shard

if TYPE_CHECKING:
    import torch

WHOLE = "vectors"  # the tensor that has all layers
DTYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


@dataclass
class GivenVectors:
    """Describes a folder of vectors; see `vectors.store.Source`. ids: of each split's units, as its file has them."""

    kind: ClassVar[str] = "vectors"
    settings: ClassVar[tuple[str, ...]] = ()
    name: str
    source: str
    folder: Path
    num_layers: int
    hidden_size: int
    dtype: str
    fingerprint: dict[str, str]
    ids: dict[str, list[str]]
    layer_names: list[str] | None = None
    commit: str | None = None
    pretrained: dict[str, str] | None = None
    lower_cases: bool = False
    places: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)  # of the corpus's units in the file

    def reading(self, is_per_word: bool, cfg: FeaturesConfig) -> dict[str, Any]:
        return {}

    def rows(self, corpus: Corpus, shard: Shard, layers: Sequence[int]) -> list[torch.Tensor]:
        """Returns the vectors of a shard of the corpus, (W, H) for each layer. Raises UserError."""
        import torch

        places = torch.from_numpy(self.places_of(corpus, shard.split)[shard.first : shard.last])
        return self.vectors_at(places, shard.split, layers)

    def vectors_at(self, places: torch.Tensor | slice, split: str, layers: Sequence[int]) -> list[torch.Tensor]:
        """Returns the vectors at some places of a split's file, (W, H) for each layer; a slice is a mapped view."""
        with _opened(_file(self.folder, split)) as file:
            if (names := tensor_names(file)) != [WHOLE]:
                return [file.get_tensor(names[layer])[places] for layer in layers]
            vectors = file.get_tensor(WHOLE)  # mapped too: what is not read takes no memory
            return [vectors[places, layer] if vectors.ndim == 3 else vectors[places] for layer in layers]

    def places_of(self, corpus: Corpus, split: str) -> np.ndarray:
        """Returns the place of each unit of a split in its file. Raises UserError if they are not the same units."""
        if (key := (corpus.key, split)) not in self.places:
            self.places[key] = self._matched(corpus, split)
        return self.places[key]

    def _matched(self, corpus: Corpus, split: str) -> np.ndarray:
        """Matches a split with its file; see `places_of`."""
        file, given, units = _file(self.folder, split), self.ids[split], units_of(corpus, split)
        if given == units:
            return np.arange(len(units))
        if corpus.task.is_per_word:
            at = next((at for at, pair in enumerate(zip(given, units, strict=False)) if pair[0] != pair[1]), None)
            found = f"{len(given)} words, the data {len(units)}"
            if at is not None:
                found = f"{given[at]!r} as word {at + 1}, the data {units[at]!r}"
            raise UserError(f"{file} has {found}. Words must be those of {split}, in the same order.")
        for ids, whose in ((given, str(file)), (units, f"the data's {split}")):
            if doubled := next((one for one, count in Counter(ids).items() if count > 1), None):
                raise UserError(f"{whose} has two units with the id {doubled!r}, so they cannot be matched by id.")
        place = {one: at for at, one in enumerate(given)}
        if missing := next((one for one in units if one not in place), None):
            other = f", and there is no {split}.safetensors" * (file.stem != split)
            raise UserError(f"{file} has no vector for {missing!r}, which is in the {split} split of the data{other}.")
        served = [name for name in corpus.splits if _file(self.folder, name) == file]
        known = {unit for name in served for unit in units_of(corpus, name)}
        if unknown := next((one for one in given if one not in known), None):
            raise UserError(f"{file} has a vector for {unknown!r}, which is not in the data ({', '.join(served)}).")
        return np.array([place[one] for one in units])


def units_of(corpus: Corpus, split: str) -> list[str]:
    """Returns the words of a split, or the id of each text: its own text or messages if it has no other."""
    part = corpus.splits[split]
    if corpus.task.is_per_word:
        return list(chain.from_iterable(part.words))
    return part.ids or [_as_id(text) for text in part.texts]


def _as_id(text: Any) -> str:
    """Returns what identifies a text without an id: itself, its words joined by blanks, or its messages as JSON."""
    if isinstance(text, list):
        return " ".join(text) if all(isinstance(word, str) for word in text) else json.dumps(text)
    return str(text)


def is_given(cfg: EncoderConfig) -> bool:
    """Returns whether settings of `encoder` name a folder of vectors."""
    folder = Path(cfg.path or "").expanduser()
    return cfg.path is not None and _file(folder, "train").is_file() and not (folder / "config.json").exists()


def stated_layers(cfg: EncoderConfig) -> int | None:
    file = _file(Path(cfg.path or "").expanduser(), "train")
    return _shape(file)[1] - 1


def open_vectors(cfg: EncoderConfig, cache_dir: Path) -> GivenVectors:
    """Reads shapes and ids, and hashes the files. Raises UserError for what does not fit together."""
    folder = Path(cfg.path or "").expanduser()
    if cfg.weights != "pretrained" or cfg.max_pieces is not None or cfg.lower_case is not None or cfg.revision:
        raise UserError(
            f"{folder} holds vectors, no encoder: leave out encoder.weights, max_pieces, lower_case and revision."
        )
    shapes = {split: _shape(_file(folder, split)) for split in SPLITS}
    if len(kinds := {shape[1:] for shape in shapes.values()}) > 1:
        raise UserError(f"{folder}: train, dev and test have different layers, values or dtypes: {sorted(kinds)}.")
    ids = {split: _ids(_file(folder, split), shapes[split][0]) for split in SPLITS}
    _, layers, size, dtype = shapes["train"]
    if cfg.num_layers not in (None, layers - 1):
        raise UserError(f"{folder} has layers 0 to {layers - 1}, not encoder.num_layers={cfg.num_layers}.")
    fingerprint = {split: file_hash(_file(folder, split), cache_dir) for split in SPLITS} | {"ids": key_of(ids)}
    names = _layer_names(_file(folder, "train"))
    return GivenVectors(cfg.name, f"vectors in {folder}", folder, layers - 1, size, dtype, fingerprint, ids, names)


def fill(store: FeatureStore, missing: list[Shard], *_: object) -> dict[str, int]:
    """Checks all vectors once: their ids, and that each is finite and not zero in every layer. Raises UserError."""
    import torch

    source = store.source
    assert isinstance(source, GivenVectors)
    for split in store.shards:
        source.places_of(store.corpus, split)
    files = {_file(source.folder, split): split for split in SPLITS}
    with progress_bar(sum(len(source.ids[split]) for split in files.values()), "checking vectors", "vectors") as bar:
        for file, split in files.items():
            ids = source.ids[split]
            for first in range(0, len(ids), TEXTS_IN_SHARD):  # in the order of the file, which may not fit into memory
                part = slice(first, first + TEXTS_IN_SHARD)
                for layer, vectors in enumerate(source.vectors_at(part, split, range(source.num_layers + 1))):
                    high, low = vectors.amax(1), vectors.amin(1)  # both are NaN where one value is
                    finite, zero = torch.isfinite(high) & torch.isfinite(low), (high == 0) & (low == 0)
                    for at in (~finite | zero).nonzero()[:1, 0].tolist():
                        what = "zero" if finite[at] else "not finite"
                        raise UserError(f"{file}: the vector of {ids[first + at]!r} in layer {layer} is {what}.")
                bar.update(len(ids[part]))
    return dict.fromkeys(store.shards, 0)


def tensor_names(opened: Any) -> list[str]:
    """Returns the names of the tensors of a file, layer 0 first: numbers in names count as numbers."""
    return sorted(
        opened.keys(), key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
    )


def _layer_names(file: Path) -> list[str] | None:
    """Returns the names of the layers: "layers", a list as JSON in the metadata of a file, or those of its tensors.

    None if there are none, or if they say no more than numbers do.
    """
    with _opened(file) as opened:
        stated, names = (opened.metadata() or {}).get("layers"), tensor_names(opened)
    layers = _shape(file)[1]
    if stated:
        try:
            names = [str(one) for one in json.loads(stated)]
        except (ValueError, TypeError) as error:
            raise UserError(f'{file}: "layers" in its metadata is no list ({reason_of(error)}).') from None
        if len(names) != layers:
            raise UserError(f'{file}: "layers" in its metadata names {len(names)} layers, not {layers}.')
    says_more = [re.sub(r"\D+", "", name) for name in names] != [str(k) for k in range(layers)]
    return names if says_more and len(names) == layers else None


def _shape(file: Path) -> tuple[int, int, int, str]:
    """Returns the number of units and of layers, H, and the dtype. Raises UserError."""
    with _opened(file) as opened:
        names = tensor_names(opened)
        parts = [opened.get_slice(name) for name in names]
        shapes, dtypes = {tuple(part.get_shape()) for part in parts}, {part.get_dtype() for part in parts}
    dimensions = (2, 3) if names == [WHOLE] else () if WHOLE in names else (2,)
    if len(shapes) != 1 or len(dtypes) != 1 or len(shape := shapes.pop()) not in dimensions:
        raise UserError(
            f'{file}: expected "{WHOLE}" alone, of (units, layers, values) or (units, values), or one tensor (units, '
            f"values) for each layer, all of one shape; it has {', '.join(names) or 'no tensor'}."
        )
    if (dtype := dtypes.pop()) not in DTYPES:
        raise UserError(f"{file} is {dtype}. Write it as {', '.join(DTYPES.values())}.")
    layers = shape[1] if len(shape) == 3 else len(names)
    return shape[0], layers, shape[-1], DTYPES[dtype]


def _ids(file: Path, units: int) -> list[str]:
    """Returns the id of each unit of a file: a word or a text. Raises UserError if there are none, or not as many."""
    listed, sentences = file.with_suffix(".ids.txt"), file.with_suffix(".jsonl")
    with _opened(file) as opened:
        inside = (opened.metadata() or {}).get("ids")
    source, ids = listed, None
    try:
        if listed.is_file():
            ids = _lines(listed)
        elif inside is not None:
            source, ids = file, [str(one) for one in json.loads(inside)]
        elif sentences.is_file() and "id" not in (rows := [json.loads(line) for line in _lines(sentences)])[0]:
            source, ids = sentences, [unit for row in rows for unit in row.get("tokens") or [_as_id(row["text"])]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{file}: its ids cannot be read ({reason_of(error)}).") from None
    if ids is None:  # rows with ids, for data=items, need not be in the order of the vectors
        raise UserError(
            f"{file} has no ids, so nobody can tell which label belongs to which vector. Write one id per line "
            f"into {listed.name}, in the order of the vectors."
        )
    if len(ids) != units:
        raise UserError(f"{source} has {len(ids)} ids, {file.name} has {units} vectors.")
    return ids


def _lines(file: Path) -> list[str]:
    """Returns the lines of a file; other separators than line ends are part of ids."""
    return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def _file(folder: Path, split: str) -> Path:
    """Returns the file with the vectors of a split: its own, or that of train, from which the data may take a split."""
    own = folder / f"{split}.safetensors"
    return own if own.is_file() else folder / "train.safetensors"


def _opened(file: Path) -> Any:
    """Opens a safetensors file. Raises UserError for one that is missing, truncated or none."""
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file} cannot be read as safetensors: {reason_of(error)}.") from None
