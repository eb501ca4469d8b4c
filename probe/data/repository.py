"""A data set of the Hub, at one commit.

`datasets` never asks the Hub itself: without an answer it would take the newest commit in its cache, whichever was
asked for. It is given a folder that looks like the repository, tells from the file names which a subset needs, and
reads those once fetched. The result is cached by commit: reading it again needs no Hub and gives no other commit.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from probe.config import UserError
from probe.data.layout import Layout
from probe.data.rows import read_dataset
from probe.data.split import Split
from probe.system import hub

CONVERTED = "refs/convert/parquet"  # the branch that the Hub makes of a data set: SUBSET/SPLIT/0000.parquet
SHOWN = 12  # names in a message
DESCRIPTIONS = ("README.md", ".huggingface.yaml")  # say which files are of which subset and split


def read_hub(
    repo: hub.Repo,
    subset: str | None,
    splits: Mapping[str, str],
    layout: Layout,
    remedies: Mapping[str, str],
    notes: list[str],
) -> dict[str, Split]:
    """Those of the wanted splits that the data set has.

    splits: its names for them, by ours. remedies: what to type where a split is not there; one without may be missing.
    notes: gets a line where what was kept was damaged and has been made anew.
    """
    import datasets

    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity_error()
    place = Path(datasets.config.HF_DATASETS_CACHE, "layer-probe", quote(repo.name, safe=""), hub.commit_of(repo))
    kept = place / quote(subset or "default", safe="")
    if not kept.is_dir():
        _keep(repo, subset, kept)
    try:
        loaded = datasets.load_from_disk(str(kept))
    except Exception as error:  # the library raises a dozen kinds
        notes.append(_keep_anew(repo, subset, kept, error))
        loaded = datasets.load_from_disk(str(kept))
    where = f"{repo.name} on the Hub"
    available = {ours: theirs for ours, theirs in splits.items() if theirs in loaded}
    for ours in splits:
        if ours not in available and ours in remedies:
            raise UserError(f"{where} has no split {splits[ours]!r}, only {', '.join(loaded)}. {remedies[ours]}")
    return {ours: read_dataset(loaded[theirs], layout, f"{where}, {theirs}") for ours, theirs in available.items()}


def _keep(repo: hub.Repo, subset: str | None, kept: Path) -> None:
    """Fetches what a subset needs, and only that; reads it, and keeps it whole under this name. Raises UserError."""
    import datasets

    part = f"data.subset={subset}" if subset else ""
    files = [file for file in hub.files_of(repo, part) if ".." not in PurePosixPath(file).parts and file[0] != "/"]
    if f"{PurePosixPath(repo.name).name}.py" in files:
        raise UserError(
            f"{repo.name} on the Hub is a script, which is never run. Its converted branch has none: "
            f"data.revision={CONVERTED}."
        )
    if repo.revision == CONVERTED or _looks_converted(files):  # a commit of it may have been named instead
        files, subset = _of_subset(repo, files, subset), None
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".") as scratch:
        folder, cache = Path(scratch, "repository"), str(Path(scratch, "cache"))
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
        _put(repo, folder, [file for file in DESCRIPTIONS if file in files])
        try:
            _check_subset(repo, folder, subset)
            builder = datasets.load_dataset_builder(str(folder), subset, cache_dir=cache)
            needed = sorted({file for part in (builder.config.data_files or {}).values() for file in part})
            _put(repo, folder, [str(Path(file).relative_to(folder)) for file in needed])
            datasets.load_dataset(str(folder), subset, cache_dir=cache).save_to_disk(str(Path(scratch, "kept")))
        except UserError:
            raise
        except Exception as error:  # the library raises a dozen kinds
            line = str(error).replace(f"{folder}/", "").partition("\n")[0]
            raise UserError(f"{repo.name} on the Hub cannot be read: {type(error).__name__}: {line}") from None
        with contextlib.suppress(OSError):  # another process put the same there meanwhile
            Path(scratch, "kept").rename(kept)


def _keep_anew(repo: hub.Repo, subset: str | None, kept: Path, error: Exception) -> str:
    """Makes what was kept, and cannot be loaded, anew; returns what is to be said of that. Raises UserError."""
    line = str(error).partition("\n")[0]
    damage = f"{kept} was damaged ({type(error).__name__}: {line[:100]})"
    try:
        aside = kept.rename(kept.with_name(f".{kept.name}.damaged-{uuid.uuid4().hex[:8]}"))
    except OSError as problem:
        raise UserError(f"{damage} and cannot be removed: {problem.strerror}. Type: rm -r {kept}") from None
    shutil.rmtree(aside, ignore_errors=True)
    try:
        _keep(repo, subset, kept)
    except UserError as problem:
        raise UserError(f"{damage}, was removed, and cannot be made anew:\n{problem}") from None
    return f"{damage} and has been made anew"


def _put(repo: hub.Repo, folder: Path, files: list[str]) -> None:
    """Files of the repository in the place of their names."""
    snapshot = hub.fetch(repo, files)
    for file in files:
        (folder / file).unlink()
        (folder / file).symlink_to((snapshot / file).resolve())


def _looks_converted(files: list[str]) -> bool:
    data = [file for file in files if not file.startswith(".")]
    return bool(data) and all(re.fullmatch(r"[^/]+/[^/]+/\d{4}\.parquet", file) for file in data)


def _of_subset(repo: hub.Repo, files: list[str], subset: str | None) -> list[str]:
    """The Parquet files of a subset on the converted branch, which holds nothing that says which are whose."""
    by_subset: dict[str, list[str]] = {}
    for file in files:
        if file.endswith(".parquet"):
            by_subset.setdefault(PurePosixPath(file).parts[0], []).append(file)
    if subset is None and len(by_subset) == 1:
        (subset,) = by_subset
    if subset not in by_subset:
        raise _no_subset(repo, subset, list(by_subset))
    if any("/partial-" in file for file in by_subset[subset]):
        raise UserError(
            f"{repo.name} on the Hub: {CONVERTED} holds only a part of {subset}, which is too large for it."
        )
    return by_subset[subset]


def _check_subset(repo: hub.Repo, folder: Path, subset: str | None) -> None:
    import datasets

    subsets = datasets.get_dataset_config_names(str(folder))
    if subset not in subsets and (subset is not None or datasets.get_dataset_default_config_name(str(folder)) is None):
        raise _no_subset(repo, subset, subsets)


def _no_subset(repo: hub.Repo, subset: str | None, subsets: list[str]) -> UserError:
    shown = ", ".join(subsets[:SHOWN]) + (f" and {len(subsets) - SHOWN} more" if len(subsets) > SHOWN else "")
    what = "has several subsets" if subset is None else f"has no subset {subset!r}, only"
    return UserError(f"{repo.name} on the Hub {what}{':' if subset is None else ''} {shown}. Type data.subset=NAME.")
