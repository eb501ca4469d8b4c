"""Checks that results hold, by reading the files of a folder; what can be recomputed is not trusted.

Each record must be complete, its key the hash of its identity, its scores what its counts (and predictions, if saved)
give, its feature key that of its encoder and text, if available. The facts of table.json must be what the records give,
and each record the very file that table.json was made from.
"""

from __future__ import annotations

import functools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from probe.conditions import CONDITIONS, derived, main_data
from probe.config import DataConfig, EncoderConfig, UserError
from probe.data.corpus import BUNDLED, BUNDLED_FOLDER, SPLITS, Corpus, load_corpus
from probe.data.tags import IOB2
from probe.encoders.casing import capitals_in_files
from probe.encoders.checkpoint import file_fingerprints, folder_at_hand
from probe.features.pooled import unit_size
from probe.probes.kinds import PROBES, recorded_probe
from probe.probes.schedule import Schedule
from probe.probes.selection import width_of
from probe.runs.config_from_record import data_from_record
from probe.runs.identity import VERSION
from probe.runs.outputs import counts_path, load_counts, predictions_path, read_predictions, weights_path
from probe.runs.records import Records, RunRecord, is_named_after, load_record
from probe.scoring.metrics import Counts, boundary_score, count, scores_of, slices
from probe.screen.record import SCREEN
from probe.system.files import canonical, key_of, sha256_of, to_jsonable
from probe.system.format import first_few
from probe.tables.rows import results_folder
from probe.verify.check import Check
from probe.verify.compare import unequal
from probe.verify.complete import check_complete
from probe.verify.races import check_race
from probe.verify.screens import check_screens
from probe.verify.tables import TABLE, check_table, stated_sha256

SCORED = ("dev", "test")
OF_WORDS = ("slices", "boundary")  # scores that the counts do not give, the predictions do
# The settings of data that make another corpus from the one that is read.
DERIVED = [condition.data_setting for condition in CONDITIONS.values() if condition.data_setting]
ROUNDING = 1e-9
# What a part of free form can end in.
ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def check_files(folder: Path, cache_dir: Path) -> Iterator[Check]:
    """Yields every check that only reads files. Raises UserError where there are no results."""
    folder = results_folder(folder)
    files = sorted((folder / "records").glob("*.json"))
    if not files and not (folder / SCREEN).exists():
        raise UserError(f"{folder} holds no records. `probe +sweep=quickstart` makes results/quickstart.")
    records: dict[Path, RunRecord] = {}
    sound: Records = {}
    recorded = stated_sha256(folder)
    for file in files:
        try:
            records[file] = load_record(file)
        except UserError as error:
            yield Check(file.name, False, str(error))
    for file, record in records.items():
        try:
            problems = [*_problems(file, record)]
        except ODD as error:
            problems = [f"a part of it is missing or of another kind ({type(error).__name__}: {error})"]
        if record.key in recorded and recorded[record.key] != sha256_of(file.read_bytes()):
            problems.append("it is not the record that table.json was made from (its sha256 is another)")
        what = "key, counts, scores" + (", predictions" if predictions_path(file, "test").exists() else "")
        what += ", weights" if weights_path(file).exists() else ""
        yield Check(file.name, not problems, "; ".join(problems) or what)
        sound |= {} if problems else {file: record}
    if gone := sum(bool(one.sha256.weights) and not weights_path(file).exists() for file, one in records.items()):
        yield Check("weights", None, f"those of {gone} records, which kept them, are not here")
    if files:
        yield from check_complete(folder, records)
    yield from check_race(folder)
    yield from _corpora(sound)
    yield from _encoders(list(sound.values()), cache_dir)
    yield from check_screens(folder, list(sound.values()), cache_dir)
    if len(records) == len(files) and (files or (folder / TABLE).exists()):
        yield from check_table(folder)


def _problems(file: Path, record: RunRecord) -> Iterator[str]:
    """Says where a record is not what it should be. Loading it has checked that its key is the hash of its identity."""
    try:
        counts, sha256 = load_counts(file)
    except UserError as error:
        yield str(error)
        counts, sha256 = {}, record.sha256.counts
    for place, recorded, expected, source in (
        *_facts_of_identity(record),
        *_facts_of_files(file, record, sha256),
        *_facts_of_counts(record, counts),
        *_facts_of_curve(record),
    ):
        for inner, there, again in unequal(recorded, expected, place):
            yield f"{inner} is {_shown(there)}, {source} {_shown(again)}"
    if not is_named_after(file, record):
        yield "the file is not named after its seed and key"
    for split, columns in counts.items():
        if split in SCORED:
            yield from _slice_problems(record, split)
            yield from _prediction_problems(file, record, split, columns)


def _shown(value: Any) -> str:
    return canonical(value) if isinstance(value, dict | list) else str(value)


# Facts: a place in the record, what it holds, what it should hold, and what says so.
RecordFacts = Iterator[tuple[str, Any, Any, str]]


def _facts_of_identity(record: RunRecord) -> RecordFacts:
    """Yields what the identities of the run and of its features say."""
    identity, config, features, encoder = record.identity, record.config, record.features, record.encoder
    by_key = "but the key was made with"
    yield "config.seed", config.seed, identity.seed, by_key
    yield "config.probe", config.probe, identity.probe, by_key
    yield "config.layers.normalize", config.layers.get("normalize"), identity.layers.normalize, by_key
    yield "data.task", record.data.task, identity.task, by_key
    if record.task.is_of_texts:
        yield "config.features.sentence", config.features.get("sentence"), identity.sentence, by_key
    yield "layers.indices", record.layers.indices, identity.layers.indices, by_key
    yield "layers.combine", record.layers.combine, identity.layers.combine, by_key
    yield "features.key", features.key, identity.features, by_key
    yield "features.key", features.key, key_of(features.identity), "the hash of features.identity is"
    for name in features.identity.keys() & config.features.keys():
        yield f"config.features.{name}", config.features[name], features.identity[name], by_key
    yield "encoder.fingerprint", encoder.fingerprint, features.identity["encoder"], "features.identity has"
    if record.layers.indices:
        size = unit_size(encoder.hidden_size, record.task)
        width = width_of(record.layers.combine, record.layers.indices, size)
        yield "layers.width", record.layers.width, width, "its layers give"


def _facts_of_files(file: Path, record: RunRecord, sha256_of_counts: str) -> RecordFacts:
    """Yields the sha256 of a run's files, which must be those that it wrote."""
    written = record.sha256
    yield f"sha256 of {counts_path(file).name}", written.counts, sha256_of_counts, "the file's is"
    paths = [(weights_path(file), written.weights)]
    paths += [(predictions_path(file, split), written.predictions.get(split)) for split in SCORED]
    for path, sha256 in paths:
        if path.exists():
            yield f"sha256 of {path.name}", sha256, sha256_of(path.read_bytes()), "the file's is"


def _facts_of_counts(record: RunRecord, counts: dict[str, Counts]) -> RecordFacts:
    """Yields what the counts of each sentence say."""
    for split, columns in counts.items():
        if split not in SCORED:
            continue
        recorded, again = (
            to_jsonable(getattr(record.scores, split)),
            to_jsonable(scores_of(_without_documents(columns))),
        )
        for scores in (recorded, again):
            for name in OF_WORDS:
                scores.pop(name, None)
        again = {name: value for name, value in again.items() if name != "matthews" or name in recorded}
        yield f"scores.{split}", recorded, again, "its counts give"
        known = getattr(record.data.splits, split)
        spans = sum(map(sum, _gold(columns).values())) if record.task.has_spans else None
        here = {"sentences": known.sentences, "words": known.words, "spans": known.spans}
        words = sum(columns["words"]) if record.task.is_per_word else known.words
        counted = {"sentences": len(columns["words"]), "words": words, "spans": spans}
        yield f"data.splits.{split}", here, counted, "its counts give"


def _without_documents(columns: Counts) -> Counts:
    return {name: column for name, column in columns.items() if name != "documents"}


def _facts_of_curve(record: RunRecord) -> RecordFacts:
    """Yields what the epochs of the training say."""
    curve, best = [epoch.dev for epoch in record.curve], record.best_epoch
    if not record.layers.indices and PROBES[record.config.probe["kind"]].reads_features:
        yield "best_epoch", best, 0, "a majority-tag baseline has"
        yield "curve", len(curve), 0, "the epochs of a majority-tag baseline are"
        return
    highest = curve.index(max(curve)) + 1
    yield "best_epoch", best, highest, "the curve is highest in epoch"
    dev = record.scores.dev.headline
    if best == highest and abs(curve[best - 1] - dev) > ROUNDING:
        yield "curve in its best epoch", curve[best - 1], dev, "the dev score is"
    yield from _facts_of_outcome(record)


def _facts_of_outcome(record: RunRecord) -> RecordFacts:
    """Yields how training ended by the curve; nothing for another version of the training, which may end otherwise."""
    losses = [epoch.dev_loss for epoch in record.curve]
    probe = recorded_probe(record.config.probe)
    if None in losses or record.identity.version != VERSION or not PROBES[probe.kind].ends_by_schedule:
        return
    schedule = Schedule.of(probe, record.data.splits.train.sentences)
    for epoch, loss in zip(record.curve, losses, strict=True):
        schedule.after_epoch(epoch.dev, loss or 0.0)
    yield "outcome", record.outcome, schedule.outcome, "the curve gives"


def _prediction_problems(file: Path, record: RunRecord, split: str, columns: Counts) -> Iterator[str]:
    """Says what a split's file of predictions contradicts, or that only this split's is missing."""
    predictions = predictions_path(file, split)
    if not predictions.exists():
        if predictions_path(file, "dev" if split == "test" else "test").exists():
            yield f"{predictions.name} is missing"
        return
    try:
        (words, gold, predicted), _ = read_predictions(predictions)
    except (IndexError, ValueError):
        yield f"{predictions.name} is not in columns of word, gold and predicted tag"
        return
    tags = (tag for sentence in (*gold, *predicted) for tag in sentence)
    if record.task.has_spans and (other := next((tag for tag in tags if not IOB2.fullmatch(tag)), None)) is not None:
        yield f"{predictions.name} holds {other!r}, which is no tag of IOB2"
        return
    recounted = count(gold, predicted, record.task)
    names = sorted(recounted.keys() | columns.keys() - {"documents"})
    if odd := next((name for name in names if recounted.get(name) != columns.get(name)), None):
        yield f"{predictions.name} gives other counts ({odd})"
    recorded = getattr(record.scores, split).slices or {}
    again = slices(words, gold, predicted, None, record.task) if recorded else {}
    if odd := next((name for name in again if again[name] != recorded.get(name)), None):
        yield f"{predictions.name} gives other scores of a part ({odd})"
    bounds = getattr(record.scores, split).boundary
    if bounds is not None and bounds != boundary_score(gold, predicted, record.task):
        yield f"{predictions.name} gives other scores of boundaries"


def _gold(columns: Counts) -> Counts:
    """Returns how much of each kind there is to find in each sentence."""
    return {name: column for name, column in columns.items() if name.startswith("gold:") or name == "gold"}


def _gold_of(counts: dict[str, Counts]) -> str:
    """Hashes what there is to find in dev and test, without a type that was only predicted."""
    found = {split: {name: column for name, column in _gold(counts[split]).items() if any(column)} for split in SCORED}
    return key_of(found)


def _slice_problems(record: RunRecord, split: str) -> Iterator[str]:
    """Says where the parts of a split by length do not add up to the whole."""
    scores = getattr(record.scores, split)
    for what in ("span of", "sentence of"):
        parts = [part.gold for name, part in (scores.slices or {}).items() if name.startswith(what)]
        if parts and sum(parts) != scores.counts.gold:
            yield f"{split} has {sum(parts)} spans by '{what} ...', {scores.counts.gold} in all"


def _is_there(data: Mapping[str, Any]) -> bool:
    """Returns whether a corpus of files is at hand. Earlier versions bundled files that this one does not have.

    A device or a pipe that a record names is not read: it may never end.
    """
    folder = BUNDLED_FOLDER if data["path"] == BUNDLED else Path(data["path"])
    files = [folder / data[split] for split in SPLITS if data.get(split) is not None]
    if any(file.exists() and not file.is_file() for file in files):
        return False
    return (folder / data["train"]).is_file() if data["path"] == BUNDLED else folder.is_dir()


def _corpora(records: Records) -> Iterator[Check]:
    """Checks each corpus of the records, read again if available, with its controls derived again.

    Runs on one corpus must be scored on one gold standard, and where the corpus is at hand, on its tags.
    """
    gold = {file: _gold_of(load_counts(file)[0]) for file in records}
    if alone := _alone(records, gold):
        yield Check("gold tags", False, f"other runs on the same corpus have others than {first_few(alone)}")
    for data in dict.fromkeys(_source(record) for record in records.values()):
        mine = {file: record for file, record in records.items() if _source(record) == data}
        cfg = json.loads(data)
        name = f"corpus {next(iter(mine.values())).data.name}"
        path = cfg.get("path")
        try:
            if path is None or not _is_there(cfg):
                yield Check(name, None, f"its text is not at hand ({path or cfg.get('hub')})")
                continue
            text = load_corpus(main_data(data_from_record(next(iter(mine.values())))))
        except (UserError, TypeError) as error:
            yield Check(name, False, str(error))
            continue
        is_from = _derives_from(text)
        try:
            odd = [record.label for file, record in mine.items() if not is_from(record, gold[file])]
        except ODD as error:
            yield Check(name, False, f"{', '.join(DERIVED)} of a record cannot be: {error}")
            continue
        yield Check(name, not odd, f"another text than that of {first_few(odd)}" if odd else "the text of the records")


def _alone(records: Records, gold: dict[Path, str]) -> list[str]:
    """Lists the runs with another gold standard than most runs on their corpus. gold: a hash of each run's."""
    read = {file: (record.identity.corpus, record.identity.task) for file, record in records.items()}
    standards: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for file, text in read.items():
        standards[text][gold[file]] += 1
    usual = {text: hashes.most_common(1)[0][0] for text, hashes in standards.items()}
    return [record.label for file, record in records.items() if gold[file] != usual[read[file]]]


def _source(record: RunRecord) -> str:
    """Returns a record's data settings as far as they say which corpus is read."""
    return canonical({name: value for name, value in record.config.data.items() if name not in DERIVED})


def _derives_from(text: Corpus) -> Callable[[RunRecord, str], bool]:
    """Returns a function that says whether a record was made on this text.

    It takes the record and the hash of what there is to find in its dev and test.
    """

    @functools.cache
    def fingerprint(data: DataConfig, lower: bool) -> str:
        return derived(text, data, lower).fingerprint()

    @functools.cache
    def standard(data: DataConfig, lower: bool) -> str:
        splits = derived(text, data, lower).splits
        return _gold_of({name: count(splits[name].tags, splits[name].tags, text.task) for name in SCORED})

    @functools.cache
    def words(data: DataConfig, with_documents: bool) -> str:
        return derived(text, data, changes=("words",)).text_fingerprint(with_documents=with_documents)

    def is_from(record: RunRecord, gold: str) -> bool:
        settings = data_from_record(record)
        lower = bool(record.data.control_lower_cased)
        return (record.identity.corpus, gold, record.features.identity["text"]) == (
            fingerprint(settings, lower),
            standard(settings, lower),
            words(settings, record.config.features["context"] == "document"),
        )

    return is_from


def _encoders(records: Sequence[RunRecord], cache_dir: Path) -> Iterator[Check]:
    """Checks each encoder of the records, its files hashed again where they are at hand."""
    for encoder in dict.fromkeys(canonical(record.config.encoder) for record in records):
        mine = [record for record in records if canonical(record.config.encoder) == encoder]
        name = f"encoder {mine[0].encoder.name}"
        try:
            fingerprints = file_fingerprints(EncoderConfig(**mine[0].config.encoder), cache_dir)
        except (TypeError, UserError) as error:
            yield Check(name, False, f"its settings are not those of an encoder: {error}")
            continue
        if fingerprints is None:
            yield Check(name, None, "its files are not at hand")
            continue
        pairs = ((part, record.encoder.fingerprint.get(part)) for part in fingerprints for record in mine)
        odd = next((part for part, recorded in pairs if recorded != fingerprints[part]), None)
        detail = f"other {odd} than those of the records" if odd else f"{' and '.join(fingerprints)} of the records"
        yield Check(name, odd is None, detail)
        yield from _case(name, mine)


def _case(name: str, records: Sequence[RunRecord]) -> Iterator[Check]:
    """Names an encoder with a cased vocabulary that records read lower-cased, though nobody asked for it."""
    lowered = [one.label for one in records if one.encoder.lower_cases and not one.config.encoder.get("lower_case")]
    folder = folder_at_hand(EncoderConfig(**records[0].config.encoder))
    capital = capitals_in_files(folder) if folder is not None and lowered else None
    if capital:
        runs = first_few(lowered)
        detail = f"words were lower-cased, but {capital}: {runs}. To run them with case, type encoder.lower_case=false"
        yield Check(f"case of {name}", False, detail)
