"""Detects tag schemes, reads spans from tags, and finds ill-formed tags. Inside the package, tags of spans are IOB2.

IOB1: I- begins a span; B- is used only right after a span of the same type. IOB2: B- begins every span. BIOES and
BILOU: the end of a span (E-, L-) and spans of one word (S-, U-) are marked too. BMES: BIOES with M- for I-. IO: I- or
the bare type; adjacent spans of one type cannot be distinguished. If all tags are prefixes alone, there is one type, _.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import chain

Tags = Sequence[Sequence[str]]
PREFIXES = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES", "IO": "I"}
PREFIXED = re.compile(r"[BIESLUM]-\S+")
BARE_PREFIX = re.compile(r"[BIESLUM]-?")
NO_TYPE = "_"  # as seqeval names the type of tags without one
ALMOST = re.compile(r"[BIESLUM][-_:./|].+|.+[-_:./|][BIESLUM]", flags=re.I)  # a scheme in another notation
CONTINUES, ENDS = "IELM", "ELSU"  # prefixes that continue a span, and prefixes that end one


class TagSchemeError(ValueError):
    """Holds the first tag that does not fit the others. The message says what was expected."""

    def __init__(self, tag: str, message: str) -> None:
        super().__init__(message)
        self.tag = tag


def spans(tags: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yields (type, first word, last word + 1) of each span, in any scheme with prefixes, ill-formed or not.

    Reads tags as conlleval and seqeval's default mode do: a span begins at B-, S-, U-, at another type, and after O,
    E-, S-, L- or U-, whatever the prefix is.
    """
    start, kind, before = 0, "", "O"
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, tag_kind = tag.partition("-")
        if kind and (prefix not in CONTINUES or before in ENDS or tag_kind != kind):
            yield kind, start, position
            kind = ""
        if prefix != "O" and not kind:
            start, kind = position, tag_kind
        before = prefix


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Converts tags to IOB2: the same spans, each beginning with B-."""
    converted = ["O"] * len(tags)
    for kind, start, end in spans(tags):
        converted[start:end] = [sys.intern(f"B-{kind}")] + [sys.intern(f"I-{kind}")] * (end - start - 1)
    return converted


def ill_formed(tags: Sequence[str], scheme: str) -> list[int]:
    """Returns the positions of tags that the scheme does not allow there, such as I- at the start of a span in IOB2."""
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
        begun = before[0] in "BIM" and before[2:] == kind
        continued = after[0] in CONTINUES and after[2:] == kind
        if (prefix in CONTINUES and not begun) or (prefix in "BIM" and not continued):
            places.append(position)
    return places


def find_scheme(sentences: Tags, wanted: str) -> str:
    """Returns the scheme of the tags. wanted: the scheme that they must fit, or "auto".

    Raises TagSchemeError for a tag that fits no scheme, or not the wanted one, or not the scheme of the other tags.
    """
    used = set(chain.from_iterable(sentences))
    kinds = sorted(used - {"O"})
    prefixed = [tag for tag in kinds if PREFIXED.fullmatch(tag)]
    if wanted == "IO" or (wanted == "auto" and not prefixed and kinds):
        _check_bare(kinds, "O" in used or wanted == "IO", wanted == "IO")
        return "IO"
    if wrong_form := [tag for tag in kinds if not PREFIXED.fullmatch(tag)]:
        raise TagSchemeError(
            wrong_form[0],
            f"is not O or one of {', '.join(PREFIXES)}'s prefixes, '-' and a type, as {', '.join(prefixed[:3])}",
        )
    prefixes = {tag[0] for tag in kinds}
    if wanted == "auto" and prefixes <= set("BI"):
        if prefixes == {"I"}:
            return "IO"
        wrong = {scheme: sum(len(ill_formed(tags, scheme)) for tags in sentences) for scheme in ("IOB2", "IOB1")}
        return min(wrong, key=lambda scheme: wrong[scheme])
    guess = "BMES" if "M" in prefixes else "BIOES" if prefixes & set("ES") else "BILOU"
    scheme = wanted if wanted != "auto" else guess
    if wrong_prefix := [tag for tag in kinds if tag[0] not in PREFIXES[scheme]]:
        also = "" if wanted != "auto" else f" as {', '.join([tag for tag in kinds if tag[0] in 'ESM'][:3])}"
        raise TagSchemeError(wrong_prefix[0], f"is not {scheme}{also} (prefixes {', '.join(PREFIXES[scheme])})")
    if wanted == "auto":
        # A few E-, S-, L- or U- in a file that is otherwise IOB are mistakes, not a scheme.
        ends = sum(tag[0] in ENDS for tags in sentences for tag in tags)
        if sum(len(ill_formed(tags, scheme)) for tags in sentences) > ends:
            stray = [tag for tag in kinds if tag[0] not in "BI"]
            raise TagSchemeError(stray[0], f"belongs to {scheme}, but most of the other tags do not")
    return scheme


def _check_bare(kinds: list[str], has_outside: bool, are_types: bool) -> None:
    """Refuses tags that only look like bare types: tags that are not spans, and prefixes written in another manner.

    are_types: whether IO was asked for, so that what looks like one prefix in another notation is a type.
    """
    if kinds and not has_outside:
        raise TagSchemeError(kinds[0], "has no prefix, and no tag is O, so the tags do not seem to be spans")
    for tag in kinds:
        twins = {"I" + tag[1:]} if tag[0] == "B" else {tag[:-1] + "I"} if tag[-1] == "B" else set()
        is_like_prefix = ALMOST.fullmatch(tag) or BARE_PREFIX.fullmatch(tag)
        if (is_like_prefix and not are_types) or twins & set(kinds) - {tag}:
            raise TagSchemeError(tag, "looks like a prefix in another notation: write all tags as B-TYPE and I-TYPE")


def with_types(sentences: list[list[str]], wanted: str) -> list[list[str]]:
    """Gives tags that are prefixes alone, such as B and I, a type; returns other tags unchanged."""
    kinds = set(chain.from_iterable(sentences)) - {"O"}
    if not kinds or not all(map(BARE_PREFIX.fullmatch, kinds)) or (wanted == "IO" and kinds - {"I", "I-"}):
        return sentences
    full = {tag: f"{tag[0]}-{NO_TYPE}" for tag in kinds} | {"O": "O"}
    return [[full[tag] for tag in tags] for tags in sentences]


def with_prefixes(sentences: list[list[str]], scheme: str) -> list[list[str]]:
    """Adds the prefix I- to the tags of IO if they are bare types; returns other tags unchanged."""
    kinds = set(chain.from_iterable(sentences)) - {"O"}
    if scheme != "IO" or all(tag.startswith("I-") for tag in kinds):
        return sentences
    return [[tag if tag == "O" else f"I-{tag}" for tag in tags] for tags in sentences]
