"""Reads labelled texts as their model reads them: each is tokenized whole, and its pieces are pooled to one vector.

A text of data=sentences is no list of words: it has line breaks, and pieces that no single word would give. So its own
tokenizer gets all of it, a conversation by its chat template, and the special pieces around it are pooled too. To the
rest of the extraction a text is a word with many pieces.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import replace
from typing import Any

from probe.config import UserError
from probe.data.split import Split
from probe.encoders.encoder import Encoder
from probe.encoders.pieces import Pieces, Special

AT_ONCE = 256  # texts that the tokenizer gets together


def cut_texts(split: Split, encoder: Encoder, most: int) -> tuple[Pieces, Encoder]:
    """Tokenizes each text of a split whole, and returns its pieces without those that are put around every text.

    most: pieces of a text that are read, special ones included; how many texts are longer is reported. A conversation
    has all its special pieces inside, so nothing is put around it: the encoder that is returned says so. Raises
    UserError.
    """
    tokenizer, special = encoder.text_tokenizer, encoder.special
    texts = list(split.texts)
    if any(not isinstance(text, str) for text in texts):
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                f"{split.origin} has messages, and {encoder.name} has no chat template. Give texts instead."
            )
        special = Special([], [], [], special.text_type, [], special.has_types)
        texts = [text if isinstance(text, str) else _conversation(tokenizer, text, split.origin) for text in texts]
    pieces: list[array[int]] = []
    cut, room = 0, most - special.count
    for first in range(0, len(texts), AT_ONCE):
        some = texts[first : first + AT_ONCE]
        of_each = tokenizer(some, add_special_tokens=False)["input_ids"]
        whole = tokenizer(some[0])["input_ids"]
        if special.count and whole != [*special.prefix, *of_each[0], *special.suffix]:
            raise UserError(
                f"{encoder.name} does not put the same pieces around every text, so texts cannot be read whole."
            )
        for number, ids in enumerate(of_each, first):
            if not ids and not special.count:
                raise UserError(f"{split.origin}:{split.lines[number]}: the tokenizer gives this text no piece.")
            cut += len(ids) > room
            pieces.append(array("I", ids[:room]))
    if cut:
        print(
            f"{split.origin}: {cut:,} of {len(texts):,} texts have more than {most} pieces; what is behind them is not "
            "read, as by the model itself.",
            file=sys.stderr,
        )
    return Pieces(pieces, [], whole=True), replace(encoder, special=special)


def _conversation(tokenizer: Any, messages: Any, origin: str) -> str:
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False))
    except Exception as error:  # whatever a template raises
        raise UserError(f"{origin}: the chat template does not take these messages: {error}.") from None
