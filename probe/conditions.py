"""Defines the conditions of runs other than the main one: baselines, and the fine-tuned encoder.

A new condition is an entry in `CONDITIONS` and a file in `conf/condition/` of the same name. Tables, keys and checks
use the entry. Keys hold its id and settings, never its label. This module imports nothing that takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from probe.config import Config

# The sections of a table, from the top: baselines that a row should exceed, the main rows, and upper bounds.
BASELINE, MAIN, UPPER_BOUND = range(3)


@dataclass(frozen=True)
class Condition:
    """Describes how runs differ from the main runs that they are compared with.

    label: its name in tables. setting: the setting that asks for it. holds: returns whether a config asks for it.
    section: its part of a table. note: shown under a table with such a row. settings: those of a config that keys must
    hold in addition to its id, given whether the encoder drops case.
    """

    label: str
    setting: str
    holds: Callable[[Config], bool]
    section: int
    note: str
    settings: Callable[[Config, bool], dict[str, Any]] = lambda cfg, lower_cases: {}


CONDITIONS: dict[str, Condition] = {  # in the order of the table
    "random": Condition(
        label="random weights",
        setting="encoder.weights",
        holds=lambda cfg: cfg.encoder.weights == "random",
        section=BASELINE,
        note="random weights: the same architecture with random weights that were never trained.",
        settings=lambda cfg, lower_cases: {"weights_seed": cfg.encoder.weights_seed},
    ),
    "control": Condition(
        label="control",
        setting="data.control",
        holds=lambda cfg: cfg.data.control is not None,
        section=BASELINE,
        note="control: another task on the same words. Each word (with spans: each mention) has a tag drawn at random, "
        "which can only be memorised or guessed. The bounds of spans stay and can be learnt, so this task differs from "
        "Hewitt & Liang's.",
        settings=lambda cfg, lower_cases: {"control": cfg.data.control, "lower_cased": lower_cases},
    ),
    "fine_tuned": Condition(
        label="fine-tuned",
        setting="probe.kind",
        holds=lambda cfg: cfg.probe.kind == "finetune",
        section=UPPER_BOUND,
        note="fine-tuned: the encoder itself is trained, with a linear layer on its last layer; best epoch on dev.",
    ),
}


def conditions_of(cfg: Config) -> list[str]:
    """Returns the conditions that a config asks for, in the order of `CONDITIONS`."""
    return [name for name, condition in CONDITIONS.items() if condition.holds(cfg)]


def settings_of_conditions(cfg: Config, lower_cases: bool) -> dict[str, Any]:
    """Returns the settings of a config's conditions.

    lower_cases: whether the encoder drops case. The control task is then drawn without case, which makes it another
    condition and so another row.
    """
    found = [CONDITIONS[name].settings(cfg, lower_cases) for name in conditions_of(cfg)]
    return {name: value for settings in found for name, value in settings.items()}
