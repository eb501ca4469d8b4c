"""Fine-tunes the encoder with a linear layer on its last hidden states, as an upper bound for frozen features.

The recipe of Devlin et al. 2019 (appendix A.3): AdamW with weight decay 0.01, a learning rate that rises over the first
tenth of the updates and then falls to zero, dropout, a linear layer on the piece that represents a word, no CRF. The
result has the weights of the epoch that is best on dev.

After each epoch the training state is written to a file, and each epoch has its own random seed. So a resumed training
gives the same bits as an uninterrupted one.

B windows in a batch, P pieces, W words, H hidden size, C labels.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from probe.config import ProbeConfig, UserError
from probe.data.tags import Tags
from probe.encoders.checkpoint import Encoder
from probe.encoders.encoder import load_model, outputs
from probe.features.words import Text, Window, kept_pieces, pool, to_tensors
from probe.probes.batches import pooled_batches
from probe.probes.fitting import Epoch, Fit, FitInputs
from probe.probes.kinds import bfloat16_kernels
from probe.probes.schedule import WARM_UP
from probe.probes.training import labels_of, make_deterministic
from probe.system.bfloat16 import kernels, resolve_precision
from probe.system.files import canonical, to_jsonable, written_whole
from probe.system.format import duration, reason_of
from probe.system.machine import free_memory_per_run, resolve_device, to_device
from probe.system.provenance import hardware, versions
from probe.system.speed import units_per_second

WEIGHT_DECAY = 0.01
INITIAL_STD = 0.02  # of the linear layer, as in BERT's own layers
AT_ONCE = 2048  # pieces, padding included, in one forward pass: bounds the memory
LOG_EVERY_S = 15
BACKWARD = 3  # cost of training on a piece, relative to a forward pass
SAVED = ("curve", "best_epoch", "best_dev_tags", "best_weights")  # in addition to weights, optimizer and rates


class TaggedText:
    """Holds a split as windows, with the label of each word."""

    def __init__(self, text: Text, tags: Tags, label_ids: dict[str, int], special: int) -> None:
        self.text, self.tags = text, tags
        # A tag that does not occur in train has no id and cannot be predicted.
        self.labels = torch.tensor([label_ids.get(tag, -100) for sentence in tags for tag in sentence])  # (W,)
        self.windows = text.windows
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
    """Trains an encoder and a linear layer together.

    curve: of each epoch, its mean training loss, dev score, mean dev loss (nats per word) and seconds of training.
    """

    def __init__(
        self, cfg: ProbeConfig, subword: str, encoder: Encoder, model: nn.Module, labels: list[str], device: str
    ) -> None:
        super().__init__()
        self.cfg, self.subword, self.encoder, self.labels, self.device = cfg, subword, encoder, labels, device
        self.epochs = int(cfg.max_epochs)
        self.model, self.precision = model, resolve_precision(cfg.precision, device)
        self.dropout = nn.Dropout(cfg.dropout)
        self.classifier = nn.Linear(encoder.hidden_size, len(labels))
        nn.init.normal_(self.classifier.weight, std=INITIAL_STD)
        nn.init.zeros_(self.classifier.bias)
        self.curve: list[dict[str, float]] = []
        self.best_epoch = 0
        self.best_dev_tags: Tags = []
        self.best_weights: dict[str, Tensor] = {}

    def forward(self, text: Text, windows: list[Window]) -> tuple[Tensor, Tensor]:
        """Returns the scores of all labels for the words of these windows, (W, C), and the words' positions."""
        ids, mask, types = to_tensors(windows, text.pieces, self.encoder)
        positions, lengths, rows = kept_pieces(windows, text.pieces, self.encoder, self.subword, ids.shape[1])
        ids, mask, positions = (to_device(tensor, self.device) for tensor in (ids, mask, positions))
        types = None if types is None else to_device(types, self.device)
        lengths = None if lengths is None else to_device(lengths, self.device)
        in_bfloat16 = torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bfloat16")
        with kernels(self.precision, self.device, lstm=False), in_bfloat16:
            given = outputs(self.model, ids, mask, types)
            last = given.hidden_states[-1]  # (B, P, H)
            words = pool(last.reshape(-1, last.shape[-1])[positions], lengths, self.subword)
            scores = self.classifier(self.dropout(words))
        return scores.float(), rows

    def bytes_needed(self, widest: int) -> int:
        """Returns an upper bound on the bytes that training takes in addition to the loaded weights.

        These are about 6 times the weights, and the activations of AT_ONCE pieces that the backward pass needs. widest:
        pieces of the longest window.
        """
        config = self.encoder.config
        heads = getattr(config, "num_attention_heads", None) or max(1, self.encoder.hidden_size // 64)
        activations = 17 * self.encoder.hidden_size + 3 * heads * widest  # values per piece and block
        weights = sum(parameter.numel() for parameter in self.parameters())
        return 4 * (6 * weights + max(AT_ONCE, widest) * self.encoder.num_layers * activations)

    def refuse_without(self, free_bytes: float, widest: int) -> None:
        """Raises UserError if training would take more than `free_bytes` bytes."""
        if (needed := self.bytes_needed(widest)) > free_bytes:
            raise UserError(
                f"fine-tuning {self.encoder.name} takes about {needed / 1e9:.1f} GB of memory (the longest window has "
                f"{widest:,} pieces); {free_bytes / 1e9:.1f} GB are free for each run.\n"
                "Fewer runs at once: jobs=1. Shorter windows: features.context=sentence. Or use a smaller encoder."
            )

    @torch.no_grad()
    def predict(self, split: TaggedText) -> tuple[Tags, float]:
        """Returns the tags of every sentence, and the mean loss in nats per word.

        The loss omits words whose tag does not occur in train.
        """
        self.eval()
        ids = torch.zeros_like(split.labels, device=self.device)
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        for windows in split.parts(range(len(split.widths))):
            scores, rows = self(split.text, windows)
            ids[to_device(rows, self.device)] = scores.argmax(-1)
            labels = to_device(split.labels[rows], self.device)
            loss += nn.functional.cross_entropy(scores, labels, reduction="sum")
        names = iter([self.labels[i] for i in ids.tolist()])
        tags = [[next(names) for _ in sentence] for sentence in split.tags]
        return tags, loss.item() / max(1, int((split.labels >= 0).sum()))


def fine_tune(
    cfg: ProbeConfig,
    subword: str,
    encoder: Encoder,
    train: TaggedText,
    dev: TaggedText,
    labels: list[str],
    headline: Callable[[Tags, Tags], float],
    seed: int,
    device: str,
    checkpoint: Path,
    made_by: str,
    free_bytes: float,
    log: Callable[[str], None],
) -> FineTuned:
    """Trains for cfg.max_epochs, resuming from `checkpoint` if possible.

    Returns the model with its best epoch's weights.

    `headline` scores gold and predicted tags. checkpoint: the file for each epoch's state, ignored if its `made_by`
    differs. free_bytes: memory that training may take. `log` gets a line per epoch, and further lines within a long
    epoch. The same seed and number of threads give the same bits. Raises UserError for too little memory, before any
    training, and for a loss that is not finite.
    """
    torch.manual_seed(seed)
    tuned = FineTuned(cfg, subword, encoder, load_model(encoder, device), labels, device).requires_grad_().to(device)
    tuned.refuse_without(free_bytes, max(train.widths))
    optimizer, rates = optimizer_of(tuned, train)
    if _resume(tuned, optimizer, rates, checkpoint, made_by):
        log(f"resumes after epoch {len(tuned.curve)} of {tuned.epochs}")
    for epoch in range(len(tuned.curve), tuned.epochs):
        torch.manual_seed(_seed_of(seed, epoch))
        clock = time.perf_counter()
        scored = sum(dev.widths) / sum(train.widths) / BACKWARD  # cost of scoring dev, in epochs of training
        batches = train.batches(cfg.batch_size, torch.Generator().manual_seed(_seed_of(seed, epoch)))
        loss = _one_epoch(tuned, train, batches, optimizer, rates, 1 + scored, log)
        train_s = round(time.perf_counter() - clock, 3)
        log(f"epoch {epoch + 1} of {tuned.epochs} · loss {loss:.4f} · scoring dev")
        tags, dev_loss = tuned.predict(dev)
        score = headline(dev.tags, tags)
        if score > max((point["dev"] for point in tuned.curve), default=-1.0):
            tuned.best_epoch, tuned.best_dev_tags = epoch + 1, tags
            tuned.best_weights = {name: value.detach().clone() for name, value in tuned.state_dict().items()}
        tuned.curve.append({"loss": loss, "dev": score, "dev_loss": dev_loss, "train_s": train_s})
        log(f"epoch {epoch + 1} of {tuned.epochs} · loss {loss:.4f} · dev {100 * score:.2f} · {train_s:.0f} s")
        state = {name: getattr(tuned, name) for name in SAVED} | {"made_by": made_by}
        state |= {"weights": tuned.state_dict(), "optimizer": optimizer.state_dict(), "rates": rates.state_dict()}
        try:
            with written_whole(checkpoint) as temporary:
                torch.save(state, temporary)
        except (OSError, RuntimeError) as error:  # training continues; torch raises its own error on a full disk
            log(f"the checkpoint cannot be written: {reason_of(error)}")
    tuned.load_state_dict(tuned.best_weights)
    return tuned


def _seed_of(seed: int, epoch: int) -> int:
    return (seed * 1_000_003 + epoch) % 2**63


def update(
    tuned: FineTuned, train: TaggedText, numbers: list[int], optimizer: torch.optim.Optimizer, rates: Any
) -> Tensor:
    """Makes one update on the windows with these numbers. Returns the mean loss of their words, float64 on the device.

    On a GPU the host does not wait for the update: see `_finite`.
    """
    loss = torch.zeros((), dtype=torch.float64, device=tuned.device)
    num_words = sum(train.windows[number].keep_last - train.windows[number].keep_first for number in numbers)
    for windows in train.parts(numbers):
        scores, rows = tuned(train.text, windows)
        labels = to_device(train.labels[rows], tuned.device)
        part = nn.functional.cross_entropy(scores, labels, reduction="sum") / num_words
        with kernels(tuned.precision, tuned.device, lstm=False):
            part.backward()
        loss += part.detach()
    nn.utils.clip_grad_norm_(tuned.parameters(), tuned.cfg.gradient_clip)
    optimizer.step()
    rates.step()
    optimizer.zero_grad()
    return loss


def _finite(loss: Tensor, tuned: FineTuned) -> float:
    """Returns the value of a loss, for which the host waits. Raises UserError if it is not finite."""
    if not math.isfinite(value := loss.item()):
        raise UserError(
            f"the loss is {value} in epoch {len(tuned.curve) + 1}: training diverged. Lower probe.learning_rate."
        )
    return value


def _one_epoch(
    tuned: FineTuned,
    train: TaggedText,
    batches: list[list[int]],
    optimizer: torch.optim.Optimizer,
    rates: Any,
    whole: float,
    log: Callable[[str], None],
) -> float:
    """Trains on every window once and returns the batches' mean loss.

    whole: cost of an epoch including scoring dev, in units of the epoch's training.
    """
    tuned.train()
    epochs, epoch = tuned.epochs, len(tuned.curve) + 1
    started = logged = time.perf_counter()
    losses: list[Tensor] = []
    for numbers in batches:
        losses.append(update(tuned, train, numbers, optimizer, rates))
        if tuned.device == "cpu":
            _finite(losses[-1], tuned)
        if time.perf_counter() - logged > LOG_EVERY_S:
            loss, logged = _finite(losses[-1], tuned), time.perf_counter()
            done = len(losses) / len(batches)
            remaining_s = ((epochs - epoch + 1) * whole - done) * (logged - started) / done
            log(f"epoch {epoch} of {epochs} · {100 * done:.0f} % · loss {loss:.4f} · {duration(remaining_s)} left")
    values = torch.stack(losses)
    _finite(values.sum(), tuned)
    return sum(values.tolist()) / len(losses)


def optimizer_of(tuned: FineTuned, train: TaggedText) -> tuple[torch.optim.Optimizer, Any]:
    """Returns AdamW without decay for biases and norms, and its learning rates: up over WARM_UP, then down to zero."""
    import transformers

    matrices = [parameter for parameter in tuned.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in tuned.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=tuned.cfg.learning_rate, fused=True)
    updates = tuned.epochs * -(-len(train.windows) // train.at_once(tuned.cfg.batch_size))
    return optimizer, transformers.get_linear_schedule_with_warmup(optimizer, round(WARM_UP * updates), updates)


def _resume(tuned: FineTuned, optimizer: torch.optim.Optimizer, rates: Any, checkpoint: Path, made_by: str) -> bool:
    """Restores the saved state if it is undamaged, complete and has the same `made_by`; returns whether it did."""
    try:
        state = torch.load(checkpoint, map_location=tuned.device, weights_only=True)
    except FileNotFoundError:
        return False
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
        return False  # damaged: the epochs in it are trained again
    if state["made_by"] != made_by or not state.keys() >= set(SAVED):  # an older version saved less
        return False
    tuned.load_state_dict(state["weights"])
    optimizer.load_state_dict(state["optimizer"])
    rates.load_state_dict(state["rates"])
    for name in SAVED:
        setattr(tuned, name, state[name])
    return True


def fit(inputs: FitInputs, log: Callable[[str], None]) -> Fit:
    """Fine-tunes the encoder with a linear layer; no features are read or written.

    Raises UserError if there is not enough free memory.
    """
    cfg = inputs.cfg
    clock = time.perf_counter()
    device = resolve_device(cfg.device)
    make_deterministic(device)
    data, labels = texts_of(inputs)
    machine = hardware(device, torch.get_num_threads(), bfloat16_kernels(cfg, device))
    read_s = time.perf_counter() - clock
    tuned = fine_tune(
        cfg.probe,
        cfg.features.subword,
        inputs.encoder,
        data["train"],
        data["dev"],
        labels,
        inputs.corpus.task.headline,
        cfg.seed,
        device,
        inputs.unfinished,
        canonical([versions(), to_jsonable(machine)]),
        free_memory_per_run(device, inputs.runs, inputs.num_gpus),
        log,
    )
    test, _ = tuned.predict(data["test"])
    best = tuned.curve[tuned.best_epoch - 1]
    return Fit(
        predictions={"dev": tuned.best_dev_tags, "test": test},
        curve=[Epoch(**point) for point in tuned.curve],
        passes=1,
        outcome="converged" if best["dev"] > 0 else "never_learned",  # it always trains max_epochs
        best_epoch=tuned.best_epoch,
        mix=None,
        parameters=sum(parameter.numel() for parameter in tuned.parameters()),
        placement="none",
        hardware=machine,
        read_s=read_s,
        train_s=sum(point["train_s"] for point in tuned.curve),  # including epochs before an interruption
        labels=labels,
    )


def texts_of(inputs: FitInputs) -> tuple[dict[str, TaggedText], list[str]]:
    """Returns each split as windows with labels, and the names of the labels."""
    encoder, splits = inputs.encoder, inputs.corpus.splits
    labels, label_ids = labels_of(splits["train"].tags)
    data = {
        name: TaggedText(
            Text(inputs.text, name, encoder, inputs.cfg.features), split.tags, label_ids, encoder.special.count
        )
        for name, split in splits.items()
    }
    return data, labels


def training_s(inputs: FitInputs) -> float:
    """Estimates the seconds of a training by training for a moment on some of the text.

    Raises UserError if memory does not suffice for `inputs.runs` such trainings side by side.
    """
    torch.set_num_threads(1)
    cfg, device, (data, labels) = inputs.cfg, resolve_device(inputs.cfg.device), texts_of(inputs)
    train = data["train"]
    tuned = FineTuned(
        cfg.probe, cfg.features.subword, inputs.encoder, load_model(inputs.encoder, device), labels, device
    )
    tuned.requires_grad_().to(device).train()
    tuned.refuse_without(free_memory_per_run(device, inputs.runs, inputs.num_gpus), max(train.widths))
    optimizer, rates = optimizer_of(tuned, train)
    some = train.batches(cfg.probe.batch_size, torch.Generator().manual_seed(0))

    def one_update(numbers: list[int]) -> int:
        _finite(update(tuned, train, numbers, optimizer, rates), tuned)  # waits until the update is done
        return sum(train.widths[number] for number in numbers)

    speed = units_per_second([some[0], *some], one_update)
    scoring = {name: sum(split.widths) / BACKWARD for name, split in data.items()}
    whole = tuned.epochs * (sum(train.widths) + scoring["dev"]) + scoring["test"]
    return whole / speed
