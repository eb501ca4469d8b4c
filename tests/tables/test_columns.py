"""One list of columns, which every format reads."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.records import make_record

from probe.format import format_layers
from probe.report.page import page
from probe.tables.columns import COLUMNS, signed
from probe.tables.figures import pictures
from probe.tables.formats import FORMATS, TextTable, render
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
        assert "embeddings" in render(rows, form, f"row,{name}")
    values = COLUMNS["row"].values(rows[0]) | COLUMNS[name].values(rows[0])
    assert json.loads(render(rows, "json", f"row,{name}"))[0] == values
    assert next(csv.DictReader(io.StringIO(render(rows, "csv", f"row,{name}")))).keys() == values.keys()


def test_csv_and_json_have_everything_by_default(rows: list[Row]):
    content = json.loads(render(rows, "json"))[0]
    names = [name for column in COLUMNS.values() for name in column.values(rows[0])]
    assert [*content] == [*names, "use"]
    assert len(set(names)) == len(names), "a name is of one column"


def test_latex_escapes_cells_and_caption():
    shown = TextTable(
        ["a_b", "c"], [["50 %", "-1.5 ± 0.2"], ["x & y", "3..6"]], [True, False], ["with --margin"],
        bold=[0], emphasised=[1], advice=["type --x_y"],
    )  # fmt: skip
    text = shown.render("tex")
    assert r"a\_b" in text
    assert r"50 \%" in text
    assert "% type --x_y\n" in text.partition("\\begin")[0], "advice is no part of what is printed"
    assert r"\textbf{$-$1.5$_{\pm 0.2}$}" in text
    assert r"x \& y" in text
    assert "3--6" in text
    assert "with -{}-margin" in text


def test_the_page_escapes_names_and_holds_every_picture(tmp_path: Path, rows: list[Row]):
    named = [replace(row, name="<b>&") for row in rows]
    shown = [replace(picture, alt="<i>") for picture in pictures(named)]
    html = page(tmp_path, named, shown, {picture.name: (b"\x89PNG" + bytes(30), b"\x89PNG") for picture in shown})
    assert "<b>&" not in html
    assert "&lt;b&gt;&amp;" in html
    assert "<i>" not in html
    assert html.count('src="data:image/png;base64,') == html.count('srcset="data:image/png;base64,') == len(shown)


@pytest.mark.parametrize(
    ("layers", "text"),
    [([], ""), ([4], "4"), ([5, 6], "5, 6"), ([3, 4, 5, 6], "3..6"), ([0, 3, 5, 6, 7], "0, 3, 5..7"), ([2, 1], "2, 1")],
)
def test_three_or_more_consecutive_layers_are_a_range(layers: list[int], text: str):
    assert format_layers(layers) == text


def test_an_end_below_zero_never_reads_as_zero():
    assert [signed(end) for end in (-0.0234, -0.00003, -0.0, 0.0, 0.01)] == ["-2.34", "-0.00", "0.00", "0.00", "+1.00"]
