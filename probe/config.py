"""Defines name, type and checks of every setting. The values are in `conf/`, and only there.

Hydra composes the YAML files; `to_config` turns the result into plain dataclasses once. Only this module and
`settings.py` use OmegaConf.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from probe.system.format import closest, reason_of

COMBINES = ("sum", "mean", "concat", "mix", "none")
NORMALIZES = ("none", "layer", "train", "scale")
CONTEXTS = ("sentence", "document")
SUBWORDS = ("first", "last", "mean", "sum", "max", "cls")
POOLINGS = ("mean", "max", "first", "last", "cls")  # of a sentence's words
DTYPES = ("float16", "bfloat16", "float32")
PRECISIONS = ("float32", "bfloat16")
# Values of the settings that a kind of probe does not have.
UNUSED_SETTINGS = {"num_layers": 0, "hidden_size": 0, "lr_decay": 1.0, "lr_patience": 1, "patience": 1}
LINEAR = "linear"  # of probe.lr_decay: the rate falls to 0 over max_epochs; all of them are trained
PLACEMENTS = ("auto", "memory", "device", "stream")
TASKS = ("spans", "tags", "sentence")
WEIGHTS = ("pretrained", "random")
SCHEMES = ("auto", "IOB1", "IOB2", "BIOES", "BILOU", "IO")
SEPARATORS = ("auto", "whitespace", "tab", "space")
ILL_FORMED = ("report", "error")
PRESET_GROUPS = ("data", "encoder", "layers", "probe")
# OmegaConf's name of a type, and its name in messages.
KINDS = {"Integer": "a whole number", "Float": "a number", "bool": "true or false"}
# Common other names for a setting or a group of presets.
ALIASES = {
    "lr": "probe.learning_rate",
    "epochs": "probe.max_epochs",
    "bs": "probe.batch_size",
    "hidden": "probe.hidden_size",
    "layer": "layers",
    "model": "encoder",
    "bert": "encoder",
    "corpus": "data",
    "dataset": "data",
    "pooling": "features.subword",
    "cache": "features.cache_dir",
    "output": "results_dir",
    "output_dir": "results_dir",
    "tag_scheme": "data.scheme",
}
DEVICES = ("auto", "cpu", "cuda")
MOST_SAMPLES = MOST_WINDOW = 10  # of a screen
SENTENCES = ("cls", "pooler", "mean", "max", "mean_second_to_last")


class UserError(ValueError):
    """Reports a mistake in one or two lines: what was found, what is allowed, what to type."""


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UserError(f"{name}={value!r} is not one of {', '.join(allowed)}.")


def _at_least(name: str, value: float, lowest: float) -> None:
    if not value >= lowest:
        raise UserError(f"{name}={value} is too small: {lowest} or more.")


def _auto_or_at_least(name: str, value: int | str, lowest: int) -> None:
    if value == "auto":
        return
    if isinstance(value, str | bool):
        raise UserError(f"{name}={value} is neither a number nor auto.")
    _at_least(name, value, lowest)


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
    separator: str
    comment: str | None
    document_marker: str | None
    word_prefix: str | None
    words_field: str
    tags_field: str
    document_field: str | None
    labels: list[str] | None
    scheme: str
    ill_formed: str
    control: int | None  # a seed

    __hash__ = _hash_of_values

    def __post_init__(self) -> None:
        one_of("data.task", self.task, TASKS)
        one_of("data.separator", self.separator, SEPARATORS)
        one_of("data.scheme", self.scheme, SCHEMES)
        one_of("data.ill_formed", self.ill_formed, ILL_FORMED)
        for name in ("comment", "document_marker", "word_prefix"):
            if getattr(self, name) == "":
                raise UserError(f"data.{name} is empty, and every line begins with that. For none: data.{name}=null.")
        for name in ("dev_fraction", "test_fraction"):
            if not 0 < (0.5 if getattr(self, name) is None else getattr(self, name)) < 1:
                raise UserError(f"data.{name}={getattr(self, name)} is not a share of train: above 0, below 1.")
        if (self.dev_fraction or 0) + (self.test_fraction or 0) >= 1:
            raise UserError("data.dev_fraction and data.test_fraction leave nothing to train on.")
        if self.control is not None:
            _at_least("data.control", self.control, 0)


@dataclass
class EncoderConfig:
    name: str
    path: str | None
    revision: str | None
    num_layers: int | None  # the preset's; None if name or path was typed
    weights: str
    weights_seed: int
    lower_case: bool | None = None  # null: as in the tokenizer's files

    __hash__ = _hash_of_values

    def __post_init__(self) -> None:
        one_of("encoder.weights", self.weights, WEIGHTS)
        if not 0 <= self.weights_seed < 2**63:
            raise UserError(f"encoder.weights_seed={self.weights_seed} is not a number from 0 to 2^63 - 1.")


@dataclass
class FeaturesConfig:
    context: str
    subword: str
    stride: float
    precision: str
    dtype: str
    sentence: str  # read only if data.task=sentence
    layers: Any  # null: all
    batch_pieces: int | str
    cache_dir: str
    placement: str

    __hash__ = _hash_of_values

    def __post_init__(self) -> None:
        one_of("features.context", self.context, CONTEXTS)
        one_of("features.subword", self.subword, SUBWORDS)
        one_of("features.sentence", self.sentence, POOLINGS)
        one_of("features.precision", self.precision, PRECISIONS)
        one_of("features.dtype", self.dtype, DTYPES)
        one_of("features.placement", self.placement, PLACEMENTS)
        _auto_or_at_least("features.batch_pieces", self.batch_pieces, 1)
        if not 0 < self.stride <= 1:
            raise UserError(f"features.stride={self.stride} is not a share of a window: above 0, at most 1.")
        self.cache_dir = str(Path(self.cache_dir).expanduser())


@dataclass
class LayersConfig:
    indices: Any
    combine: str
    name: str = ""  # the preset's; empty if indices or combine were typed
    normalize: str | None = None  # typed `none`; None here, so that keys and records omit it

    def __post_init__(self) -> None:
        one_of("layers.combine", self.combine, COMBINES)
        if self.normalize is not None:
            one_of("layers.normalize", self.normalize, NORMALIZES)
        if self.normalize == "none":
            self.normalize = None

    @property
    def is_empty(self) -> bool:
        """Returns whether no layer is chosen."""
        return self.combine == "none"

    @property
    def recorded(self) -> dict[str, Any]:
        """Returns the settings as records hold them."""
        return {name: value for name, value in asdict(self).items() if name != "normalize" or value is not None}


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
        _at_least("probe.num_layers", self.num_layers, 0)
        _at_least("probe.hidden_size", self.hidden_size, 1 if self.num_layers else 0)
        _auto_or_at_least("probe.max_epochs", self.max_epochs, 1)
        for name in ("batch_size", "patience", "lr_patience"):
            _at_least(f"probe.{name}", getattr(self, name), 1)
        if not 0 <= self.dropout < 1:
            raise UserError(f"probe.dropout={self.dropout} is not in [0, 1).")
        if not isinstance(self.lr_decay, str):
            self.lr_decay = float(self.lr_decay)  # 1 and 1.0 are one setting
        if self.lr_decay != LINEAR and (isinstance(self.lr_decay, str) or not 0 < self.lr_decay <= 1):
            raise UserError(f"probe.lr_decay={self.lr_decay} is neither in (0, 1] nor {LINEAR}.")
        if self.lr_decay == LINEAR and self.max_epochs == "auto":
            raise UserError(f"probe.lr_decay={LINEAR} needs a number of epochs: type for example probe.max_epochs=12.")
        for name in ("learning_rate", "gradient_clip"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UserError(f"probe.{name}={getattr(self, name)} is not a number above 0.")


@dataclass
class RaceConfig:
    """Holds the settings of `probe race`. They are not part of a run's key."""

    candidates: int
    rows: list[str] | None
    alpha: float
    min_seeds: int
    max_seeds: int

    def __post_init__(self) -> None:
        for name, least in (("candidates", 0), ("max_seeds", 2), ("min_seeds", 2)):
            _at_least(f"race.{name}", getattr(self, name), least)
        if not 0 < self.alpha < 1:
            raise UserError(f"race.alpha={self.alpha} is not a probability: above 0, below 1.")
        for row in self.rows or ():
            layers_named(row)


@dataclass
class ScreenConfig:
    """Holds the settings of `probe screen`. They are not part of a run's key. first: screen before a sweep's runs."""

    first: bool
    window: int
    max_layers: int
    sentences: int
    samples: int
    dev_sentences: int
    pca_components: int

    def __post_init__(self) -> None:
        for name, least in (("max_layers", 1), ("sentences", 2), ("dev_sentences", 2), ("pca_components", 1)):
            _at_least(f"screen.{name}", getattr(self, name), least)
        for name, least, most in (("window", 0, MOST_WINDOW), ("samples", 2, MOST_SAMPLES)):
            if not least <= getattr(self, name) <= most:
                raise UserError(f"screen.{name}={getattr(self, name)} is not a number from {least} to {most}.")


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
    race: RaceConfig

    def __post_init__(self) -> None:
        if self.data.task == "sentence" and self.features.sentence == "cls":
            self.features = replace(self.features, subword="cls")
        one_of("device", self.device, DEVICES)
        _at_least("margin", self.margin, 0)
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed={self.seed} is not a number from 0 to 2^63 - 1.")
        self.results_dir = str(Path(self.results_dir).expanduser())
        if self.jobs != -1 and self.jobs < 1:
            raise UserError(f"jobs={self.jobs} is neither a number of runs side by side nor -1 (one per core).")


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
        if is_dataclass(hints[field.name]):
            names += [prefix + field.name, *setting_names(hints[field.name], f"{prefix}{field.name}.")]
        else:
            names.append(prefix + field.name)
    return names


@functools.cache
def preset_values(group: str, choice: str | None) -> dict[str, Any]:
    """Returns the content of a preset's file; empty if there is none."""
    file = conf_dir() / group / f"{choice}.yaml"
    return _read_yaml(file) if choice and file.is_file() else {}


def _inherited_values(group: str, choice: str | None) -> dict[str, Any]:
    """Returns the content of a preset's file on that of the presets of its group that it starts from."""
    values = preset_values(group, choice)
    bases = [_inherited_values(group, base) for base in values.get("defaults", ()) if isinstance(base, str)]
    return {key: value for part in (*bases, values) for key, value in part.items()}


def _read_yaml(file: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def _is_preset(values: Mapping[str, Any], settings: Any) -> bool:
    """Returns whether the settings equal the values of the preset's file."""
    return bool(values) and all(getattr(settings, key) == value for key, value in values.items())


def layers_named(row: str) -> LayersConfig:
    """Returns a row's layers by its name in tables: a preset, layer_4, concat_3_4, mix_1_2_3. Raises UserError."""
    presets = {preset.name: preset for preset in layer_presets()}
    if row in presets:
        return presets[row]
    combine, *indices = row.split("_")
    is_known = combine in COMBINES or (combine == "layer" and len(indices) == 1)
    if is_known and indices and all(map(str.isdecimal, indices)):
        layers = LayersConfig([int(k) for k in indices], combine.replace("layer", "concat"))
        if not layers.is_empty:
            return layers
    close = closest(row, presets)
    hint = f"Did you mean {close}?" if close else f"There are: {', '.join(presets)}."
    raise UserError(f"race.rows: there is no row {row!r}. {hint} Others are written layer_4, concat_3_4, mix_1_2_3.")


def layer_presets() -> list[LayersConfig]:
    """Returns every preset of `conf/layers/` that names layers, sorted by name."""
    files = {file.stem: _read_yaml(file) for file in sorted((conf_dir() / "layers").glob("*.yaml"))}
    presets = [
        LayersConfig(preset["indices"], preset["combine"], name)
        for name, preset in files.items()
        if preset["indices"] != "???"
    ]
    return [preset for preset in presets if not preset.is_empty]


def unknown_setting(key: str) -> UserError:
    """Returns the error for a setting that does not exist, with the closest one that does."""
    if key.lstrip("+") == "sweep":
        return UserError("A sweep file is added, not set: type +sweep=NAME.")
    if key in setting_names():
        group = key.split(".")[0]
        return UserError(f"{key} is not a setting of the chosen {group}. `probe --cfg job` shows its settings.")
    last = key.rsplit(".", 1)[-1]
    sections = {name.split(".")[0] for name in setting_names() if "." in name} - set(PRESET_GROUPS)
    names = [name for name in setting_names() if name not in {*sections, "layers.name"}]
    by_last_part = {name.rsplit(".", 1)[-1]: name for name in names}
    close = ALIASES.get(last) or closest(key, names) or by_last_part.get(closest(last, by_last_part, 0.75) or "")
    hint = f"Did you mean {close}?" if close else "`probe --cfg job` shows them all."
    if last not in ALIASES and (section := closest(key, sections, 0.8)):
        hint = f"{section} has {', '.join(name for name in setting_names() if name.startswith(f'{section}.'))}."
    return UserError(f"There is no setting {key!r}. {hint}")


def wanted(error: BaseException) -> str:
    """Returns what a setting must be, given OmegaConf's error for a value of another type."""
    reason = reason_of(error)
    return next((kind for word, kind in KINDS.items() if word in reason), f"something else ({reason})")


def preset_named(word: str) -> str | None:
    """Returns how the preset or sweep file with this name is typed, as `+sweep=each_layer`; None if there is none.

    The name may also have hyphens: each-layer.
    """
    name = word.replace("-", "_")
    groups = ["sweep", *PRESET_GROUPS]
    found = next((group for group in groups if (conf_dir() / group / f"{name}.yaml").is_file()), None)
    return found and f"{'+' * (found == 'sweep')}{found}={name}"


def register_resolvers() -> None:
    """Adds the function that conf/config.yaml uses."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("user_cache", user_cache, replace=True)


def user_cache(name: str) -> str:
    """Returns the folder of this name in $XDG_CACHE_HOME, by default ~/.cache.

    If only ~/.cache has the folder already, returns that one, so that a store made before the variable was set is
    found.
    """
    home, xdg = Path.home() / ".cache" / name, Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = xdg / name if xdg.is_absolute() else home  # by the specification, relative paths are ignored
    return str(home if home.is_dir() and not folder.is_dir() else folder)


def with_types(composed: Any) -> Any:
    """Returns Hydra's composed config with the names and types of `Config`; as it is, if it has them already.

    Raises UserError for unknown keys and wrong types.
    """
    from omegaconf import OmegaConf

    if OmegaConf.get_type(composed) is Config:
        return composed
    register_resolvers()
    with _errors_explained():
        return OmegaConf.merge(_schema(), composed)


def set_value(composed: Any, key: str, value: Any) -> None:
    """Sets a setting of a composed config, as Hydra sets what is typed. Raises UserError for unknown keys and types."""
    from omegaconf import OmegaConf
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError

    with _errors_explained():
        try:
            OmegaConf.update(composed, key, value, merge=True)
        except (ConfigAttributeError, ConfigKeyError):
            raise unknown_setting(key) from None


@functools.cache
def _schema() -> Any:
    """Returns an OmegaConf object with the names and types of `Config`. Its sections exist: a merge would add them."""
    from omegaconf import OmegaConf

    hints = get_type_hints(Config)
    sections: dict[str, Any] = {field.name: {} for field in fields(Config) if is_dataclass(hints[field.name])}
    sections["probe"] = UNUSED_SETTINGS
    return OmegaConf.merge(OmegaConf.structured(Config), sections)


@contextlib.contextmanager
def _errors_explained() -> Iterator[None]:
    """Turns OmegaConf's errors into a UserError that names the setting."""
    from omegaconf import MissingMandatoryValue
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException, ValidationError

    try:
        yield
    except ConfigKeyError as error:
        raise unknown_setting(error.full_key or str(error.key)) from None
    except MissingMandatoryValue as error:
        what = error.full_key
        example = "; type for example 'layers.indices=[7]'" if what == "layers.indices" else ""
        raise UserError(f"{what} has no value{example}.") from None
    except ValidationError as error:
        value = re.match(r"Value (.*) of type", str(error))
        typed = error.full_key if value is None else f"{error.full_key}={value[1]}"
        raise UserError(f"{typed}: this setting is {wanted(error)}.") from None
    except OmegaConfBaseException as error:
        raise UserError(reason_of(error)) from None


def to_config(composed: Any, choices: Mapping[str, str]) -> Config:
    """Turns Hydra's composed config into checked dataclasses.

    choices: the preset chosen for each group. The layers preset's name (the row's name in tables), the encoder preset's
    num_layers and the data preset's name are dropped if the settings differ from these presets. Raises UserError for
    unknown keys, wrong types and bad values.
    """
    from omegaconf import OmegaConf

    with _errors_explained():
        config = OmegaConf.to_object(with_types(composed))
    assert isinstance(config, Config)
    if config.encoder.weights == "random" and config.encoder.revision is not None:
        raise UserError(
            f"encoder.revision={config.encoder.revision}: random weights have no revision. Type encoder.revision=null."
        )
    layers, encoder = (preset_values(group, choices.get(group)) for group in ("layers", "encoder"))
    data = _inherited_values("data", choices.get("data"))
    if _is_preset(layers, config.layers):
        config.layers.name = choices["layers"]
    if not _is_preset(encoder, config.encoder) and config.encoder.num_layers == encoder.get("num_layers"):
        config.encoder.num_layers = None
    path = config.data.path  # takes precedence over the Hub; a preset of the Hub may be read from files
    is_other = config.data.hub != data.get("hub") if path is None else data.get("path") not in (None, "???", path)
    if is_other and config.data.name == data.get("name"):
        config.data.name = None
    return config
