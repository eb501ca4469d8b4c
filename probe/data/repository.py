"""Reads a data set of the Hub at one commit.

`datasets` never asks the Hub itself: without an answer it would take the newest commit in its cache, whichever was
asked for. It gets a folder that looks like the repository, and finds out from the file names which files a subset
needs. These are fetched and read. The result is cached by commit: later reads need no Hub and give the same commit.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from probe.config import UserError
from probe.data.json_parquet import read_dataset
from probe.data.layout import Layout
from probe.data.split import Split
from probe.format import first_few, reason_of
from probe.system import hub
from probe.system.grouping import group_by

CONVERTED = "refs/convert/parquet"  # the branch that the Hub makes of a data set: SUBSET/SPLIT/0000.parquet
SHOWN = 12  # names in a message
DESCRIPTIONS = ("README.md", ".huggingface.yaml")  # say which files are of which subset and split


def read_hub(
    repo: hub.Repo,
    subset: str | None,
    splits: Mapping[str, str],
    layout: Layout,
    remedies: Mapping[str, str],
) -> dict[str, Split]:
    """Reads those of the wanted splits that the data set has.

    splits: its names for them, by ours. remedies: what to type if a split does not exist; one without may be missing.
    """
    import datasets

    datasets.disable_progress_bars()
    datasets.utils.logging.set_verbosity_error()
    place = Path(datasets.config.HF_DATASETS_CACHE, "layer-probe", quote(repo.name, safe=""), hub.commit_of(repo))
    cached = place / quote(subset or "default", safe="")
    if not cached.is_dir():
        _make_copy(repo, subset, cached)
    try:
        loaded = datasets.load_from_disk(str(cached))
    except Exception as error:  # the library raises a dozen kinds
        found = f"{type(error).__name__}: {reason_of(error)[:100]}"
        raise UserError(f"{cached} is damaged ({found}). Type: rm -r {cached}, then the same command again.") from None
    where = f"{repo.name} on the Hub"
    available = {ours: theirs for ours, theirs in splits.items() if theirs in loaded}
    if missing := [ours for ours in remedies if ours not in available]:
        known = ", ".join(loaded)
        lines = (f"{where} has no split {splits[ours]!r}, only {known}. {remedies[ours]}" for ours in missing)
        raise UserError("\n".join(lines))
    return {ours: read_dataset(loaded[theirs], layout, f"{where}, {theirs}") for ours, theirs in available.items()}


def _make_copy(repo: hub.Repo, subset: str | None, cached: Path) -> None:
    """Fetches the files that a subset needs, reads them, and saves the result under `cached`. Raises UserError."""
    import datasets
    from datasets.features.features import require_storage_embed

    files = [file for file in hub.files_of(repo) if ".." not in PurePosixPath(file).parts and file[0] != "/"]
    if f"{PurePosixPath(repo.name).name}.py" in files:
        raise UserError(
            f"{repo.name} on the Hub is a script. Scripts are never run. To read its files without the script: "
            f"data.revision={CONVERTED}."
        )
    if repo.revision == CONVERTED or _looks_converted(files):  # a commit of it may have been named instead
        files, subset = _of_subset(repo, files, subset), None
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".") as scratch:
        folder, cache = Path(scratch, "repository"), str(Path(scratch, "cache"))
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
        _link_files(repo, folder, [file for file in DESCRIPTIONS if file in files])
        try:
            subsets = datasets.get_dataset_config_names(str(folder))
            if (subset or datasets.get_dataset_default_config_name(str(folder))) not in subsets:
                raise _no_subset(repo, subset, subsets)
            builder = datasets.load_dataset_builder(str(folder), subset, cache_dir=cache)
            needed = sorted({file for part in (builder.config.data_files or {}).values() for file in part})
            _link_files(repo, folder, [str(Path(file).relative_to(folder)) for file in needed])
            loaded = datasets.load_dataset(str(folder), subset, cache_dir=cache)
            # Saving reads the images and sounds that a row names by a path: they may be any files of this machine.
            columns = [
                name for name, kind in next(iter(loaded.values())).features.items() if require_storage_embed(kind)
            ]
            loaded.remove_columns(columns).save_to_disk(str(Path(scratch, "copy")))
        except UserError:
            raise
        except Exception as error:  # the library raises a dozen kinds
            line = reason_of(error).replace(f"{folder}/", "")
            raise UserError(f"{repo.name} on the Hub cannot be read: {type(error).__name__}: {line}") from None
        with contextlib.suppress(OSError):  # another process has made the same copy meanwhile
            Path(scratch, "copy").rename(cached)


def _link_files(repo: hub.Repo, folder: Path, files: list[str]) -> None:
    """Links files of the repository into the folder, under their names."""
    snapshot = hub.fetch(repo, files)
    for file in files:
        (folder / file).unlink()
        (folder / file).symlink_to((snapshot / file).resolve())


def _looks_converted(files: list[str]) -> bool:
    data = [file for file in files if not file.startswith(".")]
    return bool(data) and all(re.fullmatch(r"[^/]+/[^/]+/\d{4}\.parquet", file) for file in data)


def _of_subset(repo: hub.Repo, files: list[str], subset: str | None) -> list[str]:
    """Returns the Parquet files of a subset on the converted branch. Only their folder names the subset."""
    parquet = [file for file in files if file.endswith(".parquet")]
    by_subset = group_by(parquet, lambda file: PurePosixPath(file).parts[0])
    if subset is None and len(by_subset) == 1:
        (subset,) = by_subset
    if subset not in by_subset:
        raise _no_subset(repo, subset, list(by_subset))
    if any("/partial-" in file for file in by_subset[subset]):
        raise UserError(
            f"{repo.name} on the Hub: {CONVERTED} holds only a part of {subset}, which is too large for it."
        )
    return by_subset[subset]


def _no_subset(repo: hub.Repo, subset: str | None, subsets: list[str]) -> UserError:
    what = "has several subsets:" if subset is None else f"has no subset {subset!r}, only"
    return UserError(f"{repo.name} on the Hub {what} {first_few(subsets, SHOWN)}. Type data.subset=NAME.")
