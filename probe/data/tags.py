"""Tag schemes: found by looking, read as spans, counted where ill-formed. Inside, tags of spans are always IOB2.

IOB1: I- begins a span, B- only where one of the same type ends right before. IOB2: B- begins every span. BIOES and
BILOU: its end (E-, L-) and spans of one word (S-, U-) are marked too. IO: I- or the bare type; spans of one type that
touch cannot be told apart.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import chain

Tags = Sequence[Sequence[str]]
PREFIXES = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU", "IO": "I"}
PREFIXED = re.compile(r"[BIESLU]-\S+")
IOB2 = re.compile(r"O|[BI]-\S+")
ALMOST = re.compile(r"([BIESLUM])[-_:](.+)|(.+)[-_:]([BIESLUM])", flags=re.I)  # a scheme, written in another way
GO_ON, CLOSE = "IEL", "ELSU"  # prefixes that continue a span, and those after which none goes on


class OddTag(ValueError):
    """Tags that do not fit the others: all of them, and as `tag` the first; the message says what was expected."""

    def __init__(self, tags: Sequence[str], message: str) -> None:
        super().__init__(message)
        self.tag, self.tags = tags[0], tags


def spans(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """(type, first word, last word + 1) of each span, in any scheme with prefixes, ill-formed or not.

    As conlleval and seqeval's default mode read them: a span begins at B-, S-, U-, at another type, and after O, E-,
    S-, L- or U-, whatever the prefix is.
    """
    start, kind, before = 0, "", "O"
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, tag_kind = tag.partition("-")
        if kind and (prefix not in GO_ON or before in CLOSE or tag_kind != kind):
            yield kind, start, position
            kind = ""
        if prefix != "O" and not kind:
            start, kind = position, tag_kind
        before = prefix


def to_iob2(tags: Sequence[str]) -> list[str]:
    """The same spans, each beginning with B-."""
    converted = ["O"] * len(tags)
    for kind, start, end in spans(tags):
        converted[start:end] = [sys.intern(f"B-{kind}")] + [sys.intern(f"I-{kind}")] * (end - start - 1)
    return converted


def ill_formed(tags: Sequence[str], scheme: str) -> list[int]:
    """Positions of tags that the scheme does not allow there: I- after nothing in IOB2, E- without a start."""
    if scheme == "IO":
        return []
    places = []
    for position, tag in enumerate(tags):
        if tag == "O":
            continue
        prefix, kind = tag[0], tag[2:]
        before = tags[position - 1] if position else "O"
        if scheme in ("IOB1", "IOB2"):
            if prefix == ("B" if scheme == "IOB1" else "I") and before[2:] != kind:
                places.append(position)
            continue
        after = tags[position + 1] if position + 1 < len(tags) else "O"
        begun = before[0] in "BI" and before[2:] == kind
        goes_on = after[0] in GO_ON and after[2:] == kind
        if (prefix in GO_ON and not begun) or (prefix in "BI" and not goes_on):
            places.append(position)
    return places


def find_scheme(sentences: Tags, wanted: str) -> str:
    """The scheme these tags are in; `wanted` is a scheme that they must fit, or "auto".

    Raises OddTag for a tag that fits no scheme, or not the one asked for, or not the one of the others.
    """
    used = set(chain.from_iterable(sentences))
    kinds = sorted(used - {"O"})
    prefixed = [tag for tag in kinds if PREFIXED.fullmatch(tag)]
    if wanted == "IO" or (wanted == "auto" and not prefixed and kinds):
        _check_bare(kinds, "O" in used or wanted == "IO")
        return "IO"
    if wrong_form := [tag for tag in kinds if not PREFIXED.fullmatch(tag)]:
        raise OddTag(
            wrong_form, f"is not O or one of {', '.join(PREFIXES)}'s prefixes, '-' and a type, as {_few(prefixed)}"
        )
    prefixes = {tag[0] for tag in kinds}
    if wanted == "auto" and prefixes <= set("BI"):
        if prefixes == {"I"}:
            return "IO"
        wrong = {scheme: sum(len(ill_formed(tags, scheme)) for tags in sentences) for scheme in ("IOB2", "IOB1")}
        return min(wrong, key=lambda scheme: wrong[scheme])
    scheme = wanted if wanted != "auto" else "BIOES" if prefixes & set("ES") else "BILOU"
    if odd := [tag for tag in kinds if tag[0] not in PREFIXES[scheme]]:
        also = "" if wanted != "auto" else f" as {_few([tag for tag in kinds if tag[0] in 'ES'])}"
        raise OddTag(odd, f"is not {scheme}{also} (prefixes {', '.join(PREFIXES[scheme])})")
    if wanted == "auto":
        # A few E-, S-, L- or U- in a file that is otherwise IOB are mistakes, not a scheme.
        ends = sum(tag[0] in CLOSE for tags in sentences for tag in tags)
        if sum(len(ill_formed(tags, scheme)) for tags in sentences) > ends:
            stray = [tag for tag in kinds if tag[0] in CLOSE]
            raise OddTag(stray, f"belongs to {scheme}, which most of the other tags are not in")
    return scheme


def _check_bare(kinds: list[str], has_outside: bool) -> None:
    """Refuses what only looks like bare types: tags that are no spans, and prefixes written in another way."""
    if kinds and not has_outside:
        raise OddTag(
            kinds[:1],
            "has no prefix and no tag is O, so these seem to be no spans",
        )
    by_type: dict[str, str] = {}
    for tag in kinds:
        twins = {"I" + tag[1:]} if tag[0] == "B" else {tag[:-1] + "I"} if tag[-1] == "B" else set()
        if almost := ALMOST.fullmatch(tag):
            twins.add(by_type.setdefault((almost[2] or almost[3]).casefold(), tag))
        if twins := twins & set(kinds) - {tag}:
            raise OddTag([tag], f"stands beside {twins.pop()}: a scheme, but not written as B-TYPE and I-TYPE")


def with_prefixes(tags: Sequence[str]) -> list[str]:
    """Bare types of IO with the I- they lack."""
    return [tag if tag == "O" else f"I-{tag}" for tag in tags]


def is_bare(sentences: Tags) -> bool:
    """Whether tags in IO come without I-."""
    return not all(tag.startswith("I-") for tag in set(chain.from_iterable(sentences)) - {"O"})


def _few(tags: Sequence[str]) -> str:
    return ", ".join(tags[:3])
