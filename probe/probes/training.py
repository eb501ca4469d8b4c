"""Holds what all trainings share: determinism, and the labels of a classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from probe.data.tags import Tags


@dataclass(frozen=True)
class Scale:
    """Standardises the numbers of train, which are labels. It stands in for the ids of labels."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, train: Tags) -> Scale:
        numbers = torch.tensor([float(label) for tags in train for label in tags], dtype=torch.float64)
        return cls(float(numbers.mean()), float(numbers.std(correction=0)))

    def get(self, label: str, default: float) -> float:
        return (float(label) - self.mean) / self.deviation


def make_deterministic(device: str) -> None:
    """Makes all further training on the device repeatable."""
    if device == "cpu":
        torch.set_num_threads(1)  # for many small steps, a second thread costs more than it gains
    else:
        torch.use_deterministic_algorithms(True)
        # The line above also fills new memory with NaN, by a kernel per tensor. Nothing here reads unwritten memory.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.allow_tf32 = False  # TF32 has fewer digits than float32


LabelIds = dict[str, int] | Scale  # what turns a label into the number that a probe is trained on


def labels_of(train: Tags, is_regression: bool = False) -> tuple[list[str], LabelIds]:
    """Returns the label of each output of a classifier, and the number of each label.

    Labels that are numbers are no classes: there is no list of them, and `Scale` standardises them.
    """
    if is_regression:
        return [], Scale.of(train)
    labels = sorted({tag for tags in train for tag in tags})
    return labels, {label: i for i, label in enumerate(labels)}
