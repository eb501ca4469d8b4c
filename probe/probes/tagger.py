"""Trains a probe on frozen features with Lightning: a network of its kind (or none) and a linear layer.

T words of the longest sentence, B sentences, N words in a batch, C labels.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment
from torch import Tensor, nn

from probe.config import LINEAR, ProbeConfig
from probe.data.task import Task
from probe.probes.batches import UNCOUNTED, Batch, TaggedWords, TrainingBatches, evaluation_batches
from probe.probes.combine import mix
from probe.probes.fitting import Mix
from probe.probes.networks import Dropout, network_of
from probe.probes.normalization import input_factor
from probe.probes.schedule import WARM_UP, Schedule, passes
from probe.probes.selection import Selection
from probe.probes.training import Progress, decisions, tags_of
from probe.scoring.tags import Tags
from probe.system.bfloat16 import kernels

WITHIN_EPOCH_S = 30  # seconds between progress lines within an epoch


class Tagger(nn.Module):
    """Holds a network of a probe's kind (or none) and a linear layer, on the combined layers of words."""

    def __init__(self, cfg: ProbeConfig, selection: Selection, labels: list[str], is_ranked: bool = False) -> None:
        super().__init__()
        self.cfg, self.labels, self.is_ranked = cfg, labels, is_ranked
        self.is_mix = selection.combine == "mix"
        is_scaled = selection.normalize is not None and cfg.num_layers > 0
        self.input_factor = input_factor(selection.width, cfg.hidden_size) if is_scaled else 1.0
        if self.is_mix:
            self.mix_weights = nn.Parameter(torch.zeros(len(selection.indices)))
            self.mix_scale = nn.Parameter(torch.ones(()))
        self.dropout = Dropout(cfg.dropout)
        self.lstm = network_of(cfg, selection.width)  # a network of any kind; saved weights use this name
        width = selection.width if self.lstm is None else self.lstm.width
        self.classifier = nn.Linear(width, len(labels))

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

    def loss(self, scores: Tensor, batch: Batch, reduction: str = "mean") -> Tensor:
        """Returns the cross-entropy of a batch. scores: (T, B, C).

        On a GPU, selecting the words would wait for their number. So padding stays, labelled UNCOUNTED. The gradients
        are the same, and so is the loss except for its last bit, as it is summed in another order.
        """
        if scores.device.type == "cpu":
            return nn.functional.cross_entropy(scores[batch.words], batch.labels[batch.words], reduction=reduction)
        return nn.functional.cross_entropy(scores.flatten(0, 1), batch.labels.flatten(), reduction=reduction)

    @torch.inference_mode()
    def predict(self, data: TaggedWords) -> tuple[Tags, float]:
        """Returns the tags of every sentence, and the mean loss of the words whose tag occurs in train."""
        losses = list[Tensor]()
        tags = self._decide(data, lambda scores, batch, _: losses.append(self.loss(scores, batch, "sum")))
        return tags, float(torch.stack(losses).sum()) / max(1, int((data.labels != UNCOUNTED).sum()))

    @torch.inference_mode()
    def tag(self, data: TaggedWords) -> tuple[Tags, list[float]]:
        """Returns the tags of every sentence, and the probability of each of them, word by word."""
        probabilities = torch.zeros(len(data.labels) + 1, device=data.device)

        def keep(scores: Tensor, _: Batch, rows: Tensor) -> None:
            probabilities[rows] = scores.softmax(-1).amax(-1)

        return self._decide(data, keep), probabilities[:-1].tolist()

    def _decide(self, data: TaggedWords, read: Callable[[Tensor, Batch, Tensor], None]) -> Tags:
        """Returns the tags of every sentence. read: also gets the scores of each batch, (T, B, C), and its words' rows.

        A row is the place of a word in the data, (T, B); that of padding is one behind the last word.
        """
        self.eval()
        dtype = torch.float32 if self.is_ranked else torch.long
        decided = torch.zeros(len(data.labels) + 1, dtype=dtype, device=data.device)  # the last one is padding's
        for batch in evaluation_batches(data):
            scores = self(batch)
            rows = torch.where(batch.words, batch.rows, len(decided) - 1)
            decided[rows] = decisions(scores, self.is_ranked)
            read(scores, batch, rows)
        return tags_of(decided[:-1], self.labels, data.tags)

    def learned_mix(self) -> Mix | None:
        """Returns the share of each layer (in the order asked for) and the scale; None if nothing is mixed."""
        return Mix(self.mix_weights.softmax(0).tolist(), self.mix_scale.item()) if self.is_mix else None


class Training(pl.LightningModule):
    """Trains a tagger on TrainingBatches, and scores dev after each epoch."""

    def __init__(
        self,
        tagger: Tagger,
        train: TaggedWords,
        dev: TaggedWords,
        task: Task,
        log: Callable[[str], None],
    ) -> None:
        super().__init__()
        self.tagger, self.dev, self.task, self.log_line = tagger, dev, task, log
        self.passes = passes(len(train.lengths), tagger.cfg.batch_size)
        self.schedule = Schedule.of(tagger.cfg, len(train.lengths))
        self.progress = Progress()
        self.losses: list[Tensor] = []
        self.logged_at = time.monotonic()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.tagger.cfg.learning_rate, fused=True)
        if self.tagger.cfg.lr_decay != LINEAR:
            return optimizer
        from transformers import get_linear_schedule_with_warmup

        updates = self.schedule.max_epochs * self.schedule.epoch_updates
        rates = get_linear_schedule_with_warmup(optimizer, round(WARM_UP * updates), updates)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rates, "interval": "step"}}

    def on_train_epoch_start(self) -> None:
        self.train()
        self.losses, self.started = [], time.perf_counter()

    def training_step(self, batch: Batch) -> Tensor:
        loss = self.tagger.loss(self.tagger(batch), batch)
        self.losses.append(loss.detach())
        if time.monotonic() - self.logged_at > WITHIN_EPOCH_S:
            self.logged_at = time.monotonic()
            updates = f"update {len(self.losses)} of {self.schedule.epoch_updates}"
            self.log_line(f"epoch {len(self.progress.curve) + 1} · {updates}")
        return loss

    def on_train_epoch_end(self) -> None:
        train_s = round(time.perf_counter() - self.started, 3)
        loss = float(torch.stack(self.losses).mean())
        tags, dev_loss = self.tagger.predict(self.dev)
        dev = self.task.measure(self.dev.tags, tags)
        self.progress.add({"loss": loss, "dev": dev, "dev_loss": dev_loss, "train_s": train_s}, tags, self.tagger)
        self.schedule.after_epoch(dev, dev_loss)
        if self.tagger.cfg.lr_decay != LINEAR:
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = self.tagger.cfg.learning_rate * self.schedule.rate
        self.trainer.should_stop |= self.schedule.outcome is not None
        epoch, most = len(self.progress.curve), self.schedule.max_epochs
        self.logged_at = time.monotonic()
        self.log_line(
            f"epoch {epoch} of at most {most} · loss {loss:.4f} · dev {100 * dev:.2f} · "
            f"{train_s:.1f} s · at most {(most - epoch) * train_s / 60:.1f} min left"
        )


def train_tagger(
    cfg: ProbeConfig,
    selection: Selection,
    train: TaggedWords,
    dev: TaggedWords,
    labels: list[str],
    task: Task,
    seed: int,
    log: Callable[[str], None],
) -> Training:
    """Trains until the schedule ends it, by dev's headline score. The tagger has the weights of its best epoch.

    The seed fixes initialisation, batches and dropout. On a CPU the result has the same bits for the same number of
    threads.
    """
    quieten_libraries()
    torch.manual_seed(seed)
    training = Training(Tagger(cfg, selection, labels, task.is_ranked), train, dev, task, log)
    trainer = pl.Trainer(
        accelerator="gpu" if train.device == "cuda" else "cpu",
        devices=1,
        max_epochs=training.schedule.max_epochs,
        gradient_clip_val=cfg.gradient_clip,
        plugins=[LightningEnvironment()],  # ignores a SLURM job around this process
        logger=False,
        enable_checkpointing=False,  # the best weights are in memory, so a killed run leaves no files
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    try:
        with kernels(cfg.precision, train.device, lstm=cfg.num_layers > 0):
            trainer.fit(training, TrainingBatches(train, cfg.batch_size, seed, training.passes))
    except SystemExit:  # Lightning raises it for Ctrl-C
        raise KeyboardInterrupt from None
    training.tagger.load_state_dict(training.progress.best_weights)
    training.tagger.to(train.device)
    return training


def quieten_libraries() -> None:
    """Silences Lightning's adverts, and advice that does not apply to our users."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric)\..*")
    # Lightning uses a name that torch has since deprecated.
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated", category=FutureWarning)
