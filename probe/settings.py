"""Turns the command line into checked configs. Only this module uses Hydra."""

from __future__ import annotations

import copy
import functools
import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from probe.config import (
    CHECKS,
    HUB_NAME,
    UNUSED_SETTINGS,
    Config,
    UserError,
    conf_dir,
    layers_named,
    preset_names,
    preset_values,
    setting_names,
    unknown,
    unknown_setting,
    unknown_word,
)
from probe.data.guesses import corpus_at
from probe.format import hydra_quoted, reason_of
from probe.probes.kinds import PROBES, check_probe
from probe.system.files import did_you_mean
from probe.vectors.sources import source_kind

if TYPE_CHECKING:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import Override

# Arguments of this form are settings. A text that looks like one can come from standard input.
SETTING = re.compile(r"[+~]{0,2}[\w./@:-]+=")
# Settings whose value is a list. Such a list is one value, not the values of a sweep.
LISTS = ("layers.indices", "features.layers", "data.labels", "data.comment")
# Settings that are paths. What Hydra's grammar refuses in them (~, letters beyond ASCII, brackets) is taken as it is.
PATHS = ("data.path", "data.train", "data.dev", "data.test", "encoder.path", "results_dir", "features.cache_dir")
PLACES = ("data", "encoder")  # groups whose value may be a path or a name on the Hub instead of a preset
# Settings that only runs with a frozen encoder have.
OF_FROZEN = re.compile(r"\+*(probe[=.]|features\.(placement|layers|batch_pieces)=|save_probe=)")
FINE_TUNED, FINE_TUNING = "condition=fine_tuned", "probe=finetune"  # this condition needs this kind of probe
EACH = "each"  # of layers.indices or layers in a sweep: every layer that the encoder has
EACH_LAYER = (f"layers={EACH}", f"layers.indices={EACH}")


def split_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates `setting=value` from other arguments. The name of an existing folder is never read as a setting."""
    is_setting = {word: bool(SETTING.match(word)) and not Path(word).is_dir() for word in words}
    return [word for word in words if is_setting[word]], [word for word in words if not is_setting[word]]


def config_of(overrides: list[str]) -> Config:
    """Returns the one config that these settings describe. Raises UserError for a sweep."""
    configs, is_sweep = configs_of(overrides)
    if is_sweep:
        raise UserError("Give one encoder and one choice of layers. Only training takes a sweep.")
    return configs[0]


def configs_of(arguments: list[str], swept: str | None = None) -> tuple[list[Config], bool]:
    """Returns the checked config of every run that these arguments describe, and whether they are a sweep.

    swept: a group whose settings may have several values without -m. Raises UserError.
    """
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException, OverrideParseException
    from omegaconf import MissingMandatoryValue
    from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

    corpus_at.cache_clear()  # files may have changed
    words = [argument for argument in arguments if argument not in ("-m", "--multirun")]
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())
            return _parse(parser, words, len(words) < len(arguments), swept)
    except OverrideParseException as error:
        name, _, value = str(error.override).partition("=")
        raise UserError(
            f"{error.override!r} cannot be read. A list is typed like this: 'layers.indices=[9,10]'; a text with "
            f"special characters like this: {shlex.quote(f'{name}={hydra_quoted(value)}')}."
        ) from None
    except ConfigKeyError as error:
        raise unknown_setting(error.full_key or str(error.key)) from None
    except MissingMandatoryValue as error:
        raise UserError(f"{error.full_key} has no value: type {error.full_key}=VALUE.") from None
    except OmegaConfBaseException as error:
        name = error.full_key or ""
        hint = f" Expected {CHECKS[name][1]}; several values: {name}=A,B." if name in CHECKS else ""  # as for seed=1-5
        raise UserError(f"{name}: {reason_of(error)}.{hint}") from None
    except HydraException as error:
        raise UserError(reason_of(error.__cause__ or error)) from None


def _parse(
    parser: OverridesParser, words: list[str], is_multirun: bool, swept: str | None
) -> tuple[list[Config], bool]:
    """Returns the configs of these settings, and whether they are a sweep. swept: see `configs_of`."""
    for word in words:
        if not isinstance(word, str):
            raise UserError(f"{word!r}: settings are strings as on the command line, 'encoder=minilm_l6'.")
        if "=" not in word:
            raise unknown_word(word)
    bare = [word.lstrip("+") for word in words]  # to Hydra, a sweep file is added, and everything else is there
    typed = [_override(parser, f"+{word}" if word.startswith("sweep=") else word) for word in bare]
    several = [override for override in typed if override.is_sweep_override() or override.input_line in EACH_LAYER]
    for override in typed:
        if override.is_delete() or _name(override).startswith("hydra"):
            raise UserError(
                f"{override.input_line}: nothing is deleted, and Hydra's own settings are not used. A sweep: "
                "probe -m seed=1,2. Runs at a time: jobs=N. On SLURM: sbatch --array=0-9 --wrap 'exec probe ...'."
            )
        if _name(override) == "sweep" and override in several:
            raise UserError(f"{override.input_line}: give one sweep file.")
    base = _composed(_presets([override for override in typed if override not in several]))
    others = [override for override in several if _name(override).partition(".")[0] != swept]
    is_sweep = is_multirun or base.is_sweep or bool(several and not others)
    if others and not is_sweep:
        raise _is_a_sweep(others[0], words)
    from_file = [f"{name}={value}" for name, value in base.swept.items()] if is_sweep else []
    jobs = _jobs(parser, [*parser.parse_overrides(from_file), *typed])
    if not jobs:
        raise UserError("this sweep has no run: one of its settings has no value (a range, a glob?).")
    return [_config(job) for job in jobs], is_sweep


def _override(parser: OverridesParser, word: str) -> Override:
    """Parses a setting; what may be a path and cannot be parsed is taken as it is, but for interpolation.

    One with commas may be several paths, so it is taken so only if there is such a file or folder.
    """
    from hydra.errors import HydraException

    name, _, value = word.partition("=")
    try:
        override = parser.parse_overrides([word])[0]
        if name not in PATHS or not isinstance(override.value(), list | dict):
            return override
    except HydraException:
        if name not in (*PATHS, *PLACES) or ("," in value and not os.path.exists(os.path.expanduser(value))):  # noqa: PTH110, PTH111 - Path's raise
            raise
    if (home := value.partition("/")[0]).startswith("~") and os.path.expanduser(home) == home:  # noqa: PTH111
        raise UserError(f"{word}: there is no home of {home}. A folder of this name: {name}=./{value}")
    return parser.parse_override(f"{name}={hydra_quoted(value)}".replace("\\${", "${"))


def _name(override: Override) -> str:
    """Returns the name of the setting or group of an override."""
    return str(override.key_or_group)


def _is_a_sweep(swept: Override, words: Sequence[str]) -> UserError:
    """Returns the error for several values of a setting outside of a sweep."""
    name = _name(swept)
    if name not in setting_names() and not (conf_dir() / name).is_dir():
        return unknown_setting(name)
    value = str(swept.input_line).partition("=")[2]
    as_list = f" For one list: '{name}=[{value}]'." if name in LISTS and "," in value else ""
    return UserError(
        f"{swept.input_line} names several values, so this is a sweep. To train it: probe -m {shlex.join(words)} "
        f"(from Python: probe.sweep). To see its cost: probe doctor -m ...{as_list}"
    )


def _jobs(parser: OverridesParser, overrides: Sequence[Override]) -> list[list[Override]]:
    """Returns the overrides of each job of a sweep: the product of all values. The last of equal names counts."""
    values = {(_name(override), _is_preset(override)): _values(parser, override) for override in overrides}
    layers = ("layers.indices", False)
    rows = values.get(("layers", True), [])
    if layers in values and (len(rows) > 1 or any(_long_form(row)[1] for row in rows)):
        named = "each preset" if len(rows) > 1 else rows[0].input_line
        raise UserError(f"{values[layers][0].input_line} would replace the layers of {named}: type layers=single.")
    are_indices = [override.value() for override in values.get(layers, [])] == [EACH]
    if not are_indices and EACH not in [row.value() for row in rows]:
        return _products(values)
    asked, one = (layers, "layers.indices=0") if are_indices else (("layers", True), "layers=layer_0")
    of_encoder = {key: options for key, options in values.items() if key[0].partition(".")[0] == "encoder"}
    jobs = []
    for encoder in itertools.product(*of_encoder.values()):
        of_one = values | {key: [override] for key, override in zip(of_encoder, encoder, strict=True)}
        number = _num_layers(_products(of_one | {asked: [parser.parse_override(one)]})[0])
        name, _, _ = one.rpartition("0")
        every = parser.parse_overrides([f"{name}{k}" for k in (*range(1, number + 1), 0)])
        of_one[asked] = [single for row in values[asked] for single in (every if row.value() == EACH else [row])]
        of_one["encoder.num_layers", False] = [parser.parse_override(f"encoder.num_layers={number}")]
        jobs += _products(of_one)
    return jobs


def _values(parser: OverridesParser, override: Override) -> list[Override]:
    """Returns an override for each value that a setting has in a sweep."""
    if not override.is_sweep_override():
        return [override]
    name = override.get_key_element()
    if not override.is_discrete_sweep():
        raise UserError(f"{override.input_line}: a sweep needs single values: {name}=A,B or {name}=range(1,4).")
    once = dict.fromkeys(override.sweep_string_iterator())  # a value that is named twice makes one run
    return parser.parse_overrides([f"{name}={value}" for value in once])


def _products(values: Mapping[tuple[str, bool], list[Override]]) -> list[list[Override]]:
    """Returns the product of these values. If conditions are swept, fine-tuning has no settings of frozen encoders."""
    jobs = [list(job) for job in itertools.product(*values.values())]
    if len(values.get(("condition", True), ())) < 2:
        return jobs
    return [
        [one for one in job if not OF_FROZEN.match(str(one.input_line))] if FINE_TUNED in _presets(job) else job
        for job in jobs
    ]


def _num_layers(job: Sequence[Override]) -> int:
    """Returns the number of layers of a job's encoder: as typed, as its preset says, or as its folder states.

    Raises UserError if it is not known.
    """
    encoder = _config(job).encoder
    typed: list[Any] = [override.value() for override in job if _name(override) == "encoder.num_layers"]
    number: int | None = typed[0] if typed else encoder.num_layers or source_kind(encoder).num_layers(encoder)
    if number is None:
        raise UserError(
            f"This sweep counts the layers of its encoder, and those of {encoder.path or encoder.name} are not known. "
            "Type encoder.num_layers=N (in config.json, mostly as num_hidden_layers)."
        )
    return number


def _is_preset(override: Override) -> bool:
    """Returns whether an override chooses a preset. Others set a setting, or several in braces."""
    return (conf_dir() / _name(override)).is_dir() and not isinstance(override.value(), dict)


def _presets(job: Sequence[Override]) -> tuple[str, ...]:
    """Returns the presets that a job chooses. Raises UserError for one that does not exist."""
    return tuple(preset for preset, _ in map(_long_form, filter(_is_preset, job)) if preset)


def _long_form(override: Override) -> tuple[str, dict[str, Any]]:
    """Returns what GROUP=VALUE stands for: a preset as it is typed ("" for none), and settings.

    A value that is no preset is a row's name or number (layers), or a path or OWNER/NAME on the Hub (data, encoder).
    Raises UserError for anything else.
    """
    group, value, typed = _name(override), str(override.value()), str(override.input_line)
    there, path, other = preset_names(group), Path(value).expanduser(), ""
    if value in there:
        return typed, {}
    if group == "layers":
        if row := layers_named(value):
            return "layers=single", {"layers.indices": row.indices, "layers.combine": row.combine}
        other = " By number: layers=7, layers=concat_2_5_7, layers=mix_0_1."
    if group in PLACES and value:
        if group == "data" and path.exists():
            preset, settings = corpus_at(value)
            return f"data={preset}", {f"data.{name}": setting for name, setting in settings.items()}
        if HUB_NAME.fullmatch(value) and not path.parent.exists():
            return ("data=hub", {"data.hub": value}) if group == "data" else ("", {"encoder.name": value})
        if "/" in value or path.exists():
            return ("data=columns" if group == "data" else ""), {f"{group}.path": value}
        other = f"{did_you_mean(group, path)} Or a folder: {group}=DIR; on the Hub: {group}=OWNER/NAME."
    raise UserError(f"{unknown(typed, value, there)}{other}")


class Composed(NamedTuple):
    """Holds what presets compose to: an OmegaConf object with names and types of `Config`, and each group's preset.

    is_sweep, swept: whether a sweep file was chosen, and its settings with several values.
    """

    settings: Any
    choices: dict[str, str]
    is_sweep: bool
    swept: dict[str, Any]


@functools.cache  # a sweep has many runs of few presets, and composing takes a tenth of a second
def _composed(presets: tuple[str, ...]) -> Composed:
    """Composes presets by Hydra. The runs of an open `initialize_config_dir` are in one folder."""
    from hydra import compose
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    if FINE_TUNED in presets and not any(preset.startswith("probe=") for preset in presets):
        presets = (*presets, FINE_TUNING)  # even if a sweep file names another
    composed = compose("config", list(presets), return_hydra_config=True)
    hydra = composed.hydra
    choices = dict(hydra.runtime.choices)
    is_sweep, swept = hydra.mode == RunMode.MULTIRUN, dict(hydra.sweeper.params or {})
    del composed.hydra
    probe = preset_values("probe", choices["probe"])
    if "sweep" in choices and not PROBES[probe["kind"]].reads_features:
        composed.probe = probe  # the sweep's settings of the probe are for probes that read features
    # A probe has the settings of its kind; the schema has those of all kinds.
    schema = OmegaConf.merge(OmegaConf.structured(Config), {"probe": UNUSED_SETTINGS})
    return Composed(OmegaConf.merge(schema, composed), choices, is_sweep, swept)


def _config(job: Sequence[Override]) -> Config:
    """Returns the checked config of one run: its presets, and the settings that were typed."""
    from omegaconf import OmegaConf

    composed = _composed(_presets(job))
    settings = copy.deepcopy(composed.settings)
    for name, value in itertools.chain.from_iterable(_long_form(one)[1].items() for one in job if _is_preset(one)):
        OmegaConf.update(settings, name, value)
    known = setting_names()
    for override in job:
        if not _is_preset(override):
            if _name(override) not in known:
                raise unknown_setting(_name(override))
            OmegaConf.update(settings, _name(override), override.value(), merge=True)
    return to_config(settings, composed.choices)


def to_config(settings: Any, choices: Mapping[str, str]) -> Config:
    """Turns composed settings into checked dataclasses. Raises UserError.

    choices: the preset chosen for each group. The layers preset's name (the row's name in tables), the encoder preset's
    num_layers and the data preset's name are dropped if the settings differ from these presets.
    """
    from omegaconf import OmegaConf

    config = OmegaConf.to_object(settings)
    assert isinstance(config, Config)
    check_probe(config.probe)
    if choices.get("condition") == "fine_tuned" and config.probe.kind != "finetune":
        raise UserError(f"{FINE_TUNED} needs {FINE_TUNING}. Omit probe={choices['probe']}.")
    if config.encoder.weights == "random" and config.encoder.revision is not None:
        raise UserError(
            f"encoder.revision={config.encoder.revision}: random weights have no revision. Type encoder.revision=null."
        )
    layers, encoder, data = (preset_values(group, choices[group]) for group in ("layers", "encoder", "data"))
    if _has_values(config.layers, layers):
        config.layers.name = choices["layers"]
    if not _has_values(config.encoder, encoder) and config.encoder.num_layers == encoder["num_layers"]:
        config.encoder.num_layers = None
    if config.encoder.path is not None and config.encoder.name == encoder["name"]:
        config.encoder.name = Path(config.encoder.path).expanduser().resolve().name  # no other was typed
    path = config.data.path  # takes precedence over the Hub; a preset of the Hub may be read from files
    is_other = config.data.hub != data["hub"] if path is None else data["path"] not in (None, "???", path)
    if is_other and config.data.name == data["name"]:
        config.data.name = None
    return config


def _has_values(settings: Any, preset: Mapping[str, Any]) -> bool:
    """Returns whether the settings equal the values of the preset's file."""
    return all(getattr(settings, key) == value for key, value in preset.items())
