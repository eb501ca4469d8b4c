"""Turns the command line into checked configs. Only this module uses Hydra."""

from __future__ import annotations

import argparse
import copy
import functools
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from probe.conditions import CONDITIONS, conditions_of
from probe.config import (
    PRESET_GROUPS,
    Config,
    UserError,
    conf_dir,
    preset_named,
    preset_values,
    register_resolvers,
    set_value,
    setting_names,
    to_config,
    unknown_setting,
    wanted,
    with_types,
)
from probe.probes.kinds import PROBES, check_probe
from probe.runs.config_from_record import quoted
from probe.system.format import closest, reason_of

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

# Hydra's own flags, with their help. They print something and run nothing.
HYDRA_FLAGS = {
    ("--cfg", "-c"): "job: print every setting with its value; hydra or all: those of Hydra too",
    ("--info", "-i"): "print what Hydra knows: all, config, defaults, defaults-tree, plugins or searchpath",
    ("--hydra-help",): "print Hydra's own help",
    ("--version",): "print Hydra's version",
    ("--shell-completion", "-sc"): "install=SHELL: print what sets up completion in bash, zsh or fish; uninstall=SHELL",
}
# Arguments of this form are settings. A text that looks like one can come from standard input.
SETTING = re.compile(r"[+~]{0,2}[\w./@:-]+=")
# Settings whose value is a list. Such a list is one value, not the values of a sweep.
LISTS = ("layers.indices", "features.layers", "data.labels", "race.rows")
# Settings that only runs with a frozen encoder have.
OF_FROZEN = re.compile(r"[+~]{0,2}(probe[=.]|features\.(placement|layers|batch_pieces)=|save_probe=)")


def split_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separates `setting=value` from other arguments. The name of an existing folder is never read as a setting."""
    is_setting = {word: bool(SETTING.match(word)) and not Path(word).is_dir() for word in words}
    return [word for word in words if is_setting[word]], [word for word in words if not is_setting[word]]


def add_multirun(parser: argparse.ArgumentParser) -> None:
    """Declares Hydra's flag for a sweep."""
    parser.add_argument("-m", "--multirun", action="store_true", help="a sweep: a setting may name values A,B,C")


def add_hydra_flags(parser: argparse.ArgumentParser) -> None:
    """Declares Hydra's own flags, for --help. `run_hydra_flags` handles them before argparse does."""
    group = parser.add_argument_group("flags of Hydra, which print something and run nothing")
    for flags, help in HYDRA_FLAGS.items():
        group.add_argument(*flags, action="store_true", help=help)


def run_hydra_flags(arguments: list[str]) -> bool:
    """Passes the arguments to Hydra if one of its own flags is among them. Returns whether it did."""
    flags = {flag for names in HYDRA_FLAGS for flag in names}
    flag = next((argument for argument in arguments if argument.split("=")[0] in flags), None)
    if flag is None:
        return False
    if {"-m", "--multirun"} & {*arguments}:
        raise UserError(f"{flag} works without -m only: omit -m, and give one value per setting.")
    hydra_itself(arguments)
    return True


def hydra_itself(arguments: list[str]) -> None:
    """Runs Hydra on these arguments, for its own flags and for completion: it prints something and runs nothing."""
    import hydra

    register_resolvers()
    sys.argv = [sys.argv[0], *arguments]  # all that Hydra reads
    hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(lambda _: None)()


def complete(arguments: list[str], commands: Mapping[str, bool]) -> None:
    """Completes commands in the shell, and settings as Hydra does. commands: whether settings may follow."""
    if (line := os.environ.get("COMP_LINE")) is not None:
        program, *words = line.split()
        last = "" if line[-1:].isspace() or not words else words.pop()
        if not words:
            print(*[command for command in commands if command.startswith(last)])
        elif not commands.get(words[0], True):
            return
        settings = [word for word in words if SETTING.match(word)]  # Hydra would fail on a text or a flag
        os.environ["COMP_LINE"] = " ".join([program, *settings, last])
    hydra_itself(arguments)


class ParsedCommand(NamedTuple):
    """Holds the checked config of every run, and whether they are a sweep.

    settings: the names of settings that were typed or that a sweep file has.
    """

    configs: list[Config]
    is_sweep: bool
    settings: set[str]


def configs_of(arguments: list[str], swept: str | None = None) -> tuple[list[Config], bool]:
    """Returns the checked config of every run that these arguments describe, and whether they are a sweep.

    swept: a group whose settings may have several values without -m.
    """
    return parse_command(arguments, swept)[:2]


def parse_command(arguments: list[str], swept: str | None = None) -> ParsedCommand:
    """Composes and checks what these arguments describe. swept: see `configs_of`. Raises UserError."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf.errors import OmegaConfBaseException

    register_resolvers()
    overrides, multirun = split_flags(arguments)
    _refuse_words(overrides)
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())
            parsed = parser.parse_overrides(overrides)
            if inner := next((o for o in parsed if str(o.key_or_group).startswith("hydra.sweeper")), None):
                raise UserError(f"{inner.input_line}: type the values of a sweep like this: probe -m seed=1,2")
            if sent := next((o for o in parsed if re.match("hydra[/.]launcher", str(o.key_or_group))), None):
                raise UserError(
                    f"{sent.input_line}: a sweep runs where it is started, jobs=N runs at a time. On a cluster, start "
                    "the same command as an array job: see conf/README.md."
                )
            swept_file = next(
                (o.input_line for o in parsed if o.key_or_group == "sweep" and o.is_sweep_override()), None
            )
            if swept_file:
                raise UserError(f"{swept_file}: give one sweep file.")
            plain = [o.input_line for o in parsed if o.input_line is not None and not o.is_sweep_override()]
            base = _compose(plain)
            has_several = [o for o in parsed if o.is_sweep_override()]
            others = [o for o in has_several if _group(o) != swept]
            is_sweep = multirun or base.hydra.mode == RunMode.MULTIRUN or bool(has_several and not others)
            if not is_sweep:
                if others:
                    raise _is_a_sweep(others[0], arguments)
                jobs, composed_jobs = [overrides], iter([_without_hydra(base)])
            else:
                jobs = _jobs_by_depth(base, parser, parsed, overrides)
                if not jobs:
                    raise UserError("this sweep has no run: one of its settings has no value (a range, a glob?).")
                composed_jobs = _composed(_for_the_frozen(jobs))
            configs = []
            for composed, choices in composed_jobs:
                without = next((group for group in PRESET_GROUPS if group not in choices), None)
                if without:
                    raise UserError(f"{without}: exactly one preset is needed. For a sweep: probe -m {without}=A,B.")
                configs.append(to_config(composed, choices))
                check_probe(configs[-1].probe)
                condition = choices.get("condition", "")
                if _changes_probe(condition) and condition not in conditions_of(configs[-1]):
                    own = _probe_of(condition)
                    raise UserError(f"condition={condition} needs probe={own}. Omit probe={choices['probe']}.")
            typed = {str(o.key_or_group) for o in parser.parse_overrides(jobs[0])}
            return ParsedCommand(configs, is_sweep, typed)
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, AttributeError, TypeError, ValueError) as error:
        raise _explain(error) from None
    finally:
        GlobalHydra.instance().clear()


def _refuse_words(overrides: Sequence[str]) -> None:
    """Raises UserError for an argument that is not a setting, with the setting that was probably meant."""
    for word in overrides:
        if "=" not in word and not word.startswith("~"):
            typed = preset_named(word)
            hint = f"Type {typed}" if typed else "Settings are typed name=value; a text with blanks in quotes."
            raise UserError(f"{word!r} is not a setting. {hint}")
        if re.fullmatch(r"layers=[-\d,\[\]]+", word):
            raise UserError(
                f"{word}: layers=NAME takes a preset. One layer by number: layers=single 'layers.indices=[7]'; several "
                "as one row: 'layers.indices=[3,4]' layers.combine=concat (or mean, sum, mix)."
            )


def _is_a_sweep(swept: Override, arguments: Sequence[str]) -> UserError:
    """Returns the error for several values of a setting outside of a sweep."""
    key = swept.key_or_group
    if key not in setting_names() and not (conf_dir() / key).is_dir():
        return unknown_setting(key)
    as_list = f" For one list: '{key}=[{str(swept.input_line).partition('=')[2]}]'." if key in LISTS else ""
    return UserError(
        f"{swept.input_line} names several values, so this is a sweep. To train it: probe -m {shlex.join(arguments)}. "
        f"To see its cost: probe doctor -m ...{as_list}"
    )


def _group(override: Override) -> str:
    """Returns the group that a setting belongs to: encoder, of encoder=A and of encoder.path=DIR."""
    return str(override.key_or_group).partition(".")[0]


def _counts_layers(base: Any) -> bool:
    """Returns whether the sweep of a composed config depends on its encoder's number of layers."""
    from omegaconf import OmegaConf

    return "encoder.num_layers" in OmegaConf.to_yaml(base.hydra.sweeper)


def _jobs_by_depth(base: Any, parser: Any, parsed: Sequence[Override], overrides: list[str]) -> list[list[str]]:
    """Returns the overrides of each job of a sweep. Where it counts layers, each encoder gets a separate sweep.

    Raises UserError for an encoder whose number of layers is not known: no preset, and no folder whose config has it.
    """

    def jobs_of(composed: Any, typed: list[str]) -> list[list[str]]:
        params = composed.hydra.sweeper.params or {}
        return _jobs(parser.parse_overrides([*(f"{key}={value}" for key, value in params.items()), *typed]))

    if not _counts_layers(base):
        return jobs_of(base, overrides)
    others = [override for override in parsed if _group(override) != "encoder"]
    fixed = [override.input_line or "" for override in others if not override.is_sweep_override()]
    jobs = []
    for encoder in _jobs([override for override in parsed if _group(override) == "encoder"]):
        composed = _compose([*fixed, *encoder])
        name, path = composed.encoder.name, composed.encoder.path
        preset = preset_values("encoder", composed.hydra.runtime.choices.get("encoder"))
        is_typed = any(typed.startswith("encoder.num_layers=") for typed in encoder)
        if not is_typed and (preset.get("name"), preset.get("path")) != (name, path):
            if (counted := _layers_of(path)) is None:
                raise UserError(
                    f"This sweep counts the layers of its encoder, and those of {path or name} are not known. "
                    "Type encoder.num_layers=N (in config.json, mostly as num_hidden_layers)."
                )
            encoder = [*encoder, f"encoder.num_layers={counted}"]
            composed = _compose([*fixed, *encoder])
        jobs += jobs_of(composed, [*(override.input_line or "" for override in others), *encoder])
    return jobs


def _layers_of(path: str | None) -> int | None:
    """Returns the number of layers that an encoder's folder states; None where it does not."""
    try:
        config = json.loads((Path(path or "") / "config.json").read_text(encoding="utf-8"))
        found = (config.get(name) for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))
        return next((number for number in found if isinstance(number, int)), None)
    except (OSError, ValueError, AttributeError):
        return None


def _jobs(overrides: Sequence[Override]) -> list[list[str]]:
    """Returns the overrides of each job of a sweep: the product of all values. The last of equal keys counts."""
    values: dict[str, list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        if not override.is_sweep_override():
            values[key] = [f"{key}={override.get_value_element_as_str()}"]
        elif override.is_discrete_sweep():
            values[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
            if len(once := list(dict.fromkeys(values[key]))) < len(values[key]):
                each = ",".join(value.removeprefix(f"{key}=") for value in once)
                raise UserError(f"{override.input_line} names a value twice. Each value makes one run: {key}={each}")
        else:
            raise UserError(f"{override.input_line}: a sweep needs single values: {key}=A,B or {key}=range(1,4).")
    return [list(job) for job in itertools.product(*values.values())]


def _compose(overrides: Sequence[str]) -> Any:
    """Composes a config as Hydra does, with Hydra's own part."""
    values, presets = _parsed(overrides)
    return _with_values(_compose_presets(conf_dir(), presets), values)


@functools.lru_cache(maxsize=128)
def _compose_presets(_folder: Path, presets: tuple[str, ...]) -> Any:
    """Composes a config of presets alone, with Hydra's own part. This takes a fifth of a second.

    _folder: where Hydra finds the presets. Presets of another folder are composed anew.
    """
    from hydra import compose

    return compose("config", list(presets), return_hydra_config=True)


def _with_values(base: Any, values: Sequence[Override]) -> Any:
    """Returns a copy of a composed config with these values, set in their order as Hydra sets them."""
    composed = copy.deepcopy(base)
    for override in values:
        set_value(composed, override.key_or_group, override.value())
    return composed


def _parsed(overrides: Sequence[str]) -> tuple[list[Override], tuple[str, ...]]:
    """Returns the overrides that set existing settings, and the others as typed."""
    parsed = [_parse(typed) for typed in overrides]
    values = [override for override in parsed if _sets_a_value(override)]
    return values, tuple(override.input_line or "" for override in parsed if override not in values)


@functools.lru_cache(maxsize=1024)
def _parse(typed: str) -> Override:
    """Parses one override. The jobs of a sweep have few different ones."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(typed)


def _composed(jobs: list[list[str]]) -> Iterator[tuple[Any, dict[str, str]]]:
    """Yields the config of each job, without Hydra's own part, and its presets by group.

    A sweep may have a hundred jobs. So jobs that choose the same presets are composed and given types once, and their
    values are set in copies.
    """
    bases: dict[tuple[str, ...], tuple[Any, dict[str, str]]] = {}
    for job in jobs:
        values, presets = _parsed(job)
        if presets not in bases:
            base, choices = _without_hydra(_compose(presets))
            is_typed = any(_parse(preset).key_or_group == "probe" for preset in presets)
            if not is_typed and _changes_probe(choices.get("condition", "")):
                choices["probe"] = _probe_of(choices["condition"])  # even if a sweep file names another
            probe = preset_values("probe", choices.get("probe"))
            if "sweep" in choices and probe and not PROBES[probe["kind"]].reads_features:
                base.probe = probe  # the sweep's settings of the probe are for probes that read features
            bases[presets] = with_types(base), choices
        base, choices = bases[presets]
        yield _with_values(base, values), choices


def _sets_a_value(override: Override) -> bool:
    """Returns whether an override sets an existing setting. Others choose presets, add, delete or are Hydra's."""
    from hydra.core.override_parser.types import OverrideType

    return (
        override.type == OverrideType.CHANGE
        and override.package is None
        and not override.is_hydra_override()
        and (isinstance(override.value(), dict) or not (conf_dir() / override.key_or_group).is_dir())
    )


def _without_hydra(composed: Any) -> tuple[Any, dict[str, str]]:
    """Removes Hydra's own part from a composed config, and returns the config and its presets by group."""
    choices = dict(composed.hydra.runtime.choices)
    del composed.hydra
    return composed, choices


def _for_the_frozen(jobs: list[list[str]]) -> list[list[str]]:
    """Returns a sweep's jobs, with settings only where they apply.

    If a sweep has several conditions, and one of them has its own probe, the jobs of that condition lose the settings
    of the probe, of stored features and of saved weights. These are for the other conditions.
    """
    if len({override for job in jobs for override in job if override.startswith("condition=")}) < 2:
        return jobs
    own = {f"condition={name}" for name in CONDITIONS if _changes_probe(name)}
    return [[typed for typed in job if not own & set(job) or not OF_FROZEN.match(typed)] for job in jobs]


def _changes_probe(condition: str) -> bool:
    """Returns whether a condition has its own probe."""
    return condition in CONDITIONS and CONDITIONS[condition].changes == "probe"


def _probe_of(condition: str) -> str:
    """Returns the probe preset that a condition chooses."""
    (override,) = preset_values("condition", condition)["defaults"]
    return str(override["override /probe"])


def config_of(overrides: list[str]) -> Config:
    """Returns the one config that these settings describe. Raises UserError for a sweep."""
    if (wrong := next((given for given in overrides if not isinstance(given, str)), None)) is not None:
        raise UserError(f"Settings are strings as on the command line, 'encoder=minilm_l6'. {wrong!r} is not a string.")
    configs, is_sweep = configs_of(overrides)
    if is_sweep:
        raise UserError("Give one encoder and one choice of layers. Only training takes a sweep.")
    return configs[0]


def split_flags(arguments: list[str]) -> tuple[list[str], bool]:
    """Returns the overrides, and whether -m is among the flags. Raises UserError for any other flag."""
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    unknown = [flag for flag in flags if flag not in ("-m", "--multirun")]
    if unknown:
        raise UserError(f"there is no flag {unknown[0]}. `probe --help` lists them.")
    return overrides, bool(flags)


def _unreadable(typed: str) -> UserError:
    """Returns the error for a setting that Hydra cannot parse, since the message of Hydra's parser does not help."""
    name, _, value = typed.partition("=")
    if value[:1] in ("[", "{"):
        close = {"[": "]", "{": "}"}[value[0]]
        missing = value.count(value[0]) - value.count(close)
        why = f"a {close} is missing" if missing > 0 else "its list or braces do not follow Hydra's syntax"
        return UserError(f"{typed!r} cannot be read: {why}. In quotes, for example: 'layers.indices=[9,10]'.")
    if not SETTING.match(f"{name}="):
        return UserError(f"{typed!r} cannot be read: {name!r} is not a setting's name. Settings are typed name=value.")
    return UserError(
        f"{typed!r} cannot be read: it has characters that are part of Hydra's syntax. "
        f"In quotes: {shlex.quote(f'{name}={quoted(value)}')}."
    )


def _explain(error: Exception) -> UserError:
    """Turns an error of Hydra or OmegaConf into one or two lines that say what to type."""
    from hydra.errors import MissingConfigException, OverrideParseException

    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        options = sorted(error.options or [])
        close = closest(name, options)
        hint = f" Did you mean {group}={close}?" if close else ""
        return UserError(f"{group}={name}: there is no such preset.{hint} There are: {', '.join(options)}.")
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override))
    if text.startswith("Could not override '"):
        return unknown_setting(text.split("'")[1])
    if text.startswith("Error merging override ") and error.__cause__:  # a value of the wrong type
        return UserError(f"{text.removeprefix('Error merging override ')}: this setting is {wanted(error.__cause__)}.")
    return UserError(reason_of(error))
