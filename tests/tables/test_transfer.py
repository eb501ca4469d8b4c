"""What a choice of layers loses elsewhere is what the table elsewhere says of its row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.records import make_record

from probe.commands.table import table
from probe.config import UserError
from probe.tables.figures import pictures
from probe.tables.rows import build_rows
from probe.tables.transfer import transfer

DEV = {"names": (0.5, 0.8, 0.7), "chunks": (0.6, 0.75, 0.9)}  # of layers 1, 3 and 6


def made(folder: Path, **corpora: tuple[float, ...]) -> Path:
    for corpus, scores in corpora.items():
        for layer, dev in zip((1, 3, 6), scores, strict=True):
            for seed in (1, 2, 3):
                make_record(folder, f"layer_{layer}", seed, dev + seed / 1000, 0.5, (layer,), corpus=corpus)
    return folder


def test_a_choice_loses_what_its_row_loses_on_the_other_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folders = [made(tmp_path / name, **{name: scores}) for name, scores in DEV.items()]
    lost = {(loss.chosen_on, loss.used_on): (loss.row, round(loss.lost, 4)) for loss in transfer(folders)}
    names, chunks = dict.fromkeys(of for of, _ in lost if not of.startswith("the"))
    assert lost[names, chunks] == ("layer_3", 0.15)
    assert lost[chunks, names] == ("layer_6", 0.1)
    assert lost[names, names] == ("layer_3", 0.0)
    assert lost["the middle layer", chunks] == ("layer_3", 0.15)
    assert lost["the last layer", names] == ("layer_6", 0.1)
    assert table(["--transfer", *map(str, folders), "--format", "json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert all(value["least"] <= value["lost"] <= value["most"] for value in values)
    rows = {row.name: row for row in build_rows(folders[1])}
    (own,) = (value for value in values if (value["chosen_on"], value["used_on"]) == (names, chunks))
    assert [-own["most"], -own["least"]] == rows["layer_3"].behind


def test_a_folder_of_two_tables_has_a_heat_map_and_one_table_has_no_travel(tmp_path: Path):
    assert "transfer" in [picture.name for picture in pictures(build_rows(made(tmp_path / "two", **DEV)))]
    one = made(tmp_path / "one", names=DEV["names"])
    assert "transfer" not in [picture.name for picture in pictures(build_rows(one))]
    with pytest.raises(UserError, match="one"):
        transfer([one])
