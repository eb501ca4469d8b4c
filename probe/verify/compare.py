"""Where two nested values differ, to the bit or in their facts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any


def unequal(stated: Any, again: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two nested values differ: the place, and both."""
    if isinstance(stated, dict) and isinstance(again, dict):
        for name in sorted(stated.keys() | again.keys()):
            yield from unequal(stated.get(name), again.get(name), _inside(place, name))
    elif stated != again:
        yield place, stated, again


def unequal_facts(
    stated: Any, made: Any, tolerance: float, place: str = "", in_common: bool = False
) -> Iterator[tuple[str, Any, Any]]:
    """Where two nested values differ: numbers by more than a relative tolerance, names at all, words never.

    A text with a blank in it is words. in_common: only what both have is compared, as between two versions.
    """
    if isinstance(stated, dict) and isinstance(made, dict):
        names = [name for name in made if name in stated] if in_common else sorted(stated.keys() | made.keys())
        for name in names:
            yield from unequal_facts(
                stated.get(name), made.get(name), tolerance, _inside(place, name), in_common=in_common
            )
    elif isinstance(stated, list) and isinstance(made, list) and len(stated) == len(made):
        for i, (one, other) in enumerate(zip(stated, made, strict=True)):
            yield from unequal_facts(one, other, tolerance, f"{place}[{i}]", in_common)
    elif not _is_same_fact(stated, made, tolerance):
        yield place, stated, made


def _inside(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _is_same_fact(stated: Any, made: Any, tolerance: float) -> bool:
    if isinstance(stated, int | float) and isinstance(made, int | float):
        return math.isclose(stated, made, rel_tol=tolerance, abs_tol=tolerance / 1000)
    if isinstance(stated, str) and isinstance(made, str):
        return stated == made or (" " in stated and " " in made)
    return bool(stated == made)
