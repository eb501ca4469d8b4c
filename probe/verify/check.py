"""One thing that was looked at, and what came of it."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """ok: None for what could not be checked, which is no failure."""

    name: str
    ok: bool | None
    detail: str

    def line(self) -> str:
        return f"{ {True: 'ok', False: 'FAILED', None: 'not checked'}[self.ok]:<11}  {self.name}: {self.detail}"
