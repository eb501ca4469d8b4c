"""A tiny random encoder of every model type of transformers that reads text, and what the package makes of it."""

from __future__ import annotations

import copy
import inspect
import re
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModel, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

from probe.config import UserError
from probe.data.corpus import Corpus
from probe.data.split import Split
from probe.encoders.encoder import Encoder, open_encoder
from probe.encoders.model import load_model
from probe.encoders.pieces import special_pieces
from probe.vectors.store import Shard
from probe.vectors.words import Text, batches, states_of
from support.inputs import encoder_config, features_config

LIMIT, VOCABULARY, MOST_WEIGHTS = 40, 60, 8_000_000
SPECIAL = ["<unk>", "<pad>", "<s>", "</s>", "<mask>"]
WORDS = "paris may be nice met england won x lost , at bank".split()
# What makes a config small: the first of these expressions that a number's name matches says what it becomes.
SIZES = {
    r".*vocab_size|n_words|vocab_size_per_layer_input": VOCABULARY,
    r"max_.*position_embeddings|n_positions|max_(source|target)_positions|max_seq_len": LIMIT,
    r"hidden_size_per_layer_input": 8,
    r"num_kv_shared_layers|num_nextn_predict_layers|first_k_dense_replace": 0,
    r".*n_groups?|num_expert_groups?|mp_num": 1,
    r".*hidden_size|d_model|n_embd|.*embed_dim|.*emb_dim|.*embedding_dim|dim|embedding_size|intra_bottleneck_size": 32,
    r"word_embed_proj_dim|model_dim|d_embed|projection_dim|output_dim|.*text_dim|mamba_.*dim|d_latents|block_dim": 32,
    r"num_hidden_layers|n_layers?|num_layers|encoder_layers|depth|layers": 4,
    r"decoder_layers|num_decoder_layers|.*num_layers|.*hidden_layers|.*_layers": 2,
    r".*num_(key_value|kv)_heads|.*key_value_heads|n_head_kv|.*attention_heads|n_heads?|.*num_heads|.*_n_heads": 2,
    r"qk_rope_head_dim|qk_nope_head_dim|rotary_dim": 8,
    r"head_dim|d_kv|.*head_dim|attention_key_size|d_head": 16,
    r".*intermediate_size|.*ffn_dim|d_ff|hidden_dim|d_inner|ffn_hidden_size|n_inner|inner_dim": 64,
    r".*_lora_rank|.*_lora_dim": 8,
    r".*num_.*experts|n_routed_experts": 4,
    r".*experts_per_tok|.*topk|top_k|moe_k|.*experts_topk": 2,
    r"topk_group|n_shared_experts|num_shared_experts": 1,
    r"image_size": 8,
    r"patch_size": 4,
    r"attention_window|block_size|num_latents": 4,
    r"pad_token_id": 1,
    r"(bos|eos|cls|sep|decoder_start|forced_eos)_token_id": 3,
}
OFTEN_NULL = {"head_dim": 16, "num_key_value_heads": 2}  # set even where the default is null
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}}
IN_SECTIONS = "glm4v_text glm46v_text glm_image_text glm_ocr_text glmga_text paddleocr_vl_text qwen2_5_omni_text"
# What some types need besides.
MORE: dict[str, dict[str, Any]] = {
    **dict.fromkeys([*IN_SECTIONS.split(), "qwen2_vl_text", "qwen2_5_vl_text", "hunyuan_vl_text"], SECTIONS),
    "glm4v_moe_text": {"rope_parameters": SECTIONS["rope_parameters"] | {"mrope_section": [1, 1, 2]}},
    "codegen": {"n_head": 4},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 1, "mask_token_id": 4},
    "funnel": {"architectures": ["FunnelModel"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "layoutlmv3": {"coordinate_size": 4, "shape_size": 8},
    "lilt": {"hidden_size": 48},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"], "num_hidden_layers": 2},
    "zaya": {"num_experts_per_tok": 1},
}


def kinds(half: int) -> list[str]:
    """Returns the model types that have a vocabulary and read pieces, of every second type."""
    return [kind for kind in sorted(MODEL_MAPPING_NAMES)[half::2] if _has_vocabulary(kind) and _reads_pieces(kind)]


def _has_vocabulary(kind: str) -> bool:
    try:
        return "vocab_size" in repr(CONFIG_MAPPING[kind]().to_dict())
    except Exception:  # a config that needs others in it
        return True


def _reads_pieces(kind: str) -> bool:
    try:
        models = MODEL_MAPPING[CONFIG_MAPPING[kind]]
        model: Any = models[0] if isinstance(models, tuple) else models
        return "input_ids" in inspect.signature(model.forward).parameters
    except Exception:  # one that needs a package that is not here
        return True


def small(config: Any) -> Any:
    """Returns the same config with small sizes, in it and in the configs in it."""
    settings: dict[str, Any] = {}
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            settings[name] = small(value).to_dict()
        elif isinstance(value, dict) and "mrope_section" in value:
            settings[name] = value | {"mrope_section": _sections(config, value["mrope_section"])}
        elif (
            (isinstance(value, int) and not isinstance(value, bool)) or name in OFTEN_NULL or name == "attention_window"
        ):
            sizes = (size for pattern, size in SIZES.items() if re.fullmatch(pattern, name))
            if (size := next(sizes, None)) is not None:
                settings[name] = size
    if hasattr(config, "qk_rope_head_dim"):
        settings["head_dim"] = settings["qk_rope_head_dim"]
    return type(config)(**settings | MORE.get(config.model_type, {}))


def _sections(config: Any, sections: list[int]) -> list[int]:
    """Scales the sections of multimodal rotary positions to heads of 16."""
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    firsts = [part * 16 // width for part in sections[:-1]]
    return [*firsts, sum(sections) * 16 // width - sum(firsts)]


def model_of(kind: str) -> Any:
    """Returns a small random model. Raises whatever transformers raises, and ValueError for one that stays large."""
    config = small(CONFIG_MAPPING[kind]())
    with torch.device("meta"):
        weights = AutoModel.from_config(config).num_parameters()
    if weights > MOST_WEIGHTS:
        raise ValueError(f"{weights:,} weights")
    torch.manual_seed(0)
    model = AutoModel.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return model


def tokenizer() -> Any:
    """Returns a fast tokenizer of a few words, with a special piece at both ends. It states no length."""
    vocabulary = {piece: number for number, piece in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [("<s>", vocabulary["<s>"]), ("</s>", vocabulary["</s>"])]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = ["unk_token", "pad_token", "cls_token", "sep_token", "mask_token"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **dict(zip(names, SPECIAL, strict=True)))


def outcome(kind: str, folder: Path) -> str:
    """Builds a type's encoder in a folder and returns what comes of it, as a line of the table.

    Raises whatever is neither an encoder that cannot be built nor a refusal.
    """
    try:
        tokenizer().save_pretrained(folder)
        model_of(kind).save_pretrained(folder)
    except Exception as error:
        return f"not built: {type(error).__name__}"
    try:
        encoder, settings = _opened(folder)
        texts = _texts(encoder)
        model: Any = load_model(encoder, "cpu")
        found = [_vectors(texts, encoder, model, batch_pieces) for batch_pieces in (32, 1024)]
    except UserError as error:
        return f"refused by {traceback.extract_tb(error.__traceback__)[-1].name}"
    try:
        expected = _plain(texts, encoder)
    except Exception as error:
        return f"not compared: {type(error).__name__}"
    tolerance = 1e-4 * max(1.0, float(expected.abs().mean()))
    is_right = all(one.shape == expected.shape and (one - expected).abs().max() < tolerance for one in found)
    causal = {True: "causal", False: "both ways", None: "causal or not"}[model.is_causal]
    facts = [f"{encoder.limit} pieces", *settings, causal, *["unpadded"] * (not model.takes_padding)]
    return f"{'right' if is_right else 'WRONG'}: {', '.join(facts)}"


def _opened(folder: Path) -> tuple[Encoder, list[str]]:
    """Returns the encoder, and the setting that it needed.

    For some types the library takes its own tokenizer, which does not know these words; it is replaced.
    """
    cfg, settings = encoder_config(folder), []
    try:
        encoder = open_encoder(cfg, folder)
    except UserError as error:
        if "encoder.max_pieces" not in str(error):
            raise
        encoder, settings = open_encoder(replace(cfg, max_pieces=LIMIT), folder), ["encoder.max_pieces"]
    return replace(encoder, tokenizer=tokenizer(), special=special_pieces(tokenizer())), settings


def _texts(encoder: Encoder) -> list[list[str]]:
    longest = [WORDS[i * 7 % len(WORDS)] for i in range(min(encoder.max_text_pieces, 2 * LIMIT))]
    return [longest, WORDS[:2], WORDS[3:10], WORDS[4:6], longest[: len(longest) // 2], WORDS[5:12]]


def _vectors(texts: list[list[str]], encoder: Encoder, model: Any, batch_pieces: int) -> torch.Tensor:
    """Returns (L + 1, W, H), in batches as a run has them."""
    split = Split(texts, [["O"] * len(text) for text in texts], None, [*range(1, len(texts) + 1)], "text")
    cfg, total = features_config(encoder.folder), sum(map(len, texts))
    text = Text(Corpus("zoo", {"dev": split}), "dev", encoder, cfg)
    vectors = torch.full((encoder.num_layers + 1, total, encoder.hidden_size), float("nan"))
    for windows in batches(text, Shard("dev", 0, 0, total), batch_pieces, "cpu"):
        states, rows = states_of(windows, text, model, "cpu")
        vectors[:, rows] = states
    return vectors


def _plain(texts: list[list[str]], encoder: Encoder) -> torch.Tensor:
    """Returns (L + 1, W, H) of transformers itself: each text alone, read by a model that has read nothing before."""
    model = AutoModel.from_pretrained(encoder.folder, dtype=torch.float32).eval()
    vectors = []
    for text in texts:
        fresh = copy.deepcopy(model)
        if fresh.config.is_encoder_decoder:
            fresh = fresh.get_encoder()
        pieces = [encoder.tokenizer.convert_tokens_to_ids(word) for word in text]
        ids = torch.tensor([[*encoder.special.prefix, *pieces, *encoder.special.suffix]])
        try:
            states = _states(fresh, ids, encoder.special.has_types)
        except Exception:  # a model of texts and images that wants both
            kind = fresh.config.get_text_config().model_type
            parts = (m for m in fresh.modules() if getattr(getattr(m, "config", None), "model_type", "") == kind)
            part = next((m for m in parts if m is not fresh and hasattr(m, "get_input_embeddings")), None)
            if part is None:
                raise
            states = _states(part, ids, encoder.special.has_types)
        first = len(encoder.special.prefix)
        vectors.append(torch.stack(states)[:, 0, first : first + len(text)])
    return torch.cat(vectors, 1)


def _states(model: Any, ids: torch.Tensor, has_types: bool) -> tuple[torch.Tensor, ...]:
    takes = inspect.signature(model.forward).parameters
    inputs: dict[str, Any] = {"attention_mask": torch.ones_like(ids), "use_cache": False}
    inputs |= {"token_type_ids": torch.zeros_like(ids)} if has_types else {}
    inputs = {name: value for name, value in inputs.items() if name in takes}
    with torch.no_grad():
        output = model(input_ids=ids, **inputs, output_hidden_states=True, return_dict=True)
    states: tuple[torch.Tensor, ...] = output.hidden_states
    return states


def table(found: dict[str, str]) -> str:
    """Returns the table of all types, and how many have each result."""
    counts = Counter(line.partition(":")[0] for line in found.values()).most_common()
    head = ", ".join(f"{number} {result}" for result, number in counts)
    lines = [f"# transformers {transformers.__version__}: {len(found)} types that read text: {head}"]
    return "\n".join([*lines, *(f"{kind:<30}  {line}" for kind, line in sorted(found.items()))]) + "\n"
