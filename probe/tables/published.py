"""Other people's numbers, each with its source, and what of their setting is known.

BERT paper: Devlin et al., NAACL 2019, Section 5.3, Table 7: the feature-based rows, and BERT-base fine-tuned. Its first
version called the weighted sums plain sums, with the same numbers; so they stand beside our `sum` and our `mix`. It
gives dev F1 only, the mean of five restarts, no spread. Not stated of the probe: learning rate, epochs, batch size,
dropout, optimiser, whether 768 is per direction; nor how long documents are cut, and how F1 is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from probe.data.split import SplitCounts
from probe.runs.records import CorpusCounts
from probe.tables.row import SettingSummary


@dataclass(frozen=True)
class Published:
    """Published numbers in percent, by row. cell: our score to compare with. setting: fields of `About`, if known."""

    source: str
    score: str
    cell: str
    rows: Mapping[str, float]
    setting: Mapping[str, str]
    tuned: str | None = None  # what of the probe was chosen by which scores, as the source says it


WEIGHTED_LAST_FOUR, WEIGHTED_ALL = 95.9, 95.5
PUBLISHED = {
    "paper": Published(
        source="Devlin et al. 2019, Table 7",
        score="dev F1",
        cell="dev_f1",
        rows={
            "embeddings": 91.0,
            "second_to_last": 95.6,
            "last": 94.9,
            "sum_last_four": WEIGHTED_LAST_FOUR,
            "mix_last_four": WEIGHTED_LAST_FOUR,
            "concat_last_four": 96.1,
            "sum_all": WEIGHTED_ALL,
            "mix_all": WEIGHTED_ALL,
            "fine-tuned": 96.4,
        },
        setting={
            "data": "CoNLL-2003",
            "encoder": "bert-base-cased",
            "case": "kept",
            "context": "document",
            "piece": "first",
            "probe": "BiLSTM 2 x 768 (per direction or in all: not stated)",
            "scoring": "not stated (spans or words)",
            "seeds": "5",
        },
        tuned="hyperparameters were selected on dev (which, and among how many, it does not say)",
    ),
    "bert_ner": Published(
        source="github.com/bigjeager/bert_ner",
        score="dev recall of entity words, called F1 there",
        cell="dev_entity_word_recall",
        rows={
            "embeddings": 91.32,
            "second_to_last": 94.93,
            "last": 93.88,
            "mean_last_four": 95.01,
            "concat_last_four": 95.77,
            "mean_all": 95.11,
        },
        setting={
            "data": "CoNLL-2003",
            "encoder": "bert-base-cased",
            "case": "kept",
            "context": "sentence",
            "piece": "first",
            "probe": "BiLSTM 2 x 768 per direction",
            "seeds": "1",
        },
    ),
}
# CoNLL-2003 English, the original files.
CONLL2003 = {
    "train": SplitCounts(946, 14_041, 203_621, spans=23_499, span_words=34_043, longest=113),
    "dev": SplitCounts(216, 3_250, 51_362, spans=5_942, span_words=8_603, longest=109),
    "test": SplitCounts(231, 3_453, 46_435, spans=5_648, span_words=8_112, longest=124),
}


def is_conll2003(splits: CorpusCounts) -> bool:
    """Whether a record's words and spans by split are those of the standard files, wherever they came from."""
    pairs = ((getattr(splits, name), counts) for name, counts in CONLL2003.items())
    return all((ours.words, ours.spans) == (counts.words, counts.spans) for ours, counts in pairs)


def tuning(source: str, rates: Sequence[int]) -> str:
    """How a source's probe was tuned, and how ours was; nothing where the source does not say.

    rates: the number of learning rates tried, of each of our rows; 0 where there was one.
    """
    theirs = PUBLISHED[source].tuned
    if theirs is None:
        return ""
    most = max(rates, default=0)
    same = "each row has the best" if len(set(rates)) < 2 else "rows that were tried at several rates have the best"
    ours = f"here {same} of {most} learning rates by dev" if most else "here one setting was used for all rows"
    return f" Tuning: {source}: {theirs}; {ours}."


def setting_differences(ours: SettingSummary, source: str) -> list[str]:
    """What of our setting is not what a source has, one line each."""
    setting, theirs = asdict(ours), PUBLISHED[source].setting
    return [f"{name} {setting[name]} ({source}: {theirs[name]})" for name in theirs if setting[name] != theirs[name]]
