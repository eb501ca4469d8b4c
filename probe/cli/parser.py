"""The commands: dispatch, Hydra's door, and how a sweep is shown. What is computed stands elsewhere."""

from __future__ import annotations

import argparse
from typing import NoReturn

from probe.config import UserError


class Parser(argparse.ArgumentParser):
    """One line for what is wrong, as everywhere else."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self.prog.removeprefix('probe ')}: {message}. `{self.prog} --help` shows what there is.")
