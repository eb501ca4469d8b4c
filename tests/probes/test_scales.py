"""The scale of layers is shown, and rows that add up unlike layers are named: in a run, and after."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from support.commands import TINY
from support.inputs import make_bert, overrides, plain_encoder, stored

from probe.probes.normalization import deviations_in
from probe.probes.selection import unlike_layers
from probe.runs.plan import plan
from probe.runs.records import load_records
from probe.runs.run import run
from probe.settings import configs_of
from probe.vectors.sources import complete_store
from probe.vectors.store import FeatureStore

SUM = ["layers.indices=[4,5]", "layers.combine=sum"]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT whose last layer is ten times as large as it was."""
    folder = make_bert(tmp_path_factory.mktemp("uneven"), num_layers=5, limit=24)
    model = transformers.AutoModel.from_pretrained(folder)
    with torch.no_grad():
        model.encoder.layer[4].output.LayerNorm.weight.mul_(10)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def given(uneven: Path, tiny_data: Path) -> list[str]:
    return [*overrides(uneven, tiny_data), *TINY]


def store_of(settings: list[str]) -> FeatureStore:
    return complete_store(plan(configs_of(settings)[0][0]).store, "cpu")


def test_a_layers_scale_is_the_deviation_of_its_features(typed: Callable, given: list[str]):
    store = store_of(given)
    deviations = deviations_in(store, store.layers)
    train = stored(store, "train").double().numpy()  # (L + 1, W, H)
    assert deviations == pytest.approx([layer.var(0).mean() ** 0.5 for layer in train])
    assert unlike_layers("sum_4_5", "sum", deviations[4:])


@pytest.mark.usefixtures("short_epochs")
def test_adding_unlike_layers_is_reported_in_run_record_and_table(typed: Callable, given: list[str]):
    typed("-m", *given, *SUM, "layers.normalize=none,scale", "seed=1,2", "jobs=1", "results_dir=out")
    records = list(load_records(Path("out")).values())
    assert len(records) == 4
    for record in records:
        if record.identity.layers.normalize:
            assert record.layers.deviations is None
            continue
        assert record.layers.deviations is not None
        assert record.layers.deviations[1] / record.layers.deviations[0] > 5
        assert unlike_layers(record.row, record.layers.combine, record.layers.deviations)
    shown = typed("table", "out").stdout
    (note,) = [line for line in shown.splitlines() if "layers.normalize=" in line]
    assert "sum_4_5:" in note
    assert "sum_4_5:scale" not in note
    told: list[str] = []
    run(configs_of([*given, *SUM, "results_dir=again"])[0][0], told.append)
    assert [line for line in told if "sum_4_5" in line and "layers.normalize=" in line]


def test_inspect_shows_the_mean_norm_of_each_layer(typed: Callable, given: list[str], uneven: Path):
    text = "ana met smith"
    tokenizer, model = plain_encoder(uneven)
    states = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
    expected = [state[0, 1:-1].norm(dim=1).mean().item() for state in states]
    settings = [one for one in given if one.startswith("encoder.")]
    done = typed("inspect", text, *settings)
    assert done.returncode == 0, done.stderr
    (norms,) = [line for line in done.stdout.splitlines() if line.startswith("    0: ")]
    found = [float(number) for _, number in re.findall(r"(\d+): ([\d.]+)", norms)]
    assert found == pytest.approx(expected, abs=0.02)
    (told,) = json.loads(typed("inspect", text, *settings, "--format", "json").stdout)["texts"]
    assert told["norms"] == pytest.approx(expected, rel=1e-3)
