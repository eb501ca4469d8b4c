"""Trains a probe on frozen features with Lightning: a network of its kind (or none) and a linear layer.

T words of the longest sentence, B sentences, N words in a batch, C labels.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import Tensor, nn

from probe.config import LINEAR, ProbeConfig, UserError
from probe.data.tags import Tags
from probe.probes.batches import UNCOUNTED, Batch, EvaluationBatches, TaggedWords, TrainingBatches
from probe.probes.bilstm import Dropout
from probe.probes.combine import mix
from probe.probes.kinds import network_of
from probe.probes.normalization import input_factor
from probe.probes.schedule import WARM_UP, Schedule, passes
from probe.probes.selection import Selection
from probe.system.bfloat16 import kernels

WITHIN_EPOCH_S = 30  # seconds between progress lines within an epoch


class Tagger(pl.LightningModule):
    """Trains on TrainingBatches, scores dev after each epoch, and saves the weights and dev tags of its best epoch.

    curve: of each epoch, its mean training loss, dev score, mean dev loss and seconds of training. schedule.outcome:
    how the training ended. passes: over all sentences, in an epoch.
    """

    def __init__(
        self,
        cfg: ProbeConfig,
        selection: Selection,
        labels: list[str],
        train: TaggedWords,
        dev: TaggedWords,
        headline: Callable[[Tags, Tags], float],
    ) -> None:
        super().__init__()
        self.headline = headline
        self.cfg, self.labels = cfg, labels
        self.dev_data = dev
        self.is_mix = selection.combine == "mix"
        is_scaled = selection.normalize is not None and cfg.num_layers > 0
        self.input_factor = input_factor(selection.width, cfg.hidden_size) if is_scaled else 1.0
        if self.is_mix:
            self.mix_weights = nn.Parameter(torch.zeros(len(selection.indices)))
            self.mix_scale = nn.Parameter(torch.ones(()))
        self.dropout = Dropout(cfg.dropout)
        self.lstm = network_of(cfg, selection.width)  # a network of any kind; saved weights use this name
        width = selection.width if self.lstm is None else cast(int, self.lstm.width)
        self.classifier = nn.Linear(width, len(labels))
        self.passes = passes(len(train.lengths), cfg.batch_size)
        self.schedule = Schedule.of(cfg, len(train.lengths))
        self.curve: list[dict[str, float]] = []
        self.best_epoch = 0
        self.best_dev_tags: Tags = []
        self.best_weights: dict[str, Tensor] = {}
        self._losses: list[Tensor] = []
        self._dev_losses: list[Tensor] = []
        self._started = 0.0

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of all labels, (T, B, C)."""
        x = batch.features.float()
        if self.input_factor != 1:
            x = x * self.input_factor
        precision, device = self.cfg.precision, x.device.type
        in_bfloat16 = torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16")
        with kernels(precision, device, lstm=self.cfg.num_layers > 0), in_bfloat16:
            if self.is_mix:
                x = mix(x, self.mix_weights, self.mix_scale)
            x = self.dropout(x)
            if self.lstm is not None:
                x = self.dropout(self.lstm(x, batch.mirror))
            scores = self.classifier(x)
        return scores.float()

    def training_step(self, batch: Batch) -> Tensor:
        loss = self._loss(self(batch), batch, "mean")
        self._losses.append(loss.detach())
        return loss

    def on_train_epoch_start(self) -> None:
        self._started = time.perf_counter()
        self._losses = []

    def on_validation_epoch_start(self) -> None:
        self._trained_s = time.perf_counter() - self._started
        self._dev_ids = self._no_ids(self.dev_data)
        self._dev_losses = []

    def validation_step(self, batch: Batch) -> None:
        scores = self(batch)
        self._keep_best(self._dev_ids, scores, batch)
        self._dev_losses.append(self._loss(scores, batch, "sum"))

    def on_validation_epoch_end(self) -> None:
        loss = float(torch.stack(self._losses).mean())
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} in epoch {len(self.curve) + 1}: training diverged. Lower probe.learning_rate."
            )
        tags = self._tags(self.dev_data, self._dev_ids)
        dev = self.headline(self.dev_data.tags, tags)
        known = int((self.dev_data.labels != UNCOUNTED).sum())  # words whose tag occurs in train
        dev_loss = float(torch.stack(self._dev_losses).sum()) / max(1, known)
        self.curve.append({"loss": loss, "dev": dev, "dev_loss": dev_loss, "train_s": round(self._trained_s, 3)})
        if self.schedule.after_epoch(dev, dev_loss):
            self.best_epoch, self.best_dev_tags = len(self.curve), tags
            self.best_weights = {name: value.clone() for name, value in self.state_dict().items()}
        if self.cfg.lr_decay != LINEAR:
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = self.cfg.learning_rate * self.schedule.rate
        self.trainer.should_stop |= self.schedule.outcome is not None

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.cfg.learning_rate, fused=True)
        if self.cfg.lr_decay != LINEAR:
            return optimizer
        from transformers import get_linear_schedule_with_warmup

        updates = self.schedule.max_epochs * self.schedule.epoch_updates
        rates = get_linear_schedule_with_warmup(optimizer, round(WARM_UP * updates), updates)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rates, "interval": "step"}}

    @torch.inference_mode()
    def predict(self, data: TaggedWords) -> Tags:
        """Returns the tags of every sentence, in the split's order. Puts the module into evaluation mode."""
        self.eval()
        ids = self._no_ids(data)
        for batch in EvaluationBatches(data):
            self._keep_best(ids, self(batch), batch)
        return self._tags(data, ids)

    def learned_mix(self) -> dict[str, Any] | None:
        """Returns the share of each layer (in the order asked for) and the scale; None if nothing is mixed."""
        if not self.is_mix:
            return None
        return {"weights": self.mix_weights.softmax(0).tolist(), "scale": self.mix_scale.item()}

    def _tags(self, data: TaggedWords, ids: Tensor) -> Tags:
        names = [self.labels[i] for i in ids.tolist()]
        return [names[a : a + n] for a, n in zip(data.starts.tolist(), data.lengths.tolist(), strict=True)]

    def _loss(self, scores: Tensor, batch: Batch, reduction: str) -> Tensor:
        """Returns the cross-entropy of a batch."""
        return nn.functional.cross_entropy(*_to_compare(scores, batch), reduction=reduction)

    def _no_ids(self, data: TaggedWords) -> Tensor:
        """Returns label ids to be filled in by `_keep_best`: one per word, and a dummy for padding."""
        return torch.zeros(len(data.labels) + 1, dtype=torch.long, device=data.device)

    def _keep_best(self, ids: Tensor, scores: Tensor, batch: Batch) -> None:
        """Writes each word's highest-scoring label to its position in ids, and padding's to the last one."""
        ids[torch.where(batch.words, batch.rows, len(ids) - 1)] = scores.argmax(-1)


def _to_compare(scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns scores (T, B, C) and labels in a loss's shapes: (N, C), (N,); on a CPU without padding.

    On a GPU, selecting the words would wait for their number. So padding stays, labelled UNCOUNTED. The gradients are
    the same, and so is the loss except for its last bit, as it is summed in another order.
    """
    if scores.device.type == "cpu":
        return scores[batch.words], batch.labels[batch.words]
    return scores.flatten(0, 1), batch.labels.flatten()


class Announce(pl.Callback):
    """Logs one line per epoch, and further lines within a long epoch."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log_line = log
        self.logged_at = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if time.monotonic() - self.logged_at < WITHIN_EPOCH_S:
            return
        assert isinstance(pl_module, Tagger)
        self.logged_at = time.monotonic()
        self.log_line(f"epoch {len(pl_module.curve) + 1} · update {batch_idx + 1} of {trainer.num_training_batches}")

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, Tagger)
        self.logged_at = time.monotonic()
        point = pl_module.curve[-1]
        epoch, most = len(pl_module.curve), pl_module.schedule.max_epochs
        remaining_s = (most - epoch) * point["train_s"]
        self.log_line(
            f"epoch {epoch} of at most {most} · loss {point['loss']:.4f} · dev {100 * point['dev']:.2f} · "
            f"{point['train_s']:.1f} s · at most {remaining_s / 60:.1f} min left"
        )


def train_tagger(
    cfg: ProbeConfig,
    selection: Selection,
    train: TaggedWords,
    dev: TaggedWords,
    labels: list[str],
    headline: Callable[[Tags, Tags], float],
    seed: int,
    log: Callable[[str], None],
) -> Tagger:
    """Trains until the schedule ends it, by dev's headline score.

    Returns the tagger with the weights of its best epoch.

    `headline` scores gold and predicted tags. `log` gets one line per epoch. The seed fixes initialisation, batches and
    dropout. On a CPU the result has the same bits for the same number of threads.
    """
    quieten_libraries()
    torch.manual_seed(seed)
    tagger = Tagger(cfg, selection, labels, train, dev, headline)
    device = train.device
    trainer = pl.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        max_epochs=tagger.schedule.max_epochs,
        gradient_clip_val=cfg.gradient_clip,
        callbacks=[Announce(log)],
        plugins=[LightningEnvironment()],  # ignores a SLURM job around this process
        logger=False,
        enable_checkpointing=False,  # the best weights are in memory, so a killed run leaves no files
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    try:
        with kernels(cfg.precision, device, lstm=cfg.num_layers > 0):
            trainer.fit(tagger, TrainingBatches(train, cfg.batch_size, seed, tagger.passes), EvaluationBatches(dev))
    except SystemExit:  # Lightning raises it for Ctrl-C
        raise KeyboardInterrupt from None
    tagger.load_state_dict(tagger.best_weights)
    return tagger.to(device)


def restored_tagger(
    cfg: ProbeConfig, selection: Selection, labels: list[str], weights: dict[str, Tensor], device: str
) -> Tagger:
    """Rebuilds a trained tagger for predictions. Raises RuntimeError for weights of another shape."""
    no_data = TaggedWords(torch.zeros(1, 1), [["O"]], {})  # one word stands for the data
    tagger = Tagger(cfg, selection, labels, no_data, no_data, lambda gold, predicted: 0.0)
    tagger.load_state_dict(weights)
    return tagger.to(device).eval()


def quieten_libraries() -> None:
    """Silences Lightning's adverts and its advice, which does not apply to our users."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric)\..*")
    # Lightning uses a name that torch has since deprecated.
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated", category=FutureWarning)
