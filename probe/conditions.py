"""Defines the conditions of runs other than the main one: baselines, and the fine-tuned encoder.

A new condition is an entry in `CONDITIONS` and a file in `conf/condition/` of the same name. Tables, keys and checks
use the entry. Keys hold its id and settings, never its label. This module imports nothing that takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

from probe.config import Config, DataConfig
from probe.data.corpus import Corpus

# The sections of a table, from the top: baselines that a row should exceed, the main rows, and upper bounds.
BASELINE, MAIN, UPPER_BOUND = range(3)
LOWER_CASED = "lower_cased"  # of a control task: whether words were lower-cased before tags were drawn


@dataclass(frozen=True)
class Condition:
    """Describes how runs differ from the main runs that they are compared with.

    label: its name in tables, given the settings of all conditions of a row. setting: the setting that asks for it.
    holds: returns whether a value of that setting asks for it. changes: the `encoder`, the `words` of the corpus, its
    `tags`, or the `probe`. section: its part of a table. note: shown under a table with such a row. settings: those of
    a config that keys must hold in addition to its id; the last argument says whether the encoder drops case. derive:
    makes the corpus from the original one, if `words` or `tags` change; its last argument says the same.
    """

    label: Callable[[Mapping[str, Any]], str]
    setting: str
    holds: Callable[[Any], bool]
    changes: Literal["encoder", "words", "tags", "probe"]
    section: int
    note: str | None = None
    settings: Callable[[Config, bool], dict[str, Any]] = lambda cfg, lower_cases: {}
    derive: Callable[[Corpus, DataConfig, bool], Corpus] | None = None

    @property
    def data_setting(self) -> str | None:
        """Returns the name of its setting in the group `data`; None if its setting is of another group."""
        return self.setting.removeprefix("data.") if self.setting.startswith("data.") else None


def _control(text: Corpus, data: DataConfig, lower_cases: bool) -> Corpus:
    assert data.control is not None
    return text.control(data.control, lower_cases)


CONDITIONS: dict[str, Condition] = {  # in the order of the table
    "random": Condition(
        label=lambda settings: "random weights",
        setting="encoder.weights",
        holds=lambda weights: weights == "random",
        changes="encoder",
        section=BASELINE,
        note="random weights: the same architecture with random weights that were never trained.",
        settings=lambda cfg, lower_cases: {"weights_seed": cfg.encoder.weights_seed},
    ),
    "control": Condition(
        label=lambda settings: "control",
        setting="data.control",
        holds=lambda seed: seed is not None,
        changes="tags",
        section=BASELINE,
        note="control: another task on the same words. Each word (with spans: each mention) has a tag drawn at random, "
        "which can only be memorised or guessed. The bounds of spans stay and can be learnt, so this task differs from "
        "Hewitt & Liang's.",
        settings=lambda cfg, lower_cases: {"control": cfg.data.control, LOWER_CASED: lower_cases},
        derive=_control,
    ),
    "fine_tuned": Condition(
        label=lambda settings: "fine-tuned",
        setting="probe.kind",
        holds=lambda kind: kind == "finetune",
        changes="probe",
        section=UPPER_BOUND,
        note="fine-tuned: the encoder itself is trained, with a linear layer on its last layer; best epoch on dev.",
    ),
}


def conditions_of(cfg: Config) -> list[str]:
    """Returns the conditions that a config asks for, in the order of `CONDITIONS`."""
    return [name for name, condition in CONDITIONS.items() if condition.holds(attrgetter(condition.setting)(cfg))]


def settings_of_conditions(cfg: Config, lower_cases: bool) -> dict[str, Any]:
    """Returns the settings of a config's conditions.

    lower_cases: whether the encoder drops case. The control task is then drawn without case, which makes it another
    condition and so another row.
    """
    settings: dict[str, Any] = {}
    for name in conditions_of(cfg):
        settings |= CONDITIONS[name].settings(cfg, lower_cases)
    return settings


def label_of_conditions(ids: Iterable[str], settings: Mapping[str, Any]) -> str:
    """Joins the conditions' labels for tables. A condition that this version does not know is shown by its id."""
    return ", ".join(CONDITIONS[name].label(settings) if name in CONDITIONS else name for name in ids)


def section_of(indices: Iterable[int], names: Iterable[str]) -> int:
    """Returns the section of a table for a row with these layers and conditions.

    A row without layers is a baseline, and so is one with any condition of a baseline.
    """
    sections = {CONDITIONS[name].section if name in CONDITIONS else BASELINE for name in names}
    if not list(indices) or BASELINE in sections:
        return BASELINE
    return max(sections, default=MAIN)


def main_data(data: DataConfig, changed_words: bool = False) -> DataConfig:
    """Returns the data settings of the main runs. changed_words: keeps the conditions that change words."""
    reset: dict[str, Any] = {
        condition.data_setting: None
        for condition in CONDITIONS.values()
        if condition.data_setting and not (changed_words and condition.changes == "words")
    }
    return replace(data, **reset)


def derived(
    text: Corpus, data: DataConfig, lower_cases: bool = False, changes: Collection[str] = ("words", "tags")
) -> Corpus:
    """Returns the corpus that a run is trained and scored on, made from the original one.

    lower_cases: whether the encoder drops case; the control task then does too. changes: which of the changes are made.
    Raises UserError for what cannot be made.
    """
    corpus = text
    for condition in CONDITIONS.values():
        is_asked = condition.data_setting and condition.holds(getattr(data, condition.data_setting))
        if condition.derive and is_asked and condition.changes in changes:
            corpus = condition.derive(corpus, data, lower_cases)
    return corpus
