"""Lists other people's numbers, each with its source, and what of their setting is known.

BERT paper: Devlin et al., NAACL 2019, Section 5.3, Table 7: the feature-based rows, and BERT-base fine-tuned. Its first
version called the weighted sums plain sums, with the same numbers; so both our `sum` and our `mix` have them. It gives
dev F1 only, the mean of five restarts, no spread. Not stated of the probe: learning rate, epochs, batch size, dropout,
optimiser, whether 768 is per direction; nor how long documents are cut, and how F1 is counted.

bert_ner: a replica of the paper's rows. AdamW at 3e-4 with OneCycle, 10 epochs of batches of 64. Its "sum" is a mean,
and its "F1" is the share of entity words that get their own tag.

flair: stefan-it's experiments with flair 0.4.3, one number per encoder. They are said to use a "scalar mix" of all
layers with the embeddings. flair 0.4.3 makes a new mix for every word, `ScalarMix(mixture_size, trainable=False)`, with
equal weights and a scale of 1. So nothing of it is learned: it is the mean of layers 0 to L.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from probe.data.split import SplitCounts
from probe.runs.records import CorpusCounts
from probe.tables.row import Row, SettingSummary


@dataclass(frozen=True)
class OfEncoder:
    """Holds published numbers of one encoder, in percent. rows: by row, one number for each of the source's `scores`.

    setting: fields of `SettingSummary` in which the source's encoders differ.
    """

    rows: Mapping[str, Sequence[float]]
    setting: Mapping[str, str]


@dataclass(frozen=True)
class Published:
    """Holds published numbers by encoder.

    scores: what the source calls its scores, by our score to compare each with; a table shows the first. setting:
    fields of `SettingSummary`, if known. for_any_encoder: a table of this corpus shows the numbers for any encoder, and
    not only for the source's own. note: what else a reader must know of the numbers.
    """

    source: str
    scores: Mapping[str, str]
    encoders: Mapping[str, OfEncoder]
    setting: Mapping[str, str]
    for_any_encoder: bool = False
    note: str = ""
    tuned: str | None = None  # what of the probe was chosen by which scores, as the source says it

    def encoder_like(self, encoder: str | None) -> str | None:
        """Returns the source's encoder to compare this one with: itself, or the only one there is; None if neither."""
        if encoder in self.encoders or len(self.encoders) > 1:
            return encoder if encoder in self.encoders else None
        return next(iter(self.encoders))

    def setting_for(self, encoder: str) -> dict[str, str]:
        """Returns what is known of the setting that the numbers for this encoder are from."""
        theirs = self.encoder_like(encoder)
        if theirs is None:
            return {**self.setting, "encoder": " or ".join(self.encoders)}
        return {**self.setting, "encoder": theirs, **self.encoders[theirs].setting}


def _of_flair(dev: float, test: float, case: str, piece: str = "first") -> OfEncoder:
    return OfEncoder({MEAN_FROM_EMBEDDINGS: (dev, test)}, {"case": case, "piece": piece})


# Rows without a preset: layers.combine=mean with layers.indices=0: and layers.indices=1:
MEAN_FROM_EMBEDDINGS, MEAN_OF_BLOCKS = "mean of layers 0 to L", "mean of layers 1 to L"
WEIGHTED_LAST_FOUR, WEIGHTED_ALL = 95.9, 95.5
PUBLISHED = {
    "paper": Published(
        source="Devlin et al. 2019, Table 7",
        scores={"dev_f1": "dev F1"},
        encoders={
            "bert-base-cased": OfEncoder(
                {
                    "embeddings": (91.0,),
                    "second_to_last": (95.6,),
                    "last": (94.9,),
                    "sum_last_four": (WEIGHTED_LAST_FOUR,),
                    "mix_last_four": (WEIGHTED_LAST_FOUR,),
                    "concat_last_four": (96.1,),
                    "sum_all": (WEIGHTED_ALL,),
                    "mix_all": (WEIGHTED_ALL,),
                    "fine-tuned": (96.4,),
                },
                {"case": "kept"},
            )
        },
        setting={
            "data": "CoNLL-2003",
            "context": "document",
            "piece": "first",
            "probe": "BiLSTM 2 x 768 (per direction or in all: not stated)",
            "scoring": "not stated (spans or words)",
            "seeds": "5",
        },
        for_any_encoder=True,  # its table is the one that ours is modelled on
        tuned="hyperparameters were selected on dev (which, and among how many, it does not say)",
    ),
    "bert_ner": Published(
        source="github.com/bigjeager/bert_ner",
        scores={"dev_entity_word_recall": "dev recall of entity words, called F1 there"},
        encoders={
            "bert-base-cased": OfEncoder(
                {
                    "embeddings": (91.32,),
                    "second_to_last": (94.93,),
                    "last": (93.88,),
                    "mean_last_four": (95.01,),
                    "concat_last_four": (95.77,),
                    MEAN_OF_BLOCKS: (95.11,),
                },
                {"case": "kept"},
            )
        },
        setting={
            "data": "CoNLL-2003",
            "context": "sentence",
            "piece": "first",
            "probe": "BiLSTM 2 x 768 per direction, trained for 10 epochs",
            "seeds": "1",
        },
        note="What it calls sum is a mean.",
    ),
    "flair": Published(
        source="github.com/stefan-it/flair-experiments",
        scores={"dev_f1": "dev F1", "test_f1": "test F1"},
        encoders={
            "bert-base-cased": _of_flair(94.74, 91.38, "kept"),
            "bert-base-uncased": _of_flair(94.61, 91.03, "dropped"),
            "bert-large-cased": _of_flair(95.23, 91.69, "kept"),
            "bert-large-uncased": _of_flair(94.78, 91.49, "dropped"),
            "roberta-base": _of_flair(95.35, 91.51, "kept"),
            "roberta-large": _of_flair(95.83, 92.11, "kept"),
            "distilbert-base-uncased": _of_flair(94.20, 90.68, "dropped"),
            "gpt2": _of_flair(91.35, 87.47, "kept", piece="first and last, concatenated"),
        },
        setting={
            "data": "CoNLL-2003",
            "context": "sentence",
            "probe": "BiLSTM-CRF 1 x 256 per direction, trained by SGD",
            "scoring": "spans",
            "seeds": "1",
        },
        note="Its scalar mix is not trained: it is the mean of layers 0 to L.",
    ),
}
# CoNLL-2003 English, the original files.
CONLL2003 = {
    "train": SplitCounts(946, 14_041, 203_621, spans=23_499, span_words=34_043, longest=113),
    "dev": SplitCounts(216, 3_250, 51_362, spans=5_942, span_words=8_603, longest=109),
    "test": SplitCounts(231, 3_453, 46_435, spans=5_648, span_words=8_112, longest=124),
}


def is_conll2003(splits: CorpusCounts) -> bool:
    """Tells whether each split has as many words and spans as in the standard files, wherever it came from."""
    pairs = ((getattr(splits, name), counts) for name, counts in CONLL2003.items())
    return all((ours.words, ours.spans) == (counts.words, counts.spans) for ours, counts in pairs)


def tuning(source: str, rates: Sequence[int]) -> str:
    """Says how a source's probe was tuned, and how ours was; nothing where the source does not say.

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
    """Lists what of our setting is not what a source has, one line each."""
    theirs = PUBLISHED[source].setting_for(ours.encoder)
    return [
        f"{name} {value} ({source}: {theirs[name]})"
        for name, value in asdict(ours).items()
        if name in theirs and value != theirs[name]
    ]


def numbers_for(source: str, row: Row) -> Sequence[float] | None:
    """Returns a source's numbers for a row, one for each of its `scores`; None if it has none.

    Of several encoders a source's numbers are those of the row's own.
    """
    if row.conditions - {"fine_tuned"}:
        return None
    published = PUBLISHED[source]
    theirs = published.encoder_like(row.about.encoder if row.about else None)
    return None if theirs is None else published.encoders[theirs].rows.get(_name(row))


def _name(row: Row) -> str:
    """Returns a row's name as the sources have it, without how its layers are normalized."""
    if row.conditions:
        return "fine-tuned"
    layers = next((record.encoder.num_layers for record in row.records.values()), None)
    if layers is not None and row.combine == "mean":
        for first, name in enumerate((MEAN_FROM_EMBEDDINGS, MEAN_OF_BLOCKS)):
            if row.indices == list(range(first, layers + 1)):
                return name
    return row.name.partition(":")[0]


def sources_for(rows: Sequence[Row]) -> list[str]:
    """Lists the sources that a table shows by default: those of its corpus and encoder, and of one of its rows."""
    return [
        name
        for name, source in PUBLISHED.items()
        if any(
            row.about
            and row.about.data == source.setting["data"]
            and (source.for_any_encoder or row.about.encoder in source.encoders)
            and numbers_for(name, row)
            for row in rows
        )
    ]
