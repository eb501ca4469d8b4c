"""What a message says apart from its words: settings, places, numbers, names."""

from __future__ import annotations

import re


def names(text: object, *facts: object) -> None:
    """Fails unless each fact stands in the text (or error) as a whole: 12 does not name 2."""
    for fact in map(str, facts):
        start, end = (r"(?<!\w)" if fact[:1].isalnum() else ""), (r"(?!\w)" if fact[-1:].isalnum() else "")
        assert re.search(start + re.escape(fact) + end, str(text)), f"{fact!r} is not named in: {text}"


def numbers_in(text: object) -> list[float]:
    """The numbers of a text, in their order; digits within a word are none."""
    return [float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)", str(text))]
