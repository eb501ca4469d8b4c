"""Records as runs write them, without a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from probe.data.split import SplitCounts
from probe.runs.identity import Layers, RecordedCondition, RunIdentity
from probe.runs.outputs import write_counts
from probe.runs.records import (
    SCHEMA,
    Checksums,
    CorpusCounts,
    Epoch,
    Hardware,
    RecordedData,
    RecordedEncoder,
    RecordedFeatures,
    RecordedLayers,
    RunRecord,
    Seconds,
    Settings,
    Software,
    SplitScores,
    record_path,
)
from probe.runs.sweep_plan import RequestedRun
from probe.scoring.metrics import Scores, SpanScore, Totals
from probe.system.files import write_json

RESULTS = Path(__file__).parents[2] / "results"
SAME = ("key", "identity", "config", "scores", "sha256", "best_epoch", "mix", "parameters")
COUNTS = SplitCounts(None, 2, 10, spans=3)


# Gold, predicted and correct spans of sentences.
CLOSE = [(3, 3, 2), (2, 2, 2), (1, 1, 1), (4, 4, 3)] * 10
BETTER = [(3, 3, 3), (2, 2, 2), (1, 1, 1), (4, 4, 4)] * 10
WORSE = [(3, 3, 1), (2, 2, 1), (1, 1, 0), (4, 4, 1)] * 10


def influence_by_hand(sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """To first order, how F1 = 2 correct / (gold + predicted) moves without each sentence."""
    counts = np.array(sentences, dtype=float)
    sizes = counts[:, :2].sum(1)
    return (2 * counts[:, 2] - 2 * counts[:, 2].sum() / sizes.sum() * sizes) / (sizes.sum() - sizes)


def committed_sets() -> list[Path]:
    """Returns the folders that the table in results/README.md lists; a checkout may hold others, made by its user."""
    text = (RESULTS / "README.md").read_text()
    return [path.parent for path in sorted(RESULTS.glob("*/records")) if f"\n| `{path.parent.name}` |" in text]


def made_scores(f1: float, task: str = "spans") -> Scores:
    if task != "spans":
        return Scores(f1, {}, Totals(2, 10, 10, 10, 8), macro_f1=f1)
    span = SpanScore(f1, f1, f1)
    totals = Totals(2, 10, 3, 3, 2)
    return Scores(0.9, {}, totals, span=span, strict=span, word=span, ill_formed=0)


PROBE: dict[str, Any] = {
    "kind": "bilstm",
    "num_layers": 2,
    "hidden_size": 8,
    "dropout": 0.5,
    "learning_rate": 1e-3,
    "lr_decay": 0.5,
    "lr_patience": 1,
    "batch_size": 8,
    "max_epochs": 40,
    "patience": 3,
    "gradient_clip": 1.0,
    "precision": "float32",
}


def make_record(
    folder: Path,
    row: str,
    seed: int,
    dev: float,
    test: float,
    indices: tuple[int, ...] = (5,),
    combine: str = "concat",
    context: str = "sentence",
    corpus: str = "corpus",
    weights: str = "a",
    task: str = "spans",
    sentences: list[tuple[int, int, int]] | None = None,
    documents: list[int] | None = None,
    splits: dict[str, SplitCounts] | None = None,
    condition: RecordedCondition | None = None,
    normalize: str | None = None,
    rate: float | None = None,
    **changes: Any,
) -> RunRecord:
    """Writes a record, and its counts where `sentences` has gold, predicted and correct spans of each split.

    documents: of each sentence; None: each is one; empty: unknown.
    changes: other parts of the record than these make.
    """
    features, layers = f"features-{context}-{weights}", Layers(list(indices), combine, normalize)
    probe = changes["config"].probe if "config" in changes else PROBE
    probe = probe if rate is None else {**probe, "learning_rate": rate}
    identity = RunIdentity(corpus, task, features, layers, probe, seed, condition=condition)
    feature_settings = {"context": context, "subword": "first"}
    record = RunRecord(
        schema=SCHEMA,
        key=identity.key,
        identity=identity,
        row=row,
        config=Settings({}, {}, feature_settings, {}, probe, seed, "cpu"),
        data=RecordedData("demo", task, CorpusCounts(**(splits or dict.fromkeys(("train", "dev", "test"), COUNTS)))),
        encoder=RecordedEncoder("some/encoder", "folder x", {}, True, 6, 16),
        features=RecordedFeatures(features, {}, "memory", {"train": 0, "dev": 0, "test": 0}),
        layers=RecordedLayers(list(indices), combine, 16 * len(indices)),
        scores=SplitScores(made_scores(dev, task), made_scores(test, task)),
        sha256=Checksums("", {}),
        best_epoch=1,
        curve=[Epoch(0.5, dev, 1.0), Epoch(0.4, dev, 3.0)],
        mix=None,
        parameters=1234,
        seconds=Seconds(0.1, 4.0, 0.1),
        software=Software({}, None, "probe"),
        hardware=Hardware("cpu", "some CPU", "AVX2", 2, 1, False, "Linux"),
        started="2026-01-01T10:00:00+00:00",
        finished="2026-01-01T10:00:04+00:00",
        outcome="converged",
    )
    record = replace(record, **changes)
    path = record_path(folder, row, record.identity)
    write_json(path, replace(record, key=record.identity.key))
    if sentences:
        names = ("gold:X", "predicted:X", "correct:X")
        columns = dict(zip(names, map(list, zip(*sentences, strict=True)), strict=True))
        documents = list(range(len(sentences))) if documents is None else documents
        known = {"documents": documents} if documents else {}
        counts = {"words": [5] * len(sentences), "right_tags": [4] * len(sentences), **columns, **known}
        write_counts(path, {"dev": counts, "test": counts})
    return replace(record, key=record.identity.key)


def expect(record: RunRecord) -> RequestedRun:
    """A record's run as a sweep asks for it."""
    from probe.runs.frame import run_of

    setting = run_of(Path(), record).setting
    return RequestedRun(record.key, record.row, record.identity, record.layers.width, setting)


def results(folder: Path) -> dict[str, Any]:
    """What of each record must not depend on how it came about, and the bytes of what lies beside it."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "records").glob("*.json")):
        record = json.loads(path.read_text())
        curve = [(point["loss"], point["dev"]) for point in record["curve"]]
        found[path.name] = [curve, *(record[part] for part in SAME)]
    for name in ("counts", "predictions"):
        found |= {path.name: path.read_bytes() for path in sorted((folder / name).iterdir())}
    return found
