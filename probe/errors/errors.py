"""Shows what one row gets right and another does not: by type, length and words seen in training, with examples.

Runs of two rows are paired by seed, and figures are means over seeds. If the folder has predictions, every span (or
word, if tags are not spans) is compared. Otherwise the counts per sentence give the types and a lower bound on what
only one row has right, and the records' slices give the rest. Reads files only.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probe.config import UserError
from probe.data.corpus import BUNDLED, load_corpus
from probe.data.tags import Tags
from probe.data.task import TASKS, Item, Task
from probe.runs.config_from_record import data_from_record
from probe.runs.outputs import load_counts, predictions_path, read_predictions
from probe.runs.records import RunRecord
from probe.scoring.metrics import length_name, slice_names
from probe.system.files import to_jsonable
from probe.tables.formats import TextTable
from probe.tables.row import Row
from probe.tables.rows import build_rows, results_folder

KINDS = ("type", "bounds", "type and bounds", "missed", "invented")
MOST_KINDS = 30  # of types or tags in a table; the most frequent


@dataclass(frozen=True)
class Part:
    """Holds a part of the split, in items per seed: gold, right in each row, and right in only one row.

    at_least: only_a and only_b are lower bounds, from sentence counts. None: unknown, or there is no second row.
    """

    name: str
    gold: float
    a: float
    b: float | None = None
    only_a: float | None = None
    only_b: float | None = None
    at_least: bool = False


@dataclass(frozen=True)
class Example:
    """Holds an item that one row gets right and the other does not (for a single row: an item that it gets wrong).

    right: the row that has it right. of_seeds: in how many seeds. wrong: the prediction in the first of them.
    """

    right: str | None
    words: list[str]
    start: int
    end: int
    kind: str
    wrong: str
    of_seeds: int


@dataclass(frozen=True)
class Errors:
    """Holds the errors of one row or two.

    kinds: per seed, by row; empty without predictions. notes: what is unknown.
    """

    a: str
    b: str | None
    split: str
    seeds: list[int]
    task: str
    parts: list[list[Part]]  # in blocks: all, types, lengths and so on
    kinds: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return to_jsonable(self)


@dataclass
class _Run:
    """Holds a run's text and tags from its file of predictions."""

    words: Tags
    gold: Tags
    predicted: Tags


def compare_errors(
    folder: Path, a: str, b: str | None, split: str = "test", seed: int | None = None, num_examples: int = 5
) -> Errors:
    """Compares what rows a and b get right; without b, shows what a gets wrong. Raises UserError."""
    folder = results_folder(folder)
    rows = build_rows(folder)
    chosen = [_find(rows, folder, name) for name in (a, b) if name is not None]
    by_seed = [{record.seed: (file, record) for file, record in row.records.items()} for row in chosen]
    shared = by_seed[0].keys() & by_seed[-1].keys()
    seeds = sorted(one for one in shared if seed in (None, one))
    if not seeds:
        have = " and ".join(f"{row.title} {sorted(row.seeds)}" for row in chosen)
        raise UserError(f"{folder}: no seed{'' if seed is None else f' {seed}'} in common; there are: {have}.")
    task = chosen[0].task
    if task.is_regression:
        raise UserError(f"{folder}: labels are numbers, so no prediction is simply right. `probe table {folder}`")
    records = [[side[one] for one in seeds] for side in by_seed]
    names = (a, b, split, seeds, task.name)
    if all(predictions_path(file, split).exists() for side in records for file, _ in side):
        runs = [[_load(file, record, split) for file, record in side] for side in records]
        for own, other in zip(runs[0], runs[-1], strict=True):
            if own.gold != other.gold or own.words != other.words:
                raise UserError(f"{folder}: the rows' predictions are not of one text.")
        known, note = _training_words(records[0][0][1])
        return Errors(
            *names,
            parts=_parts(runs, task, known),
            kinds={row.title: _kinds(side, task) for row, side in zip(chosen, runs, strict=True)}
            if task.has_spans
            else {},
            examples=_examples(runs, [row.title for row in chosen], task, num_examples),
            notes=note,
        )
    note = [
        "The folder has no predictions (a licensed text may not be published), so there are no examples. The numbers "
        "of items that only one row has right are lower bounds, from counts per sentence."
    ]
    return Errors(*names, parts=_parts_of_counts(records, split), notes=note)


def _find(rows: Sequence[Row], folder: Path, name: str) -> Row:
    found = [row for row in rows if name in (row.name, row.title) and row.n and not row.condition]
    if not found:
        known = ", ".join(dict.fromkeys(row.title for row in rows if row.n and not row.condition))
        raise UserError(f"{folder} has no row {name!r} with records. Rows: {known}.")
    if len(found) > 1 and all(row.encoder for row in found):
        raise UserError(f"{folder} has {len(found)} rows {name!r}: {', '.join(repr(row.title) for row in found)}.")
    if len(found) > 1:
        raise UserError(
            f"{folder} has {len(found)} rows {name!r} with several settings. Move each into its own folder."
        )
    return found[0]


def _load(file: Path, record: RunRecord, split: str) -> _Run:
    path = predictions_path(file, split)
    try:
        tagged, sha256 = read_predictions(path)
    except (IndexError, UnicodeDecodeError):
        raise UserError(f"{path} is not in columns of word, gold and predicted tag.") from None
    if sha256 != record.sha256.predictions.get(split):
        raise UserError(f"{path} was changed after the run (its sha256 differs).")
    return _Run(*tagged)


def _training_words(record: RunRecord) -> tuple[frozenset[str] | None, list[str]]:
    """Returns the words of the training split, or None and the reason if its text is not available."""
    path = record.config.data.get("path")
    if path == BUNDLED or (path is not None and Path(path).is_dir()):
        try:
            corpus = load_corpus(data_from_record(record))
        except (UserError, TypeError) as error:
            return None, [f"Words seen in training are not known: {error}"]
        if corpus.fingerprint() == record.identity.corpus:
            return frozenset(word for words in corpus.splits["train"].words for word in words), []
    return None, [
        f"Words seen in training are not known: the text is not available ({path or record.config.data.get('hub')})."
    ]


def _parts(runs: Sequence[Sequence[_Run]], task: Task, known: frozenset[str] | None) -> list[list[Part]]:
    """Makes parts from predictions: each gold item counts in all its parts."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    order = {"all": 0}
    for sides in zip(*runs, strict=True):
        for number, (words, gold) in enumerate(zip(sides[0].words, sides[0].gold, strict=True)):
            predicted = [set(task.items(side.predicted[number])) for side in sides]
            for item in task.items(gold):
                right = [item in items for items in predicted]
                names = {"all": 0, f"{item[0]}": 1} | dict.fromkeys(_slices(words, item, known, task), 2)
                for name, block in names.items():
                    order.setdefault(name, block)
                    counts[name]["gold"] += 1
                    counts[name]["a"] += right[0]
                    counts[name]["b"] += right[-1]
                    counts[name]["only_a"] += right[0] and not right[-1]
                    counts[name]["only_b"] += right[-1] and not right[0]
    return _blocks(counts, order, len(runs[0]), len(runs) > 1)


def _slices(words: Sequence[str], item: Item, known: frozenset[str] | None, task: Task) -> list[str]:
    """Returns the parts that an item belongs to by its words. A sentence or pair with a label is its own item."""
    if task.is_per_word:
        return slice_names(words, item, known)
    if task.is_of_pairs:
        return []
    whole = words[0].split(" ")
    names = slice_names(whole, (item[0], 0, len(whole)), known)
    return [name for name in names if not name.startswith("span of")]


def _blocks(
    counts: dict[str, Counter[str]], order: dict[str, int], num_seeds: int, paired: bool, at_least: bool = False
) -> list[list[Part]]:
    """Orders parts: all, then kinds with the most frequent first, then slices by name, with seen words last."""
    blocks: list[list[Part]] = [[], [], []]
    for name, count in counts.items():
        each = {key: count[key] / num_seeds for key in ("gold", "a", "b", "only_a", "only_b")}
        if not paired:
            each = {key: each[key] for key in ("gold", "a")}
        elif "only_a" not in count:
            each = {key: each[key] for key in ("gold", "a", "b")}
        blocks[order[name]].append(Part(name, **each, at_least=at_least and "only_a" in each))
    blocks[1].sort(key=lambda part: (-part.gold, part.name))
    blocks[2].sort(key=lambda part: (part.name.startswith(("seen", "with")), part.name))
    return [block for block in (blocks[0], blocks[1][:MOST_KINDS], blocks[2]) if block]


def _parts_of_counts(records: Sequence[Sequence[tuple[Path, RunRecord]]], split: str) -> list[list[Part]]:
    """Makes parts from sentence counts, and the rest from the records' slices."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    order: dict[str, int] = {}
    for sides in zip(*records, strict=True):
        loaded = [load_counts(file)[0] for file, _ in sides]
        if len({len(one[split]["words"]) for one in loaded}) > 1:
            raise UserError(f"the rows have no counts of one {split} split.")
        first, last = loaded[0][split], loaded[-1][split]
        for kind in [name.removeprefix("gold:") for name in first if name.startswith("gold:")]:
            nothing = [0] * len(first["words"])
            own, other = (one.get(f"correct:{kind}", nothing) for one in (first, last))
            sentences = zip(first["words"], first[f"gold:{kind}"], own, other, strict=True)
            for words, gold, a, b in sentences:
                parts = [("all", 0), (kind, 1)] + [(length_name(words), 2)] * sides[0][1].task.is_per_word
                for name, block in parts:
                    order.setdefault(name, block)
                    counts[name].update(gold=gold, a=a, b=b, only_a=max(0, a - b), only_b=max(0, b - a))
        slices = [getattr(record.scores, split).slices or {} for _, record in sides]
        for name in slices[0].keys() & slices[-1].keys():
            if name not in counts or "only_a" not in counts[name]:
                own_part, other_part = slices[0][name], slices[-1][name]
                order.setdefault(name, 2)
                right = [round(part.recall * part.gold) for part in (own_part, other_part)]
                counts[name].update(gold=own_part.gold, a=right[0], b=right[1])
    return _blocks(counts, order, len(records[0]), len(records) > 1, at_least=True)


def _kinds(runs: Sequence[_Run], task: Task) -> dict[str, float]:
    """Counts a row's kinds of errors per seed."""
    counts = Counter(dict.fromkeys(KINDS, 0))
    for run in runs:
        for gold_tags, predicted_tags in zip(run.gold, run.predicted, strict=True):
            gold, predicted = set(task.items(gold_tags)), set(task.items(predicted_tags))
            counts.update(_kind_of(item, predicted) for item in gold - predicted)
            counts["invented"] += sum(not _touching(item, gold) for item in predicted - gold)
    return {kind: count / len(runs) for kind, count in counts.items()}


def _kind_of(item: Item, predicted: set[Item]) -> str:
    """Names the error for a gold span that was not predicted."""
    touching = _touching(item, predicted)
    if any(other[1:] == item[1:] for other in touching):
        return "type"
    if any(other[0] == item[0] for other in touching):
        return "bounds"
    return "type and bounds" if touching else "missed"


def _touching(item: Item, others: set[Item]) -> list[Item]:
    return sorted(other for other in others if other[1] < item[2] and item[1] < other[2])


def _examples(runs: Sequence[Sequence[_Run]], names: Sequence[str], task: Task, num: int) -> list[Example]:
    """Returns up to `num` examples for each row: those in most seeds first, then in the order of the text."""
    found: defaultdict[tuple[int, int, Item], list[str]] = defaultdict(list)  # predictions by side, sentence and item
    for sides in zip(*runs, strict=True):
        for number, gold in enumerate(sides[0].gold):
            predicted = [set(task.items(side.predicted[number])) for side in sides]
            for item in task.items(gold):
                for side, wrong in enumerate(predicted):
                    right = predicted[1 - side] if len(predicted) > 1 else {item}
                    if item not in wrong and item in right:
                        others = [
                            f"{kind} {_words(sides[0].words[number], s, e)}" if task.is_per_word else kind
                            for kind, s, e in _touching(item, wrong)
                        ]
                        found[side, number, item].append(", ".join(others) or "nothing")
    examples: list[Example] = []
    for side in reversed(range(len(runs))):  # first what B has wrong, which is what only A has right
        of_side = sorted((key for key in found if key[0] == side), key=lambda key: (-len(found[key]), key[1:]))
        for key in of_side[:num]:
            _, number, (kind, start, end) = key
            whose = names[1 - side] if len(runs) > 1 else None
            words = list(runs[0][0].words[number])
            examples.append(Example(whose, words, start, end, kind, found[key][0], len(found[key])))
    return examples


def _words(words: Sequence[str], start: int, end: int) -> str:
    return " ".join(words[start:end])


def lines(errors: Errors) -> Iterator[str]:
    """Yields the comparison as lines of text."""
    many = (
        f"seeds {', '.join(map(str, errors.seeds))}, numbers per seed"
        if len(errors.seeds) > 1
        else f"seed {errors.seeds[0]}"
    )
    against = f" against {errors.b} (B)" if errors.b else ""
    yield f"{errors.a} (A){against}: {errors.split}, {many}"
    yield ""
    at_least = any(part.at_least for block in errors.parts for part in block)
    heads = ["", "gold", "A right %"] + (["B right %", "only A", "only B"] if errors.b else [])
    if at_least:
        heads = [head.replace("only", "at least only") for head in heads]
    rows: list[list[str]] = []
    for block in errors.parts:
        for part in block:
            cells = [part.name, _number(part.gold), _share(part.a, part.gold)]
            if errors.b:
                cells += [_share(part.b, part.gold), _number(part.only_a), _number(part.only_b)]
            rows.append(cells)
    ruled = list(itertools.accumulate(map(len, errors.parts)))[:-1]
    yield TextTable(heads, rows, [True, *[False] * (len(heads) - 1)]).body(ruled=ruled)
    if errors.kinds:
        yield ""
        heads = ["errors", *("AB"[: len(errors.kinds)])]
        counts = [[kind, *(_number(kinds[kind]) for kinds in errors.kinds.values())] for kind in KINDS]
        yield TextTable(heads, counts, [True, *[False] * len(errors.kinds)]).body()
    for example in errors.examples:
        yield ""
        seeds = f", {example.of_seeds} of {len(errors.seeds)} seeds" if len(errors.seeds) > 1 else ""
        other = errors.b if example.right == errors.a else errors.a
        who = f"only {example.right} has it right" if example.right else f"{errors.a} has it wrong"
        if not TASKS[errors.task].is_per_word:
            yield f"{who}{seeds}: {example.kind}; {other} predicts {example.wrong}"
            yield f"  {example.words[example.start]}"
            continue
        item = f"{example.kind} {_words(example.words, example.start, example.end)}"
        yield f"{who}{seeds}: {item}; {other} predicts {example.wrong}"
        marked = [*example.words]
        marked[example.start] = f"[{marked[example.start]}"
        marked[example.end - 1] += "]"
        yield f"  {' '.join(marked)}"
    for note in errors.notes:
        yield ""
        yield note


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}".removesuffix(".0")


def _share(part: float | None, whole: float) -> str:
    return "" if part is None else "-" if not whole else f"{100 * part / whole:.2f}"
