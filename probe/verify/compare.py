"""Finds where two nested values differ, exactly or in their facts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any


def unequal(recorded: Any, again: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields where two nested values differ: the place and both values."""
    if isinstance(recorded, dict) and isinstance(again, dict):
        for name in sorted(recorded.keys() | again.keys()):
            yield from unequal(recorded.get(name), again.get(name), _inside(place, name))
    elif recorded != again:
        yield place, recorded, again


def unequal_facts(
    recorded: Any, made: Any, tolerance: float, place: str = "", in_common: bool = False
) -> Iterator[tuple[str, Any, Any]]:
    """Yields where two nested values differ in facts: in numbers beyond a relative tolerance, or in names.

    A text with a blank in it is prose, which is not compared. in_common: compares only what both have, as between two
    versions.
    """
    if isinstance(recorded, dict) and isinstance(made, dict):
        names = [name for name in made if name in recorded] if in_common else sorted(recorded.keys() | made.keys())
        for name in names:
            yield from unequal_facts(
                recorded.get(name), made.get(name), tolerance, _inside(place, name), in_common=in_common
            )
    elif isinstance(recorded, list) and isinstance(made, list) and len(recorded) == len(made):
        for i, (one, other) in enumerate(zip(recorded, made, strict=True)):
            yield from unequal_facts(one, other, tolerance, f"{place}[{i}]", in_common)
    elif not _is_same_fact(recorded, made, tolerance):
        yield place, recorded, made


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _is_same_fact(recorded: Any, made: Any, tolerance: float) -> bool:
    if isinstance(recorded, int | float) and isinstance(made, int | float):
        return math.isclose(recorded, made, rel_tol=tolerance, abs_tol=tolerance / 1000)
    if isinstance(recorded, str) and isinstance(made, str):
        return recorded == made or (" " in recorded and " " in made)
    return bool(recorded == made)
