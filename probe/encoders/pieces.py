"""Cuts words into pieces.

A tokenizer cuts a word in the same manner at every position (`check_words` checks this), so each distinct word is cut
once.
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.config import UserError
from probe.data.split import Split

WORDS_AT_ONCE = 4096  # the tokenizer's output for a word takes a kilobyte
MANY_UNKNOWN = 0.05  # of words; text of the web has about 1 % of symbols that few tokenizers know
AS_IN_FILE = '"tokenizer_class": "PreTrainedTokenizerFast"'  # the class that reads tokenizer.json as it stands
SAMPLE = "Paris may n't be U.S. nice don't , in 1996 co-operation $3.50 ( x".split()


@dataclass(frozen=True)
class Special:
    """Holds what the tokenizer adds around a text, and its segment ids (None if the encoder has none)."""

    prefix: list[int]
    suffix: list[int]
    prefix_types: list[int]
    text_type: int
    suffix_types: list[int]
    has_types: bool

    @property
    def count(self) -> int:
        return len(self.prefix) + len(self.suffix)


@dataclass
class Pieces:
    """Holds the piece ids of each word of a split. Equal words share one list.

    empty: positions of words without a piece (zero-width space, U+FE0F, ...); they get the unknown piece. whole:
    whether words are whole texts, which have the special pieces around them too.
    """

    of_word: Sequence[Sequence[int]]
    empty: list[int]
    whole: bool = False

    def __post_init__(self) -> None:
        self._starts = np.cumsum([0, *map(len, self.of_word)], dtype=np.int64)  # (words + 1,)

    def count(self, first: int, last: int) -> int:
        """Returns the total number of pieces of words first..last."""
        return int(self._starts[last] - self._starts[first])

    def starts(self, first: int, last: int) -> np.ndarray:
        """Returns (last - first + 1,), the number of pieces before each of words first..last, and their total."""
        return self._starts[first : last + 1] - self._starts[first]

    def ids(self, first: int, last: int) -> list[int]:
        """Returns the pieces of words first..last, in order."""
        return list(itertools.chain.from_iterable(self.of_word[first:last]))


def special_pieces(tokenizer: Any) -> Special:
    """Finds what the tokenizer adds before and after a text: a piece of its vocabulary, since it must know the text."""
    special = set(tokenizer.all_special_ids)
    known = (piece for piece, _ in sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1]))
    pairs = (
        (tokenizer([piece], is_split_into_words=True, add_special_tokens=False)["input_ids"], piece) for piece in known
    )
    bare, sample = next(pair for pair in pairs if pair[0] and special.isdisjoint(pair[0]))
    whole = tokenizer([sample], is_split_into_words=True)
    ids: list[int] = whole["input_ids"]
    at = next(i for i in range(len(ids)) if ids[i : i + len(bare)] == bare)
    end = at + len(bare)
    types: list[int] = whole.get("token_type_ids", [0] * len(ids))
    return Special(ids[:at], ids[end:], types[:at], types[at], types[end:], "token_type_ids" in whole)


def cut(tokenizer: Any, words: list[str]) -> list[list[int]]:
    """Returns the piece ids of each word, without special pieces. words: no more than WORDS_AT_ONCE.

    A word spelt like a special piece (`</s>`, `[SEP]`) is cut as any other, or the text would end there.
    """
    special = _special_pieces(tokenizer)
    if not tokenizer.is_fast:
        cuts = []
        for word in words:
            spelt = any(piece in word for piece in special.values())
            cuts.append(tokenizer.tokenize(word, split_special_tokens=spelt))
            if spelt and {*cuts[-1]} & {*special.values()} - {tokenizer.unk_token}:  # Japanese BERT never splits them
                cuts[-1] = tokenizer.tokenize(" ".join(word))
        return [tokenizer.convert_tokens_to_ids(pieces) for pieces in cuts]
    backend = tokenizer.backend_tokenizer  # the library's own call adds 20 microseconds per word
    ids = _encode(backend, words)
    if type(backend.model).__name__ != "BPE":  # other models find special pieces in their vocabulary, too
        unknown, others = tokenizer.unk_token, special.keys() - {tokenizer.unk_token_id}
        found = [i for i, pieces in enumerate(ids) if not others.isdisjoint(pieces) or (unknown or "\0") in words[i]]
        if found:
            as_text = _encode(_without(special, backend), [words[i] for i in found])
            ids = list((dict(enumerate(ids)) | dict(zip(found, as_text, strict=True))).values())
    return ids


def _encode(backend: Any, words: list[str]) -> list[list[int]]:
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True  # as text
    encodings = backend.encode_batch_fast([[word] for word in words], is_pretokenized=True, add_special_tokens=False)
    return [encoding.ids for encoding in encodings]


def _special_pieces(tokenizer: Any) -> dict[int, str]:
    added = {number: str(token) for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))


def _without(special: dict[int, str], backend: Any) -> Any:
    """Returns a backend with names for the special pieces that no text has."""
    content = backend.to_str()
    for number, piece in special.items():
        content = content.replace(json.dumps(piece, ensure_ascii=False), json.dumps(f"\0{number}"))
    return type(backend).from_str(content)


def keep_prefix_spaces(tokenizer: Any) -> None:
    """Makes a fast tokenizer add the space before each word, if it adds none to a single word.

    Without it, words are silently cut as if there were no spaces between them. RoBERTa, GPT-2 and ModernBERT have a
    setting for it. For others (Llama 3, Qwen, Gemma), the space is put before each word if that gives the pieces of
    running text.
    """
    from tokenizers.normalizers import Prepend, Sequence
    from tokenizers.pre_tokenizers import ByteLevel

    backend = tokenizer.backend_tokenizer
    if isinstance(backend.pre_tokenizer, ByteLevel):
        backend.pre_tokenizer.add_prefix_space = True
        return
    single, listed, running = _cut_sample(tokenizer)
    if single == listed == running:
        return
    before = backend.normalizer
    backend.normalizer = Sequence([Prepend(" "), *([] if before is None else [before])])
    single, listed, running = _cut_sample(tokenizer)
    if not single == listed == running:
        backend.normalizer = before


def check_words(tokenizer: Any, name: str) -> None:
    """Raises UserError if a fast tokenizer cuts the words of a sample differently in running text (RoBERTa without its
    prefix space), or if any tokenizer cuts a list of words differently than single words.

    Some tokenizers in Python look at a word's neighbours in running text. They are not refused, as the words of a
    corpus are already split, unless most pairs of words differ: the space between them is lost (ByT5).
    """
    single, listed, running = _cut_sample(tokenizer)
    if single != running and not tokenizer.is_fast:
        pairs = [" ".join(pair) for pair in itertools.pairwise(SAMPLE)]
        both = [[piece for word in cut(tokenizer, pair.split()) for piece in word] for pair in pairs]
        alike = sum(map(operator.eq, cut(tokenizer, pairs), both))
        running = single if 2 * alike > len(pairs) else running
    if not single == listed == running:
        raise UserError(
            f"The tokenizer of {name} cuts single words differently than running text, so its pieces would not be "
            "those that the encoder was trained on. It cannot be used."
        )


def _cut_sample(tokenizer: Any) -> tuple[list[int], list[int], list[int]]:
    """Returns the pieces of a sample: of its words one by one, as a list, and as running text."""
    single = [piece for pieces in cut(tokenizer, SAMPLE) for piece in pieces]
    listed = tokenizer(SAMPLE, is_split_into_words=True, add_special_tokens=False)["input_ids"]
    return single, listed, tokenizer(" ".join(SAMPLE), add_special_tokens=False)["input_ids"]


def notes_on_pieces(pieces: Pieces, tokenizer: Any, name: str) -> list[str]:
    """Says how many words of a split an encoder's tokenizer does not know, if they are many."""
    if pieces.whole or not pieces.of_word:
        return []
    share = sum(tokenizer.unk_token_id in ids for ids in pieces.of_word) / len(pieces.of_word)
    if share <= MANY_UNKNOWN:
        return []
    return [
        f"{name} does not know {100 * share:.0f} % of the words: its tokenizer gives the unknown piece for them or a "
        "part of them. Was it trained on this language and script?"
    ]


def cut_split(tokenizer: Any, split: Split, rows: int | None = None) -> Pieces:
    """Cuts every word of a split. rows: of the encoder's embeddings. Raises UserError for a word that has none."""
    words = list(itertools.chain.from_iterable(split.words))
    distinct = list(dict.fromkeys(words))
    pieces: dict[str, list[int]] = {}
    for first in range(0, len(distinct), WORDS_AT_ONCE):
        some = distinct[first : first + WORDS_AT_ONCE]
        cuts = cut(tokenizer, some)
        if in_file := getattr(tokenizer, "in_file", None):
            for text, *both in zip(some, cuts, cut(in_file, some), strict=True):
                if both[0] != both[1]:
                    here, there = (" ".join(tokenizer.convert_ids_to_tokens(ids)) for ids in both)
                    raise UserError(
                        f"{split.origin}: {text!r} is {there} by the encoder's tokenizer.json, and {here} by the rules "
                        f"of transformers. Write {AS_IN_FILE} in tokenizer_config.json of a copy: encoder.path=DIR."
                    )
        pieces |= zip(some, cuts, strict=True)
    without = {word: [tokenizer.unk_token_id] for word, ids in pieces.items() if not ids}
    if without and tokenizer.unk_token_id is None:
        raise UserError(
            f"{split.origin}: the tokenizer gives some words no piece and has no unknown piece. The first such word "
            f"is {next(iter(without))!r}."
        )
    pieces |= without
    for word, ids in pieces.items():
        if rows and max(ids) >= rows:
            raise UserError(
                f"{split.place(words.index(word))}: {word!r} has piece {max(ids)}, but the "
                f"encoder has only pieces 0 to {rows - 1}. Its tokenizer was extended, or is that of another encoder."
            )
    return Pieces([pieces[word] for word in words], [at for at, word in enumerate(words) if word in without])
