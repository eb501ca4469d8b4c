"""The best row within a budget, and speeds that are measured once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.inputs import data_config, encoder_config, features_config, run_config
from support.records import make_record

from probe.config import UserError
from probe.data.corpus import load_corpus
from probe.tables import budget
from probe.tables.budget import Speed, parse_budget, speed_at, within_budget
from probe.tables.rows import build_rows


def rows_of(folder: Path) -> list:
    for seed in (1, 2, 3):
        for layer, dev in ((1, 0.5), (3, 0.7), (6, 0.6)):
            make_record(folder, f"layer_{layer}", seed, dev + seed / 1000, 0.5, (layer,))
        make_record(folder, "concat", seed, 0.8 + seed / 1000, 0.5, (2, 4))
    return build_rows(folder)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("blocks=3", "layer_3"),
        ("blocks=2", "layer_1"),
        ("width=16", "layer_3"),
        ("words_s=200", "concat"),
        ("words_s=300", "layer_3"),
        ("ms=1", "layer_1"),
        ("mb=60", "concat"),
    ],
)
def test_the_best_row_within_a_budget_is_named_with_what_it_loses(tmp_path: Path, given: str, used: str):
    def speed_of(row) -> Speed:
        return Speed(1000 / row.num_blocks, row.num_blocks, 10.0 * row.num_blocks)

    said = within_budget(rows_of(tmp_path), *parse_budget(given), speed_of)
    assert f" use {used}:" in said
    lost = {"concat": 0, "layer_3": 10, "layer_1": 30}[used]
    assert (f" {lost}.00 points below" in said) == (lost > 0)
    nothing = within_budget(rows_of(tmp_path), *parse_budget("mb=0.1"), speed_of)
    assert "layer_1" in nothing


@pytest.mark.parametrize(("given", "told"), [("bloks=3", "blocks"), ("ms", "NAME=NUMBER|number"), ("ms=-1", "-1")])
def test_a_budget_that_is_none_says_what_is_allowed(given: str, told: str):
    with pytest.raises(UserError, match=told):
        parse_budget(given)


def test_a_speed_is_measured_once_for_each_depth(
    tiny_bert: Path, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cfg, corpus = (
        run_config(encoder=encoder_config(tiny_bert), features=features_config(tmp_path)),
        load_corpus(data_config(tiny_data)),
    )
    whole, part = speed_at(cfg, 5, corpus), speed_at(cfg, 2, corpus)
    assert part.mb < whole.mb
    assert min(whole.words_s, whole.ms, part.words_s, part.ms) > 0
    monkeypatch.setattr(budget, "_measured", None)
    assert (speed_at(cfg, 5, corpus), speed_at(cfg, 2, corpus)) == (whole, part)
    (file,) = tmp_path.rglob(budget.SPEEDS)
    assert len(json.loads(file.read_text())) == 2
    file.write_text("[]")
    monkeypatch.undo()
    assert speed_at(cfg, 5, corpus).mb == whole.mb
