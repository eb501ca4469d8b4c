"""Loads a corpus: words and tags, by sentence and document, from any source. Tags of spans become IOB2."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from probe.config import DataConfig, UserError
from probe.data.column_guesses import nearly_all_numbers, span_columns, table_of, wordlike_column
from probe.data.columns import COMMENT, quoted
from probe.data.layout import Layout
from probe.data.readers import read_file
from probe.data.repository import read_hub
from probe.data.sentences import Sentences
from probe.data.split import Split, SplitCounts, bare_tag
from probe.data.tags import TagSchemeError, find_scheme, ill_formed, to_iob2, with_prefixes
from probe.data.task import SPANS, Task, task_of
from probe.system import hub
from probe.system.format import closest, escape_invisible, first_few

SPLITS = ("train", "dev", "test")
STEMS = {"train": ["train"], "dev": ["dev", "valid", "validation", "val", "testa"], "test": ["test", "testb"]}
BUNDLED = "bundled"  # data.path of the corpus inside the package
BUNDLED_FOLDER = Path(__file__).parent / "demo"
PLACES_SHOWN = 3
NEW_SHOWN = 20  # tags that do not occur in train
WRONG_SHOWN = 10  # lines with a wrong tag
FRACTION_SEED = 0


@dataclass
class Corpus:
    """Holds three splits and what was noticed when they were read.

    about: how the corpus was read, for the record; numbers only. notes: what a user should know, one line each. base:
    the corpus that this one was derived from; None if it was read.
    """

    name: str
    splits: dict[str, Split]
    task: Task = SPANS
    about: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    base: Corpus | None = None

    @property
    def title(self) -> str:
        """Returns the name and the scheme of the source's tags, for people."""
        return f"{self.name} ({self.about['scheme']})" if "scheme" in self.about else self.name

    @functools.cached_property
    def key(self) -> str:
        """Returns the sha256 of all words, tags and document bounds: the same from any source."""
        return hash_rows(
            row
            for name, split in self.splits.items()
            for row in chain([[name, split.documents]], zip(split.words, split.tags, strict=True))
        )

    def text_fingerprint(self, with_documents: bool) -> str:
        """Returns the sha256 of what an encoder reads: words, and the document bounds if it uses them."""
        return hash_rows(
            row
            for name, split in self.splits.items()
            for row in chain([[name, split.documents if with_documents else None]], split.words)
        )

    def counts(self) -> dict[str, SplitCounts]:
        return {name: split.counts(self.task) for name, split in self.splits.items()}

    def control(self, seed: int, lower_cases: bool = False) -> Corpus:
        """Returns the corpus with a control task as its tags (Hewitt & Liang 2019), which can only be memorised.

        Each distinct word gets one tag for all of train, dev and test, drawn from the tag distribution of train. With
        spans, each distinct mention gets a type drawn in the same manner and keeps its bounds. So the task differs
        from Hewitt & Liang's: bounds can be learnt. With labels of sentences, each distinct one gets a label.
        The draw depends only on the word, mention or sentence, the seed and train's distribution. With `lower_cases`,
        words are lower-cased first, as the encoder does. Else variants that differ in case would have contradictory
        tags for the same input. The words do not change, so features of the original text can be read.
        """
        task = self.task
        frequent = Counter(kind for tags in self.splits["train"].tags for kind, _, _ in task.items(tags))
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

        def retag(words: Sequence[str], tags: Sequence[str]) -> list[str]:
            if not task.has_spans:
                return [draw([word]) for word in words]
            new = ["O"] * len(words)
            for _, start, end in task.items(tags):
                kind = draw(words[start:end])
                new[start:end] = [f"B-{kind}"] + [f"I-{kind}"] * (end - start - 1)
            return new

        def control_tags(split: Split) -> Iterator[list[str]]:
            if task.is_per_word:
                yield from itertools.starmap(retag, zip(split.words, split.tags, strict=True))
                return
            yield from ([draw(words)] for words in split.words)

        splits = {name: replace(split, tags=Sentences.of(control_tags(split))) for name, split in self.splits.items()}
        about = {name: value for name, value in self.about.items() if name != "not_in_train"}
        return replace(self, splits=splits, about=about | {"control_lower_cased": lower_cases}, base=self)


def hash_rows(rows: Iterable[object]) -> str:
    """Returns the sha256 of rows of plain values, one JSON line each, so that different rows never look alike."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
    return digest.hexdigest()


def load_corpus(cfg: DataConfig) -> Corpus:
    """Reads all three splits. Raises UserError for what is missing or malformed."""
    splits = read_splits(cfg)
    skipped = {
        "comments": {name: len(split.skipped_lines) - split.not_words for name, split in splits.items()},
        "names of columns": {name: int(split.header > 0) for name, split in splits.items()},
        "lines of CoNLL-U": {name: split.not_words for name, split in splits.items()},
        "empty sentences": {name: split.empty for name, split in splits.items()},
        "byte order marks": {name: split.order_marks for name, split in splits.items()},
        "blanks at line ends": {name: split.trailing for name, split in splits.items()},
        "blanks around words": {name: split.around_words for name, split in splits.items()},
        "invisible characters around tags": {name: split.invisible for name, split in splits.items()},
    }
    taken = take_from_train(splits, {"dev": cfg.dev_fraction, "test": cfg.test_fraction})
    splits = {name: splits[name] for name in SPLITS}
    _refuse_doubles(splits)
    if cfg.labels is not None:
        _refuse_other_labels(splits, cfg.labels)
    corpus = Corpus(cfg.name or Path(cfg.path or str(cfg.hub)).resolve().name, splits, task_of(cfg))
    corpus.about = {"taken_from_train": taken} if taken else {}
    if cfg.path is None:
        corpus.about["commit"] = hub.commit_of(_repo(cfg))
        if hub.is_from_cache(_repo(cfg)):
            corpus.notes.append(f"the Hub did not answer; commit {corpus.about['commit']} is read from its cache")
    if corpus.task.has_spans:
        normalize_tags(corpus, cfg.scheme, cfg.ill_formed)
    for what, counts in skipped.items():
        if any(counts.values()):
            corpus.about["skipped"] = corpus.about.get("skipped", {}) | {what: counts}
            corpus.notes.append(f"skipped {what}: {_by_split(counts)}")
    for name, part in taken.items():
        corpus.notes.append(
            f"{name} is {part['sentences']} sentences taken from train, by {part['by']} (data.{name}_fraction)"
        )
    _check_tags(corpus)
    return corpus


def _repo(cfg: DataConfig) -> hub.Repo:
    return hub.Repo("dataset", str(cfg.hub), cfg.revision)


def read_splits(cfg: DataConfig) -> dict[str, Split]:
    """Reads the splits that the source has, without converting tags. Splits to be taken from train are not read."""
    fractions = {"train": None, "dev": cfg.dev_fraction, "test": cfg.test_fraction}
    layout = Layout.of(cfg)
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
            found = "that is a file; name its folder, and the file" if folder.is_file() else "there is no such folder"
            raise UserError(
                f"data.path={cfg.path}: {found}. It should hold {cfg.train}, {cfg.dev} and {cfg.test} "
                "(data.train=NAME, ...)."
            )
        splits = {}
        close = _close_files(folder, {name: getattr(cfg, name) for name in wanted if fractions[name] is None})
        for name in wanted:
            file = folder / getattr(cfg, name)
            if fractions[name] is None or file.exists():
                splits[name] = read_file(
                    file, replace(layout, split=name), f"{close}Another file name: data.{name}=NAME{_offer(name)}."
                )
    for name, fraction in fractions.items():
        if fraction is not None and name in splits:
            raise UserError(
                f"data.{name}_fraction={fraction}, but there is a {name} split: {splits[name].origin}. "
                f"To leave that out: data.{name}=null."
            )
        if fraction is None and name not in splits:
            raise UserError(f"There is no {name} split{_offer(name, ': ')}.")
    return splits


def _close_files(folder: Path, files: Mapping[str, str]) -> str:
    """Suggests settings for missing split files, where the folder has files with similar names."""
    there = sorted({file.name for file in folder.iterdir() if file.is_file()} - set(files.values()))
    typed = []
    for split, file in files.items():
        if not (folder / file).exists():
            parts = {name: set(name.lower().replace("-", ".").split(".")) for name in there}
            same = [name for name in there if parts[name] & {Path(file).name.split(".")[0], *STEMS[split]}]
            stems = {Path(name).stem: name for name in reversed(same or there)}  # all have the same ending
            close = closest(Path(file).stem, stems, 0.7)
            typed += [f"data.{split}={quoted(name)}" for name in ([stems[close]] if close else same[:1])]
    return f"Did you mean {' '.join(typed)}? " if typed else ""


def _offer(name: str, glue: str = "; or ") -> str:
    return "" if name == "train" else f"{glue}to take it from train, data.{name}=null data.{name}_fraction=0.1"


def take_from_train(splits: dict[str, Split], fractions: dict[str, float | None]) -> dict[str, dict[str, Any]]:
    """Moves sentences of train into the splits that a fraction asks for, in place. Returns what was taken.

    Takes whole documents where they are known, else sentences. The choice depends only on their number and the
    fractions. Their order is that of sha256 over a fixed seed and their index, so it is the same in every version of
    Python.
    """
    wanted = {name: fraction for name, fraction in fractions.items() if fraction is not None}
    if not wanted:
        return {}
    train = splits["train"]
    units = train.documents if train.documents is not None else list(range(len(train.words)))
    number = {unit: i for i, unit in enumerate(dict.fromkeys(units))}
    order = sorted(number, key=lambda unit: hashlib.sha256(f"{FRACTION_SEED} {number[unit]}".encode()).digest())
    taken: dict[str, dict[str, Any]] = {}
    by = "document" if train.documents is not None else "sentence"
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


def normalize_tags(corpus: Corpus, wanted: str, on_ill_formed: str) -> None:
    """Finds the scheme over all splits, reports ill-formed tags, and turns the tags into IOB2, in place."""
    splits = corpus.splits
    together = Sentences.of(tags for split in splits.values() for tags in split.tags)
    try:
        scheme = find_scheme(together, wanted)
    except TagSchemeError as error:
        place = next(place for split in splits.values() for place in places_of(split, error.tag))
        raise UserError(
            f"{place}: tag {error.tag!r} {error}. "
            "Another scheme: data.scheme=NAME. If tags are not spans: data.task=tags."
            f"{_another_column(splits, error.tags)}{_all_wrong(splits, error.tags)}"
        ) from None
    for split in splits.values():
        split.tags = Sentences.of(with_prefixes(split.tags, scheme))
    counts: dict[str, int] = {}
    shown: list[str] = []
    for name, split in splits.items():
        found = [(i, position) for i, tags in enumerate(split.tags) for position in ill_formed(tags, scheme)]
        counts[name] = len(found)
        shown += [f"{split.place_in(i, position)} {split.tags[i][position]}" for i, position in found[:PLACES_SHOWN]]
    corpus.about |= {"scheme": scheme, "asked_scheme": wanted, "ill_formed": counts}
    if sum(counts.values()):
        message = (
            f"{sum(counts.values())} tags are ill-formed {scheme} "
            f"({_by_split(counts)}): {'; '.join(shown[:PLACES_SHOWN])}"
        )
        if on_ill_formed == "error":
            raise UserError(f"{message}. To read them as conlleval does: data.ill_formed=report.")
        corpus.notes.append(f"{message}. They are read as conlleval reads them")
    for split in splits.values():
        split.tags = Sentences.of(map(to_iob2, split.tags))


def _all_wrong(splits: dict[str, Split], wrong: Sequence[str]) -> str:
    """Lists the wrong tags of the first file that has any, for the second line of a message.

    Gives how often each tag occurs, the first lines, and the number of wrong tags in the other files. Returns "" if a
    single word has a wrong tag, as the first line of the message names it.
    """
    at: dict[str, list[tuple[int, str]]] = {}
    for split in splits.values():
        places = [
            (split.line_of(i, position), tag)
            for i, tags in enumerate(split.tags)
            for position, tag in enumerate(tags)
            if tag in wrong
        ]
        at |= {split.origin: places} if places else {}
    (file, places), *others = at.items()
    if len(places) == 1 and not others:
        return ""
    counts = Counter(tag for _, tag in places).most_common()
    tags = first_few([f"{escape_invisible(tag)} ({count:,})" for tag, count in counts], NEW_SHOWN)
    lines = ", ".join(f"{line} {escape_invisible(tag)}" for line, tag in places[:WRONG_SHOWN])
    first = f"the first {WRONG_SHOWN} lines" if len(places) > WRONG_SHOWN else "lines"
    also = "".join(f"; {Path(name).name} has {len(found):,} more" for name, found in others)
    return f"\nWrong tags of {Path(file).name}: {tags}; {first}: {lines}{also}."


def _another_column(splits: dict[str, Split], wrong: Sequence[str]) -> str:
    """Suggests a setting if comments or names of columns were read as words, or if another column has the tags."""
    train = splits["train"]
    if train.word_a_line:
        first, tags = train.words[0], train.tags[0]
        marks = (
            COMMENT.match(words[0])
            for words, tags in zip(train.words, train.tags, strict=True)
            if tags[0] in wrong or COMMENT.fullmatch(words[0])
        )
        if mark := next(filter(None, marks), None):
            return f" If the lines that begin with {mark[0]} are comments: data.comment={quoted(mark[0])}."
        num_such = sum(word.startswith(first[0]) for words in train.words for word in words)
        if list(wrong) == tags[:1] and num_such == 1:
            return f" If line {train.lines[0]} names the columns: data.comment={quoted(first[0])} skips it."
    return _span_column(train)


def _span_column(split: Split) -> str:
    """Suggests another column for tags of spans, and another for words if the words are numbers."""
    table, chosen = table_of(split), list(chain.from_iterable(split.tags))
    like = [at for at in span_columns(table) if [bare_tag(row[at]) for row in table] != chosen]
    if not like:
        return ""
    message = f" Column {like[0]} looks like tags of spans: data.tag_column={like[0]}"
    words_at = wordlike_column(table)
    if nearly_all_numbers(list(chain.from_iterable(split.words))) and words_at not in like:
        message += f". The words are numbers; column {words_at} looks like words: data.word_column={words_at}"
    return f"{message}."


def _by_split(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} in {name}" for name, count in counts.items())


def places_of(split: Split, tag: str) -> Iterator[str]:
    """Yields the places of a tag in a split, for messages."""
    for sentence, tags in enumerate(split.tags):
        for position, found in enumerate(tags):
            if found == tag:
                yield split.place_in(sentence, position)


def _refuse_doubles(splits: dict[str, Split]) -> None:
    for first, second in (("train", "dev"), ("train", "test"), ("dev", "test")):
        if splits[first].words == splits[second].words:
            raise UserError(
                f"{first} and {second} hold the same text ({splits[first].origin}, {splits[second].origin}). "
                f"Another file: data.{second}=NAME."
            )


def _refuse_other_labels(splits: dict[str, Split], labels: list[str]) -> None:
    for split in splits.values():
        if wrong := sorted(set(chain.from_iterable(split.tags)) - set(map(bare_tag, labels))):
            raise UserError(
                f"{next(places_of(split, wrong[0]))}: tag {wrong[0]!r} is not in data.labels=[{','.join(labels)}]. "
                f"To take the tags that are there: data.labels=null.{_all_wrong(splits, wrong)}"
            )


def _check_tags(corpus: Corpus) -> None:
    """Refuses splits without anything to learn or to find, and reports types that only dev or test has."""
    trained: set[str] = set()
    unknown: dict[str, dict[str, int]] = {}
    for name, split in corpus.splits.items():
        kinds = Counter(kind for tags in split.tags for kind, _, _ in corpus.task.items(tags))
        if not kinds:
            found = f"{split.origin}: no entity in the {name} split ({split.num_words} words, all tagged O)."
            raise UserError(f"{found}{_span_column(split)}")
        if name == "train" and len(kinds) < 2 and not corpus.task.has_spans:
            raise UserError(
                f"{split.origin}: every {corpus.task.unit} of the train split is labelled {next(iter(kinds))}."
            )
        trained = trained or set(kinds)
        new = {kind: kinds[kind] for kind in sorted(kinds.keys() - trained)}
        if len(new) == len(kinds) and not corpus.task.has_spans:
            raise UserError(
                f"{split.origin}: no tag of the {name} split occurs in train (there: {', '.join(sorted(trained)[:5])}; "
                f"here: {', '.join(list(new)[:5])}). Are they the same columns?"
            )
        if new:
            unknown[name] = new
            place = next(places_of(split, corpus.task.tag_of(next(iter(new)))))
            shown = first_few([f"{escape_invisible(kind)} ({count})" for kind, count in new.items()], NEW_SHOWN)
            corpus.notes.append(
                f"{name} has {corpus.task.kinds} that do not occur in train, so they cannot be predicted: "
                f"{shown}; the first: {place}"
            )
    if unknown:
        corpus.about["not_in_train"] = unknown
