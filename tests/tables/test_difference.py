"""The difference of two rows, or of the rows of one name in two folders."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from pathlib import Path

import pytest
from support.facts import names
from support.records import BETTER, CLOSE, WORSE, influence_by_hand, make_record

from probe.commands.table import table
from probe.config import UserError
from probe.runs.outputs import load_counts, write_counts
from probe.runs.samples import run_counts, samples_of
from probe.scoring.compare import Comparison
from probe.scoring.metrics import by_sentence, of_kind
from probe.scoring.significance import IF_INDEPENDENT
from probe.tables.difference import differences
from probe.tables.rows import build_rows


def made(folder: Path) -> Path:
    for seed in range(1, 6):
        make_record(folder, "last", seed, 0.80 + seed / 1000, 0.78, sentences=BETTER)
        make_record(folder, "embeddings", seed, 0.70 + seed / 1000, 0.50, (0,), sentences=WORSE)
    return folder


def test_two_rows_differ_by_their_means_with_an_interval_over_seeds_and_text(tmp_path: Path):
    (dev, test), _ = differences([made(tmp_path)], ["last", "embeddings"])
    assert (dev.score, test.score, dev.n) == ("dev F1", "test F1", "5 / 5")
    names(dev.rows, "last", "embeddings")
    assert (dev.a, dev.b, dev.difference) == (pytest.approx(0.803), pytest.approx(0.703), pytest.approx(0.1))
    assert test.difference == pytest.approx(0.28)
    assert dev.over == "seeds and text"
    assert dev.low is not None
    assert dev.high is not None
    over_seeds = 2 * statistics.variance(seed / 1000 for seed in range(1, 6)) / 5
    moved = influence_by_hand(BETTER) - influence_by_hand(WORSE)
    error = math.sqrt(over_seeds + 39 / 40 * float((moved**2).sum()))
    assert (dev.low + dev.high) / 2 == pytest.approx(0.1)
    assert 1.85 * error < (dev.high - dev.low) / 2 < 2.15 * error, "mostly the text, of 40 documents: Student has 2.02"


def test_what_two_rows_show_alone_stands_beside_what_their_table_shows(tmp_path: Path):
    made(tmp_path)
    for seed in range(1, 6):
        make_record(tmp_path, "layer_1", seed, 0.799 + seed / 1000, 0.78, (1,), sentences=BETTER)
    _, (sentence, _) = differences([tmp_path], ["last", "embeddings"])
    assert all(fact in sentence for fact in ("3 rows", "last is best", "embeddings is worse", "p < 0.001"))
    _, (sentence, _) = differences([tmp_path], ["last", "layer_1"], margin=0.01)
    assert "layer_1 is undecided" in sentence


def test_without_all_counts_it_is_said_that_the_interval_is_over_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    next((made(tmp_path) / "counts").glob("last-seed1-*")).unlink()
    (dev, _), _ = differences([tmp_path], ["last", "embeddings"])
    assert dev.over == "seeds"
    assert table([str(tmp_path), "--difference", "last", "embeddings"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if line.startswith("last - embeddings") and ".." in line]
    assert shown
    assert all("*" in line for line in shown)


def test_rows_that_several_tables_have_are_compared_in_each(tmp_path: Path):
    for seed in (1, 2, 3):
        for context, behind in (("sentence", 0.1), ("document", 0.2)):
            make_record(tmp_path, "last", seed, 0.8 + seed / 1000, 0.8, (6,), context=context)
            make_record(tmp_path, "embeddings", seed, 0.8 - behind + seed / 500, 0.8, (0,), context=context)
    found, above = differences([tmp_path], ["last", "embeddings"])
    dev = {one.rows: one.difference for one in found if one.score == "dev F1"}
    assert sorted(dev.values()) == pytest.approx([0.1, 0.2], abs=0.003)
    assert len(above) == 3, "what each table shows, and what A and B are"
    assert all(name.startswith(("sentence: ", "document: ")) for name in dev), "also in CSV and JSON"


def test_p_is_below_five_percent_exactly_where_the_interval_leaves_out_zero(tmp_path: Path):
    for seed in range(1, 6):
        for k in range(6):
            make_record(tmp_path, f"layer_{k}", seed, 0.80 + k / 100 + seed % 3 / 100, 0.7, (k,), sentences=CLOSE)
    for k in range(1, 6):
        (dev, _), _ = differences([tmp_path], [f"layer_{k}", "layer_0"])
        assert dev.low is not None
        assert dev.p is not None
        assert (dev.p < 0.05) == (dev.low > 0) or 0.045 < dev.p < 0.05, "the quantile is on the safe side"


def test_types_are_compared_by_their_own_counts(tmp_path: Path):
    from probe.scoring.metrics import KindScore

    made(tmp_path)
    for path in (tmp_path / "records").iterdir():
        record = json.loads(path.read_text())
        for split in ("dev", "test"):
            f1 = record["scores"][split]["span"]["f1"]
            record["scores"][split]["per_type"] = {"X": vars(KindScore(f1, f1, f1, 10))}
        path.write_text(json.dumps(record))
    (dev, test, of_type, _), _ = differences([tmp_path], ["last", "embeddings"])
    assert of_type.score == "dev X"
    assert (of_type.low, of_type.high) == (dev.low, dev.high), "there is no other type"
    assert test.score == "test F1"


def test_a_misspelt_row_is_corrected_and_one_seed_has_no_interval(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    make_record(tmp_path, "embeddings", 1, 0.7, 0.6, (0,))
    with pytest.raises(UserError, match="'lst'.*'last'"):
        differences([tmp_path], ["lst", "embeddings"])
    (dev, _), _ = differences([tmp_path], ["last", "embeddings"])
    assert (dev.difference, dev.low, dev.p) == (pytest.approx(0.1), None, None)


def test_rows_of_one_name_in_two_folders_are_compared_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    a, b = made(tmp_path / "a"), tmp_path / "b"
    for seed in range(1, 6):
        make_record(b, "last", seed, 0.70 + seed / 1000, 0.50, sentences=WORSE, context="document")
        make_record(b, "embeddings", seed, 0.7, 0.5, (0,), context="document", outcome="hit_epoch_limit")
    found, above = differences([a, b])
    assert [(one.rows, one.score) for one in found] == [("last", "dev F1"), ("last", "test F1")]
    assert [[str(side) in line for side in (a, b)] for line in above] == [[True, True]]
    for form in ("json", "csv", "text", "tex", "md"):
        assert table(["--compare", str(a), str(b), "--format", form]) == 0
        shown = capsys.readouterr().out
        if form == "json":
            assert json.loads(shown)[0]["low"] == found[0].low
        elif form == "csv":
            assert float(next(csv.DictReader(io.StringIO(shown)))["high"]) == found[0].high
        else:
            assert "10.00" in shown
    make_record(tmp_path / "c", "sum_all", 1, 0.7, 0.5, indices=(1, 2), combine="sum")
    with pytest.raises(UserError):
        differences([a, tmp_path / "c"])
    for typed in ([str(a), str(b)], ["--compare", str(a)]):
        with pytest.raises(UserError, match="--compare"):
            table(typed)


def test_tables_of_two_folders_are_compared_where_their_text_is_the_same(tmp_path: Path):
    a, b = made(tmp_path / "a"), tmp_path / "b"

    def add(corpus: str, context: str, dev: float) -> None:
        for seed in (1, 2, 3):
            make_record(b, "last", seed, dev + seed / 1000, 0.4, sentences=WORSE, corpus=corpus, context=context)

    add("corpus", "document", 0.6)
    add("corpus", "window", 0.7)
    add("another", "sentence", 0.5)
    found, above = differences([a, b])
    assert [round(one.b, 3) for one in found if one.score.startswith("dev")] == [0.602, 0.702]
    assert ["document" in line.partition("B:")[2] for line in above] == [True, False]
    assert len({one.rows for one in found}) == 2
    named, _ = differences([a, b], ["embeddings", "last"])
    assert [round(one.b, 3) for one in named if one.score == "dev F1"] == [0.602, 0.702]
    with pytest.raises(UserError):
        differences([a, b], ["last", "embeddings"])
    with pytest.raises(UserError, match="'last'"):
        differences([a, b], ["lst", "last"])
    with pytest.raises(UserError, match="twice"):
        differences([b], ["last", "last"])
    add("corpus", "sentence", 0.65)
    found, _ = differences([a, b])
    assert [round(one.b, 3) for one in found if one.score.startswith("dev")] == [0.652], "the same settings, too"


def test_counts_of_another_text_are_not_paired(tmp_path: Path):
    for seed in (1, 2):
        make_record(tmp_path / "a", "last", seed, 0.8, 0.7, sentences=CLOSE)
        make_record(tmp_path / "b", "last", seed, 0.8, 0.7, sentences=CLOSE)
        make_record(tmp_path / "c", "last", seed, 0.8, 0.7, sentences=CLOSE[::-1], corpus="another")
    ((same, _), _), ((other, _), _) = (differences([tmp_path / "a", tmp_path / folder]) for folder in "bc")
    least = 3 / sum(gold for gold, *_ in CLOSE)
    assert (same.low, same.high, same.p) == pytest.approx((-least, least, 1.0)), "three items may differ in other text"
    rows = [next(iter(build_rows(tmp_path / folder))) for folder in "ac"]
    samples, _ = samples_of([row.records for row in rows], "dev", run_counts)
    units = 2 * len(CLOSE)
    of_one = float((influence_by_hand(CLOSE) ** 2).sum())
    assert Comparison(samples).error_parts(0, 1)[1] == pytest.approx((units - 1) / units * 2 * of_one)
    assert other.high is not None
    assert other.high > 1.9 * math.sqrt(2 * of_one), "as of two texts drawn each for itself"


@pytest.mark.parametrize(("documents", "order"), [([0] * len(CLOSE), None), ([], "document")])
def test_a_text_of_one_document_or_of_few_blocks_says_nothing_of_other_texts(
    tmp_path: Path, documents: list[int], order: str | None
):
    for seed in (1, 2):
        make_record(tmp_path / "a", "last", seed, 0.8, 0.8, sentences=BETTER, documents=documents)
        make_record(tmp_path / "b", "last", seed, 0.8, 0.8, sentences=CLOSE, documents=documents)
    rows = [next(iter(build_rows(tmp_path / folder))) for folder in "ab"]
    samples, cover = samples_of([row.records for row in rows], "dev", run_counts, order=order)
    compared = Comparison(samples)
    assert cover.condition == ""
    assert compared.behind() == [[-1.0, 0.0]] * 2
    assert compared.difference(0, 1)[1] == [-1.0, 1.0]
    assert compared.p(0, 1) > 0.9
    assert compared.visible == 1


def test_of_unequal_marks_of_one_text_none_is_used(tmp_path: Path):
    many, pairs = CLOSE * 20, [i // 2 for i in range(20 * len(CLOSE))]
    for seed in (1, 2):
        make_record(tmp_path / "a", "last", seed, 0.8, 0.8, sentences=many, documents=pairs)
        make_record(tmp_path / "b", "last", seed, 0.8, 0.8, sentences=many, documents=[])
    rows = [next(iter(build_rows(tmp_path / folder))) for folder in "ab"]
    (one, _), cover = samples_of([row.records for row in rows], "dev", run_counts, order="document")
    assert cover.units is not None
    assert "blocks" in cover.units
    assert one.influence is not None
    assert one.influence.shape == (2, 18)
    (one, _), cover = samples_of([row.records for row in rows], "dev", run_counts)
    assert cover.condition == IF_INDEPENDENT
    assert one.influence is not None
    assert one.influence.shape == (2, len(many))


def test_counts_of_all_types_are_the_sum_of_each(tmp_path: Path):
    made(tmp_path)
    path = next((tmp_path / "records").glob("last-seed1-*"))
    counts = load_counts(path)[0]
    for split in counts.values():
        split |= {f"{side}:Y": split[f"{side}:X"] for side in ("gold", "predicted", "correct")}
    write_counts(path, counts)
    dev = load_counts(path)[0]["dev"]
    assert (by_sentence(dev) == 2 * by_sentence(of_kind(dev, "Y"))).all()
