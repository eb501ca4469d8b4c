"""Holds what all trainings share: determinism, the labels of a classifier, and what its epochs came to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from probe.config import UserError
from probe.scoring.tags import Tags


@dataclass
class Progress:
    """Holds what a training came to so far.

    curve: of each epoch, its mean training loss, dev score, mean dev loss (nats per word) and seconds of training. The
    best epoch is the first with the highest dev score.
    """

    curve: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_dev_tags: Tags = field(default_factory=list)
    best_weights: dict[str, Tensor] = field(default_factory=dict)

    def add(self, point: dict[str, float], dev_tags: Tags, model: nn.Module) -> None:
        refuse_divergence(point["loss"], len(self.curve) + 1)
        is_best = point["dev"] > max((earlier["dev"] for earlier in self.curve), default=-1.0)
        self.curve.append(point)
        if is_best:
            self.best_epoch, self.best_dev_tags = len(self.curve), dev_tags
            self.best_weights = {name: value.detach().clone() for name, value in model.state_dict().items()}


def refuse_divergence(loss: float, epoch: int) -> None:
    if not math.isfinite(loss):
        raise UserError(f"the loss is {loss} in epoch {epoch}: training diverged. Lower probe.learning_rate.")


def make_deterministic(device: str) -> None:
    """Makes all further training on the device repeatable."""
    if device == "cpu":
        torch.set_num_threads(1)  # for many small steps, a second thread costs more than it gains
    else:
        torch.use_deterministic_algorithms(True)
        # The line above also fills new memory with NaN, by a kernel per tensor. Nothing here reads unwritten memory.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.allow_tf32 = False  # TF32 has fewer digits than float32


def classifier_labels(train: Tags) -> tuple[list[str], dict[str, int]]:
    """Returns the label of each output of a classifier, and the number of each label."""
    labels = sorted({tag for tags in train for tag in tags})
    return labels, {label: i for i, label in enumerate(labels)}


def decisions(scores: Tensor, is_ranked: bool) -> Tensor:
    """Returns what the scores of all labels, (..., C), say of a word, (...): the number of its label.

    is_ranked: see `Task`; then it is the log-odds of the second label.
    """
    return scores[..., 1] - scores[..., 0] if is_ranked else scores.argmax(-1)


def tags_of(decided: Tensor, labels: Sequence[str], like: Tags) -> Tags:
    """Returns the labels of words, or their log-odds as numbers, in sentences as long as those of `like`."""
    is_ranked = decided.is_floating_point()
    names = iter([f"{value:.9g}" if is_ranked else labels[value] for value in decided.tolist()])
    return [[next(names) for _ in sentence] for sentence in like]
