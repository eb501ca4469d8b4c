"""Encoders with random weights: their store against a plain forward pass of the same seeded weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from support.commands import python
from support.inputs import encoder_config, ensure_features, features_config, make_split, plain_encoder, stored

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.encoders.encoder import Encoder, open_encoder
from probe.encoders.model import load_model
from probe.vectors.store import FeatureStore

SEED = 7  # the tiny encoders' own weights are random too, with seed 0


def opened(folder: Path, cache: Path, weights: str, seed: int = SEED) -> Encoder:
    return open_encoder(replace(encoder_config(folder), weights=weights, weights_seed=seed), cache)


def seeded(config: Any) -> Any:
    torch.manual_seed(SEED)
    return transformers.AutoModel.from_config(config, dtype=torch.float32).eval()


def test_a_store_holds_a_plain_forward_of_seeded_weights(tiny_bert: Path, tmp_path: Path):
    corpus = Corpus("tiny", {name: make_split(6, n) for n, name in enumerate(("train", "dev", "test"))})
    encoder = opened(tiny_bert, tmp_path, "random")
    features = features_config(tmp_path / "cache", dtype="float32")
    found = stored(ensure_features(corpus, encoder, features, "cpu"), "dev")
    tokenizer, trained = plain_encoder(tiny_bert)
    model = seeded(trained.config)
    expected = []
    for words in corpus.splits["dev"].words:
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            states = torch.stack(model(**batch, output_hidden_states=True).hidden_states)[:, 0]  # (L + 1, P, H)
        firsts = [batch.word_ids(0).index(word) for word in range(len(words))]
        expected.append(states[:, firsts])
    assert torch.allclose(found, torch.cat(expected, 1), atol=1e-5)


@pytest.mark.slow
def test_random_weights_are_the_same_in_another_process(tiny_bert: Path, tmp_path: Path):
    code = (
        "import sys, torch; from pathlib import Path; from probe.config import EncoderConfig\n"
        "from probe.encoders.encoder import open_encoder; from probe.encoders.model import load_model\n"
        "torch.set_num_threads(2); torch.rand(3)\n"
        f"cfg = EncoderConfig('', sys.argv[1], None, None, 'random', {SEED})\n"
        "model = load_model(open_encoder(cfg, Path(sys.argv[2])), 'cpu')\n"
        "print(float(sum(p.double().abs().sum().item() for p in model.parameters())).hex())"
    )
    told = python(code, str(tiny_bert), str(tmp_path))
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    model = load_model(opened(tiny_bert, tmp_path, "random"), "cpu")
    assert torch.equal(torch.rand(1), expected)
    assert told.stdout.strip() == float(sum(p.double().abs().sum().item() for p in model.parameters())).hex(), (
        told.stderr
    )


def test_the_fingerprint_has_kind_seed_and_versions_of_random_weights(
    tiny_bert: Path, tiny_corpus: Corpus, tmp_path: Path
):
    plain, random, other = (
        opened(tiny_bert, tmp_path, weights, seed)
        for weights, seed in (("pretrained", 1), ("random", 1), ("random", 2))
    )
    keys = [FeatureStore.of(tiny_corpus, one, features_config(tmp_path)).key for one in (plain, random, other)]
    assert len(set(keys)) == 3
    assert random.fingerprint.keys() == {"config", "tokenizer", "random"}
    assert random.fingerprint["random"] == (
        f"all, seed 1, transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
    )
    assert random.pretrained == plain.fingerprint
    assert plain.pretrained is None


def test_a_bare_config_suffices_for_random_weights_alone(tiny_bert: Path, tmp_path: Path):
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in tiny_bert.iterdir():
        if file.suffix != ".safetensors":
            (bare / file.name).write_bytes(file.read_bytes())
    encoder = opened(bare, tmp_path, "random")
    assert encoder.fingerprint == opened(tiny_bert, tmp_path, "random").fingerprint
    assert encoder.pretrained is None
    assert sum(name.endswith("query.weight") for name, _ in load_model(encoder, "cpu").named_parameters()) == 5
    with pytest.raises(UserError, match="safetensors"):
        opened(bare, tmp_path, "pretrained")


def test_in_bfloat16_the_same_weights_are_rounded(tiny_bert: Path, tmp_path: Path):
    encoder = opened(tiny_bert, tmp_path, "random")
    full, half = (
        dict(load_model(encoder, "cpu", precision).named_parameters()) for precision in ("float32", "bfloat16")
    )
    assert all(torch.equal(half[name].float(), full[name].bfloat16().float()) for name in full)
