"""Checks a results folder by reading its files: what can be computed again is compared with what is written.

Compared are each record's key with its identity, its scores with its counts, its counts with its predictions where
these were kept, and what it says at two places; the runs in sweep.json with the records; and the numbers of table.json
with the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from probe.config import LayersConfig, UserError
from probe.probes.selection import select
from probe.runs.outputs import counts_path, load_counts, predictions_path, read_predictions, weights_path
from probe.runs.records import Records, RunRecord, is_named_after, load_record
from probe.runs.sweep_plan import SWEEP, read_expected
from probe.scoring.metrics import Counts, count, scores_of
from probe.screen.record import SCREEN, load_screens
from probe.system.files import key_of, sha256_of, to_jsonable
from probe.system.format import first_few
from probe.tables.rows import results_folder
from probe.verify.check import Check, unequal
from probe.verify.tables import check_table

SCORED = ("dev", "test")
OF_WORDS = ("slices", "boundary")  # scores that the counts do not give
# What a part of free form, or a file of predictions, can end in.
ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

# Facts: a place in the record, what it holds, what it should hold, and what says so.
Facts = Iterator[tuple[str, Any, Any, str]]


def check_files(folder: Path) -> Iterator[Check]:
    """Yields every check that only reads files. Raises UserError where there are no results."""
    folder = results_folder(folder)
    files = sorted((folder / "records").glob("*.json"))
    if not files and not (folder / SCREEN).exists():
        raise UserError(f"{folder} holds no records. `probe +sweep=quickstart` makes results/quickstart.")
    records: Records = {}
    for file in files:
        try:
            records[file] = load_record(file)
            problems = list(_problems(file, records[file]))
        except UserError as error:
            problems = [str(error)]
        except ODD as error:
            problems = [f"a part of it is missing or of another kind ({type(error).__name__}: {error})"]
        what = "key, counts, scores" + (", predictions" if predictions_path(file, "test").exists() else "")
        yield Check(file.name, not problems, "; ".join(problems) or what)
    if files:
        yield from _asked_for(folder, records)
        yield from _without_predictions(records)
    yield from _screen(folder)
    if files and len(records) == len(files):
        yield from check_table(folder)


def _problems(file: Path, record: RunRecord) -> Iterator[str]:
    """Says where a record is not what it should be. Loading it has checked that its key is the hash of its identity."""
    counts, sha256 = load_counts(file)
    for facts in (_written_twice(record), _files(file, record, sha256), _scores(record, counts)):
        for place, recorded, expected, source in facts:
            for inner, there, again in unequal(recorded, expected, place):
                yield f"{inner} is {there}, {source} {again}"
    if not is_named_after(file, record):
        yield "the file is not named after its seed and key"
    for split in SCORED:
        if predictions_path(file, split).exists():
            yield from _prediction_problems(file, record, split, counts[split])


def _written_twice(record: RunRecord) -> Facts:
    """Yields what a record says at two places."""
    identity, config, features, encoder = record.identity, record.config, record.features, record.encoder
    yield "config.seed", config.seed, identity.seed, "the key was made with"
    yield "config.probe", config.probe, identity.probe, "the key was made with"
    yield "data.task", record.data.task, identity.task, "the key was made with"
    yield "features.key", features.key, identity.features, "the key was made with"
    yield "features.key", features.key, key_of(features.identity), "the hash of features.identity is"
    yield "encoder.fingerprint", encoder.fingerprint, features.identity["encoder"], "features.identity has"
    path = config.encoder["path"]
    yield "encoder.name", encoder.name, Path(path).name if path else config.encoder["name"], "config.encoder gives"
    layers = LayersConfig(**config.layers)
    chosen = select(layers, encoder.num_layers, encoder.hidden_size)
    yield "row", record.row, chosen.name, "config.layers gives"
    yield "layers.width", record.layers.width, chosen.width, "config.layers gives"
    for name in ("indices", "combine"):
        yield f"layers.{name}", getattr(record.layers, name), getattr(identity.layers, name), "the key was made with"
    yield "identity.layers.indices", identity.layers.indices, list(chosen.indices), "config.layers gives"
    yield "identity.layers.combine", identity.layers.combine, chosen.combine, "config.layers gives"
    yield "identity.layers.normalize", identity.layers.normalize, chosen.normalize, "config.layers gives"


def _files(file: Path, record: RunRecord, sha256_of_counts: str) -> Facts:
    """Yields the sha256 of a run's files, which must be those that it wrote."""
    written = record.sha256
    yield f"sha256 of {counts_path(file).name}", written.counts, sha256_of_counts, "the file's is"
    paths = [(weights_path(file), written.weights)]
    paths += [(predictions_path(file, split), written.predictions.get(split)) for split in SCORED]
    for path, sha256 in paths:
        if path.exists():
            yield f"sha256 of {path.name}", sha256, sha256_of(path.read_bytes()), "the file's is"


def _scores(record: RunRecord, counts: dict[str, Counts]) -> Facts:
    """Yields the scores that the counts of each sentence give."""
    for split in SCORED:
        recorded = to_jsonable(getattr(record.scores, split))
        again = to_jsonable(scores_of(_without_documents(counts[split])))
        for name in recorded.keys() - {*OF_WORDS}:
            yield f"scores.{split}.{name}", recorded[name], again.get(name), "its counts give"


def _without_documents(columns: Counts) -> Counts:
    return {name: column for name, column in columns.items() if name != "documents"}


def _prediction_problems(file: Path, record: RunRecord, split: str, columns: Counts) -> Iterator[str]:
    """Says which of a split's counts its predictions contradict."""
    predictions = predictions_path(file, split)
    try:
        (_, gold, predicted), _ = read_predictions(predictions)
        recounted = count(gold, predicted, record.task)
    except ODD:
        yield f"{predictions.name} is not in columns of word, gold and predicted tag"
        return
    odd = [name for name, *_ in unequal(_without_documents(columns), recounted)]
    if odd:
        yield f"{predictions.name} gives other counts ({odd[0]})"


def _asked_for(folder: Path, records: Records) -> Iterator[Check]:
    """Checks that every run that was asked for has a record: omitting a seed would change the mean."""
    name = f"{SWEEP}: runs asked for"
    try:
        expected = {run.key: run for run in read_expected(folder)}
    except UserError as error:
        yield Check(SWEEP, False, str(error))
        return
    if not expected:
        yield Check(name, None, f"{SWEEP} names none, so missing runs cannot be found")
        return
    missing = sorted(expected[key].label for key in expected.keys() - {record.key for record in records.values()})
    message = (
        f"{len(missing)} of {len(expected)} have no record here: {first_few(missing)}; the same sweep makes them (if "
        f"you do not want them: delete {SWEEP} and start another sweep; all records stay)"
    )
    yield Check(name, not missing, message if missing else f"all {len(expected)} have their record")


def _without_predictions(records: Iterable[Path]) -> Iterator[Check]:
    """Reports runs without predictions, from which counts cannot be computed again."""
    without = sum(not all(predictions_path(file, split).exists() for split in SCORED) for file in records)
    if without:
        yield Check("predictions", None, f"{without} runs have none here, so their counts could not be computed again")


def _screen(folder: Path) -> Iterator[Check]:
    """Checks that a folder's screens, if it has any, can be read and that their keys are hashes of their identities."""
    try:
        if screens := load_screens(folder):
            yield Check(SCREEN, True, f"key of {', '.join(screens)}")
    except UserError as error:
        yield Check(SCREEN, False, str(error))
