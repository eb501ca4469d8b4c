"""Defines name, type and checks of every setting. The values are in `conf/`, and only there.

`settings.py` composes the YAML files and turns the result into these plain dataclasses once.
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

COMBINES = ("concat", "mean", "mix", "sum")  # of layers; a screen shows the first of several that it reads alike
BASELINES = ("none", "length")  # without layers; typed in their place
PRECISIONS = ("float32", "bfloat16")
# Values of the settings that a kind of probe does not have.
UNUSED_SETTINGS = {"num_layers": 0, "hidden_size": 0, "lr_decay": 1.0, "lr_patience": 1, "patience": 1}
LINEAR = "linear"  # of probe.lr_decay: the rate falls to 0 over max_epochs; all of them are trained
PRESET_GROUPS = ("data", "encoder", "layers", "probe")
HUB_NAME = re.compile(r"\w[\w.-]*/[\w.-]+")  # OWNER/NAME
# What settings and groups are called elsewhere.
SYNONYMS = {
    word: setting
    for setting, words in {
        "data": "dataset dataset_name corpus",
        "encoder": "model model_name model_name_or_path backbone pretrained",
        "probe.learning_rate": "lr",
        "probe.max_epochs": "epochs num_epochs n_epochs num_train_epochs",
        "probe.batch_size": "batch bs train_batch_size",
        "seed": "seeds random_seed random_state",
        "results_dir": "output output_dir out out_dir save_dir",
        "jobs": "workers num_workers n_jobs",
        "device": "gpu cuda accelerator",
    }.items()
    for word in words.split()
}


class UserError(ValueError):
    """Reports a mistake in one or two lines: what was found, what is allowed, what to type."""

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython shows in a notebook instead of a traceback."""
        return f"{type(self).__name__}: {self}".splitlines()


def closest(word: str, known: Iterable[str]) -> str | None:
    """Finds the most similar word, for one that was mistyped; None if there is none."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Asks in a sentence, after a blank, whether the most similar word was meant; "" if there is none."""
    return f" Did you mean {close}?" if (close := closest(word, known)) else ""


def unknown(what: str, word: str, known: Collection[str], meant: str | None = None) -> UserError:
    """Returns the error for a name that does not exist, with the closest one and all that there are.

    what: what was typed, or the setting that holds the name. meant: what it probably stands for, if that is known.
    """
    return UserError(f"{what}: there is no {word!r}.{suggestion(meant or word, known)} There are: {', '.join(known)}.")


def one_of(name: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        raise UserError(f"{name}={value!r}: expected one of {', '.join(allowed)}.")


def _hash_of_values(self: object) -> int:
    """Hashes settings by their values, so that functions of them can be cached. Lists have no hash of their own."""
    return hash(repr(self))


@dataclass
class DataConfig:
    name: str | None  # null: the folder's name
    task: str
    path: str | None
    hub: str | None
    revision: str | None
    train: str
    dev: str | None  # null: taken from train
    test: str | None
    subset: str | None
    hub_train: str
    hub_dev: str
    hub_test: str
    dev_fraction: float | None
    test_fraction: float | None
    word_column: int
    tag_column: int
    tag_feature: str | None
    sentence_column: int | None
    separator: str
    comment: Any  # a text, a list of them, or null
    document_marker: str | None
    word_prefix: str | None
    words_field: str
    tags_field: str
    document_field: str | None
    id_field: str | None  # null: a text is its own id
    offsets: str | None  # null: characters, unless that is doubtful
    overlaps: str | None  # null: refused
    labels: list[str] | None
    scheme: str
    ill_formed: str
    order: str | None  # null: found by what neighbouring sentences have in common
    control: int | None  # a seed

    __hash__ = _hash_of_values


@dataclass
class EncoderConfig:
    name: str
    path: str | None
    revision: str | None
    num_layers: int | None  # the preset's; None if name or path was typed
    weights: str
    weights_seed: int
    lower_case: bool | None = None  # null: as in the tokenizer's files
    max_pieces: int | None = None  # null: as many as model and tokenizer state

    __hash__ = _hash_of_values


@dataclass
class FeaturesConfig:
    context: str
    subword: str
    stride: float
    precision: str
    dtype: str
    final_norm: str
    sentence: str  # read only if texts have one label
    layers: Any  # null: all
    batch_pieces: int | str
    cache_dir: str
    placement: str

    __hash__ = _hash_of_values

    def __post_init__(self) -> None:
        self.cache_dir = str(Path(self.cache_dir or "~/.cache/layer-probe").expanduser())


@dataclass
class LayersConfig:
    indices: Any
    combine: str
    name: str = ""  # the preset's; empty if indices or combine were typed
    normalize: str | None = None  # typed `none`; None here, so that keys and records omit it

    def __post_init__(self) -> None:
        if self.normalize == "none":
            self.normalize = None

    @property
    def is_empty(self) -> bool:
        """Returns whether no layer is chosen."""
        return self.combine in BASELINES


@dataclass
class ProbeConfig:
    """Holds the settings of all kinds of probes. `probes.kinds` says which of them a kind has, and checks that."""

    num_layers: int
    hidden_size: int
    dropout: float
    learning_rate: float
    lr_decay: int | float | str  # linear: falls to 0 over max_epochs
    batch_size: int
    max_epochs: int | str  # auto: depends on the size of the text, see probes.schedule
    patience: int
    gradient_clip: float
    precision: str
    lr_patience: int = 1
    kind: str = "bilstm"

    def __post_init__(self) -> None:
        if not isinstance(self.lr_decay, str):
            self.lr_decay = float(self.lr_decay)  # 1 and 1.0 are one setting


@dataclass
class ScreenConfig:
    """Holds the settings of `probe screen`. They are not part of a run's key. first: screen before a sweep's runs."""

    first: bool
    window: int
    max_layers: int
    sentences: int
    dev_sentences: int
    seeds: int


@dataclass
class Config:
    data: DataConfig
    encoder: EncoderConfig
    features: FeaturesConfig
    layers: LayersConfig
    probe: ProbeConfig
    seed: int
    results_dir: str
    jobs: int
    device: str
    save_probe: bool
    margin: float
    screen: ScreenConfig

    def __post_init__(self) -> None:
        self.results_dir = str(Path(self.results_dir).expanduser())
        for name, (is_good, expected) in CHECKS.items():
            value = attrgetter(name)(self)
            if value is not None and not is_good(value):
                raise UserError(f"{name}={value}: expected {expected}.")
        if (self.data.dev_fraction or 0) + (self.data.test_fraction or 0) >= 1:
            raise UserError("data.dev_fraction and data.test_fraction leave nothing to train on.")
        if (self.probe.num_layers or self.probe.kind == "mlp") and not self.probe.hidden_size:
            raise UserError("probe.hidden_size=0: expected 1 or more, or probe=linear.")
        if self.probe.lr_decay == LINEAR and self.probe.max_epochs == "auto":
            raise UserError(f"probe.lr_decay={LINEAR} needs a number of epochs: type for example probe.max_epochs=12.")


Check = tuple[Callable[[Any], bool], str]  # whether a value is allowed, and what is allowed


def _among(*allowed: str) -> Check:
    return allowed.__contains__, f"one of {', '.join(allowed)}"


def _from(least: float, most: float = math.inf) -> Check:
    words = f"{least} or more" if most == math.inf else f"{least} to {most}"
    return (lambda value: least <= value <= most), words


SEED: Check = (lambda value: 0 <= value < 2**63), "a whole number of 0 or more, below 2**63"
POSITIVE: Check = (lambda value: 0 < value < math.inf), "a number above 0"
SHARE: Check = (lambda value: 0 < value < 1), "a number between 0 and 1"
NUMBER_OR_AUTO: Check = (lambda value: value == "auto" if isinstance(value, str) else value >= 1), "1 or more, or auto"
MARK: Check = (lambda value: value != ""), "a text, or null for none: every line begins with an empty one"
MARKS: Check = (
    (
        lambda value: all(
            isinstance(one, str | int | float) and one != "" for one in (value if isinstance(value, list) else [value])
        )
    ),
    "a text, a list of texts, or null for none: every line begins with an empty one",
)

# The settings whose type allows values that make no sense. null is checked by types alone.
CHECKS: dict[str, Check] = {
    "data.separator": _among("auto", "whitespace", "tab", "space", "comma"),
    "data.scheme": _among("auto", "IOB1", "IOB2", "BIOES", "BILOU", "BMES", "IO"),
    "data.ill_formed": _among("report", "error"),
    "data.offsets": _among("characters", "utf16"),
    "data.overlaps": _among("longest"),
    "data.order": _among("document", "independent"),
    "data.comment": MARKS,
    "data.document_marker": MARK,
    "data.word_prefix": MARK,
    "data.tag_feature": MARK,
    "data.dev_fraction": SHARE,
    "data.test_fraction": SHARE,
    "data.control": SEED,
    "encoder.weights": _among("pretrained", "random"),
    "encoder.weights_seed": SEED,
    "encoder.max_pieces": _from(1),
    "features.context": _among("sentence", "document"),
    "features.subword": _among("first", "last", "mean", "sum", "max", "cls"),
    "features.sentence": _among("mean", "max", "cls", "first", "last", "model"),
    "features.precision": _among(*PRECISIONS),
    "features.dtype": _among("float16", "bfloat16", "float32"),
    "features.final_norm": _among("last", "each"),
    "features.placement": _among("auto", "memory", "device", "stream"),
    "features.batch_pieces": NUMBER_OR_AUTO,
    "features.stride": ((lambda value: 0 < value <= 1), "a number above 0, at most 1"),
    "layers.combine": _among(*COMBINES, *BASELINES),
    "layers.normalize": _among("none", "train", "scale"),
    "probe.num_layers": _from(0),
    "probe.hidden_size": _from(0),
    "probe.max_epochs": NUMBER_OR_AUTO,
    "probe.batch_size": _from(1),
    "probe.patience": _from(1),
    "probe.lr_patience": _from(1),
    "probe.dropout": ((lambda value: 0 <= value < 1), "a number from 0, below 1"),
    "probe.lr_decay": (
        (lambda value: value == LINEAR or (not isinstance(value, str) and 0 < value <= 1)),
        f"a number above 0, at most 1, or {LINEAR}",
    ),
    "probe.learning_rate": POSITIVE,
    "probe.gradient_clip": POSITIVE,
    "seed": SEED,
    "jobs": ((lambda value: value == -1 or value >= 1), "1 or more, or -1 for one per core"),
    "device": _among("auto", "cpu", "cuda"),
    "margin": _from(0),
    "screen.window": _from(0, 10),
    "screen.max_layers": _from(1),
    "screen.sentences": _from(2),
    "screen.dev_sentences": _from(2),
    "screen.seeds": _from(2, 10),
}


def conf_dir() -> Path:
    """Returns the folder of the YAML files: inside an installed package, next to the package in a checkout."""
    inside = Path(__file__).resolve().parent / "conf"
    return inside if inside.is_dir() else inside.parent.parent / "conf"


@functools.cache
def default_margin() -> float:
    """Returns the margin of tables in points, if the user sets none."""
    return float(_read_yaml(conf_dir() / "config.yaml")["margin"])


def setting_names(cls: type = Config, prefix: str = "") -> list[str]:
    """Returns every setting as it is typed: `seed`, `probe.hidden_size`, ..."""
    names: list[str] = []
    hints = get_type_hints(cls)
    for field in fields(cls):
        names.append(prefix + field.name)
        if is_dataclass(hints[field.name]):
            names += setting_names(hints[field.name], f"{prefix}{field.name}.")
    return names


def preset_names(group: str) -> list[str]:
    """Returns the presets of a group, sorted."""
    return sorted(file.stem for file in (conf_dir() / group).glob("*.yaml"))


@functools.cache
def preset_values(group: str, choice: str | None) -> dict[str, Any]:
    """Returns a preset's values, on those of the presets of its group that it starts from; empty without a file."""
    file = conf_dir() / group / f"{choice}.yaml"
    values = _read_yaml(file) if file.is_file() else {}
    bases = [base for base in values.pop("defaults", ()) if isinstance(base, str) and base != "_self_"]
    return {name: value for base in bases for name, value in preset_values(group, base).items()} | values


def _read_yaml(file: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def layers_named(row: str) -> LayersConfig | None:
    """Returns the layers of a row that tables name by its layers (layer_4, concat_3_4, mix_1_2_3), or of a number."""
    combine, *indices = row.split("_") if "_" in row else ("layer", row)
    is_known = combine in COMBINES or (combine == "layer" and len(indices) == 1)
    if not is_known or not all(index.removeprefix("-").isdecimal() for index in indices):
        return None
    return LayersConfig([int(k) for k in indices], combine.replace("layer", "concat"))


def unknown_setting(key: str) -> UserError:
    """Returns the error for a setting that does not exist, with the closest one and all of its section."""
    names = [name for name in setting_names() if name != "layers.name"]
    meant = SYNONYMS.get(key.rpartition(".")[2].lower()) or closest(key, names) or key
    there = [name for name in names if name.partition(".")[0] == meant.partition(".")[0]]
    return unknown(f"{key}=", key, there or [name for name in names if "." not in name], meant)


def unknown_word(word: str, commands: Collection[str] = ()) -> UserError:
    """Returns the error for a word that is no setting, nor one of these commands, with what was probably meant."""
    typed = {
        name: f"{'+' * (group == 'sweep')}{group}={name}"
        for group in ("sweep", *PRESET_GROUPS)
        for name in preset_names(group)
    }
    typed |= {command: command for command in commands}
    close = closest(word.replace("-", "_"), typed)
    hint = f" Did you mean {typed[close]}?" if close else ""
    return UserError(f"{word!r} is no {'command and no ' * bool(commands)}setting (name=value).{hint}")
