"""Holds the numbers of the BERT paper: Devlin et al., NAACL 2019, Table 7, dev F1 of bert-base-cased on CoNLL-2003.

Each is the mean of five restarts. The paper's first version called the weighted sums plain sums, with the same numbers;
so both our `sum` and our `mix` have them.
"""

from __future__ import annotations

from probe.format import short_name
from probe.tables.row import Row

# In the order of the table; our variants, None or with the same number, stand beside what they vary.
PAPER: dict[str, float | None] = {
    "embeddings": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "sum_last_four": 95.9,
    "mean_last_four": None,
    "mix_last_four": 95.9,
    "concat_last_four": 96.1,
    "sum_all": 95.5,
    "mix_all": 95.5,
    "fine-tuned": 96.4,
}
# Words and spans of CoNLL-2003 English, the original files.
CONLL2003 = {"train": (203_621, 23_499), "dev": (51_362, 5_942), "test": (46_435, 5_648)}


def paper_score(row: Row) -> float | None:
    """Returns the paper's dev F1 of a row, in percent; None for other rows, encoders and texts."""
    if set(row.identity.conditions) - {"fine_tuned"} or not row.n:
        return None
    splits = {name: (split.words, split.spans) for name, split in vars(row.record.data.splits).items()}
    if splits != CONLL2003 or short_name(row.record.encoder.name) != "bert-base-cased":
        return None
    return PAPER.get("fine-tuned" if row.identity.conditions else row.name.partition(":")[0])
