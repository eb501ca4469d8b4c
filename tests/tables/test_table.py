"""Records to tables: right means, nothing hidden, nothing mixed up."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from support.records import BETTER, CLOSE, PROBE, RESULTS, WORSE, expect, influence_by_hand, make_record

from probe.commands.table import table
from probe.config import LayersConfig, UserError, default_margin
from probe.data.split import SplitCounts
from probe.probes.selection import select
from probe.runs import sweep_plan
from probe.runs.frame import run_of
from probe.runs.identity import Layers, RecordedCondition, RunIdentity
from probe.runs.outputs import write_counts
from probe.runs.records import (
    SCHEMA,
    CorpusCounts,
    Epoch,
    RecordedData,
    RecordedEncoder,
    Settings,
    SplitScores,
    load_record,
)
from probe.runs.samples import run_counts, samples_of
from probe.runs.sweep_plan import RequestedRun, Setting, write_expected
from probe.scoring.compare import Comparison
from probe.scoring.metrics import Scores, Totals
from probe.tables.columns import COLUMNS, choose_columns
from probe.tables.formats import render
from probe.tables.notes import table_caption
from probe.tables.paper import CONLL2003
from probe.tables.recommendation import recommend
from probe.tables.row import Row, tables_of
from probe.tables.rows import build_rows


def test_mean_and_sample_deviation_over_seeds_in_the_papers_order(tmp_path: Path):
    for seed, dev in enumerate([0.81, 0.84, 0.80], start=1):
        make_record(tmp_path, "last", seed, dev, dev - 0.05)
        make_record(tmp_path, "embeddings", seed, dev - 0.1, dev - 0.2, indices=(0,))
    make_record(tmp_path, "layer_3", 1, 0.5, 0.5, indices=(3,))
    rows = build_rows(tmp_path)
    assert [row.name for row in rows] == ["embeddings", "last", "layer_3"]
    assert rows[1].n == 3
    assert rows[1].cell("dev").mean == pytest.approx(statistics.mean([0.81, 0.84, 0.80]))
    assert rows[1].cell("dev").std == pytest.approx(statistics.stdev([0.81, 0.84, 0.80]))
    assert (rows[2].cell("dev").mean, rows[2].cell("dev").std) == (0.5, None)
    assert "81.67 ± 2.08" in render(rows, "text")


def test_sentences_that_dev_shares_with_train_are_told_under_the_table(tmp_path: Path):
    counts = CorpusCounts(*[SplitCounts(None, 2, 10, tags=5)] * 3)
    for row, score in (("last", 1.0), ("embeddings", 0.9995)):
        for seed in (1, 2):
            data = RecordedData("demo", "spans", counts, shared={"dev in train": {"both": 21, "of": 99}})
            make_record(tmp_path / "easy", row, seed, score, 0.9, indices=(len(row) - 4,), data=data)
            make_record(tmp_path / "hard", row, seed, score - 0.1 * seed, 0.9, indices=(len(row) - 4,))
    easy, hard = (render(build_rows(tmp_path / name), "md") for name in ("easy", "hard"))
    assert "21 of dev's 99" in easy
    assert "21" not in hard


def test_rows_that_were_rising_when_their_epochs_ended_are_named(tmp_path: Path):
    curves = {"last": (0.70, 0.80, 0.801, 0.8), "embeddings": (0.70, 0.79, 0.795, 0.80)}
    for decay, folder in (("linear", tmp_path / "fixed"), (0.5, tmp_path / "stopped")):
        config = Settings(
            {}, {}, {"context": "sentence", "subword": "first"}, {}, {**PROBE, "lr_decay": decay}, 1, "cpu"
        )
        for at, (row, scores) in enumerate(curves.items()):
            for seed in (1, 2):
                curve = [Epoch(0.5, score, 1.0) for score in scores]
                make_record(folder, row, seed, max(scores), 0.9, indices=(at,), curve=curve, config=config)
    fixed, stopped = (render(build_rows(tmp_path / name), "md") for name in ("fixed", "stopped"))
    (note,) = [line for line in fixed.splitlines() if "probe.max_epochs=8" in line]
    assert "embeddings" in note
    assert "last" not in note
    assert "probe.max_epochs" not in stopped


@pytest.mark.parametrize("failed", [(), (4,), (1, 4)])
def test_a_row_whose_training_fails_now_and_then_is_named(tmp_path: Path, failed: tuple[int, ...]):
    for seed in range(1, 6):
        make_record(tmp_path, "last", seed, 0.8 + seed / 1000 - 0.1 * (seed in failed), 0.9)
        make_record(tmp_path, "embeddings", seed, 0.8 + seed / 100, 0.9, indices=(0,))
    shown = render(build_rows(tmp_path), "md")
    assert [f"last seed {seed} (70.{seed}0" in shown for seed in range(1, 6)] == [
        seed in failed for seed in range(1, 6)
    ]
    assert "embeddings seed" not in shown


def test_a_finished_sweep_is_one_look_and_other_seeds_are_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def looks() -> int:
        return max(row.looks for row in build_rows(tmp_path))

    def ask(runs: list[RequestedRun], at: str) -> None:
        monkeypatch.setattr(sweep_plan, "now", lambda: at)
        write_expected(tmp_path, runs)

    def made(seed: int) -> list[RequestedRun]:
        rows = (("last", 5, 0.8), ("embeddings", 0, 0.6))
        return [expect(make_record(tmp_path, row, seed, dev + seed / 1000, 0.7, (at,))) for row, at, dev in rows]

    runs = [run for seed in (1, 2, 3) for run in made(seed)]
    assert looks() == 2, "of two and of three seeds; one seed tells nothing apart"
    ask(runs, "2026-01-02")
    assert looks() == 2, "a sweep that asks for runs which were seen already"
    (tmp_path / "sweep.json").unlink()
    ask(runs, "2025-01-01")
    assert looks() == 1
    added = made(4)
    assert looks() == 2
    ask(added + made(5), "2025-01-02")
    assert looks() == 2, "two sweeps"
    third = [expect(make_record(tmp_path, "layer_3", seed, 0.7 + seed / 1000, 0.7, (3,))) for seed in range(1, 6)]
    ask(third, "2025-01-03")
    assert looks() == 3, "a row more"
    layers = replace(added[0].identity.layers, indices=[2])
    missing = replace(added[0].identity, layers=layers)  # of a row without runs
    open_run = replace(added[0], row="layer_2", identity=missing, key=missing.key)
    ask([open_run], "2025-01-02")
    assert looks() == 4, "after seeds 4 and 5: that sweep may be stopped for what a table shows"


def test_missing_cells_show(tmp_path: Path):
    there = make_record(tmp_path / "a", "last", 1, 0.8, 0.7)
    second = make_record(tmp_path / "elsewhere", "last", 2, 0.8, 0.7)
    other = make_record(tmp_path / "elsewhere", "sum_all", 1, 0.8, 0.7, indices=(1, 2, 3), combine="sum")
    write_expected(tmp_path / "a", [expect(there), expect(second), expect(other)])
    rows = build_rows(tmp_path / "a")
    assert [(row.name, row.n, row.missing) for row in rows] == [("last", 1, 1), ("sum_all", 0, 1)]
    text = render(rows, "text")
    assert "1 of 2" in text
    assert "0 of 1" in text
    assert text.count("missing") == 2
    write_expected(tmp_path / "a", [expect(there)])
    assert [row.missing for row in build_rows(tmp_path / "a")] == [1, 1], "a narrower sweep hides none"


def test_unlike_settings_never_share_a_mean(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    make_record(tmp_path, "last", 1, 0.9, 0.7, context="document")
    make_record(tmp_path, "last", 1, 0.7, 0.7, corpus="another of the same name")
    make_record(tmp_path, "last", 1, 0.6, 0.7, weights="edited under the same name")
    rows = build_rows(tmp_path)
    assert [row.n for row in rows] == [1, 1, 1, 1]
    assert len({(row.table, row.encoder) for row in rows}) == 4


def test_what_a_sweep_asks_for_outranks_no_record(tmp_path: Path):
    runs = []
    for seed in (1, 2):
        record = make_record(tmp_path, "last", seed, 0.8, 0.7, indices=(6,))
        wrong = Setting("other", "large", {"context": "document", "subword": "last"}, PROBE)
        runs.append(replace(expect(record), row="layer_6", width=1, setting=wrong))
    runs.append(expect(make_record(tmp_path / "elsewhere", "layer_3", 1, 0.8, 0.7, indices=(3,))))
    before = render(build_rows(tmp_path), "text")
    write_expected(tmp_path, runs)
    rows = build_rows(tmp_path)
    assert [(row.name, row.width, row.n) for row in rows] == [("last", 16, 2), ("layer_3", 16, 0)]
    assert render(rows[:1], "text") == before
    content = json.loads((tmp_path / "sweep.json").read_text())
    content["runs"][0]["identity"]["seed"] = 7
    (tmp_path / "sweep.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"sweep\.json"):
        build_rows(tmp_path)


def test_of_two_names_of_one_row_the_papers_is_shown(tmp_path: Path):
    make_record(tmp_path, "layer_5", 1, 0.8, 0.7, indices=(5,))
    make_record(tmp_path, "second_to_last", 2, 0.8, 0.7, indices=(5,))
    (row,) = build_rows(tmp_path)
    assert (row.name, row.n) == ("second_to_last", 2)


def test_a_record_of_another_schema_is_refused_with_both(tmp_path: Path):
    file = tmp_path / "last-seed1-abc.json"
    for content, found in (('{"schema": 99}', "schema 99"), ('{"schema": "3"}', 'schema "3"'), ("[3]", "schema null")):
        file.write_text(content)
        with pytest.raises(UserError, match=rf"{found}.* {SCHEMA}\b"):
            load_record(file)


def test_an_empty_or_missing_folder_says_what_to_type(tmp_path: Path):
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(UserError, match="probe .sweep=quickstart"):
            build_rows(folder)


def ranked(folder: Path, seeds: int = 5) -> list[Row]:
    """Three rows: one best, one as good, one far below."""
    for seed in range(1, seeds + 1):
        wobble = 0.01 * (seed % 3)
        make_record(folder, "last", seed, 0.80 + wobble, 0.78, sentences=BETTER)
        make_record(folder, "second_to_last", seed, 0.795 + wobble, 0.775, indices=(4,), sentences=BETTER)
        make_record(folder, "embeddings", seed, 0.60 + wobble, 0.50, indices=(0,), sentences=WORSE)
    return build_rows(folder)


def labels(folder: Path, margin: float | None = None) -> dict[str, str | None]:
    return {row.name: row.label for row in build_rows(folder, margin)}


def test_labels_name_the_best_and_worse_rows(tmp_path: Path):
    rows = {row.name: row for row in ranked(tmp_path)}
    assert {name: row.label for name, row in rows.items()} == {
        "last": "best",
        "second_to_last": "undecided",
        "embeddings": "worse",
    }
    behind = rows["embeddings"]
    assert behind.behind is not None
    assert behind.difference == pytest.approx(-0.2)
    assert behind.behind[0] < -0.2 < behind.behind[1] < 0
    assert rows["last"].difference == 0.0
    assert rows["last"].behind is not None
    assert rows["last"].behind[1] == 0.0
    (line,) = [line for line in render(list(rows.values()), "text").splitlines() if line.startswith("embeddings")]
    assert line.rstrip().endswith("worse")
    assert f"-20.00 ({100 * behind.behind[0]:.2f} .. {100 * behind.behind[1]:.2f})" in line


def test_a_row_is_within_a_margin_beyond_its_interval(tmp_path: Path):
    ranked(tmp_path)
    low = next(row.behind for row in build_rows(tmp_path) if row.name == "second_to_last")
    assert low is not None
    assert labels(tmp_path, -100 * low[0] + 0.01)["second_to_last"] == "within the margin"
    assert labels(tmp_path, -100 * low[0] - 0.01)["second_to_last"] == "undecided"
    assert set(labels(tmp_path, 0).values()) == {"best", "undecided", "worse"}
    assert labels(tmp_path, 99) == {
        "last": "best", "second_to_last": "within the margin", "embeddings": "within the margin",
    }  # fmt: skip
    assert labels(tmp_path) == labels(tmp_path, 0.5), "as conf/config.yaml has it"


def test_the_test_split_changes_no_label_and_no_recommendation(tmp_path: Path):
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, tests in ((a, (0.78, 0.775, 0.50)), (b, (0.10, 0.90, 0.99))):
        for seed in range(1, 6):
            dev = 0.80 + 0.01 * (seed % 3)
            make_record(folder, "last", seed, dev, tests[0], sentences=BETTER)
            make_record(folder, "second_to_last", seed, dev - 0.005, tests[1], indices=(4,), sentences=BETTER)
            make_record(folder, "embeddings", seed, dev - 0.2, tests[2], indices=(0,), sentences=WORSE)
    for margin in (0.1, 0.5, 5.0, 40.0):
        one, other = (build_rows(folder, margin) for folder in (a, b))
        assert [(row.label, row.behind, row.seeds_needed) for row in one] == [
            (row.label, row.behind, row.seeds_needed) for row in other
        ]
        assert str(recommend(one)) == str(recommend(other))


def test_one_seed_gets_neither_label_nor_bold(tmp_path: Path):
    rows = ranked(tmp_path, seeds=1)
    assert {row.label for row in rows} == {None}
    assert {row.margin for row in rows} == {default_margin()}
    assert "**" not in render(rows, "md")
    assert "textbf" not in render(rows, "tex")


def test_without_all_counts_intervals_are_over_seeds_alone(tmp_path: Path):
    whole = {row.name: row for row in ranked(tmp_path)}
    assert whole["last"].over_text
    next((tmp_path / "counts").glob("embeddings-seed3*")).unlink()
    for _ in ("one is lost", "all are"):
        rows = {row.name: row for row in build_rows(tmp_path)}
        assert rows["embeddings"].label == "worse"
        assert not rows["last"].over_text
        shutil.rmtree(tmp_path / "counts")
        (tmp_path / "counts").mkdir()


def test_documents_are_the_unit_where_they_are_known(tmp_path: Path):
    documents = [i // 2 for i in range(len(CLOSE))]
    for seed in (1, 2):
        make_record(tmp_path, "last", seed, 0.8 + seed / 100, 0.8, sentences=BETTER, documents=documents)
        make_record(tmp_path, "embeddings", seed, 0.7 + seed / 100, 0.7, (0,), sentences=CLOSE, documents=documents)
    compared = Comparison(samples_of([row.records for row in build_rows(tmp_path)], "dev", run_counts)[0])
    pairs = [
        [tuple(map(sum, zip(*counts[i : i + 2], strict=True))) for i in range(0, 40, 2)] for counts in (BETTER, CLOSE)
    ]
    moves = [influence_by_hand(counts) for counts in pairs]
    assert compared.error_parts(0, 1)[1] == pytest.approx(19 / 20 * float(((moves[0] - moves[1]) ** 2).sum()))


BERT = RecordedEncoder("google-bert/bert-base-cased", "Hub x", {}, False, 6, 16)


def test_the_papers_numbers_stand_beside_its_own_encoder_and_text_alone(tmp_path: Path):
    papers = {name: SplitCounts(1, 1, words, spans=spans) for name, (words, spans) in CONLL2003.items()}
    for name, encoder, splits in (("a", BERT, papers), ("b", replace(BERT, name="x"), papers), ("c", BERT, None)):
        make_record(tmp_path / name, "last", 1, 0.9, 0.9, (6,), splits=splits, encoder=encoder)
        make_record(tmp_path / name, "layer_3", 1, 0.9, 0.9, (3,), splits=splits, encoder=encoder)
    found = {name: [COLUMNS["paper"].text(row) for row in build_rows(tmp_path / name)] for name in "abc"}
    assert found == {"a": ["94.9", ""], "b": ["", ""], "c": ["", ""]}
    assert "paper" in choose_columns(None, build_rows(tmp_path / "a"))
    assert "paper" not in choose_columns(None, build_rows(tmp_path / "b"))


def test_json_csv_and_markdown_say_the_same(tmp_path: Path):
    rows = ranked(tmp_path)
    content = {row["row"]: row for row in json.loads(render(rows, "json"))}
    lines = {line["row"]: line for line in csv.DictReader(io.StringIO(render(rows, "csv")))}
    for name, row in content.items():
        assert lines[name].keys() == row.keys()
        for part in ("dev_mean", "test_std", "behind", "behind_low", "margin"):
            assert float(lines[name][part]) == row[part]
        assert lines[name]["layers"] == " ".join(map(str, row["layers"]))
    worse = content["embeddings"]
    assert (worse["label"], worse["use"], content["last"]["use"]) == ("worse", False, True)
    assert worse["behind"] == pytest.approx(-0.2)
    assert [worse["behind_low"], worse["behind_high"]] == rows[0].behind
    for form in ("text", "md"):
        assert render(rows, form).splitlines()[0] == str(recommend(rows))


def test_a_name_does_nothing_where_it_is_shown(tmp_path: Path):
    for seed in (1, 2):
        make_record(tmp_path, "=a\x1b]0;t\x07|<b>\n", seed, 0.8, 0.7)
        make_record(tmp_path, "last", seed, 0.7, 0.6, indices=(6,))
    rows = build_rows(tmp_path)
    for form in ("text", "md", "tex"):
        text = render(rows, form)
        assert text.replace("\n", "").isprintable()
        assert r"\x1b" in text or form == "tex"
    assert r"=a\x1b]0;t\x07\|&lt;b>\n" in render(rows, "md")
    assert [line["row"][:2] for line in csv.DictReader(io.StringIO(render(rows, "csv")))] == ["la", "'="]


def test_the_margin_decides_and_is_not_negative(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ranked(tmp_path)
    for typed, used in ((["--margin", "40"], "embeddings"), ([], "last")):
        assert table([str(tmp_path), "--format", "json", *typed]) == 0
        content = json.loads(capsys.readouterr().out)
        assert [row["row"] for row in content if row["use"]] == [used]
    for text in ("-1", "much"):
        with pytest.raises(UserError, match="--margin"):
            table([str(tmp_path), f"--margin={text}"])


@pytest.mark.parametrize(
    "options",
    [
        ["--compare", "--sentence"],
        ["--sentence", "--format", "json"],
        ["--sentence", "--columns", "n"],
    ],
    ids=" ".join,
)
def test_options_that_would_change_nothing_are_refused(tmp_path: Path, options: list[str]):
    ranked(tmp_path)
    with pytest.raises(UserError, match=options[-2] if len(options) > 3 else options[0]):
        table([str(tmp_path), *options])


@pytest.mark.parametrize("finished", ["2025-12-31", "2026-01-02"])
def test_rows_that_a_screen_chose_before_they_were_trained_are_named(tmp_path: Path, finished: str):
    screen = json.loads((RESULTS / "demo-quickstart/screen.json").read_text()) | {"finished": finished}
    (tmp_path / "screen.json").write_text(json.dumps(screen))
    (encoder,) = screen["encoders"].values()
    recorded = RecordedEncoder(encoder["settings"]["name"], "folder x", {}, True, 6, 16)
    for seed in (1, 2):
        for row, indices in (("concat_3_4", (3, 4)), ("layer_4", (4,)), ("concat_0_1", (0, 1))):
            make_record(tmp_path, row, seed, 0.7 + seed / 100, 0.6, indices, encoder=recorded)
    rows = build_rows(tmp_path)
    chosen = [row.name for row in rows if row.screened]
    assert chosen == (["concat_3_4"] if finished < "2026" else []), (
        "layer_4 needed no scores; concat_0_1 was not chosen"
    )
    assert ("chosen by the screen" in render(rows, "md")) == bool(chosen)


def test_columns_are_chosen_and_a_misspelt_one_is_corrected(tmp_path: Path):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    rows = build_rows(tmp_path)
    header = next(line for line in render(rows, "text", "row,cost").splitlines() if line.startswith("row "))
    assert header.split("  ")[0] == "row"
    assert "parameters    s per epoch" in header
    assert "1,234" in render(rows, "text", "cost")
    with pytest.raises(UserError, match="'tset'.* test"):
        render(rows, "text", "tset")
    assert render(rows, "csv", "row,n").splitlines() == ["row,n", "last,1"]


def test_latex_is_booktabs_and_escapes_what_latex_would_read(tmp_path: Path):
    tex = render(ranked(tmp_path), "tex")
    assert "\\toprule" in tex
    assert "\\textbf{last}" in tex
    assert "second to last" in tex
    assert "$\\pm$" in tex
    comments, _, printed = tex.partition("\\begin{table}")
    assert all(line.startswith("% ") for line in comments.splitlines())
    assert "booktabs" in comments
    assert not re.search(r"(?<!\\)[_%#]", re.sub(r"\$.*?\$", "", printed))
    for advice in recommend(build_rows(tmp_path)).text.split(". "):
        assert advice in comments
        assert advice not in printed
    assert re.search(r"\[\$-\$\d+\.\d\d, (\$-\$)?\d+\.\d\d\]", printed), "an interval has a minus and a comma"
    assert "label{tab:demo-encoder}" in printed


def test_latex_fits_a_column_of_a_paper():
    rows = build_rows(RESULTS / "conll2003-mpnet")
    tex = render(rows, "tex")
    printed = tex.partition("\\begin{table}")[2]
    body, _, caption = printed.partition("\\caption")
    lines = [[cell.strip() for cell in line.split("&")] for line in body.splitlines() if "&" in line]
    assert lines[0][:3] == ["row", "dev F1", "test F1"]
    assert {"mean 0--9", "concat 2, 3, 6, 7", "\\textbf{layer 5}"} <= {line[0] for line in lines}
    assert all(any(line[k] for line in lines[1:]) for k in range(len(lines[0]))), "no column is empty"
    assert "fine-tuned, 3 epochs" in lines[-1][-1]
    assert len(caption.split()) < 65
    assert "over 5 seeds" in caption
    assert "Hsu" in caption
    assert "216 documents" in tex.partition("\\begin{table}")[0]
    two = render(build_rows(RESULTS / "conll2003-two-encoders"), "tex")
    assert "\\begin{table*}" in two
    assert "\\end{table*}" in two
    assert "condition" in render(rows, "tex", "row,condition").partition("\\toprule")[2]


def test_a_corpus_is_no_command_in_a_label(tmp_path: Path):
    for seed in (1, 2):
        data = RecordedData(
            "a\\input{x}\x1b\n&b.c-d_é", "spans", CorpusCounts(*[SplitCounts(None, 2, 10, spans=5)] * 3)
        )
        make_record(tmp_path, "last", seed, 0.8, 0.7, data=data)
    assert re.findall(r"\\label\{(.*)\}", render(build_rows(tmp_path), "tex")) == ["tab:a-input-x----b.c-d_é-encoder"]


def test_tags_that_are_no_spans_have_their_table_of_accuracy(tmp_path: Path):
    counts = CorpusCounts(*[SplitCounts(None, 2, 10, tags=5)] * 3)
    for (row, layer), seed in itertools.product((("embeddings", 0), ("last", 5)), (1, 2)):
        totals = Totals(2, 10, 10, 10, 8)
        scores = [Scores(accuracy - seed / 100 - layer / 50, {}, totals, macro_f1=0.6) for accuracy in (0.8, 0.7)]
        identity = RunIdentity("corpus", "tags", "features", Layers([layer], "concat"), PROBE, seed)
        data = RecordedData("demo", "tags", counts)
        make_record(tmp_path, row, seed, 0, 0, identity=identity, data=data, scores=SplitScores(*scores))
    text = render(build_rows(tmp_path), "text")
    assert "dev accuracy" in text
    assert re.search(r"^embeddings .* best$", text, flags=re.M)
    assert "F1" not in text


def test_a_text_without_any_span_is_no_crash(tmp_path: Path):
    for row, indices in (("last", (5,)), ("embeddings", (0,))):
        for seed in (1, 2):
            record = make_record(tmp_path, row, seed, 0.8, 0.7, indices=indices)
            path = next((tmp_path / "records").glob(f"{row}-seed{seed}-*"))
            write_counts(path, {split: {"words": [3, 4], "right_tags": [3, 4]} for split in ("dev", "test")})
            assert record.row == row
    (compared,) = [one for one in build_rows(tmp_path) if one.label != "best"]
    assert (compared.behind, compared.label) == ([-1.0, 0.0], "undecided")


def test_a_mix_of_one_layer_is_not_called_like_the_layer():
    names = [select(LayersConfig([6], combine), 6, 8).name for combine in ("mix", "sum", "concat")]
    assert names == ["mix_6", "layer_6", "layer_6"]


def test_a_control_stands_in_the_table_of_what_it_controls(tmp_path: Path):
    random_weights = RecordedCondition(["random"], {"seed": 0}, base={"features": "features-sentence-a"})
    for seed in (1, 2, 3):
        make_record(tmp_path, "last", seed, 0.8 + seed / 1000, 0.7)
        make_record(tmp_path, "embeddings", seed, 0.6 + seed / 1000, 0.5, indices=(0,))
        make_record(tmp_path, "last", seed, 0.4, 0.3, weights="random", condition=random_weights)
        make_record(tmp_path, "last", seed, 0.5, 0.4, condition=RecordedCondition(["random"], {"seed": 1}))
    rows = build_rows(tmp_path)
    assert len({row.table for row in rows}) == 1
    assert [(row.name, row.condition, row.n) for row in rows] == [
        ("last", "random weights (seed 0)", 3),
        ("last", "random weights (seed 1)", 3),
        ("embeddings", None, 3),
        ("last", None, 3),
    ], "two settings of one condition are two rows"
    text = render(rows, "text")
    assert re.search(r"^last +random weights \(seed 0\) +5 +16 +3 +40\.00", text, flags=re.M)
    assert "condition" in next(csv.reader(io.StringIO(render(rows, "csv"))))
    assert json.loads(render(rows, "json"))[0]["condition"] == "random weights (seed 0)"


def test_tables_that_look_the_same_say_what_they_differ_in(tmp_path: Path):
    for corpus in ("first_text", "other_text"):
        make_record(tmp_path, "last", 1, 0.8, 0.7, corpus=corpus)
    make_record(tmp_path, "last", 1, 0.8, 0.7, corpus="other_text", context="document")
    captions = [table_caption(rows) for rows in tables_of(build_rows(tmp_path))]
    assert sorted(re.findall(r"text=(\w+)", " ".join(captions))) == ["first_", "other_"]
    assert "text=" not in next(text for text in captions if "document context" in text)


def test_a_run_without_condition_has_a_key_without_one():
    records = Path(__file__).parent.parent.parent / "results/conll2003-minilm-sentence/records"
    record = records / "embeddings-seed1-0deab5b000.json"
    stored = json.loads(record.read_text())
    assert "condition" not in stored["identity"]
    assert load_record(record).identity.key == stored["key"]
    loaded = load_record(record)
    changed = replace(loaded.identity, condition=RecordedCondition(["control"]))
    assert changed.key != stored["key"]
    assert run_of(record, replace(loaded, identity=changed)).table == run_of(record, loaded).table


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda r: r["scores"]["dev"]["span"].pop("f1"), "scores.dev.span.f1 is missing"),
        (lambda r: r.update(best_epoch="two"), "best_epoch: expected `int`, got `str`"),
        (lambda r: r.update(scores={}), "scores.dev is missing"),
        (lambda r: r["hardware"].update(bfloat16="yes"), "hardware.bfloat16: .*'yes'"),
        (lambda r: r["curve"][1].update(loss=None), r"curve\[1\]\.loss: expected `float`, got `null`"),
    ],
)
def test_what_is_not_the_schema_is_refused_with_the_fields_name(tmp_path: Path, change, told: str):
    make_record(tmp_path, "last", 1, 0.8, 0.7)
    (file,) = (tmp_path / "records").iterdir()
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"{file.name}: {told}"):
        load_record(file)


def test_a_row_that_did_not_converge_is_marked_and_never_ranked(tmp_path: Path):
    for seed in (1, 2, 3):
        make_record(tmp_path, "last", seed, 0.9, 0.8, outcome="hit_epoch_limit")
        make_record(tmp_path, "embeddings", seed, 0.7, 0.6, indices=(0,), outcome="converged")
        make_record(tmp_path, "second_to_last", seed, 0.8, 0.7, indices=(4,), outcome="converged")
    rows = {row.name: row for row in build_rows(tmp_path)}
    assert {name: row.label for name, row in rows.items()} == {
        "embeddings": "worse",
        "second_to_last": "best",
        "last": "not converged",
    }
    assert rows["last"].behind is None
    assert recommend(list(rows.values())).best is not None
    text = render(list(rows.values()), "text")
    assert re.search(r"^last .* not converged$", text, flags=re.M)
    assert "last seed 1, last seed 2, last seed 3" in text
    assert "**last**" not in render(list(rows.values()), "md")


def test_a_table_in_which_nothing_was_learnt_has_no_best_row(tmp_path: Path):
    for seed in (1, 2):
        make_record(tmp_path, "last", seed, 0.0, 0.0, outcome="never_learned")
        make_record(tmp_path, "embeddings", seed, 0.0, 0.0, indices=(0,), outcome="never_learned")
    rows = build_rows(tmp_path)
    assert [row.label for row in rows] == ["not converged", "not converged"]
    given = recommend(rows)
    assert (given.best, given.use) == (None, None)
