"""Other people's numbers, each with its source, and what of their setting is known.

BERT paper: Devlin et al., NAACL 2019, Section 5.3, Table 7, feature-based rows. Its first version called the weighted
sums plain sums, with the same numbers; so they stand beside our `sum` and our `mix`. It gives dev F1 only, the mean of
five restarts, no spread. Not stated: learning rate, epochs, batch size, dropout, optimiser, whether 768 is per
direction, how long documents are cut, how F1 is counted.
"""

from __future__ import annotations

from typing import Any

WEIGHTED_LAST_FOUR, WEIGHTED_ALL = 95.9, 95.5
PUBLISHED: dict[str, dict[str, Any]] = {
    "paper": {
        "source": "Devlin et al. 2019, Table 7",
        "score": "dev F1",
        "rows": {
            "embeddings": 91.0,
            "second_to_last": 95.6,
            "last": 94.9,
            "sum_last_four": WEIGHTED_LAST_FOUR,
            "mix_last_four": WEIGHTED_LAST_FOUR,
            "concat_last_four": 96.1,
            "sum_all": WEIGHTED_ALL,
            "mix_all": WEIGHTED_ALL,
        },
        "setting": {
            "data": "CoNLL-2003",
            "encoder": "bert-base-cased",
            "case": "kept",
            "context": "document",
            "piece": "first",
            "probe": "BiLSTM 2 x 768 (per direction or in all: not stated)",
            "scoring": "not stated (spans or words)",
            "seeds": "5",
        },
    },
    "bert_ner": {
        "source": "github.com/bigjeager/bert_ner",
        "score": "dev recall of entity words, called F1 there",
        "rows": {
            "embeddings": 91.32,
            "second_to_last": 94.93,
            "last": 93.88,
            "mean_last_four": 95.01,
            "concat_last_four": 95.77,
            "mean_all": 95.11,
        },
        "setting": {
            "data": "CoNLL-2003",
            "encoder": "bert-base-cased",
            "case": "kept",
            "context": "sentence",
            "piece": "first",
            "probe": "BiLSTM 2 x 768 per direction",
            "seeds": "1",
        },
    },
}
# CoNLL-2003 English, the original files: documents, sentences, words, spans, words in spans, longest sentence.
CONLL2003 = {
    "train": (946, 14_041, 203_621, 23_499, 34_043, 113),
    "dev": (216, 3_250, 51_362, 5_942, 8_603, 109),
    "test": (231, 3_453, 46_435, 5_648, 8_112, 124),
}


def is_conll2003(splits: dict[str, dict[str, Any]]) -> bool:
    """Whether a record's words and spans by split are those of the standard files, wherever they came from."""
    return all((splits[name]["words"], splits[name].get("spans")) == counts[2:4] for name, counts in CONLL2003.items())


def differences(ours: dict[str, str], source: str) -> list[str]:
    """What of our setting (the same keys as a source's `setting`) is not what the source has, one line each."""
    theirs = PUBLISHED[source]["setting"]
    return [f"{name} {ours[name]} ({source}: {theirs[name]})" for name in theirs if ours[name] != theirs[name]]
