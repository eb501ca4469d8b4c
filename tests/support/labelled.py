"""Small corpora whose labels belong to texts or pairs, and a sweep over them that ends in a table."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import probe
from probe.tables.row import Row
from probe.tables.rows import build_rows
from probe.verify.results import check_files

GRID = ["layers=embeddings,mix_all,majority_tag", "seed=1,2", "condition=main,control"]


def write_lines(folder: Path, sizes: Mapping[str, int], line: Callable[[random.Random], str]) -> list[str]:
    """Writes so many drawn lines into a file per split. Returns the settings that name the files."""
    choose = random.Random(0)
    for name, size in sizes.items():
        (folder / f"{name}.tsv").write_text("".join(f"{line(choose)}\n" for _ in range(size)))
    return [f"data.{name}={name}.tsv" for name in sizes]


def settings_of(encoder: Path, folder: Path, *data: str) -> list[str]:
    """Returns the settings of runs on a corpus in this folder, with their features in it too. data: of the corpus."""
    cache = f"features.cache_dir={folder / 'cache'}"
    return [
        f"encoder.path={encoder}", *data, f"data.path={folder}", cache, "features.dtype=float32", "device=cpu", "jobs=1"
    ]  # fmt: skip


def swept(settings: list[str], folder: Path) -> dict[tuple[str, str | None], Row]:
    """Trains three rows and their control with two seeds, into `out`, and verifies the folder.

    Returns its rows by name and condition.
    """
    found = probe.sweep(*settings, "results_dir=out", *GRID)
    assert found.problems == []
    assert [check for check in check_files(folder / "out") if check.ok is False] == []
    return {(row.name, row.condition): row for row in build_rows(folder / "out")}
