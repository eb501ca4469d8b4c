"""Defines the detection of one label of two: texts are ranked by how likely they have it, and scored by AUROC."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

from probe.config import DataConfig, UserError
from probe.data.split import Split
from probe.data.tasks.sentences import SENTENCE, NaiveBayes
from probe.format import first_few
from probe.scoring.detection import AUROC, NEGATIVE, POSITIVE, by_scikit_learn, counts, scores
from probe.scoring.tags import Tags


def normalize(splits: dict[str, Split], data: DataConfig) -> tuple[dict[str, Any], list[str]]:
    """Writes the labels as NEGATIVE and POSITIVE, in the order of data.labels or the alphabet. Raises UserError."""
    found = sorted({*chain.from_iterable(chain.from_iterable(split.tags for split in splits.values()))})
    if len(names := data.labels or found) != 2:
        raise UserError(
            f"data.task=detection is for two labels; there are {len(names)}: {first_few(names)}. "
            "Type data.task=sentence, or data.labels=[OTHER,DETECTED] for two."
        )
    for name, split in splits.items():
        if missing := {*names} - {*chain.from_iterable(split.tags)}:
            raise UserError(
                f"{split.origin}: no text of {name} has the label {min(missing)}, so nothing can be ranked."
            )
        split.tags = [[POSITIVE if label == names[1] else NEGATIVE] for (label,) in split.tags]
    other = "" if data.labels else f"; to detect {names[0]}: 'data.labels=[{names[1]},{names[0]}]'"
    return {"labels": [*names]}, [f"detects {names[1]} against {names[0]}{other}"]


def log_odds(of_labels: dict[str, float]) -> str:
    return f"{of_labels[POSITIVE] - of_labels[NEGATIVE]:.9g}"


class Length:
    """Ranks texts by the characters of their words and the blanks between, in the direction that is better on train."""

    def __init__(self, train: Split) -> None:
        self.sign = 1
        lengths = self.predict(train.words)
        self.sign = 1 if by_scikit_learn(train.tags, lengths) >= 0.5 else -1

    def __len__(self) -> int:
        """Returns the number of what is learned: the direction."""
        return 1

    def predict(self, words: Tags) -> Tags:
        return [[str(self.sign * len(" ".join(text)))] for text in words]


DETECTION = replace(
    SENTENCE,
    name="detection",
    headline=AUROC,
    unit="text",
    normalize=normalize,
    baselines={"none": lambda train: NaiveBayes(train, log_odds), "length": Length},
    counts=counts,
    parts=scores,
    reference=by_scikit_learn,
    is_ranked=True,
)
