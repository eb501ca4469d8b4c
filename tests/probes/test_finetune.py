"""Fine-tuning: the same losses as a bare loop, the same bits after a stop, every word predicted once."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import xxhash
from support.inputs import features_config, run_config

from probe.config import ProbeConfig
from probe.data.corpus import Corpus
from probe.data.tasks.spans import span_f1
from probe.encoders.encoder import Encoder
from probe.probes.finetune import FineTuned, TaggedText, fine_tune
from probe.probes.training import classifier_labels
from probe.vectors.words import Text


def tuned(corpus: Corpus, encoder: Encoder, tmp_path: Path, log=lambda _: None, **changes: object) -> FineTuned:
    values: dict[str, Any] = {"num_layers": 0, "hidden_size": 0, "dropout": 0.0, "learning_rate": 1e-2, "max_epochs": 3}
    values |= {"batch_size": 1000, "lr_decay": 1.0, "patience": 3, "gradient_clip": 1.0, "precision": "float32"}
    features = features_config(tmp_path)
    cfg = run_config(probe=ProbeConfig(**{**values, **changes}), features=features)
    labels, ids = classifier_labels(corpus.splits["train"].tags)
    train, dev = (
        TaggedText(Text(corpus, name, encoder, features), corpus.splits[name].tags, ids) for name in ("train", "dev")
    )
    return fine_tune(cfg, train, dev, labels, span_f1, "cpu", tmp_path / "kept.pt", "here", log)


@pytest.fixture
def still(tiny_encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> Encoder:
    """The tiny encoder without dropout."""
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        monkeypatch.setattr(tiny_encoder.config, name, 0.0)
    return tiny_encoder


def test_the_losses_are_those_of_a_bare_loop(still: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    ours = tuned(tiny_corpus, still, tmp_path)

    torch.manual_seed(1)
    model = transformers.AutoModel.from_pretrained(still.folder, config=still.config, add_pooling_layer=False).train()
    split = tiny_corpus.splits["train"]
    head = torch.nn.Linear(16, len(ours.labels))
    torch.nn.init.normal_(head.weight, std=0.02)
    torch.nn.init.zeros_(head.bias)
    tokens = still.tokenizer(split.words, is_split_into_words=True, padding=True, return_tensors="pt")
    ids = torch.full(tokens["input_ids"].shape, -100)
    for i, tags in enumerate(split.tags):
        words = tokens.word_ids(i)
        for position, word in enumerate(words):
            if word is not None and word != words[position - 1]:
                ids[i, position] = ours.labels.index(tags[word])
    parameters = [*model.parameters(), *head.parameters()]
    decayed = [parameter for parameter in parameters if parameter.dim() > 1]
    others = [parameter for parameter in parameters if parameter.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=0.0
    )
    losses = []
    for share in (1.0, 2 / 3, 1 / 3):  # three updates: a tenth of them to rise in is none
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * share
        scores = head(model(**tokens).last_hidden_state)
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert [point["loss"] for point in ours.progress.curve] == pytest.approx(losses, rel=1e-4)
    assert losses[2] < losses[0]


def test_stopped_after_any_epoch_it_comes_to_the_same_bits(tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path):
    for name in ("alone", "stopped"):
        (tmp_path / name).mkdir()
    alone = tuned(tiny_corpus, tiny_encoder, tmp_path / "alone", batch_size=8, dropout=0.3)

    for epoch in (2, 3):  # after the first one, and after the second

        def stop(line: str, at: str = f"epoch {epoch} ") -> None:
            if line.startswith(at):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tuned(tiny_corpus, tiny_encoder, tmp_path / "stopped", stop, batch_size=8, dropout=0.3)
    lines: list[str] = []
    ours = tuned(tiny_corpus, tiny_encoder, tmp_path / "stopped", lines.append, batch_size=8, dropout=0.3)
    assert "after epoch 2 of 3" in lines[0]
    assert not any(line.startswith("epoch 2 ") for line in lines)
    assert [point["loss"] for point in ours.progress.curve] == [point["loss"] for point in alone.progress.curve]
    assert same_bits(ours, alone)


def same_bits(one: FineTuned, other: FineTuned) -> bool:
    weights = other.state_dict()
    return all(torch.equal(value, weights[name]) for name, value in one.state_dict().items())


def test_a_checkpoint_with_a_flipped_bit_or_other_content_is_not_resumed(
    tiny_encoder: Encoder, tiny_corpus: Corpus, tmp_path: Path
):
    checkpoint, lines = tmp_path / "kept.pt", list[str]()
    alone = tuned(tiny_corpus, tiny_encoder, tmp_path)
    kept = checkpoint.read_bytes()
    choose = random.Random(1)
    bad = [kept[:-1], kept + b"x", b"", b"x" * 40, with_checksum([1]), with_checksum({"made_by": "here"})]
    for _ in range(12):
        at = choose.randrange(len(kept))
        bad.append(kept[:at] + bytes([kept[at] ^ 1 << choose.randrange(8)]) + kept[at + 1 :])
    for content in bad:
        checkpoint.write_bytes(content)
        lines.clear()
        assert same_bits(tuned(tiny_corpus, tiny_encoder, tmp_path, lines.append), alone)
        assert [str(checkpoint) in line for line in lines[:2]] == [True, False]
        assert any(line.startswith("epoch 1 of 3 ") for line in lines)
    checkpoint.unlink()
    os.mkfifo(checkpoint)
    assert same_bits(tuned(tiny_corpus, tiny_encoder, tmp_path, lines.append), alone)
    lines.clear()
    assert same_bits(tuned(tiny_corpus, tiny_encoder, tmp_path, lines.append), alone)
    assert lines == ["resumes after epoch 3 of 3"], "the checkpoint took the FIFO's place"


def with_checksum(state: object) -> bytes:
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue() + xxhash.xxh3_128_digest(stream.getvalue())
