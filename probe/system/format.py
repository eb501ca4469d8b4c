"""How figures are written for people."""

from __future__ import annotations

from collections.abc import Sequence


def duration(seconds: float) -> str:
    """About how long, in minutes, or in seconds below one."""
    return f"about {seconds / 60:.0f} min" if seconds >= 60 else f"about {seconds:.0f} s"


def percent(share: float) -> str:
    """A share in percent, with two decimals."""
    return f"{100 * share:.2f}"


def format_count(number: float) -> str:
    """How many, in millions where there are many."""
    return f"{number / 1e6:.2f} M" if number >= 1e5 else f"{number:,.0f}"


def pluralize(number: int, thing: str) -> str:
    """How many of a thing: one sentence, or 1,000 sentences."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def escape_invisible(text: str) -> str:
    """A text with its invisible characters, which a no-break space or a byte order mark is, escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def format_layers(indices: Sequence[int]) -> str:
    """Layers in their order, three or more consecutive ones as a range: `3..6`, or `0, 3, 5..8`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
