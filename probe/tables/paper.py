"""Holds the numbers of the BERT paper: Devlin et al., NAACL 2019, Table 7, dev F1 of bert-base-cased on CoNLL-2003.

Each is the mean of five restarts. The paper's first version called the weighted sums plain sums, with the same numbers;
so both our `sum` and our `mix` have them.
"""

from __future__ import annotations

from probe.data.split import SplitCounts
from probe.runs.records import RunRecord
from probe.system.format import short_name
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
# CoNLL-2003 English, the original files.
CONLL2003 = {
    "train": SplitCounts(946, 14_041, 203_621, spans=23_499, span_words=34_043, longest=113),
    "dev": SplitCounts(216, 3_250, 51_362, spans=5_942, span_words=8_603, longest=109),
    "test": SplitCounts(231, 3_453, 46_435, spans=5_648, span_words=8_112, longest=124),
}


def paper_score(row: Row) -> float | None:
    """Returns the paper's dev F1 of a row, in percent; None for other rows, encoders and texts."""
    if set(row.identity.conditions) - {"fine_tuned"} or not row.n or not _is_papers(row.record):
        return None
    return PAPER.get("fine-tuned" if row.identity.conditions else row.name.partition(":")[0])


def _is_papers(record: RunRecord) -> bool:
    """Tells whether the encoder is the paper's, and each split has as many words and spans as in the standard files."""
    splits = [(getattr(record.data.splits, name), known) for name, known in CONLL2003.items()]
    is_conll2003 = all((ours.words, ours.spans) == (known.words, known.spans) for ours, known in splits)
    return is_conll2003 and short_name(record.encoder.name) == "bert-base-cased"
