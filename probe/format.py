"""Formats numbers and texts for readers."""

from __future__ import annotations

import re
from collections.abc import Sequence

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def duration(seconds: float) -> str:
    """Formats a duration in minutes, in seconds below one minute, in hours from two on."""
    if seconds >= 7200:
        return f"about {seconds / 3600:.1f} h"
    return f"about {seconds / 60:.0f} min" if seconds >= 60 else f"about {seconds:.0f} s"


def percent(share: float) -> str:
    """Formats a share in percent, with two decimals and without a sign."""
    return f"{100 * share:.2f}"


def format_count(number: float) -> str:
    """Formats a count, in millions if it is large."""
    return f"{number / 1e6:.2f} M" if number >= 1e5 else f"{number:,.0f}"


def pluralize(number: int, thing: str) -> str:
    """Formats a count with its noun: one sentence, or 1,000 sentences."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def escape_invisible(text: str) -> str:
    """Escapes a text's invisible characters, such as a no-break space or a byte order mark."""
    return text if text.isprintable() else repr(text)[1:-1]


def printable(text: str, keep: str = "") -> str:
    """Escapes the characters of a text that a terminal acts on or cannot show, but for some to keep."""
    return CONTROL.sub(lambda found: found[0] if found[0] in keep else repr(found[0])[1:-1], text)


def format_layers(indices: Sequence[int]) -> str:
    """Formats layers in their order, three or more consecutive ones as a range: `3..6`, or `0, 3, 5..8`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def first_few(names: Sequence[str], most: int = 5, glue: str = ", ") -> str:
    """Lists the first names, and says how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return glue.join(names[:most]) + more


def reason_of(error: BaseException) -> str:
    """Gives the first line of an error's message, with the last if the first only begins a list or a model's layers."""
    first, *others = [line for line in map(str.strip, str(error).split("\n")) if line] or [type(error).__name__]
    return f"{first} {others[-1]}" if others and first.endswith(("(", ":")) else first


def short_name(encoder: str) -> str:
    """Gives an encoder's name without its owner."""
    return encoder.rstrip("/").rpartition("/")[2]


def with_encoder(name: str, encoder: str | None) -> str:
    """Adds the encoder's name to that of a row or run: `layer_4 of all-MiniLM-L6-v2`. encoder: None adds nothing."""
    return f"{name} of {encoder}" if encoder else name


def points(margin: float) -> str:
    """Writes a margin: 1 point, 0.5 points."""
    return f"{margin:g} point{'s' * (margin != 1)}"


def encoder_labels(names: Sequence[str]) -> list[str]:
    """Returns a unique label per encoder: without the owners if these are unique. Empty if two names are equal."""
    for labels in ([short_name(name) for name in names], list(names)):
        if len(set(labels)) == len(names):
            return labels
    return []


def hydra_quoted(text: str) -> str:
    """Quotes a text for Hydra: escapes quotes and the backslashes before them, and interpolation."""
    whole = re.sub(r'(\\*)("|$)', lambda found: 2 * found[1] + found[2].replace('"', '\\"'), text)
    return '"' + whole.replace("${", "\\${") + '"'
