"""Reads labelled texts as their model reads them: each is tokenized whole, and its pieces are pooled to one vector.

A text of data=sentences is no list of words: it has line breaks, and pieces that no single word would give. So its own
tokenizer gets all of it, a conversation by its chat template, and the special pieces around it are pooled too. To the
rest of the extraction a text is a word with many pieces.
"""

from __future__ import annotations

import json
import sys
from array import array
from dataclasses import replace
from typing import Any

import numpy as np

from probe.config import UserError
from probe.data.split import Split
from probe.encoders.checkpoint import Encoder
from probe.encoders.pieces import Pieces, Special
from probe.system.files import read_regular

AT_ONCE = 256  # texts that the tokenizer gets together
MODEL = "model"  # value of features.sentence: as the folder's own pooling says
POOLINGS = {  # of sentence-transformers, by our names
    "mean": ("mean", "pooling_mode_mean_tokens"),
    "max": ("max", "pooling_mode_max_tokens"),
    "cls": ("cls", "pooling_mode_cls_token"),
    "last": ("lasttoken", "pooling_mode_lasttoken"),
}


def reading_of(encoder: Encoder, how: str) -> dict[str, Any]:
    """Returns how texts become vectors, for the identity of their features. how: a value of features.sentence.

    pooling: mean, max, cls, first or last. normalized: whether vectors get length 1. pieces: read of a text at most,
    special ones included: what the encoder takes, or less if its folder says so, as sentence-transformers does. Raises
    UserError for a folder whose pooling is not known, and for an encoder without a special piece in front.
    """
    pooling, normalized = how, False
    if how == MODEL:
        modules = {module["type"].rpartition(".")[2]: module["path"] for module in _json(encoder, "modules.json")}
        if "Pooling" not in modules or set(modules) - {"Transformer", "Pooling", "Normalize"}:
            known = f"has the modules {', '.join(modules)}" if modules else "has no modules.json"
            raise UserError(
                f"features.sentence=model: {encoder.folder} {known}; Transformer, Pooling and maybe Normalize are "
                "needed. Type features.sentence=mean, max, cls, first or last."
            )
        content = dict(_json(encoder, f"{modules['Pooling']}/config.json"))
        chosen = [
            name for name, keys in POOLINGS.items() if content.get("pooling_mode") == keys[0] or content.get(keys[1])
        ]
        others = [key for key, value in content.items() if key.startswith("pooling_mode_") and value is True]
        if len(chosen) != 1 or len(others) > 1:
            raise UserError(
                f"features.sentence=model: {encoder.folder} pools by {others or content.get('pooling_mode')}; one of "
                f"{', '.join(POOLINGS)} is needed. Type features.sentence=NAME."
            )
        pooling, normalized = chosen[0], "Normalize" in modules
    if pooling == "cls" and not encoder.special.prefix:
        raise UserError(
            f"{encoder.name} puts no special piece before a text, so it has no cls. Type features.sentence=mean."
        )
    most = dict(_json(encoder, "sentence_bert_config.json")).get("max_seq_length") or encoder.limit
    return {"pooling": pooling, "normalized": normalized, "pieces": min(encoder.limit, int(most))}


def _json(encoder: Encoder, name: str) -> Any:
    """Returns the content of a file of the encoder's folder; an empty list if there is none."""
    file = encoder.folder / name
    try:
        return json.loads(read_regular(file)) if file.exists() else []
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}.") from None


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
    distinct, ends, cut = array("I"), array("I", [0]), 0
    room = most - special.count
    for first in range(0, len(texts), AT_ONCE):
        some = texts[first : first + AT_ONCE]
        found = tokenizer(some, add_special_tokens=False)["input_ids"]
        whole = tokenizer(some[0])["input_ids"]
        if special.count and whole != [*special.prefix, *found[0], *special.suffix]:
            raise UserError(
                f"{encoder.name} does not put the same pieces around every text, so texts cannot be read whole."
            )
        for number, ids in enumerate(found, first):
            if not ids and not special.count:
                raise UserError(f"{split.origin}:{split.lines[number]}: the tokenizer gives this text no piece.")
            cut += len(ids) > room
            distinct.extend(ids[:room])
            ends.append(len(distinct))
    if cut:
        print(
            f"{split.origin}: {cut:,} of {len(texts):,} texts have more than {most} pieces; what is behind them is not "
            "read, as by the model itself.",
            file=sys.stderr,
        )
    return Pieces(distinct, ends, np.arange(len(texts)), np.empty(0, dtype=int), whole=True), replace(
        encoder, special=special
    )


def _conversation(tokenizer: Any, messages: Any, origin: str) -> str:
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False))
    except Exception as error:  # whatever a template raises
        raise UserError(f"{origin}: the chat template does not take these messages: {error}.") from None
