"""Runs that are something else too: controls, random weights, the majority tag."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.inputs import data_config, encoder_config, features_config, run_config

from probe.conditions import conditions_of
from probe.config import Config, LayersConfig, ProbeConfig, UserError, conf_dir
from probe.probes import schedule
from probe.runs.frame import Run
from probe.runs.identity import RecordedCondition, RunIdentity
from probe.runs.plan import Plan, plan, prepare_results
from probe.runs.run import run
from probe.settings import config_of
from probe.tables.formats import write_tables
from probe.tables.rows import build_rows
from probe.verify.checks import check_files

pytestmark = pytest.mark.usefixtures("short_epochs")

MEMORY = LayersConfig([], "none", "majority_tag")
Make = Callable[..., Config]


@pytest.fixture
def make(tiny_bert: Path, tiny_data: Path, tmp_path: Path) -> Make:
    """Settings of a linear probe on layer 1 of the tiny encoder and corpus."""

    def config(layers: LayersConfig | None = None, weights: str = "pretrained", seed: int = 1, **data: Any) -> Config:
        encoder = replace(encoder_config(tiny_bert), weights=weights, weights_seed=3)
        layers = layers or LayersConfig([1], "concat")
        fitted = ProbeConfig(0, 0, 0.0, 0.05, 1, 8, 2, 2, 1.0, "float32")
        cfg = run_config(
            data=data_config(tiny_data, **data),
            encoder=encoder,
            features=features_config(tmp_path / "cache", dtype="float32"),
            layers=layers,
            probe=fitted,
            seed=seed,
            results_dir=str(tmp_path / "out"),
        )
        prepare_results(tmp_path / "out")
        return cfg

    return config


def quiet(_: str) -> None:
    pass


def compared_with(planned: Plan, identity: RunIdentity | None = None) -> tuple[str, str]:
    """The keys of the table and of the encoder that a run is compared with."""
    wanted = planned.expected
    line = Run(wanted.row, identity or wanted.identity, wanted.width, wanted.setting)
    return line.table, line.encoder


def test_labels_show_all_conditions():
    assert RecordedCondition(["random", "control"]).label == "random weights, control"


def test_every_condition_with_a_preset_is_what_its_preset_chooses():
    for file in (conf_dir() / "condition").glob("*.yaml"):
        names = conditions_of(config_of([f"condition={file.stem}"]))
        assert names == ([] if file.stem == "main" else [file.stem])


def test_a_condition_enters_identity_and_the_table_compared_with(make: Make):
    plain, main = plan(make()).identity, compared_with(plan(make()))
    kinds = {
        "control": plan(make(control=1)),
        "random": plan(make(weights="random")),
        "random control": plan(make(weights="random", control=1)),
    }
    for name, planned in kinds.items():
        identity = planned.identity
        assert identity.condition is not None
        assert identity.condition.ids == name.split()
        assert compared_with(planned) == main, name
    assert len({planned.identity.key for planned in kinds.values()} | {plain.key}) == 4
    assert kinds["control"].store.key == plain.features, "the same features"


def test_a_caseless_control_is_another_row_than_an_older_one(make: Make):
    planned = plan(make(control=1))
    condition = planned.identity.condition
    assert planned.encoder.lower_cases
    assert condition is not None
    assert condition.settings == {"control": 1, "lower_cased": True}
    older = replace(planned.identity, condition=replace(condition, settings={"control": 1, "lower_cased": False}))
    assert compared_with(planned, older) == compared_with(planned)
    assert older.key != planned.identity.key


def test_the_epochs_of_auto_are_in_key_and_record(make: Make, monkeypatch):
    monkeypatch.setattr(schedule, "EPOCH_UPDATES", 1)
    monkeypatch.setattr(schedule, "FULL_UPDATES", 8)
    sentences = len(plan(make()).corpus.splits["train"].tags)

    def planned(epochs: int | str) -> Plan:
        cfg = make()
        return plan(replace(cfg, probe=replace(cfg.probe, max_epochs=epochs, batch_size=-(-sentences // 4))))

    one = planned("auto")
    assert one.identity.probe["max_epochs"] == one.cfg.probe.max_epochs == 80
    assert planned(80).identity == one.identity == plan(one.cfg).identity, "however it came"


def test_a_majority_tag_is_one_run_for_all_weights_and_seeds(make: Make, tmp_path: Path):
    keys = {plan(make(MEMORY, weights, seed)).identity.key for weights in ("pretrained", "random") for seed in (1, 2)}
    assert len(keys) == 1
    record = run(make(MEMORY), quiet)
    assert (record.curve, record.best_epoch, record.seed) == ([], 0, 0)
    assert record.scores.dev.headline > 0.5
    assert not list((tmp_path / "cache").glob("*/train-*")), "no features"
    assert compared_with(plan(make(MEMORY, control=1))) == compared_with(plan(make(MEMORY)))


@pytest.mark.parametrize(
    "settings",
    [{"lr_decay": "linear", "patience": 9, "lr_patience": 3}, {"precision": "bfloat16"}, {"max_epochs": "auto"}],
    ids=str,
)
def test_a_majority_tag_is_in_the_table_of_the_probe(settings: dict[str, Any], make: Make):
    def planned(cfg: Config) -> Plan:
        cfg = replace(cfg, layers=replace(cfg.layers, normalize="scale"))
        return plan(replace(cfg, probe=replace(cfg.probe, **settings)))

    assert compared_with(planned(make(MEMORY))) == compared_with(planned(make()))


def test_a_folder_with_every_kind_of_run_verifies(make: Make, tmp_path: Path):
    for cfg in (make(), make(MEMORY), make(control=1), make(weights="random"), make(seed=2)):
        run(cfg, quiet)
    write_tables(tmp_path / "out", build_rows(tmp_path / "out"))
    checks = list(check_files(tmp_path / "out"))
    assert [check.line() for check in checks if check.ok is False] == []


def test_random_weights_with_a_revision_are_refused():
    with pytest.raises(UserError, match=r"encoder\.revision=v1:.*encoder\.revision=null"):
        config_of(["encoder.weights=random", "encoder.revision=v1"])
    for wrong, told in (
        ("encoder.weights=rnd", r"encoder\.weights=.?rnd.*pretrained, random"),
        ("encoder.weights_seed=-1", r"encoder\.weights_seed=-1"),
        ("data.control=-1", r"data\.control=-1"),
    ):
        with pytest.raises(UserError, match=told):
            config_of([wrong])
