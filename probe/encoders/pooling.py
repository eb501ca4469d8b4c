"""Reads from an encoder's folder how sentence-transformers would turn the pieces of a text into a vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.system.files import read_regular

POOLINGS = {  # of sentence-transformers, by our names
    "mean": ("mean", "pooling_mode_mean_tokens"),
    "max": ("max", "pooling_mode_max_tokens"),
    "cls": ("cls", "pooling_mode_cls_token"),
    "last": ("lasttoken", "pooling_mode_lasttoken"),
}


def pooling_of(folder: Path) -> tuple[str, bool]:
    """Returns the pooling, one of POOLINGS, and whether vectors then get length 1. Raises UserError for others."""
    modules = {module["type"].rpartition(".")[2]: module["path"] for module in _json(folder / "modules.json")}
    if "Pooling" not in modules or set(modules) - {"Transformer", "Pooling", "Normalize"}:
        known = f"has the modules {', '.join(modules)}" if modules else "has no modules.json"
        raise UserError(
            f"features.sentence=model: {folder} {known}; Transformer, Pooling and maybe Normalize are "
            "needed. Type features.sentence=mean, max, cls, first or last."
        )
    content = dict(_json(folder / modules["Pooling"] / "config.json"))
    chosen = [name for name, keys in POOLINGS.items() if content.get("pooling_mode") == keys[0] or content.get(keys[1])]
    others = [key for key, value in content.items() if key.startswith("pooling_mode_") and value is True]
    if len(chosen) != 1 or len(others) > 1:
        raise UserError(
            f"features.sentence=model: {folder} pools by {others or content.get('pooling_mode')}; one of "
            f"{', '.join(POOLINGS)} is needed. Type features.sentence=NAME."
        )
    return chosen[0], "Normalize" in modules


def most_pieces(folder: Path, limit: int) -> int:
    """Returns how many pieces of a text are read: as many as fit, or fewer where the folder says so."""
    return min(limit, int(dict(_json(folder / "sentence_bert_config.json")).get("max_seq_length") or limit))


def _json(file: Path) -> Any:
    """Returns the content of a file; an empty list if there is none. Raises UserError."""
    try:
        return json.loads(read_regular(file)) if file.exists() else []
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}.") from None
