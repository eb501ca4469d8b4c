"""One list of columns, which every format reads."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.records import make_record

from probe.report.page import page
from probe.system.format import format_layers
from probe.tables.columns import COLUMNS, GROUPS, choose_columns
from probe.tables.figures import pictures
from probe.tables.formats import FORMATS, TextTable, render
from probe.tables.published import PUBLISHED
from probe.tables.row import Row
from probe.tables.rows import build_rows


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    for seed in (1, 2, 3):
        make_record(tmp_path, "last", seed, 0.8 + seed / 1000, 0.7)
        make_record(tmp_path, "embeddings", seed, 0.6 + seed / 1000, 0.5, indices=(0,))
    return build_rows(tmp_path)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_can_be_chosen_in_every_format(rows: list[Row], name: str):
    for form in FORMATS:
        shown = render(rows, form, f"row,{name}")
        assert "embeddings" in shown
    lines = list(csv.DictReader(io.StringIO(render(rows, "csv", f"row,{name}"))))
    has_value = any(COLUMNS[name].value(row) is not None for row in rows)
    if has_value or not COLUMNS[name].optional:
        assert set(COLUMNS[name].csv) <= set(lines[0])
    for content in json.loads(render(rows, "json", f"row,{name}")):
        assert set(content) <= {"row", COLUMNS[name].path.partition(".")[0]}


def test_csv_and_json_have_everything_by_default(rows: list[Row]):
    names = choose_columns(None, rows, "json")
    assert set(names) == set(COLUMNS) - set(PUBLISHED)
    content = json.loads(render(rows, "json"))[0]
    for name in names:
        if (value := COLUMNS[name].value(rows[0])) is not None:
            place = content
            for part in COLUMNS[name].path.split("."):
                place = place[part]
            assert place == value or place.items() >= value.items()


def test_paths_and_csv_headers_are_of_one_value_each(rows: list[Row]):
    """Columns that share a header or a path show the same value there, so no order of columns matters."""
    for name in COLUMNS:
        for other in COLUMNS:
            shared = COLUMNS[name].csv.keys() & COLUMNS[other].csv.keys()
            values = [COLUMNS[one].csv[key](COLUMNS[one].value(rows[0])) for key in shared for one in (name, other)]
            assert values[::2] == values[1::2]


def test_groups_hold_the_columns_that_name_them():
    assert {name: set(members) for name, members in GROUPS.items()} == {
        name: {column.name for column in COLUMNS.values() if name in column.groups} for name in GROUPS
    }
    assert {group for column in COLUMNS.values() for group in column.groups} == set(GROUPS)
    assert not set(GROUPS) & set(COLUMNS)


def test_latex_escapes_cells_and_caption():
    shown = TextTable(
        ["a_b", "c"], [["50 %", "-1.5 ± 0.2"], ["x & y", "3..6"]], [True, False], ["with --margin"], bold=[0]
    )
    text = shown.render("tex")
    assert r"a\_b" in text
    assert r"\textbf{50 \%}" in text
    assert r"\textbf{$-$1.5 $\pm$ 0.2}" in text
    assert r"x \& y" in text
    assert "3--6" in text
    assert "with -{}-margin" in text


def test_the_page_escapes_names_and_holds_every_picture(tmp_path: Path, rows: list[Row]):
    named = [replace(row, name="<b>&") for row in rows]
    shown = [replace(picture, alt="<i>") for picture in pictures(named)]
    html = page(tmp_path, named, shown, {picture.name: b"\x89PNG" + bytes(30) for picture in shown})
    assert "<b>&" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "<i>" not in html
    assert html.count('src="data:image/png;base64,') == len(shown)


@pytest.mark.parametrize(
    ("layers", "text"),
    [([], ""), ([4], "4"), ([5, 6], "5, 6"), ([3, 4, 5, 6], "3..6"), ([0, 3, 5, 6, 7], "0, 3, 5..7"), ([2, 1], "2, 1")],
)
def test_three_or_more_consecutive_layers_are_a_range(layers: list[int], text: str):
    assert format_layers(layers) == text
