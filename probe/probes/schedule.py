"""Decides after each epoch, from dev only, whether the learning rate falls and whether training ends.

How informative a dev score is depends on the number of updates before it, and one pass over a small corpus has few (600
sentences in batches of 32: 19). So the schedule counts updates, and the same settings fit 200 sentences and 15,000:

- an epoch is one pass, or as many passes as make EPOCH_UPDATES;
- epochs without progress do not count in the first WARM_UP_UPDATES, when scores rise slowly and fluctuate by chance;
- epochs of fewer than FULL_UPDATES are grouped: as many as make FULL_UPDATES count as one full epoch;
- unless a number of epochs is set, training may take MOST_FULL_EPOCHS full ones;
- the learning rate falls only if an epoch is one pass; otherwise, lowering it costs more than it gains.

With probe.lr_decay=linear none of this applies: all of max_epochs are trained, while the rate rises over a tenth of the
updates and then falls to 0.

On text with few spans the score is zero at first, even if something is learnt. While it is zero, progress is judged by
the dev loss and the rate does not fall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from probe.config import LINEAR, ProbeConfig

EPOCH_UPDATES = 100
WARM_UP_UPDATES = 1000
FULL_UPDATES = 300
MOST_FULL_EPOCHS = 40
WARM_UP = 0.1  # of all updates, if the rate falls linearly afterwards

Outcome = Literal["converged", "hit_epoch_limit", "never_learned"]


def updates(num_sentences: int, batch_size: int) -> int:
    return -(-num_sentences // batch_size)


def passes(num_sentences: int, batch_size: int) -> int:
    """Returns the passes over the sentences in an epoch: the fewest that make EPOCH_UPDATES."""
    return -(-EPOCH_UPDATES // updates(num_sentences, batch_size))


@dataclass
class Schedule:
    """Holds the settings of a training's schedule and how far it is.

    lr_decay: factor on the rate each time that `lr_patience` full epochs in a row were without progress; both are 1 if
    an epoch is several passes. patience: how many such epochs end training, counted from that first time; None if
    `max_epochs` ends it, since the rate falls to 0 over them.

    rate: the current learning rate as a share of the first. outcome: None while training continues, then converged: no
    progress for `most_idle` epochs; hit_epoch_limit: `max_epochs` came before that, and longer training may score
    higher; never_learned: no epoch scored above 0.
    """

    lr_decay: float
    lr_patience: int
    patience: int | None
    max_epochs: int
    epoch_updates: int
    rate: float = 1.0
    outcome: Outcome | None = None
    _epochs: int = 0
    _idle: int = 0  # epochs without progress in a row, warm-up excluded
    _best_score: float = -math.inf
    _best_since_zero: float = -math.inf
    _lowest_loss: float = math.inf

    @classmethod
    def of(cls, cfg: ProbeConfig, num_sentences: int) -> Schedule:
        an_epoch = passes(num_sentences, cfg.batch_size)
        schedule = cls(
            lr_decay=float(cfg.lr_decay) if an_epoch == 1 and cfg.lr_decay != LINEAR else 1.0,
            lr_patience=cfg.lr_patience if an_epoch == 1 else 1,
            patience=None if cfg.lr_decay == LINEAR else cfg.patience,
            max_epochs=MOST_FULL_EPOCHS,
            epoch_updates=an_epoch * updates(num_sentences, cfg.batch_size),
        )
        schedule.max_epochs = schedule.full * MOST_FULL_EPOCHS if cfg.max_epochs == "auto" else int(cfg.max_epochs)
        return schedule

    @property
    def shortest(self) -> int:
        """Returns the number of epochs of a training without any progress after the warm-up."""
        if self.patience is None:
            return self.max_epochs
        return max(1, WARM_UP_UPDATES // self.epoch_updates) + self.most_idle

    @property
    def full(self) -> int:
        """Returns how many epochs make a full one."""
        return -(-FULL_UPDATES // self.epoch_updates)

    @property
    def most_idle(self) -> int:
        """Returns how many epochs without progress in a row end training."""
        if self.patience is None:
            return self.max_epochs
        return (self.lr_patience - 1 + self.patience) * self.full

    def after_epoch(self, score: float, loss: float) -> None:
        """Registers an epoch's dev score and dev loss.

        An epoch that scores above 0 makes progress if no epoch since the last one at 0 was as high: scores before that
        one count as chance. An epoch at 0 makes progress if its loss is the lowest.
        """
        above = score > 0
        progress = score > self._best_since_zero if above else loss < self._lowest_loss
        self._best_since_zero = max(score, self._best_since_zero) if above else -math.inf
        self._best_score = max(score, self._best_score)
        self._lowest_loss = min(loss, self._lowest_loss)
        self._epochs += 1
        if progress:
            self._idle = 0
        elif self._epochs * self.epoch_updates > WARM_UP_UPDATES:
            self._idle += 1
            if self._idle % (self.lr_patience * self.full) == 0 and above:
                self.rate *= self.lr_decay
        is_last = self._epochs == self.max_epochs
        converged = self._idle >= self.most_idle or (self.patience is None and is_last)
        if converged or is_last:
            learned = self._best_score > 0
            self.outcome = "never_learned" if not learned else "converged" if converged else "hit_epoch_limit"
