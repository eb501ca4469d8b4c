"""Anybody's scores from a CSV file: read or refused by line, compared by the statistic of the tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from probe.commands.table import table
from probe.config import UserError
from probe.tables.scores import compare_scores, read_scores

ACCEPTED = "row,score\nfirst,2.25\nmiddle,2.44\nlast,2.18\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "scores.csv"
    file.write_text(text)
    return file


def paired(folder: Path, lead: float, seeds: int = 1, units: int = 60, extra: str = ",u{0}") -> Path:
    """Two rows on units that differ much more from each other than the rows do on any of them."""
    draw = np.random.default_rng(0)
    easy, noise = draw.uniform(0.2, 0.7, units), draw.normal(0, 0.01, (seeds, units, 2))
    lines = [
        f"{row},{seed},u{unit},{easy[unit] + noise[seed, unit, at] + lead * at:.4f},{cost}{extra.format(unit)}"
        for at, (row, cost) in enumerate((("small", 1), ("large", 9)))
        for seed in range(seeds)
        for unit in range(units)
    ]
    return written(folder, "\n".join(["row,seed,unit,score,cost" + (",document" if extra else ""), *lines]))


@pytest.mark.parametrize("seeds", [1, 4])
def test_rows_are_compared_unit_by_unit(tmp_path: Path, seeds: int):
    small, large = compare_scores(read_scores(paired(tmp_path, 0.05, seeds)), 0.01)[0]
    assert (small.label, large.label, large.use) == ("worse", "best", True)
    assert small.behind == pytest.approx(-0.05, abs=0.005)
    assert small.behind_low is not None
    assert -0.06 < small.behind_low < -0.05, "units vary by 0.15, their differences by 0.014"
    assert (small.n, small.std is None) == (seeds, seeds == 1)


def test_the_cheapest_row_within_the_margin_is_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = paired(tmp_path, 0.02)
    for margin, used in (("5", "small"), ("1", "large")):
        assert table(["--scores", str(file), "--margin", margin, "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [row["row"] for row in rows if row["use"]] == [used]


def test_units_of_a_document_count_as_one(tmp_path: Path):
    rows, over = compare_scores(read_scores(paired(tmp_path, 0.05, 2, 200, ",d{0}")), 0.01)
    assert over.endswith("200 documents")
    few = read_scores(paired(tmp_path, 0.05, 2, 200, ",d"))
    unknown = read_scores(paired(tmp_path, 0.05, 2, 200, ""))
    assert all("seeds alone" in compare_scores(one, 0.01)[1] for one in (few, unknown))
    assert rows[0].label == "worse"


def test_one_score_of_each_row_is_shown_and_decides_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert table(["--scores", str(written(tmp_path, ACCEPTED))]) == 0
    shown = capsys.readouterr().out
    assert "2.440" in shown
    assert not {"best", "worse"} & {*shown.split()}
    assert table(["--scores", str(written(tmp_path, "row,seed,score\na,1,.8\na,2,.8\nb,1,.7\nb,2,.7\n"))]) == 0
    assert not {"best", "worse"} & {*capsys.readouterr().out.split()}, "no seed differs from another"


def test_scores_that_are_no_shares_need_a_margin_in_their_unit(tmp_path: Path):
    text = ACCEPTED.replace("score", "score,seed").replace("\n", ",1\n").replace("seed,1", "seed")
    text += text.partition("\n")[2].replace(",1\n", ",2\n").replace("2.", "2.0")
    file = str(written(tmp_path, text))
    with pytest.raises(UserError, match="--margin"):
        table(["--scores", file])
    assert table(["--scores", file, "--margin", "0.1"]) == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rows,score\na,1\n", "rows"),
        ("row,score\na,1\nb,high\n", "line 3.*high"),
        ("row,score\na,1\nb,\n", "line 3"),
        ("row,score\na,1\na,2\n", "line 3.*'a'"),
        ("row,unit,score\na,x,1\na,y,1\nb,x,2\n", "'b'.*'y'"),
        ("row;score\na;1\n", "commas"),
        ("row,score\n", "scores.csv"),
        ("row,seed,score,cost\na,1,1,5\na,2,1,6\n", "'a'.*cost"),
        ("row,unit,score,document\na,x,1,d\nb,x,1,e\n", "'x'.*document"),
        ("row,score\na,1\na ,2\n", "line 3.*'a'"),
        ("", "scores.csv"),
        ("row,seed,score\na,1,.9,.5\na,2,.9,.5\nb,1,.8,.7\nb,2,.8,.7\n", "line 2.*4.*3"),
        ("row,seed,score\na,1,.9,\na,2,.9,\nb,1,.8,\nb,2,.8,\n", "line 2.*4.*3"),
        ("row,seed,score\na,1,0.9\n\nb,1\n", "line 4.*2.*3"),
        ("row,seed,score\na,1,0,9\n", "line 2.*4.*3"),
        ('row,score\n"a,.9\nb,.8\n', "line"),
        ('row,score\na,.9\n\n"b\nc",high\n', "line 5.*high"),
        ("row,score,score\na,.9,.8\n", "2.*'score'"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, told: str):
    with pytest.raises(UserError, match=told):
        read_scores(written(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffrow,score\r\na,.9\r\nb,.8\r\n",
        '"row","score"\n\n"a", .9\n  \n"b",.8',
        "row,score,,\na,.9,,\nb,.8,,\n",
        "\n note , row , score\nx,a,.9\ny,b,.8\n",
    ],
    ids=["of a spreadsheet", "quoted", "empty columns", "blanks"],
)
def test_the_same_scores_are_read_however_they_are_written(tmp_path: Path, text: str):
    table_read = read_scores(written(tmp_path, text))
    assert dict(zip(table_read.row, table_read.score, strict=True)) == {"a": 0.9, "b": 0.8}
