"""Defines the result of a check."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """Holds a check's name, result and detail. ok: None if it could not be made, which is not a failure."""

    name: str
    ok: bool | None
    detail: str

    def line(self) -> str:
        return f"{ {True: 'ok', False: 'FAILED', None: 'not checked'}[self.ok]:<11}  {self.name}: {self.detail}"
