"""Loads a corpus: words and tags, by sentence and document, from any source. Tags of spans become IOB2."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from probe.config import DataConfig, UserError
from probe.data.guesses import named_format, settings_that_read
from probe.data.layout import Layout
from probe.data.order import FEWEST_SENTENCES, neighbours_in_common, order_of
from probe.data.readers import is_saved, read_file
from probe.data.repository import read_hub
from probe.data.split import CUT_WORDS, Split, SplitCounts, bare_tag
from probe.data.task import Task
from probe.data.tasks import SPANS, task_of
from probe.data.warnings import WARNING, data_warnings, shared_sentences
from probe.format import escape_invisible, first_few, reason_of
from probe.system import hub
from probe.system.files import did_you_mean

SPLITS = ("train", "dev", "test")
BUNDLED = "bundled"  # data.path of the corpus inside the package
BUNDLED_FOLDER = Path(__file__).parent / "demo"
FILES_SHOWN = 12
NEW_SHOWN = 20  # tags that do not occur in train
FRACTION_SEED = 0
PLAUSIBLE_MEAN = 100  # words per sentence, with settings that nobody typed


@dataclass
class Corpus:
    """Holds three splits and what was noticed when they were read.

    about: how the corpus was read, for the record; numbers only. notes: what a user should know, one line each.
    """

    name: str
    splits: dict[str, Split]
    task: Task = SPANS
    about: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Returns the name and the scheme of the source's tags, for people."""
        return f"{self.name} ({self.about['scheme']})" if "scheme" in self.about else self.name

    @functools.cached_property
    def key(self) -> str:
        """Returns the sha256 of all words, tags, document bounds and ids: the same from any source."""
        of_texts = [self.about["labels"]] if "labels" in self.about else []
        heads = {
            name: [name, split.documents, *([split.ids] * bool(split.ids)), *of_texts]
            for name, split in self.splits.items()
        }
        return hash_rows(
            row
            for name, split in self.splits.items()
            for row in chain([heads[name]], zip(split.words, split.tags, strict=True))
        )

    def text_fingerprint(self, with_documents: bool) -> str:
        """Returns the sha256 of what an encoder reads: words, and the document bounds if it uses them; or texts."""
        return hash_rows(
            row
            for name, split in self.splits.items()
            for row in chain(
                [[name, split.documents if with_documents else None]],
                split.words if self.task.is_per_word else split.texts,
            )
        )

    def counts(self) -> dict[str, SplitCounts]:
        return {name: split.counts(self.task.sizes(split.tags)) for name, split in self.splits.items()}

    def control(self, seed: int, lower_cases: bool = False) -> Corpus:
        """Returns the corpus with a control task as its tags (Hewitt & Liang 2019), which can only be memorised.

        Each distinct word, mention of a span or sentence (see `Task.control`) gets one label in all splits, drawn from
        the distribution of train by a hash of its words and the seed. With `lower_cases`, words are lower-cased first,
        as the encoder does. Else variants that differ in case would have contradictory tags for the same input.
        """
        frequent = Counter(kind for tags in self.splits["train"].tags for kind, _, _ in self.task.items(tags))
        if len(frequent) < 2:
            raise UserError(
                f"data.control={seed}: {self.name} has a single type, {next(iter(frequent))}, so the control task "
                "would equal the task. Type data.control=null."
            )
        kinds = sorted(frequent)
        up_to = list(itertools.accumulate(frequent[kind] for kind in kinds))

        def draw(words: Sequence[str]) -> str:
            seen = [word.lower() for word in words] if lower_cases else words
            digest = hashlib.sha256(json.dumps([seed, *seen]).encode()).digest()
            return kinds[bisect(up_to, int.from_bytes(digest) % up_to[-1])]

        splits = {
            name: replace(split, tags=[self.task.control(words, tags, draw) for words, tags in pairs])
            for name, split in self.splits.items()
            for pairs in [zip(split.words, split.tags, strict=True)]
        }
        if self.task.is_ranked:
            for split in splits.values():
                if len({*chain.from_iterable(split.tags)}) < 2:
                    raise UserError(f"data.control={seed}: all of {split.origin} gets one label. Type another seed.")
        about = {name: value for name, value in self.about.items() if name != "not_in_train"}
        return replace(self, splits=splits, about=about)


def hash_rows(rows: Iterable[object]) -> str:
    """Returns the sha256 of rows of plain values, one JSON line each, so that different rows never look alike."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def load_corpus(cfg: DataConfig) -> Corpus:
    """Reads all three splits. Raises UserError for what is missing or malformed, with settings that read it, if any."""
    try:
        return _read_corpus(cfg)
    except UserError as error:
        if cfg.path in (None, BUNDLED) or re.search(r"\bdata\.\w+=(?!NAME)", reason_of(error)):
            raise
        hint = settings_that_read(cfg, error, _read_plausibly) or named_format(cfg, error)
        raise UserError(f"{reason_of(error)} {hint}" if hint else str(error)) from None


def _read_plausibly(cfg: DataConfig, most_lines: int | None) -> Corpus:
    """Reads a corpus with settings to be advised. Raises UserError also for what is probably not meant."""
    corpus = _read_corpus(cfg, most_lines)
    train = corpus.splits["train"]
    num, labels = len(train.words), len(set(chain.from_iterable(train.tags)))
    if train.num_words > PLAUSIBLE_MEAN * num if corpus.task.is_per_word else labels > max(2, num / 2):
        raise UserError(f"{num} sentences of {train.num_words} words, {labels} labels")
    for warning in data_warnings(cfg, train, corpus.about | {"shared": {}}):  # splits share sentences in any reading
        raise UserError(warning)
    return corpus


def _read_corpus(cfg: DataConfig, most_lines: int | None = None) -> Corpus:
    """Reads the first lines of each file, or all."""
    task = task_of(cfg)
    splits = read_splits(cfg, most_lines)
    kinds = sorted({what for split in splits.values() for what in +split.skipped})
    skipped = {what: {name: split.skipped[what] for name, split in splits.items()} for what in kinds}
    taken = take_from_train(splits, {"dev": cfg.dev_fraction, "test": cfg.test_fraction})
    splits = {name: splits[name] for name in SPLITS}
    _refuse_doubles(splits)
    if cfg.labels is not None:
        _refuse_other_labels(splits, cfg.labels)
    corpus = Corpus(cfg.name or Path(cfg.path or str(cfg.hub)).resolve().name, splits, task)
    corpus.about = {"taken_from_train": taken} if taken else {}
    if cfg.path is None:
        corpus.about["commit"] = hub.commit_of(_repo(cfg))
        if _repo(cfg) in hub.from_cache:
            corpus.notes.append(f"the Hub did not answer; commit {corpus.about['commit']} is read from its cache")
    of_tags, notes = corpus.task.normalize(corpus.splits, cfg)
    corpus.about |= of_tags
    corpus.notes += notes
    corpus.about |= {"skipped": skipped} if skipped else {}
    for what, counts in skipped.items():
        by_split = ", ".join(f"{count} in {name}" for name, count in counts.items())
        corpus.notes.append(f"{what if what == CUT_WORDS else f'skipped {what}'}: {by_split}")
    for name, part in taken.items():
        apart = "; a document may lie in both" * (part["by"] == "sentence" and cfg.order != "independent")
        corpus.notes.append(
            f"{name} is {part['sentences']} sentences taken from train, by {part['by']} (data.{name}_fraction){apart}"
        )
    _check_labels(corpus)
    long = [name for name in ("dev", "test") if len(splits[name].words) >= FEWEST_SENTENCES]
    if (unmarked := [name for name in long if splits[name].documents is None]) and most_lines is None:
        common = {name: round(neighbours_in_common(splits[name].words), 1) for name in unmarked}
        corpus.about["neighbours"] = common
        if "dev" in common and order_of(cfg.order, common, "dev") is None:
            corpus.notes.append(
                f"neighbouring sentences of dev have hardly more rare words in common than shuffled ones "
                f"({common['dev']} standard deviations): either no sentence continues another (then type "
                "data.order=independent), or they were shuffled (then name their documents)"
            )
    if shared := shared_sentences(splits):
        corpus.about["shared"] = shared
    corpus.notes += [f"{WARNING}{warning}" for warning in data_warnings(cfg, splits["train"], corpus.about)]
    return corpus


def _repo(cfg: DataConfig) -> hub.Repo:
    return hub.Repo("dataset", str(cfg.hub), cfg.revision)


def read_splits(cfg: DataConfig, most_lines: int | None = None) -> dict[str, Split]:
    """Reads the splits that the source has, without converting tags. Splits to be taken from train are not read."""
    fractions = {"train": None, "dev": cfg.dev_fraction, "test": cfg.test_fraction}
    layout = replace(Layout.of(cfg), most_lines=most_lines)
    wanted = [name for name in SPLITS if getattr(cfg, name) is not None]
    if cfg.path is None and cfg.hub is None:
        raise UserError("data.path and data.hub are both empty: name a folder with files or a Hub data set.")
    if cfg.path is None:
        theirs = {name: getattr(cfg, f"hub_{name}") for name in wanted}
        remedies = {
            name: f"Another name: data.hub_{name}=NAME{_offer(name)}." for name in wanted if fractions[name] is None
        }
        splits = read_hub(_repo(cfg), cfg.subset, theirs, layout, remedies)
    else:
        folder = BUNDLED_FOLDER if cfg.path == BUNDLED else Path(cfg.path).expanduser()
        if not folder.is_dir():
            reason = f"there is no such folder.{did_you_mean('data.path', folder)}"
            if folder.is_file():
                reason = "that is a file; name its folder, and the file."
            raise UserError(
                f"data.path={cfg.path}: {reason} It should hold {cfg.train}, {cfg.dev} and {cfg.test} "
                "(data.train=NAME, ...)."
            )
        splits, mistakes = {}, list[str]()
        files = sorted(file.name for file in folder.iterdir() if file.is_file() or is_saved(file))
        listing = f"There are: {first_few(files, FILES_SHOWN)}. "  # in the first message alone
        for name in wanted:
            file = folder / getattr(cfg, name)
            if fractions[name] is None or file.exists():
                try:
                    remedy = f"{listing}Another file name: data.{name}=NAME{_offer(name)}."
                    splits[name] = read_file(file, layout, remedy)
                except UserError as error:
                    mistakes.append(str(error))
                    listing = "" if listing in mistakes[-1] else listing
        if mistakes:
            raise UserError("\n".join(mistakes))
    _refuse_shared_groups(splits, cfg)
    for name, fraction in fractions.items():
        if fraction is not None and name in splits:
            raise UserError(
                f"data.{name}_fraction={fraction}, but there is a {name} split: {splits[name].origin}. "
                f"To leave that out: data.{name}=null."
            )
        if fraction is None and name not in splits:
            raise UserError(f"There is no {name} split{_offer(name, ': ')}.")
    return splits


def _offer(name: str, glue: str = "; or ") -> str:
    return "" if name == "train" else f"{glue}to take it from train, data.{name}=null data.{name}_fraction=0.1"


def take_from_train(splits: dict[str, Split], fractions: dict[str, float | None]) -> dict[str, dict[str, Any]]:
    """Moves sentences of train into the splits that a fraction asks for, in place. Returns what was taken.

    Takes whole documents where they are known, else sentences. The choice depends only on their number and the
    fractions: their order is that of sha256 over a fixed seed and an index, the same in every version of Python.
    """
    wanted = {name: fraction for name, fraction in fractions.items() if fraction is not None}
    if not wanted:
        return {}
    train = splits["train"]
    by, units = ("document", train.documents) if train.documents else ("sentence", list(range(len(train.words))))
    number = {unit: i for i, unit in enumerate(dict.fromkeys(units))}
    order = sorted(number, key=lambda unit: hashlib.sha256(f"{FRACTION_SEED} {number[unit]}".encode()).digest())
    taken: dict[str, dict[str, Any]] = {}
    for name, fraction in wanted.items():
        count = max(1, round(fraction * len(number)))
        chosen, order = set(order[:count]), order[count:]
        splits[name] = train.take([i for i, unit in enumerate(units) if unit in chosen])
        taken[name] = {"fraction": fraction, "by": by, "seed": FRACTION_SEED, "sentences": len(splits[name].words)}
    if not order:
        raise UserError(f"{train.origin}: {len(number)} {by}s are too few to take {' and '.join(wanted)} from.")
    remaining = set(order)
    splits["train"] = train.take([i for i, unit in enumerate(units) if unit in remaining])
    return taken


def _refuse_shared_groups(splits: dict[str, Split], data: DataConfig) -> None:
    """Raises UserError for a group of texts with one label that lies in two splits: a probe could recognise it.

    So too for documents of words, unless they are numbers: these often begin anew in each file.
    """
    for first, second in itertools.combinations(splits, 2):
        shared = splits[first].document_names & splits[second].document_names
        if named := sorted(one for one in shared if not task_of(data).is_per_word or not one.isdecimal()):
            raise UserError(
                f"{first} and {second} share groups: {first_few(named)} ({splits[first].origin}, "
                f"{splits[second].origin}). Write all rows into one file, which is split by group: data.train=FILE "
                "data.dev=null data.dev_fraction=0.2 data.test=null data.test_fraction=0.2. If they are different "
                "groups, give them different names."
            )


def _refuse_doubles(splits: dict[str, Split]) -> None:
    for first, second in itertools.combinations(splits, 2):
        if splits[first].words == splits[second].words:
            raise UserError(
                f"{first} and {second} hold the same text ({splits[first].origin}, {splits[second].origin})."
            )


def _refuse_other_labels(splits: dict[str, Split], labels: list[str]) -> None:
    for split in splits.values():
        if wrong := sorted(set(chain.from_iterable(split.tags)) - set(map(bare_tag, labels))):
            raise UserError(
                f"{next(split.places_of(wrong[0]))}: label {wrong[0]!r} is not in data.labels=[{','.join(labels)}]. "
                "To take the labels that are there: data.labels=null."
            )


def _check_labels(corpus: Corpus) -> None:
    """Refuses splits without anything to learn or to find, and reports labels that only dev or test has."""
    trained: Counter[str] = Counter()
    unknown: dict[str, dict[str, int]] = {}
    for name, split in corpus.splits.items():
        kinds = Counter(kind for tags in split.tags for kind, _, _ in corpus.task.items(tags))
        if not kinds or (name == "train" and len(set(chain.from_iterable(split.tags))) < 2):
            raise UserError(f"{split.origin}: every {corpus.task.unit} of {name} is labelled {split.tags[0][0]}.")
        trained = trained or kinds
        new = {kind: kinds[kind] for kind in sorted(kinds.keys() - trained)}
        if not new:
            continue
        unknown[name] = new
        place = next(split.places_of(corpus.task.tag_of(next(iter(new)))))
        shown = first_few([f"{escape_invisible(kind)} ({count})" for kind, count in new.items()], NEW_SHOWN)
        message = f"{name} has {corpus.task.kinds} that do not occur in train, so they cannot be predicted: {shown}"
        if len(new) == len(kinds):
            raise UserError(f"{message}; the first: {place}. It has no other. Are they the same columns?")
        corpus.notes.append(f"{message}; the first: {place}")
    if unknown:
        corpus.about["not_in_train"] = unknown
