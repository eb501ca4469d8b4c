"""Defines the inputs and the result of fitting any kind of probe. Imports no torch: records hold these classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from probe.config import Config
    from probe.data.corpus import Corpus
    from probe.probes.schedule import Outcome
    from probe.probes.selection import Selection
    from probe.scoring.tags import Tags
    from probe.system.provenance import Hardware
    from probe.vectors.store import FeatureStore, Source


@dataclass(frozen=True)
class FitInputs:
    """Holds everything that a probe is fitted on.

    corpus: the one to train and score on. It is that of the store, or has the tags of a control on the same words.
    label: the run's name in messages. unfinished: the checkpoint file of a training that takes long. runs: how many
    runs share this machine and its GPUs.
    """

    cfg: Config
    corpus: Corpus
    selection: Selection
    store: FeatureStore
    label: str
    unfinished: Path
    runs: int = 1
    num_gpus: int = 1

    @property
    def encoder(self) -> Source:
        return self.store.source


@dataclass(frozen=True)
class Epoch:
    """Holds an epoch's numbers.

    loss: mean over the training batches. dev: the headline score. train_s: seconds of training, without scoring dev.
    dev_loss: mean over the words of dev; older records have none.
    """

    loss: float
    dev: float
    train_s: float
    dev_loss: float | None = None


@dataclass(frozen=True)
class Mix:
    """Holds the learned share of each layer, in the chosen order, and the scale."""

    weights: list[float]
    scale: float


@dataclass(frozen=True)
class Fit:
    """Holds the result of a fit: predictions for dev and test, and how training went."""

    predictions: dict[str, Tags]
    outcome: Outcome
    parameters: int
    hardware: Hardware
    train_s: float
    read_s: float = 0.0
    curve: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0
    mix: Mix | None = None
    placement: str = "none"  # of features, if they are read
    labels: list[str] = field(default_factory=list)  # in the order of the classifier's outputs
    deviations: list[float] | None = None  # of layers that are added without normalization, on train
    weights: dict[str, torch.Tensor] | None = None  # of the best epoch; None if there is nothing to save
