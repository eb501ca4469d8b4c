"""The picture of a table: which lines, marks and intervals it has, and that nothing overlaps or is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from support.records import expect, make_record

from probe.race.rule import Elimination
from probe.runs.identity import RecordedCondition
from probe.runs.sweep_plan import write_expected
from probe.tables.decisions import label_rows
from probe.tables.dot_plot import DotPlot, Line, Score, draw_dot_plot
from probe.tables.figures import draw, scores, spread
from probe.tables.row import Row
from probe.tables.rows import build_rows

SENTENCES = [(3, 3, 2), (4, 3, 3), (2, 2, 1), (5, 4, 4)] * 10


def made(folder: Path, devs: dict[str, float], seeds: int = 3, **changes) -> list[Row]:
    for k, (name, dev) in enumerate(devs.items()):
        for seed in range(1, seeds + 1):
            score = dev + (seed - 2) / 1000
            make_record(folder, name, seed, score, score - 0.05, (k,), sentences=SENTENCES, **changes)
    return build_rows(folder)


def test_lines_stand_by_score_with_what_the_table_decided(tmp_path: Path):
    rows = made(tmp_path, {"low": 0.60, "best": 0.80, "near": 0.7995})
    plot = scores(rows, "title")
    assert [line.name for line in plot.lines] == ["best", "near", "low"]
    by_name = {row.name: row for row in rows}
    for line in plot.lines:
        row = by_name[line.name]
        assert line.columns == (str(row.num_blocks), str(row.width), row.label)
        assert line.layers == tuple(row.indices)
        assert row.behind is not None
        assert line.dev is not None
        assert line.dev.to_best == pytest.approx([80 + 100 * end for end in row.behind])
        assert line.dev.interval == pytest.approx([100 * end for end in row.cells["dev_f1"].interval or []])
        assert line.test is not None
        assert line.test.to_best is None, "test decides nothing"
    assert plot.band is not None
    assert plot.band[:2] == pytest.approx((79.5, 80))
    assert plot.num_layers == 7
    assert [line.is_best for line in plot.lines] == [True, False, False]
    assert sum(line.is_used for line in plot.lines) == 1


def test_one_row_with_one_seed_has_neither_label_nor_interval_nor_band(tmp_path: Path):
    plot = scores(made(tmp_path, {"last": 0.7}, seeds=1), "")
    (line,) = plot.lines
    assert plot.headers == ("blocks", "width")
    assert plot.band is None
    assert line.dev is not None
    assert (line.dev.mean, line.dev.interval, line.dev.to_best) == (pytest.approx(69.9), None, None)
    assert draw(plot, draw_dot_plot, "", "png").startswith(b"\x89PNG")


def test_baselines_are_thin_lines_at_the_best_of_each(tmp_path: Path):
    made(tmp_path, {"embeddings": 0.6, "last": 0.8})
    random = RecordedCondition(["random"], {"weights_seed": 0}, {"features": "features-sentence-a"})
    made(tmp_path, {"embeddings": 0.3, "last": 0.35}, weights="r", condition=random)
    make_record(tmp_path, "majority_tag", 0, 0.5, 0.5, (), "none", curve=[], best_epoch=0)
    plot = scores(build_rows(tmp_path), "")
    assert [line.name for line in plot.lines] == ["last", "embeddings"]
    assert dict(plot.marks) == pytest.approx({"random weights": 35, "majority_tag": 50})
    assert draw(plot, draw_dot_plot, "", "png")


def test_rows_without_layers_alone_are_lines_with_an_empty_strip(tmp_path: Path):
    make_record(tmp_path, "majority_tag", 0, 0.5, 0.5, (), "none", curve=[], best_epoch=0)
    plot = scores(build_rows(tmp_path), "")
    (line,) = plot.lines
    assert (line.name, line.layers, plot.marks) == ("majority_tag", (), ())
    assert draw(plot, draw_dot_plot, "", "png")


def test_a_missing_row_keeps_its_line_and_an_eliminated_one_has_no_test_score(tmp_path: Path):
    rows = made(tmp_path, {"embeddings": 0.6, "last": 0.8, "layer_2": 0.7})
    left = label_rows([replace(r, eliminated=Elimination(1, "")) if r.name == "layer_2" else r for r in rows], 0.5)
    assert [(line.name, line.test is None) for line in scores(left, "").lines][-1] == ("layer_2", True)
    record = make_record(tmp_path, "sum_all", 1, 0.7, 0.6, (1, 2))
    write_expected(tmp_path, [expect(record)])
    for path in (tmp_path / "records").glob("sum_all*"):
        path.unlink()
    last = scores(build_rows(tmp_path), "").lines[-1]
    assert (last.name, last.dev, last.note) == ("sum_all", None, "missing")


def plot_of(lines: int, layers: int, marks: tuple[tuple[str, float], ...] = (), name: str = "row") -> DotPlot:
    made_lines = [
        Line(f"{name}_{k}", (k % layers,), Score(80 + k / 10, (79, 81), (79.5, 80)), Score(70), ("1", "undecided"))
        for k in range(lines)
    ]
    return DotPlot(
        title="title",
        lines=tuple(made_lines),
        num_layers=layers,
        headers=("blocks", "label"),
        align_left=(False, True),
        axis="F1",
        bars="mean",
        band=(79.5, 80, "margin"),
        marks=marks,
    )


MARKS = (
    ("random weights", 72.0),
    ("random seed 2", 72.5),
    ("control", 73),
    ("majority_tag", 81),
    ("fine-tuned", 82.3),
)
TUNED = [
    (f"fine-tuned, {epochs} epochs (learning_rate {rate})", score)
    for epochs, rate, score in ((3, 5e-5, 79.5), (3, 2e-4, 81.8), (10, 2e-4, 82.3))
]
MANY = (("control", 59.4), ("random weights", 61.8), ("majority_tag", 62.6), ("random seed 2", 77.8), *TUNED)


@pytest.mark.parametrize(
    ("lines", "layers", "marks", "name"),
    [
        (1, 3, (), "row"),
        (26, 13, MARKS, "row"),
        (9, 49, MARKS, "a_row_with_a_very_long_name_that_must_be_cut"),
        (9, 7, MANY, "row"),
    ],
)
def test_no_text_of_a_plot_overlaps_another_or_leaves_the_picture(
    lines: int, layers: int, marks: tuple[tuple[str, float], ...], name: str
):
    figure = Figure()
    draw_dot_plot(figure, plot_of(lines, layers, marks, name))
    figure.draw_without_rendering()
    whole = next(axes for axes in figure.axes if not axes.axison)
    boxes = [text.get_window_extent() for text in whole.texts if text.get_text()]
    assert len(boxes) >= 3 * lines + len(marks)
    for k, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0
        assert box.y1 <= figure.bbox.y1
        for other in boxes[k + 1 :]:
            assert (
                min(box.x1, other.x1) - max(box.x0, other.x0) < 1 or min(box.y1, other.y1) - max(box.y0, other.y0) < 4
            )


def test_marks_and_scores_far_outside_the_rows_range_stand_as_numbers_at_its_edge():
    plot = plot_of(3, 7, (("random weights", 10.0),))
    stray = Line("stray", (1,), Score(5.0), None, ("1", "not converged"), is_ranked=False)
    figure = Figure()
    draw_dot_plot(figure, replace(plot, lines=(*plot.lines, stray)))
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert any("random weights 10.0" in text for text in texts)
    assert any("5.0" in text and "10.0" not in text for text in texts)
    low, high = next(axes for axes in figure.axes if axes.axison).get_xlim()
    assert low > 60
    assert high < 100


def test_labels_are_moved_apart_as_little_as_possible():
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert spread([0.0, 0.0, 1.0], 0.1) == pytest.approx([0.0, 0.1, 1.0])
    assert spread([1.0, 1.0], 0.1) == pytest.approx([0.9, 1.0])
