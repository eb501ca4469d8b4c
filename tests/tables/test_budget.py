"""The best row within a budget."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.records import make_record

from probe.config import UserError
from probe.tables.budget import parse_budget, within_budget
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
        ("blocks=4", "concat"),
    ],
)
def test_the_best_row_within_a_budget_is_named_with_what_it_loses(tmp_path: Path, given: str, used: str):
    said = within_budget(rows_of(tmp_path), *parse_budget(given))
    assert f" use {used}:" in said
    lost = {"concat": 0, "layer_3": 10, "layer_1": 30}[used]
    assert (f" {lost}.00 points below" in said) == (lost > 0)
    nothing = within_budget(rows_of(tmp_path), *parse_budget("blocks=0.1"))
    assert "layer_1" in nothing


@pytest.mark.parametrize(
    ("given", "told"), [("bloks=3", "blocks"), ("width", "NAME=NUMBER|number"), ("width=-1", "-1")]
)
def test_a_budget_that_is_none_says_what_is_allowed(given: str, told: str):
    with pytest.raises(UserError, match=told):
        parse_budget(given)
