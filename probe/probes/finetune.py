"""Fine-tunes the encoder with a linear layer on its last hidden states, as an upper bound for frozen features.

The recipe of Devlin et al. 2019 (appendix A.3): AdamW with weight decay 0.01, a learning rate that rises over the first
tenth of the updates and then falls to zero, dropout, a linear layer on the piece that represents a word, no CRF. The
result has the weights of the epoch that is best on dev.

After each epoch the training state is written to a file, and each epoch has its own random seed. So a resumed training
gives the same bits as an uninterrupted one. The file ends with the checksum of all before it.

B windows in a batch, P pieces, W words, H hidden size, C labels.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

from probe.config import Config
from probe.encoders.encoder import Encoder
from probe.encoders.model import hidden_states, load_model
from probe.format import duration, reason_of
from probe.probes.batches import UNCOUNTED, pooled_batches
from probe.probes.fitting import Epoch, Fit, FitInputs
from probe.probes.kinds import bfloat16_kernels
from probe.probes.schedule import WARM_UP
from probe.probes.training import Progress, classifier_labels, make_deterministic, refuse_divergence, tags_of
from probe.scoring.tags import Tags
from probe.system.bfloat16 import kernels, resolve_precision
from probe.system.files import canonical, to_jsonable, written_whole
from probe.system.machine import resolve_device, to_device
from probe.system.provenance import hardware, versions
from probe.vectors.sources import text_encoder
from probe.vectors.words import Text, Window, kept_pieces, pool, to_tensors

WEIGHT_DECAY = 0.01
INITIAL_STD = 0.02  # of the linear layer, as in BERT's own layers
AT_ONCE = 2048  # pieces, padding included, in one forward pass: bounds the memory
LOG_EVERY_S = 15
CHECKSUM_BYTES = 16


class TaggedText:
    """Holds a split as windows, with the label of each word."""

    def __init__(self, text: Text, tags: Tags, label_ids: dict[str, int]) -> None:
        self.text, self.tags = text, tags
        # A tag that does not occur in train has no id and cannot be predicted.
        self.labels = torch.tensor([label_ids.get(tag, UNCOUNTED) for sentence in tags for tag in sentence])  # (W,)
        self.windows = text.windows
        special = text.encoder.special.count
        self.widths = [text.pieces.count(window.first, window.last) + special for window in self.windows]

    def at_once(self, num_sentences: int) -> int:
        """Returns how many windows hold about `num_sentences` sentences: as many if each sentence is one window."""
        return max(1, round(num_sentences * len(self.windows) / len(self.tags)))

    def batches(self, num_sentences: int, generator: torch.Generator) -> list[list[int]]:
        """Returns every window's number once, in random batches of about `num_sentences` sentences."""
        batches = pooled_batches(torch.tensor(self.widths), self.at_once(num_sentences), generator)
        return [batch.tolist() for batch in batches]

    def parts(self, numbers: Sequence[int]) -> Iterator[list[Window]]:
        """Yields the windows with these numbers, short ones first, AT_ONCE pieces at a time."""
        part: list[Window] = []
        for number in sorted(numbers, key=self.widths.__getitem__):
            if part and (len(part) + 1) * self.widths[number] > AT_ONCE:
                yield part
                part = []
            part.append(self.windows[number])
        yield part


class FineTuned(nn.Module):
    """Holds an encoder and a linear layer, which are trained together."""

    def __init__(self, cfg: Config, encoder: Encoder, labels: list[str], device: str) -> None:
        super().__init__()
        self.labels, self.device = labels, device
        self.model, self.precision = load_model(encoder, device), resolve_precision(cfg.probe.precision, device)
        self.dropout = nn.Dropout(cfg.probe.dropout)
        self.classifier = nn.Linear(encoder.hidden_size, len(labels))
        nn.init.normal_(self.classifier.weight, std=INITIAL_STD)
        nn.init.zeros_(self.classifier.bias)
        self.requires_grad_().to(device)
        self.progress = Progress()

    def forward(self, text: Text, windows: list[Window]) -> tuple[Tensor, Tensor]:
        """Returns the scores of all labels for the words of these windows, (W, C), and the words' positions."""
        subword = text.cfg.subword
        ids, mask, types = to_tensors(windows, text.pieces, text.encoder)
        positions, lengths, rows = kept_pieces(windows, text.pieces, text.encoder, subword, ids.shape[1])
        ids, mask, positions = (to_device(tensor, self.device) for tensor in (ids, mask, positions))
        types = None if types is None else to_device(types, self.device)
        lengths = None if lengths is None else to_device(lengths, self.device)
        in_bfloat16 = torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")
        with kernels(self.precision, self.device, lstm=False), in_bfloat16:
            last = hidden_states(self.model, ids, mask, types)[-1]  # (B, P, H)
            words = pool(last.reshape(-1, last.shape[-1])[positions], lengths, subword)
            scores = self.classifier(self.dropout(words))
        return scores.float(), rows

    @torch.no_grad()
    def predict(self, split: TaggedText) -> tuple[Tags, float]:
        """Returns the tags of every sentence, and the mean loss, in nats, of the words whose tag occurs in train."""
        self.eval()
        ids = torch.zeros_like(split.labels, device=self.device)
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        for windows in split.parts(range(len(split.widths))):
            scores, rows = self(split.text, windows)
            ids[to_device(rows, self.device)] = scores.argmax(-1)
            labels = to_device(split.labels[rows], self.device)
            loss += nn.functional.cross_entropy(scores, labels, reduction="sum")
        return tags_of(ids, self.labels, split.tags), loss.item() / max(1, int((split.labels != UNCOUNTED).sum()))


def fine_tune(
    cfg: Config,
    train: TaggedText,
    dev: TaggedText,
    labels: list[str],
    headline: Callable[[Tags, Tags], float],
    device: str,
    checkpoint: Path,
    made_by: str,
    log: Callable[[str], None],
) -> FineTuned:
    """Trains for max_epochs, resuming from `checkpoint` if possible. Returns the model with its best epoch's weights.

    `headline` scores gold and predicted tags. checkpoint: the file for each epoch's state, ignored if it is damaged or
    its `made_by` differs. The same seed and number of threads give the same bits.
    """
    torch.manual_seed(cfg.seed)
    tuned, epochs = FineTuned(cfg, train.text.encoder, labels, device), int(cfg.probe.max_epochs)
    optimizer, rates = optimizer_of(tuned, cfg, train)
    parts = {"weights": tuned, "optimizer": optimizer, "rates": rates}
    if _resume(parts, checkpoint, made_by):
        log(f"resumes after epoch {len(tuned.progress.curve)} of {epochs}")
    elif checkpoint.exists():
        log(f"begins anew: {checkpoint} is damaged, or of other software or hardware")
    for epoch in range(len(tuned.progress.curve) + 1, epochs + 1):
        seed = (cfg.seed * 1_000_003 + epoch - 1) % 2**63
        torch.manual_seed(seed)
        clock = time.perf_counter()
        batches = train.batches(cfg.probe.batch_size, torch.Generator().manual_seed(seed))
        tuned.train()
        losses: list[Tensor] = []
        logged = clock
        for numbers in batches:
            losses.append(update(tuned, train, numbers, cfg.probe.gradient_clip, optimizer, rates))
            if time.perf_counter() - logged > LOG_EVERY_S:
                logged, loss, done = time.perf_counter(), losses[-1].item(), len(losses) / len(batches)
                refuse_divergence(loss, epoch)
                left = duration((epochs - epoch + 1 - done) * (logged - clock) / done)
                log(f"epoch {epoch} of {epochs} · {100 * done:.0f} % · loss {loss:.4f} · {left} left")
        loss = sum(torch.stack(losses).tolist()) / len(losses)
        train_s = round(time.perf_counter() - clock, 3)
        log(f"epoch {epoch} of {epochs} · loss {loss:.4f} · scoring dev")
        tags, dev_loss = tuned.predict(dev)
        score = headline(dev.tags, tags)
        tuned.progress.add({"loss": loss, "dev": score, "dev_loss": dev_loss, "train_s": train_s}, tags, tuned)
        log(f"epoch {epoch} of {epochs} · loss {loss:.4f} · dev {100 * score:.2f} · {train_s:.0f} s")
        state = {name: part.state_dict() for name, part in parts.items()}
        try:
            with written_whole(checkpoint) as temporary:
                torch.save(state | {"made_by": made_by, "progress": vars(tuned.progress)}, temporary)
                with temporary.open("r+b") as stream:
                    stream.write(hashlib.file_digest(stream, xxhash.xxh3_128).digest())
        except (OSError, RuntimeError) as error:  # training continues; torch raises its own error on a full disk
            log(f"the checkpoint cannot be written: {reason_of(error)}")
    tuned.load_state_dict(tuned.progress.best_weights)
    return tuned


def update(
    tuned: FineTuned,
    train: TaggedText,
    numbers: list[int],
    gradient_clip: float,
    optimizer: torch.optim.Optimizer,
    rates: Any,
) -> Tensor:
    """Makes one update on the windows with these numbers. Returns their words' mean loss, float64 on the device."""
    loss = torch.zeros((), dtype=torch.float64, device=tuned.device)
    num_words = sum(train.windows[number].keep_last - train.windows[number].keep_first for number in numbers)
    for windows in train.parts(numbers):
        scores, rows = tuned(train.text, windows)
        labels = to_device(train.labels[rows], tuned.device)
        part = nn.functional.cross_entropy(scores, labels, reduction="sum") / num_words
        with kernels(tuned.precision, tuned.device, lstm=False):
            part.backward()
        loss += part.detach()
    nn.utils.clip_grad_norm_(tuned.parameters(), gradient_clip)
    optimizer.step()
    rates.step()
    optimizer.zero_grad()
    return loss


def optimizer_of(tuned: FineTuned, cfg: Config, train: TaggedText) -> tuple[torch.optim.Optimizer, Any]:
    """Returns AdamW without decay for biases and norms, and its learning rates: up over WARM_UP, then down to zero."""
    import transformers

    matrices = [parameter for parameter in tuned.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in tuned.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=cfg.probe.learning_rate, fused=True)
    updates = int(cfg.probe.max_epochs) * -(-len(train.windows) // train.at_once(cfg.probe.batch_size))
    return optimizer, transformers.get_linear_schedule_with_warmup(optimizer, round(WARM_UP * updates), updates)


def _resume(parts: dict[str, Any], checkpoint: Path, made_by: str) -> bool:
    """Restores the saved state if it is undamaged and has the same `made_by`; returns whether it did."""
    tuned = parts["weights"]
    try:
        if not checkpoint.is_file():  # reading a FIFO would not end
            return False
        content = np.memmap(checkpoint, mode="r").data
        if xxhash.xxh3_128_digest(content[:-CHECKSUM_BYTES]) != content[-CHECKSUM_BYTES:].tobytes():
            return False
        state = torch.load(checkpoint, map_location=tuned.device, weights_only=True)
        if state["made_by"] != made_by:
            return False
        tuned.progress = Progress(**state["progress"])
    except Exception:  # anything else in its place
        return False
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return True


def fit(inputs: FitInputs, log: Callable[[str], None]) -> Fit:
    """Fine-tunes the encoder with a linear layer; no features are read or written."""
    cfg, encoder, splits = inputs.cfg, text_encoder(inputs.encoder), inputs.corpus.splits
    clock = time.perf_counter()
    device = resolve_device(cfg.device)
    make_deterministic(device)
    labels, label_ids = classifier_labels(splits["train"].tags)
    data = {
        name: TaggedText(Text(inputs.corpus, name, encoder, cfg.features), split.tags, label_ids)
        for name, split in splits.items()
    }
    machine = hardware(device, torch.get_num_threads(), bfloat16_kernels(cfg, device))
    read_s = time.perf_counter() - clock
    measure, made_by = inputs.corpus.task.measure, canonical([versions(), to_jsonable(machine)])
    tuned = fine_tune(cfg, data["train"], data["dev"], labels, measure, device, inputs.unfinished, made_by, log)
    progress = tuned.progress
    test, _ = tuned.predict(data["test"])
    best = progress.curve[progress.best_epoch - 1]
    return Fit(
        predictions={"dev": progress.best_dev_tags, "test": test},
        curve=[Epoch(**point) for point in progress.curve],
        outcome="converged" if best["dev"] > 0 else "never_learned",  # it always trains max_epochs
        best_epoch=progress.best_epoch,
        parameters=sum(parameter.numel() for parameter in tuned.parameters()),
        hardware=machine,
        read_s=read_s,
        train_s=sum(point["train_s"] for point in progress.curve),  # including epochs before an interruption
        labels=labels,
    )
