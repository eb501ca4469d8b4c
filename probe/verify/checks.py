"""Checks a results folder by reading its files: what can be computed again is compared with what is written.

Compared are each record's key with its identity, its scores with its counts, its counts with its predictions where
these were kept, and what it says at two places; the runs in sweep.json with the records; and the numbers of table.json
with the records. Not compared are prose and the other forms of the table; `probe report` writes them again.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from probe.config import LayersConfig, UserError
from probe.format import first_few
from probe.probes.selection import select
from probe.runs.outputs import counts_path, load_counts, predictions_path, read_predictions, weights_path
from probe.runs.progress import other_results
from probe.runs.records import RunRecord, load_json, load_record, load_records, refusal
from probe.runs.screens import SCREEN, load_screen
from probe.runs.sweep_plan import SWEEP, read_asked
from probe.scoring.detection import threshold
from probe.system.files import canonical, key_of, read_regular, sha256_of, to_jsonable
from probe.tables.formats import FILES, render
from probe.tables.rows import build_rows, results_folder

TABLE = FILES["json"]
ROUNDING = 1e-9  # relative tolerance of sums
SIMULATION = 1e-4  # relative, of what follows from simulated quantiles: their last digits depend on the CPU
# What a part of free form, or a file of predictions, can end in.
ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

Result = tuple[bool | None, str]


class Check(NamedTuple):
    """Holds a check's name, result and detail. ok: None if it could not be made, which is not a failure."""

    name: str
    ok: bool | None
    detail: str

    def line(self) -> str:
        return f"{ {True: 'ok', False: 'FAILED', None: 'not checked'}[self.ok]:<11}  {self.name}: {self.detail}"


def unequal(
    recorded: Any, again: Any, place: str = "", same: Callable[[str, Any, Any], bool] = lambda _, a, b: bool(a == b)
) -> Iterator[tuple[str, Any, Any]]:
    """Yields where two nested values differ: the place and both values. same: compares values that are not nested."""
    if isinstance(recorded, dict) and isinstance(again, dict):
        for name in sorted(recorded.keys() | again.keys()):
            yield from unequal(recorded.get(name), again.get(name), f"{place}.{name}" if place else name, same)
    elif isinstance(recorded, list) and isinstance(again, list) and len(recorded) == len(again):
        for i, (value, other) in enumerate(zip(recorded, again, strict=True)):
            yield from unequal(value, other, f"{place}[{i}]", same)
    elif not same(place, recorded, again):
        yield place, recorded, again


def check_files(folder: Path) -> Iterator[Check]:
    """Yields every check that only reads files. Raises UserError where there are no results."""
    folder = results_folder(folder)
    files = sorted((folder / "records").glob("*.json"))
    if not files and not (folder / SCREEN).exists():
        raise UserError(f"{folder} holds no records. {other_results(folder)}")
    said: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for record in load_records(folder).values():
        for place, key, value in _shared(record):
            said[place, key][canonical(to_jsonable(value))] += 1
    for file in files:
        problems = list(_problems(file, said))
        what = "key, counts, scores" + (", predictions" if predictions_path(file, "test").exists() else "")
        yield Check(file.name, not problems, first_few(problems, glue="; ") or what)
    checks = {SWEEP: _check_asked_for, SCREEN: _check_screen, TABLE: check_table}
    for name, check in checks.items():
        if name == SCREEN and not (folder / name).exists():
            continue
        try:
            yield Check(name, *check(folder))
        except (UserError, OverflowError) as error:  # a whole number may have any size
            yield Check(name, False, str(error))


def _problems(file: Path, said: Mapping[tuple[str, str], Counter[str]]) -> Iterator[str]:
    """Says where a record is not what it should be. Loading it checks that its key is the hash of its identity.

    said: what the records of the folder say at the places of `_shared`, and how many of them.
    """
    try:
        record = load_record(file)
        others = (
            (f"{place}, of most records", to_jsonable(value), json.loads(said[place, key].most_common(1)[0][0]))
            for place, key, value in _shared(record)
        )
        for facts in (_written_twice(record), _of_files(file, record), others):
            for place, recorded, expected in facts:
                for inner, value, again in unequal(recorded, expected, place):
                    yield f"{inner} is {value}, expected {again}"
    except UserError as error:
        yield str(error)
    except ODD as error:
        yield f"a part of it is missing or of another kind ({type(error).__name__}: {error})"


def _written_twice(record: RunRecord) -> Iterator[tuple[str, Any, Any]]:
    """Yields what a record says, by its place, and what another place of the record says."""
    identity, config, features, encoder = record.identity, record.config, record.features, record.encoder
    chosen = select(LayersConfig(**config.layers), encoder.num_layers, encoder.hidden_size)
    path = config.encoder["path"]
    yield "config.seed", config.seed, identity.seed
    yield "config.data.task", config.data["task"], identity.task
    yield "data.task", record.data.task, identity.task
    yield "data.name", record.data.name, config.data["name"] or record.data.name
    yield "data.asked_scheme", record.data.asked_scheme or config.data["scheme"], config.data["scheme"]
    condition = identity.condition.settings if identity.condition else {}
    yield "config.data.control", config.data["control"], condition.get("control")
    is_random = "random" in identity.conditions
    yield "config.encoder.weights", config.encoder["weights"], "random" if is_random else "pretrained"
    if is_random:
        yield "config.encoder.weights_seed", config.encoder["weights_seed"], condition["weights_seed"]
    yield "encoder.num_layers", encoder.num_layers, config.encoder["num_layers"] or encoder.num_layers
    read = {**features.identity, **features.identity.get("window", {})}  # whole texts have no windows
    for name in ("context", "subword", "stride", "precision", "dtype"):
        setting = config.features.get(name)  # a source has those that it reads
        yield f"config.features.{name}", setting, read.get(name, setting)
    if scores := [epoch.dev for epoch in record.curve]:
        yield "best_epoch", record.best_epoch, 1 + scores.index(max(scores))
        yield "scores.dev, as in curve", round(record.scores.dev.headline, 9), round(max(scores), 9)
    yield "features.key", features.key, identity.features
    yield "hash of features.identity", key_of(features.identity), features.key
    yield "encoder.fingerprint", encoder.fingerprint, features.identity["encoder"]
    names = [config.encoder["name"], *([Path(path).name] if path else [])]  # a folder's own, if no other was typed
    yield "encoder.name", encoder.name, encoder.name if encoder.name in names else names[0]
    yield "row", record.row, chosen.name
    yield "layers.width", record.layers.width, chosen.width
    for place, layers in (("layers", record.layers), ("identity.layers", identity.layers)):
        yield f"{place}.indices", layers.indices, list(chosen.indices)
        yield f"{place}.combine", layers.combine, chosen.combine
    yield "identity.layers.normalize", identity.layers.normalize, chosen.normalize


def _shared(record: RunRecord) -> Iterator[tuple[str, str, Any]]:
    """Yields what runs share that are of one text, of one encoder, on the same features, or of one row."""
    identity, encoder = record.identity, record.encoder
    for split, sizes in to_jsonable(record.data.splits).items():
        for name, number in sizes.items():
            if number is not None:  # not counted by an older version
                yield f"data.splits.{split}.{name}", identity.corpus, number
    yield "encoder", key_of(encoder.fingerprint), [encoder.num_layers, encoder.hidden_size, encoder.lower_cases]
    yield "features.words_without_pieces", identity.features, record.features.words_without_pieces
    yield "parameters", key_of({**to_jsonable(identity), "seed": 0}), record.parameters


def _of_files(file: Path, record: RunRecord) -> Iterator[tuple[str, Any, Any]]:
    """Yields what a record says of its files, and what they hold; its scores, and those of its counts."""
    written = record.sha256
    counts, sha256 = load_counts(file)
    yield f"sha256 of {counts_path(file).name}", written.counts, sha256
    weights = weights_path(file)
    if weights.exists():
        yield f"sha256 of {weights.name}", written.weights, sha256_of(read_regular(weights))
    for split in ("dev", "test"):
        columns = {name: column for name, column in counts[split].items() if name != "documents"}
        recorded, again = to_jsonable(getattr(record.scores, split)), to_jsonable(record.task.scores(columns))
        for name in recorded:
            yield f"scores.{split}.{name}", recorded[name], again.get(name)
        size = {name: n for name, n in to_jsonable(getattr(record.data.splits, split)).items() if n is not None}
        again = {"sentences": len(columns["words"])}
        if record.task.is_per_word:
            again |= {"words": sum(columns["words"]), "longest": max(columns["words"])}
        if "documents" in counts[split]:
            again["documents"] = len(set(counts[split]["documents"]))
        predictions = predictions_path(file, split)
        if predictions.exists():
            sha256 = sha256_of(read_regular(predictions))
            yield f"sha256 of {predictions.name}", written.predictions.get(split), sha256
            gold, predicted = read_predictions(predictions)
            again |= record.task.sizes(gold)
            yield f"counts without {predictions.name}", columns, record.task.counts(gold, predicted)
            if record.task.is_ranked and split == "dev":
                yield "threshold", record.threshold, threshold(gold, predicted)
        yield f"data.splits.{split}", size, size | {name: n for name, n in again.items() if name in size}


def _check_asked_for(folder: Path) -> Result:
    """Checks that every run that was asked for has a record: omitting a seed would change the mean."""
    expected = {run.key: run.label for run in read_asked(folder).runs}
    if not expected:
        return None, "it names no runs, so missing ones cannot be found"
    missing = expected.keys() - {record.key for record in load_records(folder).values()}
    if not missing:
        return True, f"all {len(expected)} runs asked for have their record"
    named = first_few(sorted(expected[key] for key in missing))
    return False, f"{len(missing)} of {len(expected)} runs have no record here: {named}; the same sweep makes them"


def _check_screen(folder: Path) -> Result:
    """Checks that a folder's screen can be read and that its key is the hash of its identity."""
    screen = load_screen(folder)
    return screen is not None, "key of " + ", ".join(screen.encoders if screen else ())


def check_table(folder: Path) -> Result:
    """Checks the numbers of a folder's table.json against its records."""
    refuse = refusal(folder / TABLE, "`probe report` writes it again.")
    recorded = load_json(folder / TABLE, list[dict[str, Any]], refuse)
    if recorded is None:
        return None, "not there; the end of a sweep and `probe report` write it"
    margin = recorded[0].get("margin") if recorded else None  # the rows were labelled with it
    margin = margin if isinstance(margin, int | float) else None
    made: list[dict[str, Any]] = json.loads(render(build_rows(folder, margin), "json"))
    if len(recorded) != len(made):
        return False, f"it does not hold the {len(made)} rows that the records give; `probe report` writes it again"
    problems = [
        f"{row['row']} {place} is {value}, the records give {other}"
        for line, row in zip(recorded, made, strict=True)
        for name in row
        for place, value, other in unequal(line.get(name), row[name], name, _is_about_equal)
    ]
    message = f"{first_few(problems, 3, '; ')}; `probe report` writes it again"
    return not problems, message if problems else f"its {len(made)} rows are what the records give"


def _is_about_equal(place: str, recorded: Any, made: Any) -> bool:
    """Tells whether two values of a table are equal but for rounding, or both prose, which is a text with a blank."""
    if isinstance(recorded, int | float) and isinstance(made, int | float):
        tolerance = SIMULATION if place.endswith(("_low", "_high")) else ROUNDING
        return math.isclose(recorded, made, rel_tol=tolerance, abs_tol=tolerance / 1000)
    if isinstance(recorded, str) and isinstance(made, str) and " " in made:
        return " " in recorded
    return bool(recorded == made)
