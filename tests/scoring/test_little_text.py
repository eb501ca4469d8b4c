"""Little text and shuffled text: what tables say of rows that are equal. `benchmarks/decisions.py` has it in full."""

from __future__ import annotations

import numpy as np
import pytest
from decisions import LittleText, little_study

from probe.scoring.compare import Comparison, Sample

LONG = LittleText("long documents")


@pytest.mark.parametrize(("view", "sentences"), [("marked", 200), ("in order", 200), ("marked", 1000)])
def test_equal_rows_are_not_called_worse_for_want_of_text(view: str, sentences: int):
    found = little_study(LONG, view, sentences, tables=40)["little"]
    assert found["worse"] <= 0.05 + 2.5 * (0.05 * 0.95 / 40) ** 0.5
    assert found["within"] <= 0.05
    assert found["conditional"] == 0


def test_less_text_gives_wider_intervals_on_average():
    for view in ("marked", "in order", "shuffled"):
        reach = [little_study(LONG, view, sentences, 10)["little"]["reach"] for sentences in (60, 200, 1000, 3250)]
        assert reach == sorted(reach, reverse=True), view


def test_sentences_in_no_order_have_conditional_labels():
    assert little_study(LONG, "shuffled", 60, tables=3)["little"]["conditional"] == 1


def test_few_documents_give_wider_intervals_than_many_that_vary_as_much():
    draw = np.random.default_rng(0)
    scores = 0.9 + 0.001 * draw.standard_normal((4, 3))

    def width(units: int) -> float:
        moves = draw.standard_normal((4, 1, units)).repeat(3, 1) * 0.005 / units**0.5
        rows = [Sample(list(own), of, effective=units) for own, of in zip(scores, moves, strict=True)]
        return float(np.mean([high - low for low, high in Comparison(rows).behind()]))

    assert width(3) > 2 * width(10) > 2 * width(40)


def test_no_interval_is_shorter_than_three_items():
    alike = Comparison([Sample([0.9, 0.9], np.zeros((2, 30)), effective=30, item=1 / 127)] * 2)
    assert alike.behind() == [[pytest.approx(-3 / 127), 0.0]] * 2
    assert alike.visible == pytest.approx(3 / 127)
    below = Comparison([Sample([score] * 2, np.zeros((2, 30)), item=1 / 127) for score in (0.9, 0.9 - 2 / 127)])
    assert below.behind()[1][1] == 0.0, "two items are no difference"
