"""Argument parsing outside Hydra, and helpers that commands share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from probe.config import UserError


class Parser(argparse.ArgumentParser):
    """Raises UserError, so that a bad argument gives one line like any other error."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.removeprefix('probe ')}: {message}. `{self.prog} --help` shows what there is.")


def at_least(kind: type, least: int) -> Callable[[str], Any]:
    """A number that an option takes."""

    def number(text: str) -> Any:
        value = kind(text)
        if not value >= least:
            raise ValueError
        return value

    number.__name__ = f"number, {least} or more,"  # in argparse's message
    return number


def say_bad_records(*folders: Path) -> int:
    """The files of these folders that are no records, or no counts, a line each on stderr; returns the exit code."""
    from probe.runs.outputs import bad_counts
    from probe.runs.records import bad_records, load_records
    from probe.tables.rows import results_folder

    bad: list[UserError] = []
    for folder in map(results_folder, folders):
        bad += [*bad_records(folder).values(), *bad_counts(load_records(folder))]
    for error in bad:
        print(f"probe: not counted: {error}", file=sys.stderr, flush=True)
    return 1 if bad else 0


def results_or_last(folder: Path | None, form: str = "text") -> Path:
    """The results folder that was named, or else the one written last, which a printed line then names.

    form: the command's output format; all but text is for programs, so the line goes to stderr.
    """
    if folder is not None:
        return folder
    from probe.tables.rows import last_results

    last = last_results()
    print(f"{last} (written last; another: name its folder)", file=sys.stdout if form == "text" else sys.stderr)
    return last
