"""The scripts of conf/README.md that write vectors: padding moves none, and `probe` reads what they wrote."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from scipy.io import wavfile
from support.families import HEADS, SIZE, generic_byte_level
from torch import Tensor

from probe.runs.records import load_records

T: Any = transformers
README = Path(__file__).parents[2] / "conf/README.md"
SPLITS = ("train", "dev", "test")
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }} {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant{% endif %}"
)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Runs a script of the README as `python NAME.py ARGUMENTS` does."""
    for name, code in re.findall(r"<!-- recipe (\w+) -->\n```python\n(.*?)```", README.read_text(), flags=re.S):
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(name: str, *arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        runpy.run_path(f"{name}.py", run_name="__main__")

    yield run
    sys.modules.pop("save", None)


@pytest.fixture
def scored(typed: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., list[int]]:
    """The layers that `probe` trains a linear probe on, each, from a folder that has vectors and labels."""

    def run(folder: Path) -> list[int]:
        (command,) = re.findall(r"^`probe (.*data=items .*)` reads\.$", README.read_text(), flags=re.M)
        words = command.replace("DIR", str(folder)).split()
        done = typed(*words, "seed=1", "probe.max_epochs=1", "results_dir=out", "jobs=1")
        assert done.returncode == 0, done.stderr
        return sorted(
            layer for record in load_records(tmp_path / "out").values() for layer in record.identity.layers.indices
        )

    return run


def units(folder: Path, inputs: list[dict[str, Any]]) -> None:
    """Writes what a script reads: in each split the same inputs, with ids and labels."""
    folder.mkdir()
    for split in SPLITS:
        rows = [
            {"id": f"{split} {k}", "label": "ab"[k % 2], "group": f"{split} {k}", **one} for k, one in enumerate(inputs)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def written(folder: Path) -> Tensor:
    """Returns (units, layers, H) of train. The ids beside them are those of the lines."""
    ids = [json.loads(line)["id"] for line in (folder / "train.jsonl").read_text().splitlines()]
    assert (folder / "train.ids.txt").read_text().splitlines() == ids
    layers = load_file(folder / "train.safetensors")
    return torch.stack([layers[f"layer_{k}"] for k in range(len(layers))], 1)


def saved(folder: Path, *parts: Any) -> Path:
    torch.manual_seed(0)
    for part in parts:
        part.save_pretrained(folder)
    return folder


def close(vectors: Tensor, alone: list[Tensor]) -> None:
    """Each of `alone` is what a plain forward pass over one unit gives, (layers, H)."""
    torch.testing.assert_close(vectors, torch.stack(alone), atol=1e-5, rtol=1e-5)
    assert len({vector.numpy().tobytes() for vector in vectors[:, -1]}) == len(vectors)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3"])
def test_the_last_token_of_a_conversation_is_that_of_the_conversation_alone(
    kind: str, recipe: Callable, scored: Callable, tmp_path: Path
):
    config = T.AutoConfig.for_model(kind, vocab_size=400, bos_token_id=0, eos_token_id=2, **HEADS, **SIZE)
    tokenizer = generic_byte_level()  # which puts special pieces around a text: the template has them already
    tokenizer.chat_template, tokenizer.pad_token = TEMPLATE, None
    torch.manual_seed(0)
    folder = saved(tmp_path / "model", tokenizer, T.AutoModel.from_config(config))
    said = [[("user", "Paris " * k)] + [("assistant", "may be nice " * k)] * (k > 3) for k in (1, 5, 2, 4, 3, 7)]
    talks = [[{"role": role, "content": content} for role, content in turns] for turns in said]
    units(tmp_path / "units", [{"messages": talk} for talk in talks])
    recipe("chat", folder, tmp_path / "units")

    model, alone = T.AutoModel.from_pretrained(folder).eval(), []
    for turns in said:
        text = "".join(f"<s>{role} {content}</s>" for role, content in turns) + "<s>assistant" * (len(turns) == 1)
        pieces = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            states = model(pieces, output_hidden_states=True).hidden_states
        alone.append(torch.stack([layer[0, -1] for layer in states]))
    close(written(tmp_path / "units"), alone)
    assert scored(tmp_path / "units") == [0, 1, 2, 3]


def dumped(folder: Path, lengths: tuple[int, ...]) -> list[Tensor]:
    """Writes files as vLLM's connector does, and returns their hidden states, (tokens, layers, H)."""
    folder.mkdir()
    states = [torch.randn(length, 4, 8).bfloat16() for length in lengths]
    for k, state in enumerate(states):
        save_file({"hidden_states": state, "token_ids": torch.arange(len(state))}, folder / f"{k}.safetensors")
    return states


def test_a_dump_of_vllm_gives_the_last_token_bit_for_bit(recipe: Callable, scored: Callable, tmp_path: Path):
    states = dumped(tmp_path / "dump", (3, 9, 1, 4))
    units(tmp_path / "units", [{"file": f"dump/{k}.safetensors"} for k in range(4)])
    recipe("vllm_dump", "units", "3,18,33,36")
    vectors = written(tmp_path / "units")
    assert vectors.dtype == torch.bfloat16
    assert torch.equal(vectors, torch.stack([state[-1] for state in states]))
    assert scored(tmp_path / "units") == [0, 1, 2, 3]
    (called,) = {str(one.encoder.layer_names) for one in load_records(tmp_path / "out").values()}
    assert called == "['3', '18', '33', '36']"


@pytest.mark.parametrize(("ids", "tokens"), [("3,18,33", 4), ("3,18,33,36", 5)])
def test_a_dump_with_other_layers_or_tokens_is_refused(ids: str, tokens: int, recipe: Callable, tmp_path: Path):
    (states,) = dumped(tmp_path / "dump", (4,))
    save_file({"hidden_states": states, "token_ids": torch.arange(tokens)}, tmp_path / "dump/0.safetensors")
    units(tmp_path / "units", [{"file": "dump/0.safetensors"}])
    with pytest.raises(SystemExit, match=re.escape("dump/0.safetensors")):
        recipe("vllm_dump", "units", ids)
    assert not (tmp_path / "units/train.safetensors").exists()


@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken", "weightedmean"])
def test_every_layer_is_pooled_as_the_folder_says(
    pooling: str, tiny_bert: Path, recipe: Callable, scored: Callable, tmp_path: Path
):
    library = pytest.importorskip("sentence_transformers")
    parts = library.sentence_transformer.modules
    transformer = parts.Transformer(str(tiny_bert), max_seq_length=24)
    prompts = {"prompts": {"query": "find : "}, "default_prompt_name": "query"} if pooling == "mean" else {}
    encoder = library.SentenceTransformer(
        modules=[transformer, parts.Pooling(16, pooling), parts.Normalize()], device="cpu", **prompts
    )
    encoder.save(str(tmp_path / "model"))
    texts = ["Paris", "may be nice", "ana met smith in paris , may be nice ." * 4, "Jordan lost to Chelsea"]
    units(tmp_path / "units", [{"text": text} for text in texts])
    recipe("sentences", tmp_path / "model", tmp_path / "units")

    plain, alone = library.SentenceTransformer(str(tmp_path / "model"), device="cpu"), []
    del plain[2]  # Normalize
    model = T.AutoModel.from_pretrained(tiny_bert).eval()
    for text in texts:
        last = plain.encode(text, convert_to_tensor=True)
        pieces = plain.tokenizer("find : " * bool(prompts) + text, truncation=True, max_length=24, return_tensors="pt")
        with torch.inference_mode():
            states = model(**pieces, output_hidden_states=True).hidden_states
        weights = {
            "mean": lambda n: torch.ones(n),
            "cls": lambda n: torch.eye(n)[0],
            "lasttoken": lambda n: torch.eye(n)[-1],
            "weightedmean": lambda n: torch.arange(1.0, n + 1),
        }[pooling](states[0].shape[1])
        alone.append(torch.stack([weights @ layer[0] / weights.sum() for layer in states]))
        torch.testing.assert_close(alone[-1][-1], last, atol=1e-5, rtol=1e-5)
    close(written(tmp_path / "units"), alone)
    assert scored(tmp_path / "units") == [0, 1, 2, 3, 4, 5]


VISION = {"image_size": 16, "patch_size": 8, **SIZE}


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize(
    ("config", "registers"), [(("vit", {}), 0), (("dinov2_with_registers", {"num_register_tokens": 3}), 3)]
)
def test_an_image_has_its_class_token_or_the_mean_of_its_patches(
    pooling: str, config: tuple[str, dict], registers: int, recipe: Callable, scored: Callable, tmp_path: Path
):
    torch.manual_seed(0)
    model = T.AutoModel.from_config(T.AutoConfig.for_model(config[0], **VISION, **config[1])).eval()
    processor = T.ViTImageProcessor(size={"height": 16, "width": 16})
    folder = saved(tmp_path / "model", processor, model)
    rng, pictures = np.random.default_rng(0), []
    for k, (shape, mode) in enumerate(
        [((16, 16, 3), "RGB"), ((40, 20, 3), "RGB"), ((9, 30, 4), "RGBA"), ((8, 8), "L")]
    ):
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8), mode).save(tmp_path / f"{k}.png")
        pictures.append({"file": f"{k}.png"})
    units(tmp_path / "units", pictures)
    recipe("images", folder, "units", pooling)

    alone = []
    for picture in pictures:
        small = Image.open(picture["file"]).convert("RGB").resize((16, 16), Image.Resampling.BILINEAR)
        pixels = torch.tensor(np.array(small)).permute(2, 0, 1)[None] / 255 * 2 - 1
        with torch.inference_mode():
            states = torch.stack(model(pixels, output_hidden_states=True).hidden_states)[:, 0]  # (L + 1, tokens, H)
        assert states.shape[1] == 1 + registers + 4
        alone.append(states[:, 0] if pooling == "cls" else states[:, -4:].mean(1))
    close(written(tmp_path / "units"), alone)
    assert scored(tmp_path / "units") == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")  # transformers' WavLM
@pytest.mark.parametrize("norm", ["layer", "group"])
@pytest.mark.parametrize("kind", ["wav2vec2", "hubert", "wavlm"])
def test_a_clip_has_the_mean_of_its_frames(kind: str, norm: str, recipe: Callable, scored: Callable, tmp_path: Path):
    convolutions = {"conv_dim": (8, 8), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2}
    position = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}
    stable = {"do_stable_layer_norm": norm == "layer"}
    config = T.AutoConfig.for_model(kind, feat_extract_norm=norm, **convolutions, **position, **stable, **SIZE)
    torch.manual_seed(0)
    model, extractor = T.AutoModel.from_config(config).eval(), T.Wav2Vec2FeatureExtractor(do_normalize=True)
    folder = saved(tmp_path / "model", extractor, model)
    rng, clips = np.random.default_rng(0), []
    for k, length in enumerate((400, 913, 77, 650)):
        clips.append((3000 * rng.standard_normal(length) + 500).astype(np.int16))
        wavfile.write(tmp_path / f"{k}.wav", 16000, clips[-1])
    units(tmp_path / "units", [{"file": f"{k}.wav"} for k in range(len(clips))])
    recipe("speech", folder, "units")

    alone = []
    for clip in clips:
        wave = torch.tensor(clip / 32768, dtype=torch.float32)
        wave = (wave - wave.mean()) / (wave.var(correction=0) + 1e-7).sqrt()
        with torch.inference_mode():
            states = model(wave[None], output_hidden_states=True).hidden_states
        alone.append(torch.stack([layer[0].mean(0) for layer in states]))
    close(written(tmp_path / "units"), alone)
    assert scored(tmp_path / "units") == [0, 1, 2, 3]


@pytest.mark.parametrize(("rate", "clip"), [(8000, np.zeros(900, np.int16)), (16000, np.zeros(900, np.float32))])
def test_a_clip_of_another_rate_or_form_is_refused(rate: int, clip: np.ndarray, recipe: Callable, tmp_path: Path):
    config = T.AutoConfig.for_model("wav2vec2", conv_dim=(8,), conv_kernel=(10,), conv_stride=(5,), **SIZE)
    folder = saved(tmp_path / "model", T.Wav2Vec2FeatureExtractor(), T.AutoModel.from_config(config))
    wavfile.write(tmp_path / "clip.wav", rate, clip)
    units(tmp_path / "units", [{"file": "clip.wav"}])
    with pytest.raises(SystemExit, match=r"clip\.wav"):
        recipe("speech", folder, "units")
