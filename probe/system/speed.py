"""Measures how fast work is done, for estimates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

Step = TypeVar("Step")
MEASURE_S = 2.0  # duration of a measurement


def units_per_second(steps: Iterable[Step], do: Callable[[Step], int]) -> float:
    """Does the first step to warm up, and then others for MEASURE_S or until there are no more. Returns their speed.

    do: does a step and returns its size in units.
    """
    remaining = iter(steps)
    do(next(remaining))
    units, clock = 0, time.perf_counter()
    for step in remaining:
        units += do(step)
        if time.perf_counter() - clock > MEASURE_S:
            break
    return units / (time.perf_counter() - clock)
