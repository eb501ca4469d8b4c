"""How commands that are not Hydra's take their arguments."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from probe.config import UserError


class Parser(argparse.ArgumentParser):
    """One line for what is wrong, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.removeprefix('probe ')}: {message}. `{self.prog} --help` shows what there is.")


def results_or_last(folder: Path | None, form: str = "text") -> Path:
    """The folder of results that was named, or the one written last, which is then said.

    form: what the command prints; all but text is for programs, and the line goes to stderr.
    """
    if folder is not None:
        return folder
    from probe.reporting.rows import last_results

    last = last_results()
    print(f"{last} (written last; another: name its folder)", file=sys.stdout if form == "text" else sys.stderr)
    return last
