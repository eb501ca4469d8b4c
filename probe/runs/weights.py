"""Reads and writes a probe's weights next to its record, in safetensors (nothing is pickled).

The file's header holds the run's key and the labels in the order of the classifier's outputs. The record holds the
file's sha256, and all else that the probe needs (its sizes, layers, features, encoder).
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import torch

from probe.config import UserError
from probe.format import reason_of
from probe.probes.kinds import PROBES, recorded_probe
from probe.probes.normalization import Normalization, restored_normalization
from probe.probes.tagger import Tagger
from probe.runs.outputs import weights_path
from probe.runs.records import RunRecord
from probe.system.files import canonical, read_regular, sha256_of, write_atomically


def write_weights(record: Path, key: str, labels: list[str], weights: dict[str, torch.Tensor]) -> str:
    """Writes the weights of the run whose record is at this path, and returns the file's sha256."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    content = save(tensors, {"probe": canonical({"key": key, "labels": labels})})  # several entries would be unordered
    write_atomically(weights_path(record), content)
    return sha256_of(content)


def load_probe(file: Path, record: RunRecord, device: str = "cpu") -> tuple[Tagger, Normalization | None]:
    """Loads the trained probe of a record, and the normalization of its features. file: the record's.

    Raises UserError if its weights are missing or differ from the record's.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load

    path = weights_path(file)
    if record.sha256.weights == "" or not PROBES[record.config.probe["kind"]].reads_features:
        raise UserError(f"{record.label} has no weights: its kind of probe has none, or trains the encoder's.")
    if record.sha256.weights is None or not path.exists():
        lost = "were not saved" if record.sha256.weights is None else f"are missing ({path})"
        raise UserError(f"the weights of {record.label} {lost}. {how_to_save(record, file)}")
    try:
        content = read_regular(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. {how_to_save(record, file)}") from None
    if sha256_of(content) != record.sha256.weights:
        raise UserError(f"{path} was changed after the run (its sha256 differs). {how_to_save(record, file)}")
    try:
        with safe_open(path, framework="pt") as opened:
            header = json.loads((opened.metadata() or {}).get("probe", "{}"))
        weights, labels = load(content), list(header["labels"])
        normalization = restored_normalization(record.selection, weights)
        tagger = Tagger(recorded_probe(record.config.probe), record.selection, labels, record.task.is_ranked)
        tagger.load_state_dict(weights)
        return tagger.to(device), normalization
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{path} does not hold this probe's weights ({reason_of(error)}).") from None


def how_to_save(record: RunRecord, file: Path) -> str:
    """Says what to type so that a run's weights are saved: the command that made it, limited to this run."""
    folder = file.parent.parent
    try:
        typed = shlex.split(record.software.command)
    except ValueError:  # an open quote: nobody typed it so
        typed = [""]
    trains = typed[1:2] and (typed[1] in ("train", "-m", "--multirun") or "=" in typed[1])
    if not trains or Path(typed[0]).name != "probe":
        return f"Train it again with save_probe=true results_dir={folder}."
    settings = {"layers": record.row, "seed": record.seed, "save_probe": "true", "results_dir": folder}
    replaced = {*settings, "layers.indices", "layers.combine"}
    others = [word for word in typed[1:] if word.split("=")[0] not in replaced]
    return f"To save them: {shlex.join(['probe', *others, *(f'{name}={value}' for name, value in settings.items())])}"
