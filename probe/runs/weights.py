"""A probe's weights, kept beside its record: safetensors, nothing pickled, the record names their sha256.

The file's header holds the run's key and the labels in the order of the classifier's outputs; all else that the probe
is (its sizes, layers, features, encoder) stands in the record.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import torch

from probe.config import UserError
from probe.probes.kinds import PROBES, recorded_probe
from probe.probes.normalization import Normalization, restored_normalization
from probe.probes.selection import Selection
from probe.probes.tagger import Tagger, restored_tagger
from probe.runs.outputs import weights_path
from probe.runs.records import RunRecord
from probe.system.files import canonical, sha256_of, write_atomically


def write_weights(record: Path, key: str, labels: list[str], weights: dict[str, torch.Tensor]) -> str:
    """Keeps the weights of the run whose record is at this path; returns the file's sha256."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    content = save(tensors, {"probe": canonical({"key": key, "labels": labels})})  # one entry: several have no order
    write_atomically(weights_path(record), content)
    return sha256_of(content)


def selection_of(record: RunRecord) -> Selection:
    """The layers that a record's probe reads."""
    layers = record.layers
    return Selection(record.row, tuple(layers.indices), layers.combine, layers.width, record.identity.layers.normalize)


def load_probe(file: Path, record: RunRecord, device: str = "cpu") -> tuple[Tagger, Normalization | None]:
    """The trained probe of a record, and what its features are normalized with. file: the record's.

    Raises UserError where its weights are not what it says.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load

    path = weights_path(file)
    if record.sha256.weights == "" or not PROBES[record.config.probe["kind"]].has_weights:
        raise UserError(f"{record.label} has no weights: its kind of probe learns none, or they are an encoder's.")
    if record.sha256.weights is None or not path.exists():
        lost = "were not kept" if record.sha256.weights is None else f"are not there ({path})"
        raise UserError(f"the weights of {record.label} {lost}. {how_to_keep(record, file)}")
    content = path.read_bytes()
    if sha256_of(content) != record.sha256.weights:
        raise UserError(f"{path} is not what the run wrote (its sha256 is another). {how_to_keep(record, file)}")
    try:
        with safe_open(path, framework="pt") as opened:
            header = json.loads((opened.metadata() or {}).get("probe", "{}"))
        weights, labels = load(content), list(header["labels"])
        selection = selection_of(record)
        normalization = restored_normalization(selection, weights)
        return restored_tagger(recorded_probe(record.config.probe), selection, labels, weights, device), normalization
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{path} does not hold this probe's weights ({str(error).splitlines()[0]}).") from None


def how_to_keep(record: RunRecord, file: Path) -> str:
    """What to type so that a run's weights are kept: the command that made it, narrowed to the run."""
    typed = shlex.split(record.software.command)
    folder = file.parent.parent
    trains = typed[1:2] and (typed[1] in ("train", "-m", "--multirun") or "=" in typed[1])
    if not trains or Path(typed[0]).name != "probe":
        return f"Train it again with save_probe=true results_dir={folder}."
    own = {"seed": str(record.seed), "save_probe": "true", "results_dir": str(folder)}
    if name := record.config.layers.get("name"):
        own["layers"] = name
    else:
        own |= {
            "layers.indices": "[" + ",".join(map(str, record.layers.indices)) + "]",
            "layers.combine": record.layers.combine,
        }
    kept = [word for word in typed[1:] if word.split("=")[0] not in own]
    return f"To keep them: {shlex.join(['probe', *kept, *(f'{name}={value}' for name, value in own.items())])}"
