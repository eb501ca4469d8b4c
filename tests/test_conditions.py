"""Conditions: their labels, and what a new one needs."""

from __future__ import annotations

from probe.conditions import conditions_of
from probe.config import conf_dir
from probe.runs.identity import RecordedCondition


def test_labels_show_all_conditions():
    assert RecordedCondition(["random", "control"]).label == "random weights, control"


def test_every_condition_with_a_preset_is_what_its_preset_chooses():
    from probe.settings import config_of

    for file in (conf_dir() / "condition").glob("*.yaml"):
        names = conditions_of(config_of([f"condition={file.stem}"]))
        assert names == ([] if file.stem == "main" else [file.stem])
