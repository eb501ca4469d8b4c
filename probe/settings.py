"""From the command line to checked configs. The only module that uses Hydra."""

from __future__ import annotations

import copy
import difflib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from probe.conditions import CONDITIONS, conditions_of
from probe.config import PRESET_GROUPS, Config, UserError, conf_dir, preset_values, to_config, unknown_setting
from probe.probes.kinds import PROBES, check_probe
from probe.runs.config_from_record import quoted
from probe.runs.launch import Launcher

# Hydra's own flags that do not run anything: they go straight to Hydra.
HYDRA_ONLY = ("--cfg", "-c", "--info", "-i", "--hydra-help", "--version", "--shell-completion", "-sc")
# What is taken for a setting; a text that looks like one can come by standard input.
SETTING = re.compile(r"[+~]{0,2}[\w./@:-]+=")
# How OmegaConf names the type of a value, and what people call it.
KINDS = {"Integer": "a whole number", "Float": "a number", "bool": "true or false"}
# What a fine-tuned run has not.
OF_FROZEN = re.compile(r"[+~]{0,2}(probe[=.]|features\.(placement|layers|batch_pieces)=|save_probe=)")


def hydra_itself(arguments: list[str]) -> None:
    """Leaves the command line to Hydra, for its own flags: they print something and run nothing."""
    import hydra

    _teach_omegaconf()
    sys.argv = [sys.argv[0], *arguments]  # all that Hydra reads
    hydra.main(config_path=str(conf_dir()), config_name="config", version_base="1.3")(lambda _: None)()


def complete(arguments: list[str], commands: Mapping[str, bool]) -> None:
    """Completes settings in the shell as Hydra does, and the commands before them.

    commands: by name, whether settings may follow.
    """
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
    """The config of every run that was asked for, checked; the launcher where they are a sweep; and which settings were
    typed, or stand in a sweep's file."""

    configs: list[Config]
    launcher: Launcher | None
    settings: set[str]


def configs_of(arguments: list[str]) -> tuple[list[Config], Launcher | None]:
    """The config of every run that these arguments ask for, checked, and the launcher if they are a sweep."""
    return parse_command(arguments)[:2]


def parse_command(arguments: list[str]) -> ParsedCommand:
    """What these arguments ask for."""
    from hydra import compose, initialize_config_dir
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from hydra.types import RunMode
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _teach_omegaconf()
    overrides, multirun = split_flags(arguments)
    try:
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            parser = OverridesParser.create(GlobalHydra.instance().config_loader())
            parsed = parser.parse_overrides(overrides)
            if inner := next((o for o in parsed if str(o.key_or_group).startswith("hydra.sweeper")), None):
                raise UserError(f"{inner.input_line}: the values of a sweep are typed as they are: probe -m seed=1,2")
            swept_file = next(
                (o.input_line for o in parsed if o.key_or_group == "sweep" and o.is_sweep_override()), None
            )
            if swept_file:
                raise UserError(f"{swept_file}: one sweep file at a time.")
            plain = [o.input_line for o in parsed if o.input_line is not None and not o.is_sweep_override()]
            base = compose("config", plain, return_hydra_config=True)
            is_sweep = multirun or base.hydra.mode == RunMode.MULTIRUN
            if not is_sweep:
                if len(plain) < len(parsed):
                    swept = next(o.input_line for o in parsed if o.is_sweep_override())
                    raise UserError(
                        f"{swept} names several values: that is a sweep, of training (probe -m "
                        f"{' '.join(arguments)}) or of what it will cost (probe doctor -m ...)."
                    )
                jobs, composed_jobs = [overrides], iter([_apart(base)])
            else:
                params = (
                    [f"{key}={value}" for key, value in base.hydra.sweeper.params.items()]
                    if base.hydra.sweeper.params
                    else []
                )
                jobs = BasicSweeper.split_arguments(parser.parse_overrides([*params, *overrides]), None)[0]
                if not jobs:
                    raise UserError("this sweep has no run: one of its settings names no value (a range, a glob?).")
                composed_jobs = _composed(_for_the_frozen(jobs))
            configs = []
            for composed, choices in composed_jobs:
                without = next((group for group in PRESET_GROUPS if group not in choices), None)
                if without:
                    raise UserError(
                        f"{without}: one preset is needed, no list and not none. A sweep: probe -m {without}=A,B."
                    )
                configs.append(to_config(composed, choices))
                check_probe(configs[-1].probe)
                condition = choices.get("treatment", "")
                if _changes_probe(condition) and condition not in conditions_of(configs[-1]):
                    own = _probe_of(condition)
                    raise UserError(f"treatment={condition} is probe={own}. Leave out probe={choices['probe']}.")
            if is_sweep and "encoder.num_layers" in OmegaConf.to_yaml(base.hydra.sweeper):
                _check_depths(configs, {o.key_or_group for o in parsed})
            typed = {str(o.key_or_group) for o in parser.parse_overrides(jobs[0])}
            return ParsedCommand(configs, _launcher(base) if is_sweep else None, typed)
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, AttributeError, TypeError, ValueError) as error:
        raise _explain(error, overrides) from None
    finally:
        GlobalHydra.instance().clear()


def _composed(jobs: list[list[str]]) -> Iterator[tuple[Any, dict[str, str]]]:
    """Every job's config, without Hydra's own part, and its presets by group.

    Jobs that choose the same presets are composed once, which takes a fifth of a second. Their other settings are set
    after that, in their order, by what Hydra sets them with.
    """
    from hydra import compose
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser

    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoaderImpl)
    parser = OverridesParser.create(loader)
    bases: dict[tuple[str, ...], tuple[Any, dict[str, str]]] = {}
    for job in jobs:
        parsed = parser.parse_overrides(job)
        values = [
            override
            for override in parsed
            if not override.is_hydra_override()
            and (isinstance(override.value(), dict) or not loader.repository.group_exists(override.key_or_group))
        ]
        chosen = [override for override in parsed if override not in values]
        presets = tuple(override.input_line or "" for override in chosen)
        if presets not in bases:
            base, choices = _apart(compose("config", list(presets), return_hydra_config=True))
            is_typed = any(override.key_or_group == "probe" for override in chosen)
            if not is_typed and _changes_probe(choices.get("treatment", "")):
                choices["probe"] = _probe_of(choices["treatment"])  # also where a sweep's file names another
            probe = preset_values("probe", choices.get("probe"))
            if "sweep" in choices and probe and not PROBES[probe["kind"]].reads_features:
                base.probe = probe  # what the sweep's file says of the probe is meant for probes that read features
            bases[presets] = base, choices
        base, choices = bases[presets]
        composed = copy.deepcopy(base)
        ConfigLoaderImpl._apply_overrides_to_config(values, composed)
        yield composed, choices


def _apart(composed: Any) -> tuple[Any, dict[str, str]]:
    """A composed config without Hydra's own part, which it loses, and the presets by group."""
    choices = dict(composed.hydra.runtime.choices)
    del composed.hydra
    return composed, choices


def _for_the_frozen(jobs: list[list[str]]) -> list[list[str]]:
    """A sweep's jobs. If a condition with a probe of its own is one of several, its jobs lose the settings of the
    probe, stored features and saved weights, which are meant for the other conditions."""
    if len({override for job in jobs for override in job if override.startswith("treatment=")}) < 2:
        return jobs
    own = {f"treatment={name}" for name in CONDITIONS if _changes_probe(name)}
    return [[one for one in job if not own & set(job) or not OF_FROZEN.match(one)] for job in jobs]


def _changes_probe(condition: str) -> bool:
    """Whether a condition is a probe of its own."""
    return condition in CONDITIONS and CONDITIONS[condition].changes == "probe"


def _probe_of(condition: str) -> str:
    """The probe preset that a condition chooses."""
    (override,) = preset_values("treatment", condition)["defaults"]
    return str(override["override /probe"])


def _teach_omegaconf() -> None:
    """Lets a sweep's file say what Hydra alone cannot: layer 0 paired with itself and with every other layer."""
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver(
        "beside_embeddings",
        lambda num_layers: ",".join(f"[0,{k}]" for k in (0, *range(-num_layers, 0))),
        replace=True,
    )


def _launcher(base: Any) -> Launcher:
    """The launcher that a composed config names, with its settings."""
    from omegaconf import OmegaConf, open_dict

    with open_dict(base):
        base.hydra.job.name = "layer-probe"  # Hydra would take the program's
    settings = OmegaConf.to_container(base.hydra.launcher, resolve=True)
    assert isinstance(settings, dict)
    return Launcher.of(base.hydra.runtime.choices["hydra/launcher"], {str(k): v for k, v in settings.items()})


def _check_depths(configs: list[Config], typed: set[str]) -> None:
    """A sweep that counts an encoder's layers must know their number, and has one encoder."""
    if len({(cfg.encoder.name, cfg.encoder.path) for cfg in configs}) > 1:
        raise UserError("This sweep counts the layers of its encoder: one encoder at a time.")
    if configs[0].encoder.num_layers is None and "encoder.num_layers" not in typed:
        raise UserError(
            "This sweep counts the layers of its encoder, and only a preset knows them. Of another: "
            "encoder.num_layers=N (config.json has it, num_hidden_layers most often)."
        )


def config_of(overrides: list[str]) -> Config:
    """The one config that these settings ask for."""
    if (odd := next((given for given in overrides if not isinstance(given, str)), None)) is not None:
        raise UserError(f"Settings are strings as on the command line, 'encoder=minilm_l6'. This is none: {odd!r}")
    configs, is_sweep = configs_of(overrides)
    if is_sweep:
        raise UserError("One encoder and one choice of layers at a time; a sweep is for training.")
    return configs[0]


def split_flags(arguments: list[str]) -> tuple[list[str], bool]:
    """Overrides, and whether -m is among the flags."""
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    unknown = [flag for flag in flags if flag not in ("-m", "--multirun")]
    if unknown:
        raise UserError(f"there is no flag {unknown[0]}. `probe --help` shows what there is.")
    return overrides, bool(flags)


def _unknown_of_launcher(key: str, overrides: list[str]) -> UserError:
    """The error for a setting of `hydra.launcher` that the chosen launcher does not have."""
    from hydra import compose, initialize_config_dir

    chosen = [override for override in overrides if override.startswith("hydra/launcher=")]
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        launcher = compose("config", chosen, return_hydra_config=True).hydra.launcher
    names = [str(name) for name in launcher if not str(name).startswith("_")]
    close = difflib.get_close_matches(key.rpartition(".")[2], names, n=1)
    hint = f"Did you mean hydra.launcher.{close[0]}?" if close else f"There are: {', '.join(names)}."
    return UserError(f"There is no setting {key!r} of {chosen[-1] if chosen else 'hydra/launcher=local'}. {hint}")


def _explain(error: Exception, overrides: list[str]) -> UserError:
    """Hydra's errors in one or two lines."""
    from hydra.errors import MissingConfigException, OverrideParseException

    text = str(error)
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        if group == "hydra/launcher" and name.startswith("submitit"):
            return UserError(f"{group}={name} is not installed. Type: pip install 'layer-probe[slurm]'")
        options = sorted(error.options or [])
        close = difflib.get_close_matches(name, options, n=1)
        hint = f" Did you mean {group}={close[0]}?" if close else ""
        return UserError(f"{group}={name}: there is no such preset.{hint} There are: {', '.join(options)}.")
    if isinstance(error, OverrideParseException):
        name, _, value = str(error.override).partition("=")
        typed = "'layers.indices=[9,10]'" if value[:1] in "[{" else shlex.quote(f"{name}={quoted(value)}")
        return UserError(f"{error.override!r} cannot be read: {text.splitlines()[0]}. In quotes: {typed}.")
    if text.startswith("Could not override '"):
        key = text.split("'")[1]
        return _unknown_of_launcher(key, overrides) if key.startswith("hydra.launcher.") else unknown_setting(key)
    if text.startswith("Error merging override ") and error.__cause__:  # of a setting whose type Hydra knows
        reason = str(error.__cause__).partition("\n")[0]
        kind = next((kind for word, kind in KINDS.items() if word in reason), f"something else ({reason})")
        return UserError(f"{text.removeprefix('Error merging override ')}: this setting is {kind}.")
    return UserError(text.splitlines()[0])
