"""Runs that train the encoder itself: a record like any other, no store, the ceiling of the tables it belongs to."""

from __future__ import annotations

import functools
import math
import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.commands import finish, start, wait_for
from support.facts import names
from support.inputs import make_bert

import probe.probes.finetune
from probe.conditions import MAIN, UPPER_BOUND
from probe.config import Config, UserError
from probe.doctor.cost import cost_lines
from probe.probes.finetune import FineTuned, TaggedText, fine_tune
from probe.runs.outputs import read_predictions
from probe.runs.plan import plan, prepare_results
from probe.runs.records import RunRecord, load_records
from probe.runs.run import run
from probe.settings import config_of, configs_of
from probe.tables.formats import render, write_tables
from probe.tables.recommendation import recommend
from probe.tables.row import tables_of
from probe.tables.rows import build_rows
from probe.vectors.sources import text_encoder
from probe.vectors.words import Text
from probe.verify.checks import check_files
from probe.verify.reruns import rerun

pytestmark = pytest.mark.usefixtures("short_epochs")

TUNED = "probe=finetune probe.dropout=0 probe.learning_rate=0.01 probe.batch_size=4 probe.max_epochs=8".split()
LINEAR = "probe=linear probe.learning_rate=0.001 probe.max_epochs=1 layers=embeddings".split()
Make = Callable[..., Config]
Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def shallow_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of one layer, which learns a tiny corpus in a second."""
    return make_bert(tmp_path_factory.mktemp("shallow-bert"), num_layers=1, limit=24)


@pytest.fixture
def inputs(shallow_bert: Path, tiny_data: Path, tmp_path: Path) -> list[str]:
    files = [f"data.{name}={name}.conll" for name in ("train", "dev", "test")]
    own = [f"encoder.path={shallow_bert}", "data=columns", f"data.path={tiny_data}", "data.name=tiny", *files]
    return [*own, "jobs=1", "device=cpu", f"results_dir={tmp_path / 'out'}"]


@pytest.fixture
def make(inputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setenv("LAYER_PROBE_CACHE", str(tmp_path / "cache"))
    prepare_results(tmp_path / "out")
    return lambda *settings: config_of([*inputs, *settings])


def quiet(_: str) -> None:
    pass


def stored(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache").glob("*/*.safetensors"))


def test_a_fine_tuned_run_verifies_reruns_and_touches_no_store(make: Make, tmp_path: Path):
    lines: list[str] = []
    record = run(make(*TUNED), lines.append)
    assert not stored(tmp_path)
    assert (record.row, record.layers.indices, record.layers.width) == ("last", [1], 16)
    assert (record.features.placement, record.hardware.threads) == ("none", 1)
    assert (record.outcome, len(record.curve)) == ("converged", 8)
    assert record.scores.dev.headline == pytest.approx(max(epoch.dev for epoch in record.curve))
    assert record.scores.dev.headline > 0.2
    assert sum("scoring dev" in line for line in lines) == 8
    assert not list((tmp_path / "out/logs").iterdir()), "what training would have gone on from"
    write_tables(tmp_path / "out", build_rows(tmp_path / "out"))
    assert [check.line() for check in check_files(tmp_path / "out") if check.ok is False] == []
    assert run(make(*TUNED), quiet) == record, "done already"
    (check,) = rerun([record], config_of, [])
    assert check.ok
    assert check.detail.startswith("the same bits")
    assert not stored(tmp_path)


def test_predictions_and_dev_loss_are_those_of_transformers(make: Make, monkeypatch, tmp_path: Path):
    kept: list[FineTuned] = []

    def keep(*arguments: Any) -> FineTuned:
        kept.append(fine_tune(*arguments))
        return kept[-1]

    monkeypatch.setattr(probe.probes.finetune, "fine_tune", keep)
    cfg = make(*TUNED, "probe.precision=float32")  # as the reference is; by itself it is bfloat16 where the CPU has it
    record, planned = run(cfg, quiet), plan(cfg)
    (tuned,) = kept
    tokenizer, model = text_encoder(planned.encoder).tokenizer, tuned.model.eval()
    for name in ("dev", "test"):
        split = planned.corpus.splits[name]
        _, predicted = read_predictions(tmp_path / f"out/predictions/{planned.record_path.stem}.{name}.conll")
        nats = []
        for words, tags, ours in zip(split.words, split.tags, predicted, strict=True):
            tokens = tokenizer(words, is_split_into_words=True, return_tensors="pt")
            first = [tokens.word_ids().index(word) for word in range(len(words))]
            with torch.no_grad():
                scores = tuned.classifier(model(**tokens).last_hidden_state[0, first])
            assert [tuned.labels[i] for i in scores.argmax(-1)] == ours
            nats += torch.nn.functional.cross_entropy(
                scores, torch.tensor([tuned.labels.index(tag) for tag in tags]), reduction="none"
            ).tolist()
        if name == "dev":
            assert record.curve[record.best_epoch - 1].dev_loss == pytest.approx(sum(nats) / len(nats), rel=1e-4)


def test_its_row_is_the_ceiling_of_each_frozen_table(make: Make, tmp_path: Path):
    for settings in (LINEAR, [*LINEAR, "probe.dropout=0.1"], TUNED, [*TUNED, "probe.max_epochs=1"]):
        run(make(*settings), quiet)
    run(make(*LINEAR, "condition=random"), quiet)
    rows = build_rows(tmp_path / "out")
    tables = tables_of(rows)
    assert len(tables) == 2
    for table in tables:
        frozen = [row for row in table if row.section == MAIN]
        assert [row.name for row in frozen] == ["embeddings"]
        assert [row.section for row in table[-2:]] == [UPPER_BOUND] * 2
        assert [row.condition for row in table[-2:]] == ["fine-tuned, 1 epoch", "fine-tuned, 8 epochs"]
        assert [*table[-1].records] == [*tables[0][-1].records], "one run stands in both"
    text = render(rows, "text")
    assert text.count("linear probe, probe.dropout=") == 2
    assert "fine-tuned with" not in text, "the caption is of the frozen rows"


def test_without_frozen_rows_it_has_a_table_of_its_own(make: Make, tmp_path: Path):
    run(make(*TUNED, "probe.max_epochs=1"), quiet)
    rows = build_rows(tmp_path / "out")
    text = render(rows, "text")
    (caption,) = [line for line in text.splitlines() if "Span F1" in line]
    names(caption, "fine-tuned", "linear layer")
    given = recommend(rows)
    assert (given.best, given.use) == (None, None), "there is no row to compare with another"
    assert given.text not in text


def outcome(folder: Path) -> dict[str, Any]:
    """What came out of the one run of a folder."""
    (record,) = load_records(folder).values()
    assert isinstance(record, RunRecord)
    curve = [replace(epoch, train_s=0.0) for epoch in record.curve]
    return {"scores": record.scores, "curve": curve, "sha256": record.sha256}


def times(logs: Path) -> dict[Path, int]:
    """When the states that trainings can go on from were written."""
    return {path: path.stat().st_mtime_ns for path in logs.glob("*.unfinished.pt")}


def changed(logs: Path, before: dict[Path, int]) -> bool:
    return times(logs) != before


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_to_the_same_record(inputs: list[str], tmp_path: Path):
    settings = [*inputs, *TUNED, "probe.dropout=0.2", "probe.max_epochs=12"]
    alone = start(*settings, f"results_dir={tmp_path / 'alone'}", cwd=tmp_path)
    finish(alone)
    assert alone.returncode == 0
    logs = tmp_path / "out/logs"
    for number in range(2):
        killed = start(*settings, cwd=tmp_path)
        before = times(logs)
        wait_for(
            functools.partial(changed, logs, before),
            300,
            f"epochs that it can go on from, time {number}",
            killed,
        )
        os.killpg(killed.pid, signal.SIGKILL)
        killed.communicate()
    assert not list((tmp_path / "out/records").iterdir())
    (unfinished,) = logs.glob("*.unfinished.pt")
    (logs / f".{unfinished.name}.host.1.abc").write_bytes(b"a half-written one, of a process that was killed")
    told, _ = finish(last := start(*settings, cwd=tmp_path))
    assert last.returncode == 0
    assert re.search(r"\bafter epoch \d+ of 12\b", told)
    assert "epoch 1 of" not in told
    assert outcome(tmp_path / "out") == outcome(tmp_path / "alone")
    assert not list(logs.iterdir())


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        (["probe=finetune", "features.placement=memory"], ["probe=finetune", "features.placement"]),
        (["probe=finetune", "features.layers=[1]"], ["probe=finetune", "features.layers"]),
        (["probe=finetune", "features.batch_pieces=64"], ["probe=finetune", "features.batch_pieces"]),
        (["probe=finetune", "save_probe=true"], ["probe=finetune", "save_probe"]),
        (["probe=finetune", "condition=random"], ["probe=finetune", "encoder.weights"]),
        (["probe=finetune", "data.control=1"], ["probe=finetune", "data.control"]),
        (["probe=finetune", "probe.hidden_size=8"], ["probe.hidden_size"]),
        (["probe=bilstm", "probe.kind=finetune"], ["probe.num_layers=2", "probe=finetune"]),
        (["probe=linear", "probe.precision=auto"], ["probe.precision='auto'", "float32, bfloat16"]),
        (["condition=fine_tuned", "probe=linear"], ["condition=fine_tuned", "probe=finetune", "probe=linear"]),
    ],
)
def test_settings_that_mean_nothing_are_refused(
    typed: Typed, inputs: list[str], settings: list[str], facts: list[str], tmp_path: Path
):
    ended = typed(*inputs, *settings)
    assert (ended.returncode, ended.stdout) == (2, "")
    names(ended.stderr, *facts)
    assert len(ended.stderr.splitlines()) <= 2
    assert not (tmp_path / "out").exists(), "nothing was begun"


@pytest.mark.parametrize("command", ["screen", "extract"])
def test_commands_about_frozen_layers_refuse_it(typed: Typed, inputs: list[str], command: str, tmp_path: Path):
    ended = typed(command, *inputs, "probe=finetune")
    assert ended.returncode == 2
    assert "probe=finetune" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not stored(tmp_path)


@pytest.mark.slow
def test_a_sweep_over_conditions_has_one_fine_tuning_per_seed(inputs: list[str]):
    of_others = ["probe=linear", "probe.dropout=0.3", "features.batch_pieces=64", "save_probe=true"]
    configs, _ = configs_of(["+sweep=floors_and_ceilings", *inputs, *of_others])
    tuned, others = ([cfg for cfg in configs if (cfg.probe.kind == "finetune") is trained] for trained in (True, False))
    assert {repr(cfg.probe) for cfg in tuned} == {repr(config_of(["probe=finetune"]).probe)}
    assert all((cfg.probe.dropout, cfg.features.batch_pieces) == (0.3, 64) for cfg in others)
    assert len({plan(cfg).identity.key for cfg in tuned}) == 3
    both, _ = configs_of(["-m", *inputs, "condition=fine_tuned", "probe.learning_rate=1e-4,2e-4"])
    assert [cfg.probe.learning_rate for cfg in both] == [1e-4, 2e-4], "alone, its settings are its own"


def test_doctor_says_what_a_sweep_with_it_will_take(make: Make, inputs: list[str], tmp_path: Path):
    configs, _ = configs_of(["-m", *inputs, *TUNED, "seed=1,2"])
    names(cost_lines(configs), "2 runs, 2 not done yet", "to fine-tune: 2 runs")
    assert not stored(tmp_path)


def test_a_batch_has_as_many_sentences_in_windows_of_documents(make: Make):
    for context in ("sentence", "document"):
        planned = plan(make(*TUNED, f"features.context={context}", "data.document_marker=-DOCSTART-"))
        text = Text(planned.corpus, "train", text_encoder(planned.encoder), planned.cfg.features)
        train = TaggedText(text, planned.corpus.splits["train"].tags, {})
        batches = train.batches(8, torch.Generator().manual_seed(1))
        assert sorted(number for batch in batches for number in batch) == list(range(len(train.windows)))
        assert len(batches) == pytest.approx(len(train.tags) / 8, rel=0.3), context


def test_the_largest_seed_and_labels_unknown_to_train(make: Make, tiny_data: Path):
    text = (tiny_data / "dev.conll").read_text()
    (tiny_data / "dev.conll").write_text(text + "\nana B-ODD\n")
    record = run(make(*TUNED, "probe.max_epochs=1", f"seed={2**63 - 1}"), quiet)
    assert record.curve[0].dev_loss is not None
    assert math.isfinite(record.curve[0].dev_loss)


def test_a_loss_that_is_no_number_says_what_to_do(make: Make):
    with pytest.raises(UserError, match=r"probe\.learning_rate"):
        run(make(*TUNED, "probe.learning_rate=1e30"), quiet)
