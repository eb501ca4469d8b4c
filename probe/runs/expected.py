"""What sweeps into a results folder have asked for: `sweep.json`. A run asked for stays so until the file is removed,
so that a narrower sweep does not hide what a wider one left open."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.runs.records import RunIdentity, decoded
from probe.system.files import plain, write_atomically

SWEEP = "sweep.json"


@dataclass(frozen=True)
class Setting:
    """What people want to know of the runs of one table, for its caption: names, and two groups of the config.

    Which runs belong together is another question: their identities settle it, which hold content and not names.
    """

    data: str
    encoder: str
    features: dict[str, Any]
    probe: dict[str, Any]


@dataclass(frozen=True)
class ExpectedRun:
    """A run that a sweep asked for. width: values a word."""

    key: str
    row: str
    identity: RunIdentity
    width: int
    setting: Setting

    @property
    def label(self) -> str:
        return f"{self.row} seed {self.identity.seed}"


def write_expected(results_dir: Path, runs: list[ExpectedRun]) -> None:
    """Adds the runs that a sweep asks for to those asked for before."""
    merged = {run.key: run for run in [*read_expected(results_dir), *runs]}
    text = json.dumps({"runs": plain([*merged.values()])}, indent=1, ensure_ascii=False) + "\n"
    write_atomically(results_dir / SWEEP, text)


def read_expected(results_dir: Path) -> list[ExpectedRun]:
    """The runs asked for; none where no sweep was started. Raises UserError for a damaged file."""
    file = results_dir / SWEEP

    def damaged(problem: str) -> UserError:
        return UserError(f"{file} is damaged ({problem}). Remove it, then start the sweep again.")

    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise damaged(str(error)) from None
    if not isinstance(content, dict) or "runs" not in content:
        raise damaged("it has no runs")
    runs = decoded(content["runs"], list[ExpectedRun], damaged)
    if changed := next((run for run in runs if run.key != run.identity.key), None):
        raise damaged(f"the key of {changed.label} is not the hash of its identity")
    return runs
