"""Seconds an epoch of the probe, over a bare loop and over PyTorch's packed BiLSTM, in one run.

    python tests/benchmarks/training.py encoder=minilm_l6 data.path=DIR --sentences 3000

Ours is `train_tagger` (Lightning; the seconds of dev scores left out); the bare loop is the same model and batches with
nothing around them; the packed loop is what a PyTorch user would write: a bidirectional nn.LSTM over
pack_padded_sequence, random batches. All on one thread, one epoch each, taking turns; medians of --repeat rounds. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
from torch import nn

from probe.config import ProbeConfig
from probe.data.tasks.spans import span_f1
from probe.probes.batches import Batch, TaggedWords, TrainingBatches
from probe.probes.combine import read_selection
from probe.probes.tagger import Tagger, train_tagger
from probe.runs.plan import plan
from probe.settings import configs_of
from probe.vectors.extraction import ensure_features


def loss_of(scores: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Returns the mean loss of a batch; padding has no label that counts."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), batch.labels.flatten())


class Packed(nn.Module):
    """The same probe as a PyTorch user would write it: lengths are on the host, which waits for them."""

    def __init__(self, cfg: ProbeConfig, width: int, num_labels: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, cfg.hidden_size, cfg.num_layers, bidirectional=True, dropout=cfg.dropout)
        self.dropout = nn.Dropout(cfg.dropout)
        self.classifier = nn.Linear(2 * cfg.hidden_size, num_labels)

    def loss(self, batch: Batch) -> torch.Tensor:
        x = self.dropout(batch.features.float())
        packed = nn.utils.rnn.pack_padded_sequence(x, batch.words.sum(0).cpu(), enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0])
        return loss_of(self.classifier(self.dropout(out)), batch)


def bare_epoch(model: nn.Module, loss_of, batches, cfg: ProbeConfig) -> float:
    """Seconds of one epoch of a plain loop."""
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.learning_rate, fused=True)
    model.train()
    clock = time.perf_counter()
    for batch in batches:
        optimizer.zero_grad()
        loss_of(batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.gradient_clip)
        optimizer.step()
    return time.perf_counter() - clock


def flops_of_a_word(cfg: ProbeConfig, width: int) -> float:
    """Products of the LSTMs for one word, forward and backward (twice the forward; none for the frozen features)."""
    widths = [width] + [2 * cfg.hidden_size] * (cfg.num_layers - 1)
    forward = [2 * 2 * 4 * cfg.hidden_size * (w + cfg.hidden_size) for w in widths]
    not_needed = 2 * 2 * 4 * cfg.hidden_size * width
    return 3 * sum(forward) - not_needed


def matrix_peak() -> float:
    """FLOP/s of a large float32 product on the threads in use."""
    a, b = torch.randn(2, 1536, 1536)
    seconds = []
    for _ in range(8):
        clock = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - clock)
    return 2 * 1536**3 / statistics.median(seconds[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=3000, help="of the training split")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    planned = plan(configs_of([*options.overrides, "probe.max_epochs=1"])[0][0])
    cfg, selection = planned.cfg.probe, planned.selection
    store = ensure_features(planned.text, planned.encoder, planned.cfg.features, "cpu")
    tags = planned.corpus.splits["train"].tags[: options.sentences]
    labels = sorted({tag for sentence in tags for tag in sentence})
    num_words = sum(map(len, tags))
    features = read_selection(store, "train", selection)[:num_words]
    data = TaggedWords(features, tags, {label: i for i, label in enumerate(labels)})
    first = TaggedWords(features[: len(tags[0])], tags[:1], {label: i for i, label in enumerate(labels)})
    torch.set_num_threads(1)

    seconds: dict[str, list[float]] = {"ours": [], "bare": [], "packed": []}
    peaks = []
    for number in range(options.repeat):
        peaks.append(matrix_peak())
        training = train_tagger(cfg, selection, data, first, labels, span_f1, seed=number, log=lambda _: None)
        seconds["ours"].append(training.progress.curve[0]["train_s"] / training.passes)
        torch.manual_seed(number)
        bare = Tagger(cfg, selection, labels)
        batches = TrainingBatches(data, cfg.batch_size, number)
        seconds["bare"].append(bare_epoch(bare, lambda batch, model=bare: loss_of(model(batch), batch), batches, cfg))
        packed = Packed(cfg, selection.width, len(labels))
        order = torch.randperm(len(tags)).split(cfg.batch_size)
        random_batches = (data.batch(sentences) for sentences in order)
        seconds["packed"].append(bare_epoch(packed, packed.loss, random_batches, cfg))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(
        f"{len(tags)} sentences, {num_words} words, {selection.as_text()}, {cfg.hidden_size} per direction, one thread"
    )
    for name, value in median.items():
        print(f"{name:7s} {value:7.2f} s an epoch, {value / median['bare']:.3f} of the bare loop")
    peak = num_words * flops_of_a_word(cfg, selection.width) / median["ours"] / statistics.median(peaks)
    result = {
        "over_bare_loop": round(median["ours"] / median["bare"], 3),
        "packed_over_ours": round(median["packed"] / median["ours"], 2),
        "peak_fraction": round(peak, 3),
        "seconds_per_epoch": round(median["ours"], 2),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
