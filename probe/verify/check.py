"""Defines the result of a check, and finds where two values differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Check(NamedTuple):
    """Holds a check's name, result and detail. ok: None if it could not be made, which is not a failure."""

    name: str
    ok: bool | None
    detail: str

    def line(self) -> str:
        return f"{ {True: 'ok', False: 'FAILED', None: 'not checked'}[self.ok]:<11}  {self.name}: {self.detail}"


def unequal(recorded: Any, again: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields where two nested values differ: the place and both values."""
    if isinstance(recorded, dict) and isinstance(again, dict):
        for name in sorted(recorded.keys() | again.keys()):
            yield from unequal(recorded.get(name), again.get(name), f"{place}.{name}" if place else name)
    elif recorded != again:
        yield place, recorded, again
