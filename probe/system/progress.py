"""Shows how far long work is."""

from __future__ import annotations

import sys

from tqdm import tqdm


def progress_bar(total: int | None, what: str, unit: str = "words") -> tqdm:
    """Returns a bar with the time left. Where nobody watches, as in a log, it is renewed every half minute."""
    return tqdm(
        total=total,
        desc=what,
        unit=f" {unit}",
        unit_scale=unit == "words",
        dynamic_ncols=True,
        mininterval=0.5 if sys.stderr.isatty() else 30,
        delay=1,  # seconds; what is done by then needs no bar
    )
