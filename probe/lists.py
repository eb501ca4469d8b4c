"""Writes texts, vectors and labels that a Python program holds as the files that commands read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.format import first_few, hydra_quoted, reason_of
from probe.settings import configs_of
from probe.system.files import sha256_of, short, write_atomically

FRACTION = 0.2  # of the texts or their groups: dev, and as many again test, where these are not given
LINEAR = ("probe=linear", "layers.normalize=scale")
PRESETS = {  # for lists of words with lists of tags; for texts, and for vectors, with a label each
    "json": ("+sweep=quickstart", "screen.first=false", "data=json"),
    "sentences": ("data=sentences", *LINEAR),
    "items": ("data=items", "data.task=sentence", *LINEAR),
}


def write_inputs(encoder: Any, splits: Mapping[str, Any], typed: Sequence[str], results_dir: Path) -> list[str]:
    """Writes inputs into `data` of a results folder. Returns the settings that read them, those typed at the end.

    encoder, typed: as `probe.choose` takes them. splits: each a table, a tuple of texts, labels and groups, or None.
    Raises UserError, also for a folder with results of other inputs.
    """
    if not isinstance(encoder, str | Path | None):
        raise UserError(
            f"encoder: expected a preset, a folder or OWNER/NAME on the Hub, not {type(encoder).__name__}. Vectors "
            "stand behind None: choose(None, vectors, labels)."
        )
    of_data = [word for word in typed if str(word).startswith("data.")]
    columns = {split: _columns(split, given, of_data) for split, given in splits.items() if given is not None}
    _, labels, _, names = columns["train"]
    has_tags = isinstance(labels[0], list | tuple) or getattr(labels[0], "ndim", 0) > 0
    has_groups = any(groups is not None for _, _, groups, _ in columns.values())
    settings = [*PRESETS["items" if encoder is None else "json" if has_tags else "sentences"]]
    settings += [f"encoder={'vectors' if encoder is None else encoder}", f"results_dir={results_dir}"]
    settings += [f"data.name={hydra_quoted(results_dir.resolve().name)}"]
    settings += [f"data.document_field={'group' if has_groups else 'null'}"]
    settings += [f"data.labels=[{','.join(map(hydra_quoted, names))}]"] if names else []
    for split in [split for split in splits if split not in columns]:
        settings += [f"data.{split}=null", f"data.{split}_fraction={FRACTION}"]
    paths = ["data.path", "encoder.path"] if encoder is None else ["data.path"]
    data = configs_of(["-m", *settings, *(f"{name}=." for name in paths), *of_data])[0][0].data
    files = dict[str, bytes]()
    for split, (texts, labels, groups, _) in columns.items():
        if encoder is None:
            ids = [f"{split} {number}" for number in range(1, len(labels) + 1)]
            files[f"{split}.safetensors"], texts = _stored(texts, ids), ids
        rows = [{data.words_field: text, data.tags_field: label} for text, label in zip(texts, labels, strict=True)]
        if groups is not None:  # the rows of one must be adjacent
            place = {str(group): number for number, group in reversed([*enumerate(groups)])}
            rows = [row | {str(data.document_field): group} for row, group in zip(rows, groups, strict=True)]
            rows.sort(key=lambda row: place[str(row[str(data.document_field)])])
        try:
            lines = [json.dumps(row, ensure_ascii=False, default=lambda value: value.tolist()) + "\n" for row in rows]
        except AttributeError as error:
            raise UserError(f"{split}: expected texts, numbers and lists of them: {reason_of(error)}.") from None
        files[f"{split}.jsonl"] = "".join(lines).encode("utf-8", "surrogatepass")
    key = sha256_of(b"".join(name.encode() + content for name, content in files.items()))
    folder = results_dir.resolve() / "data" / short(key)
    if not folder.exists() and any((results_dir / "records").glob("*.json")):
        raise UserError(f"{results_dir} holds results of other texts, labels or groups: give another results_dir.")
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [*settings, *(f"{name}={folder}" for name in paths), *typed]


def _columns(split: str, given: Any, of_data: Sequence[str]) -> tuple[Any, Any, Any, list[str] | None]:
    """Returns texts, labels, groups or None, and the names of labels that are numbers. Raises UserError."""
    texts, labels, groups, *_ = (*(given if isinstance(given, tuple) else (given,)), None, None)
    there, names = getattr(texts, "column_names", getattr(texts, "columns", None)), None
    if there is not None and labels is not None:
        raise UserError(f"{split}: a table has its labels in a column: leave out labels, type 'data.tags_field=NAME'.")
    if there is not None:
        layouts = [configs_of([f"data={name}", "data.path=.", *of_data])[0][0].data for name in ("sentences", "json")]
        needed = [{one.words_field, one.tags_field, one.document_field or one.words_field} for one in layouts]
        data = next((one for one, names in zip(layouts, needed, strict=True) if names <= {*there}), None)
        if data is None:
            raise UserError(
                f"{split} has the columns {first_few([*map(str, there)])}. Name those of the texts, the labels and, "
                "if any, the groups: 'data.words_field=NAME', 'data.tags_field=NAME', 'data.document_field=NAME'."
            )
        feature = texts.features[data.tags_field] if hasattr(texts, "column_names") else None
        names = getattr(getattr(feature, "feature", feature), "names", None)
        groups = texts[data.document_field] if data.document_field and groups is None else groups
        texts, labels = texts[data.words_field], texts[data.tags_field]
    parts = [part for part in (texts, labels, groups) if part is not None or part is labels]
    is_list = [hasattr(part, "__getitem__") and not isinstance(part, str | Mapping) for part in parts]
    if not all(is_list) or not len(labels):
        raise UserError(f"{split}: give a list of texts and a list of their labels, or a table with both.")
    sizes = [len(part) for part in (texts, labels, groups) if part is not None]
    if len({*sizes}) > 1:
        raise UserError(
            f"{split} has {sizes[0]} texts, and of labels (and groups) {' and '.join(map(str, sizes[1:]))}."
        )
    return texts, [*labels], groups if groups is None else [*groups], names


def _stored(vectors: Any, ids: list[str]) -> bytes:
    """Returns vectors, (units, layers, H) or (units, H), with their ids as safetensors. Raises UserError."""
    import numpy as np
    import torch
    from safetensors.torch import save

    if getattr(vectors, "ndim", 0) not in (2, 3):
        raise UserError("without an encoder, give vectors as an array or tensor: (units, layers, H) or (units, H).")
    try:
        tensor = torch.as_tensor(vectors if torch.is_tensor(vectors) else np.ascontiguousarray(vectors))
    except TypeError as error:
        raise UserError(f"vectors are no numbers: {reason_of(error)}.") from None
    if not tensor.is_floating_point():
        raise UserError(f"vectors are {tensor.dtype}, not floating-point numbers.")
    tensor = tensor.detach().cpu().contiguous()
    return save({"vectors": tensor.float() if tensor.dtype == torch.float64 else tensor}, {"ids": json.dumps(ids)})
