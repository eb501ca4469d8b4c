"""Converts a checkpoint's weights to safetensors, from a folder or from the Hub.

Only the model's own weights are read, after `pickles.check_pickle`, by PyTorch's restricted unpickler. Config and
tokenizer files are copied unchanged. The new folder appears complete, with a note of its sources.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe.config import UserError
from probe.convert.pickles import check_pickle
from probe.encoders.checkpoint import (
    BIN,
    BIN_FILE,
    BIN_INDEX,
    CONVERSION,
    DESCRIPTIONS,
    INDEX,
    OTHER_WEIGHTS,
    SINGLE,
    files_in_index,
)
from probe.system import hub
from probe.system.files import sha256_of_file, why_not_writable, write_atomically, write_json, written_whole
from probe.system.format import reason_of

if TYPE_CHECKING:
    import torch

SAFE_TORCH = (2, 10)  # below, a file can make torch.load run code even with weights_only=True (CVE-2026-24747)


@dataclass(frozen=True)
class Files:
    """Lists the files of a checkpoint that are read: those with weights, and those of config and tokenizer."""

    weights: list[Path]
    descriptions: list[Path]

    @property
    def all(self) -> list[Path]:
        return [*self.weights, *self.descriptions]


def convert(source: str, revision: str | None, to: Path, log: Callable[[str], None]) -> None:
    """Converts a folder's checkpoint, or the Hub's, into the new folder `to`. Raises UserError.

    If the folder already holds the conversion of the same source, only says so.
    """
    refuse_old_torch()
    if _is_path(source):
        folder = _folder(source, revision)
        name, commit = str(folder.resolve()), None
    else:
        folder, repo = None, hub.Repo("model", source, revision)
        name, commit = source, hub.commit_of(repo)
    if to.exists():
        log(_already_done(name, commit, folder, to))
        return
    files = _in_folder(folder) if folder is not None else _on_hub(repo)
    if reason := why_not_writable(to, sum(file.stat().st_size for file in files.all)):
        raise UserError(f"--to {to}: {reason}. To use another folder: --to DIR.")
    for file in files.weights:
        check_pickle(file)
    with _whole_folder(to) as new:
        written, num_tensors = _write_weights(files.weights, new)
        for file in files.descriptions:
            shutil.copyfile(file, new / file.name)
        note = _note(name, commit, files, [new / file for file in written])
        write_json(new / CONVERSION, note)
    log(f"{to}: {num_tensors} tensors in {', '.join(written)}, and {len(files.descriptions)} unchanged files.")
    log(f"To use it: encoder.path={to}")


def refuse_old_torch() -> None:
    """Raises UserError if this version of PyTorch cannot read a pickle safely."""
    version = metadata.version("torch")
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < SAFE_TORCH:
        least = ".".join(map(str, SAFE_TORCH))
        raise UserError(
            f"A file can make torch {version} run code when it is read (CVE-2026-24747). "
            f"probe convert needs {least} or later: pip install 'torch>={least}'."
        )


def _is_path(source: str) -> bool:
    """Returns whether a folder was named: one that exists, or a text that cannot be a name on the Hub."""
    return Path(source).expanduser().exists() or source.startswith((".", "/", "~")) or source.count("/") > 1


def _folder(source: str, revision: str | None) -> Path:
    folder = Path(source).expanduser()
    if revision is not None:
        raise UserError(f"--revision {revision} is for a model of the Hub, and {folder} is a folder.")
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder.")
    return folder


def _in_folder(folder: Path) -> Files:
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    weights = _weights(names, str(folder), f"encoder.path={folder}", lambda: folder)
    if missing := [name for name in weights if name not in names]:
        raise UserError(f"{folder}: {BIN_INDEX} names {', '.join(missing)}, which this folder lacks.")
    return Files([folder / name for name in weights], [folder / name for name in names if _describes(name)])


def _on_hub(repo: hub.Repo) -> Files:
    names = [file for file in hub.files_of(repo) if "/" not in file]
    setting = f"encoder.name={repo.name}" + (f" encoder.revision={repo.revision}" if repo.revision else "")
    weights = _weights(names, f"{repo.name} on the Hub", setting, lambda: hub.fetch(repo, [BIN_INDEX]))
    descriptions = [name for name in names if _describes(name)]
    folder = hub.fetch(repo, [*descriptions, *weights])
    return Files([folder / name for name in weights], [folder / name for name in descriptions])


def _describes(name: str) -> bool:
    """Returns whether a file belongs to config or tokenizer. The index of other weights does not."""
    return name.endswith(DESCRIPTIONS) and not name.endswith(".index.json") and name != CONVERSION


def _weights(names: list[str], where: str, setting: str, folder_with_index: Callable[[], Path]) -> list[str]:
    """Chooses the files with the model's own weights. Raises UserError if there are none, or none to convert."""
    if "config.json" not in names:
        raise UserError(f"{where} is not an encoder: it has no config.json.")
    if SINGLE in names or INDEX in names:
        raise UserError(f"{where} already has weights in safetensors form. Use them: {setting}")
    if BIN in names:
        return [BIN]
    if BIN_INDEX not in names:
        others = [name for name in names if name.endswith(OTHER_WEIGHTS)]
        has = f"only {', '.join(others)}" if others else "and no other weights"
        raise UserError(f"{where} has no weights under PyTorch's names, {BIN} or {BIN_INDEX}, {has}.")
    shards = files_in_index(folder_with_index() / BIN_INDEX)
    if other := next((name for name in shards if not BIN_FILE.fullmatch(name)), None):
        raise UserError(f"{where}: {BIN_INDEX} names {other}, which is not one of the model's own files of weights.")
    return shards


def _already_done(name: str, commit: str | None, folder: Path | None, to: Path) -> str:
    """Says that a folder holds exactly this conversion. Raises UserError if it holds anything else."""
    try:
        note = json.loads((to / CONVERSION).read_text(encoding="utf-8"))
        source, at, read, written = (note[part] for part in ("source", "commit", "read", "written"))
        is_whole = all(sha256_of_file(to / file) == digest for file, digest in written.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"--to {to} exists and holds no complete conversion. Name a new folder: --to DIR.") from None
    try:
        same = folder is None or all(sha256_of_file(folder / file) == digest for file, digest in read.items())
    except OSError:
        same = False
    if (source, at) != (name, commit) or not same:
        of = f"{source} at {at[:10]}" if at else source
        raise UserError(f"--to {to} holds the conversion of {of}, not of these files. Name a new folder: --to DIR.")
    if not is_whole:
        raise UserError(f"{to}: its weights were changed (another sha256). To convert again: rm -r {to}")
    return f"{to} already holds the conversion of {name}."


def _write_weights(files: list[Path], folder: Path) -> tuple[list[str], int]:
    """Writes each file of weights as one of safetensors, and the index that several need.

    Returns the names of the new files, and the number of tensors.
    """
    from safetensors.torch import save_file

    total, num_bytes = len(files), 0
    place_of: dict[str, str] = {}
    for number, file in enumerate(files, start=1):
        name = SINGLE if total == 1 else f"model-{number:05d}-of-{total:05d}.safetensors"
        tensors = load_weights(file)
        with written_whole(folder / name) as temporary:
            save_file(tensors, temporary, {"format": "pt"})
        place_of |= dict.fromkeys(tensors, name)
        num_bytes += sum(tensor.nbytes for tensor in tensors.values())
    names = list(dict.fromkeys(place_of.values()))
    if total > 1:
        index = {"metadata": {"total_size": num_bytes}, "weight_map": dict(sorted(place_of.items()))}
        write_atomically(folder / INDEX, json.dumps(index, indent=2) + "\n")
        names.append(INDEX)
    return names, len(place_of)


def load_weights(file: Path) -> dict[str, torch.Tensor]:
    """Reads a file of weights whose pickle was checked. Tensors share no memory. Raises UserError."""
    import torch

    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
        found = dict(loaded)
    except Exception as error:  # of a damaged file, the library raises a dozen kinds
        why = reason_of(error).rstrip(".")
        raise UserError(f"{file} cannot be read: {why}. If it is damaged, fetch it again.") from None
    if other := next((name for name, value in found.items() if not isinstance(value, torch.Tensor)), None):
        raise UserError(f"{file}: {other!r} is not a tensor. The file does not hold only a model's weights.")
    tensors: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, tensor in found.items():
        own = tensor.detach().contiguous()
        storage = own.untyped_storage()
        if storage.nbytes() != own.nbytes or storage.data_ptr() in taken:  # a part of another tensor, or the same
            own = own.clone()
        taken.add(own.untyped_storage().data_ptr())
        tensors[name] = own
    return tensors


def _note(name: str, commit: str | None, files: Files, written: list[Path]) -> dict[str, Any]:
    """Returns the content of conversion.json: the source, and the sha256 of each file that was read or written."""
    return {
        "source": name,
        "commit": commit,
        "read": {file.name: sha256_of_file(file) for file in files.all},
        "written": {file.name: sha256_of_file(file) for file in written},
        "versions": {package: metadata.version(package) for package in ("layer-probe", "torch", "safetensors")},
    }


@contextmanager
def _whole_folder(to: Path) -> Iterator[Path]:
    """Yields a temporary folder next to `to`, which gets this name when the block succeeds."""
    temporary = to.absolute().with_name(f".{to.name}.{socket.gethostname()}.{uuid.uuid4().hex[:8]}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.rename(to)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
