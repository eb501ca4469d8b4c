"""Declares the options of a command with argparse, and holds helpers that several commands share."""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from probe.config import SYNONYMS, UserError, closest, setting_names
from probe.format import printable


class Parser(argparse.ArgumentParser):
    """Declares and reads the options of one command. Raises UserError, so that a mistake is reported in one line."""

    def __init__(self, command: Callable[[list[str]], int]) -> None:
        """Sets up --help: the docstring of the command's function, with its examples below the options."""
        description, title, examples = (inspect.getdoc(command) or "").partition("examples:\n")
        super().__init__(
            prog=f"probe {command.__name__.replace('_', '-')}",
            description=description,
            epilog=f"{title}{examples}\n",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def add_settings(self, multirun: bool = False) -> None:
        """Declares `setting=value` arguments, as `overrides`. multirun: also the flag for a sweep."""
        self.add_argument("overrides", nargs="*", metavar="setting=value", help="`probe --cfg job` prints all settings")
        if multirun:
            self.add_argument("-m", "--multirun", action="store_true", help="a sweep: a setting may name values A,B,C")

    def add_folder(self) -> None:
        """Declares an optional results folder, as `dir`."""
        self.add_argument(
            "dir", nargs="?", type=results_path, metavar="DIR", help="results folder (default: the one written last)"
        )

    def add_margin(self) -> None:
        """Declares --margin: by how many points of dev F1 a recommended row may be worse than the best."""
        self.add_argument(
            "--margin",
            type=at_least(float, 0),
            metavar="POINTS",
            help="points of dev F1 that you can spare; the cheapest row within them is recommended "
            "(default: that of the first sweep into the folder, else margin in conf/config.yaml)",
        )

    def add_format(self, *formats: str) -> None:
        """Declares --format, with the first of these formats as its default."""
        self.add_argument("--format", choices=formats, default=formats[0], help="output format (default: %(default)s)")

    def error(self, message: str) -> NoReturn:
        hint = f"`{self.prog} --help` lists the options."
        if message.startswith("unrecognized arguments: "):
            name, _, value = (word := message.split()[2]).partition("=")
            behind = [*sys.argv, "", ""][sys.argv.index(word) + 1] if word in sys.argv else ""
            value = value or (behind if re.fullmatch(r"[\w.,+]+", behind) else "VALUE")
            known = {option: option for option in self._option_string_actions}
            if any("setting=value" in str(action.metavar) for action in self._actions):
                settings = {setting: setting for setting in setting_names()} | SYNONYMS
                known |= {f"--{word}": f"{setting}={value}" for word, setting in settings.items()}
            if close := closest(name, known):
                hint = f"Did you mean {known[close]}?"
        raise UserError(f"{self.prog.removeprefix('probe ')}: {message}. {hint}")


def results_path(text: str) -> Path:
    """Returns a results folder as it is typed, also with `results_dir=` before it as for a run."""
    return Path(text.removeprefix("results_dir="))


def at_least(kind: type, least: int) -> Callable[[str], Any]:
    """Returns the argparse type of a number that must not be smaller than `least`. kind: int or float."""

    def number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not value >= least:
            whole = "whole " if kind is int else ""
            raise argparse.ArgumentTypeError(f"{text!r} is not a {whole}number of {least} or more")
        return value

    return number


def report_bad_records(*folders: Path) -> int:
    """Prints each invalid record or count file of these folders on stderr, and returns the exit code."""
    from probe.runs.outputs import bad_files
    from probe.tables.rows import results_folder

    bad = [error for folder in map(results_folder, folders) for error in bad_files(folder)]
    for error in bad:
        print("probe: not counted:", printable(str(error)), file=sys.stderr, flush=True)
    return 1 if bad else 0


def results_or_last(folder: Path | None, form: str = "text") -> Path:
    """Returns the named results folder or else the one written last, and prints the latter's name.

    form: the command's output format. Other formats than text are read by programs, so the line then goes to stderr.
    """
    if folder is not None:
        return folder
    from probe.tables.rows import last_results

    last = last_results()
    print(f"{last} (the folder written last)", file=sys.stdout if form == "text" else sys.stderr)
    return last
