"""Conditions: their labels, and what a new one needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.inputs import data_config, encoder_config, features_config, run_config

from probe.conditions import BASELINE, CONDITIONS, Condition, conditions_of, label_of_conditions
from probe.config import Config, DataConfig, LayersConfig, ProbeConfig, conf_dir
from probe.data.corpus import Corpus
from probe.runs.plan import forget_inputs, plan


def test_labels_show_conditions_and_their_settings():
    assert label_of_conditions(["random", "control"], {"weights_seed": 0, "control": 1}) == "random weights, control"
    unknown = "newer"  # of a later version
    assert label_of_conditions([unknown], {}) == unknown


def test_every_condition_with_a_preset_is_what_its_preset_chooses():
    from probe.settings import config_of

    for file in (conf_dir() / "condition").glob("*.yaml"):
        names = conditions_of(config_of([f"condition={file.stem}"]))
        assert names == ([] if file.stem == "main" else [file.stem])


def test_a_condition_on_words_reads_its_own_features(
    tiny_bert: Path, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def reversed_words(text: Corpus, data: DataConfig, lower_cases: bool) -> Corpus:
        train = text.splits["train"]
        return replace(
            text, splits={**text.splits, "train": replace(train, words=[one[::-1] for one in map(list, train.words)])}
        )

    def make(name: str) -> Config:
        return run_config(
            data=data_config(tiny_data, name=name),
            encoder=encoder_config(tiny_bert),
            features=features_config(tmp_path / "cache", dtype="float32"),
            layers=LayersConfig([1], "concat"),
            probe=ProbeConfig(0, 0, 0.0, 0.05, 1, 8, 2, 2, 1.0, "float32"),
            seed=1,
            results_dir=str(tmp_path / "out"),
        )

    is_reversed: Callable[[object], bool] = lambda name: name == "reversed"  # noqa: E731
    new = Condition(lambda settings: "reversed", "data.name", is_reversed, "words", BASELINE, derive=reversed_words)
    monkeypatch.setitem(CONDITIONS, "reversed", new)
    forget_inputs()
    main, other = (plan(make(name)) for name in ("as it is", "reversed"))
    forget_inputs()
    assert main.identity.condition is None
    assert other.identity.condition is not None
    assert other.identity.condition.ids == ["reversed"]
    assert other.store.key != main.store.key
    assert other.identity.group == main.identity.group
    assert other.identity.key != main.identity.key
