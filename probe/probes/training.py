"""Holds what all trainings share: determinism, and the labels of a classifier."""

from __future__ import annotations

import torch

from probe.data.tags import Tags


def make_deterministic(device: str) -> None:
    """Makes all further training on the device repeatable."""
    if device == "cpu":
        torch.set_num_threads(1)  # for many small steps, a second thread costs more than it gains
    else:
        torch.use_deterministic_algorithms(True)
        # The line above also fills new memory with NaN, by a kernel per tensor. Nothing here reads unwritten memory.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.allow_tf32 = False  # TF32 has fewer digits than float32


def labels_of(train: Tags) -> tuple[list[str], dict[str, int]]:
    """Returns the label of each output of a classifier, and the number of each label."""
    labels = sorted({tag for tags in train for tag in tags})
    return labels, {label: i for i, label in enumerate(labels)}
