"""Figures: what they show, and that the same rows give the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from support.records import expect, make_record

from probe.probes.fitting import Mix
from probe.runs.identity import RecordedCondition
from probe.runs.sweep_plan import write_expected
from probe.tables.figures import (
    NARROW,
    WIDE,
    draw_f1_by_layer,
    draw_mix_weights,
    draw_scores,
    has_layers,
    pictures,
)  # fmt: skip
from probe.tables.labels import label_rows
from probe.tables.row import Row
from probe.tables.rows import build_rows

SENTENCES = [(3, 3, 2), (4, 3, 3), (2, 2, 1), (5, 4, 4)] * 10
RANDOM = RecordedCondition(["random"], {"weights_seed": 0}, {"features": "features-sentence-a"})


def made(folder: Path, devs: dict[str, float], seeds: int = 3, **changes) -> list[Row]:
    for k, (name, dev) in enumerate(devs.items()):
        for seed in range(1, seeds + 1):
            score = dev + (seed - 2) / 1000
            make_record(folder, name, seed, score, score - 0.05, (k,), sentences=SENTENCES, **changes)
    return build_rows(folder)


def shown(rows: list[Row], width: float = WIDE) -> Figure:
    figure = Figure(figsize=(width, 4), layout="constrained")
    draw_scores(figure, rows)
    figure.draw_without_rendering()
    return figure


def test_scores_stand_in_order_with_their_intervals_and_the_margin(tmp_path: Path):
    rows = {row.name: row for row in made(tmp_path, {"low": 0.60, "best": 0.80, "near": 0.7995})}
    strip, axes = shown(list(rows.values())).axes
    assert [label.get_text() for label in strip.get_yticklabels()] == ["best", "near", "low"]
    thick = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 3.2]
    assert [np.asarray(ends).tolist() for ends in thick] == [
        pytest.approx([80 + 100 * end for end in rows[name].behind or []]) for name in ("best", "near", "low")
    ]
    thin = [np.asarray(line.get_xdata()).tolist() for line in axes.lines if line.get_linewidth() == 0.9]
    assert thin[0] == pytest.approx([100 * end for end in rows["best"].cell("dev").interval or []])
    assert len(thin) == 6, "dev and test"


def test_what_lies_far_outside_the_rows_range_stands_as_a_number_at_its_edge(tmp_path: Path):
    made(tmp_path, {"embeddings": 0.7, "last": 0.8})
    rows = made(tmp_path, {"embeddings": 0.1}, weights="r", condition=RANDOM)
    figure = shown(rows)
    low, high = figure.axes[1].get_xlim()
    assert 50 < low < high < 100
    assert any(text.get_text() == "◂ 10.00" for text in figure.axes[1].texts)


def test_a_missing_row_has_no_score(tmp_path: Path):
    rows = made(tmp_path, {"embeddings": 0.6, "last": 0.8, "layer_2": 0.7})
    record = make_record(tmp_path, "sum_all", 1, 0.7, 0.6, (1, 2))
    write_expected(tmp_path, [expect(record)])
    rows = label_rows(rows, 0.5)
    squares = [line for line in shown(rows).axes[1].lines if line.get_marker() == "s"]
    assert len(squares) == 3


@pytest.mark.parametrize("rows", [1, 26])
def test_no_text_of_the_scores_leaves_the_picture_or_overlaps_another(tmp_path: Path, rows: int):
    for k in range(rows):
        for seed in (1, 2):
            make_record(tmp_path, f"concat_of_many_layers_{k}", seed, 0.7 + k / 500 + seed / 1000, 0.6, (k % 7, k // 7))
    figure = shown(build_rows(tmp_path))
    texts = [*figure.axes[0].get_yticklabels(), *figure.axes[0].texts, *figure.axes[1].texts]
    (label,) = [text for text in figure.axes[0].texts if text.get_text() == "label"]
    assert label.get_window_extent().x1 < figure.axes[1].bbox.x0, "left of the scores: on a phone, it is in sight"
    boxes = [text.get_window_extent() for text in texts if text.get_text()]
    assert len(boxes) >= 3 * rows
    for k, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        for other in boxes[k + 1 :]:
            assert (
                min(box.x1, other.x1) - max(box.x0, other.x0) < 1 or min(box.y1, other.y1) - max(box.y0, other.y0) < 4
            )


def test_a_narrow_picture_has_each_name_above_its_dots_and_cuts_no_text(tmp_path: Path):
    names = [f"concat_of_many_layers_{k}" for k in range(5)]
    figure = shown(made(tmp_path, {name: 0.7 + k / 100 for k, name in enumerate(names)}), NARROW)
    (axes,) = figure.axes
    assert figure.get_figwidth() == NARROW
    dots = [line.get_window_extent() for line in axes.lines if line.get_marker() in ("o", "s")]
    for text, dot in zip(axes.texts, dots[::2], strict=True):
        assert text.get_window_extent().y0 > dot.y0
    assert [text.get_text() for text in axes.texts] == names[::-1]
    for box in (text.get_window_extent() for text in [*axes.texts, *figure.legends[0].get_texts()]):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_the_bars_of_a_layer_stand_around_its_tick(tmp_path: Path):
    for name, layers in (("mix_all", (1, 2, 3)), ("mix_last_two", (2, 3))):
        mix = Mix([1 / len(layers)] * len(layers), 1.0)
        make_record(tmp_path, name, 1, 0.8, 0.7, layers, "mix", mix=mix)
    figure = Figure()
    draw_mix_weights(figure, build_rows(tmp_path))
    centres = [bar.get_x() + bar.get_width() / 2 for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    assert sorted(centres) == pytest.approx([1, 1.8, 2.2, 2.8, 3.2])


def test_a_line_joins_neighbouring_layers_alone(tmp_path: Path):
    rows = made(tmp_path, dict.fromkeys(("embeddings", "layer_1", "layer_2", "layer_3", "layer_4"), 0.8))
    figure = Figure()
    draw_f1_by_layer(figure, [row for row in rows if row.indices != [2]])
    (dev, _) = figure.axes[0].containers
    assert np.isnan(np.asarray(dev[0].get_ydata(), float)).tolist() == [False, False, True, False, False]
    assert dev[0].get_linestyle() == "-"


def test_layers_are_drawn_with_baselines_and_the_best_combination(tmp_path: Path):
    made(tmp_path, dict.fromkeys(("embeddings", "layer_1", "layer_2", "layer_3"), 0.8))
    made(tmp_path, dict.fromkeys(("embeddings", "layer_1"), 0.3), weights="r", condition=RANDOM)
    make_record(tmp_path, "majority_tag", 0, 0.5, 0.5, (), "none", curve=[], best_epoch=0)
    make_record(tmp_path, "sum_all", 1, 0.9, 0.6, (1, 2), "sum")
    rows = build_rows(tmp_path)
    assert has_layers(rows)
    assert not has_layers([row for row in rows if row.indices != [3]]), "three of seven layers are no curve"
    figure = Figure()
    draw_f1_by_layer(figure, rows)
    (axes,) = figure.axes
    points = {line.get_label(): list(line[0].get_xdata()) for line in axes.containers}
    assert points == {"dev": [0, 1, 2, 3], "test": [0, 1, 2, 3], "random weights 30.00 (below)": [0, 1]}
    lines = {line.get_label() for line in axes.lines}
    assert {"majority_tag 50.00 (below)", "sum_all 90.00"} <= lines
    low, high = axes.get_ylim()
    assert 65 < low < 75 < 90 < high < 95, "the range is that of the layers and the combination"


@pytest.mark.usefixtures("draw")
def test_the_same_rows_give_the_same_bytes(tmp_path: Path):
    rows = made(tmp_path, {"embeddings": 0.7, "last": 0.8})
    for form in ("png", "svg", "pdf"):
        assert [one.render(form) for one in pictures(rows)] == [one.render(form) for one in pictures(rows)]
