"""What the trainings of all probes share: determinism, the labels of a classifier, and bits."""

from __future__ import annotations

from collections import Counter

import torch

from probe.data.tags import Tags
from probe.probes.fitting import Bits, SplitBits


def make_deterministic(device: str) -> None:
    """Makes what is trained on the device from here on the same every time."""
    if device == "cpu":
        torch.set_num_threads(1)  # many small steps: a second thread costs more than it gives
    else:
        torch.use_deterministic_algorithms(True)
        # That would also fill all new memory with NaN, a kernel for each tensor; nothing here reads memory unwritten.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.allow_tf32 = False  # float32 is to be float32


def labels_of(train: Tags) -> tuple[list[str], dict[str, int]]:
    """The label of each output of a classifier, and the number of each label."""
    labels = sorted({tag for tags in train for tag in tags})
    return labels, {label: i for i, label in enumerate(labels)}


def bits_of_both(by_split: dict[str, SplitBits | None]) -> Bits | None:
    """The bits of dev and test; None where one of them has none."""
    given = {name: bits for name, bits in by_split.items() if bits is not None}
    return Bits(**given) if len(given) == len(by_split) else None


def bits_by_frequency(labels: torch.Tensor, names: list[str], train: Tags) -> float:
    """The cross-entropy of labels under their frequency in train, in bits per word."""
    frequent = Counter(tag for tags in train for tag in tags)
    shares = torch.tensor([frequent[name] / frequent.total() for name in names], dtype=torch.float64)
    return float(-shares[labels].log2().mean())
