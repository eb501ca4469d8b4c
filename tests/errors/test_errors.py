"""What one row gets right that another does not, against seqeval's spans of the same predictions."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from support.commands import python
from support.facts import names
from support.records import make_record

from probe.config import UserError
from probe.errors.errors import Errors, compare_errors, lines

pytestmark = pytest.mark.usefixtures("short_epochs")

DEMO = Path(__file__).parent.parent.parent / "results/demo-minilm"
PAIR = ("concat_last_four", "last")


def spans_in(file: Path) -> tuple[list[list[str]], set, set]:
    """Words by sentence, and gold and predicted spans (sentence, type, first, last), read without the package."""
    words, gold, predicted = [], set(), set()
    for number, block in enumerate(file.read_text().strip().split("\n\n")):
        columns = [line.split(" ") for line in block.split("\n")]
        words.append([line[0] for line in columns])
        gold |= {(number, *span) for span in get_entities([line[1] for line in columns])}
        predicted |= {(number, *span) for span in get_entities([line[2] for line in columns])}
    return words, gold, predicted


def files_of(row: str) -> list[Path]:
    return [next((DEMO / "predictions").glob(f"{row}-seed{seed}-*.test.conll")) for seed in (1, 2, 3)]


def by_name(errors: Errors) -> dict:
    return {part.name: part for block in errors.parts for part in block}


def test_what_one_row_alone_has_right_is_what_seqeval_finds():
    parts = by_name(compare_errors(DEMO, *PAIR))
    train = {
        line.split(" ")[0] for line in (DEMO.parent.parent / "probe/data/demo/train.conll").read_text().splitlines()
    }
    counts: dict[str, Counter[str]] = {}
    for own, other in zip(*map(files_of, PAIR), strict=True):
        words, gold, a = spans_in(own)
        _, _, b = spans_in(other)
        for span in gold:
            sentence, kind, first, last = span
            inside, size = words[sentence][first : last + 1], last - first + 1
            length = len(words[sentence])
            names = [
                "all",
                kind,
                "seen words only" if set(inside) <= train else "with unseen words",
                f"span of {size if size < 3 else '3+'}",
                f"sentence of {'1-10' if length <= 10 else '11-25' if length <= 25 else '26+'} words",
            ]
            for name in names:
                found = counts.setdefault(name, Counter())
                found.update(gold=1, a=span in a, b=span in b, only_a=span in a - b, only_b=span in b - a)
    assert {"all", "LOC", "with unseen words", "span of 3+", "sentence of 26+ words"} <= counts.keys()
    for name, found in counts.items():
        part = parts[name]
        given = [part.gold, part.a, part.b, part.only_a, part.only_b]
        assert given == pytest.approx([found[key] / 3 for key in ("gold", "a", "b", "only_a", "only_b")]), name
    assert parts.keys() - counts.keys() == {"sentence in capitals"}


def test_counts_per_sentence_give_the_same_totals(tmp_path: Path):
    shutil.copytree(DEMO, tmp_path / "demo")
    shutil.rmtree(tmp_path / "demo/predictions")
    with_text, without = (by_name(compare_errors(folder, *PAIR)) for folder in (DEMO, tmp_path / "demo"))
    assert without.keys() == with_text.keys()
    for name, part in without.items():
        assert (part.gold, part.a, part.b) == pytest.approx(
            (with_text[name].gold, with_text[name].a, with_text[name].b)
        )
        if part.only_a is not None:
            assert part.at_least
            assert part.only_a <= with_text[name].only_a
            assert part.only_a - part.only_b == pytest.approx(part.a - part.b)
    assert without["with unseen words"].only_a is None
    errors = compare_errors(tmp_path / "demo", *PAIR)
    assert errors.examples == []
    assert "at least only A" in "\n".join(lines(errors))


def test_every_error_of_a_row_is_of_one_kind():
    errors = compare_errors(DEMO, *PAIR)
    for row, kinds in errors.kinds.items():
        missing = spurious = 0
        for file in files_of(row):
            _, gold, predicted = spans_in(file)
            missing += len(gold - predicted)
            touched = {(s, k) for s, _, first, last in gold for k in range(first, last + 1)}
            spurious += sum(
                not {(s, k) for k in range(first, last + 1)} & touched for s, _, first, last in predicted - gold
            )
        assert sum(count for kind, count in kinds.items() if kind != "invented") == pytest.approx(missing / 3)
        assert kinds["invented"] == pytest.approx(spurious / 3)


def test_examples_are_what_they_say_and_most_seeds_agree_on_them():
    errors = compare_errors(DEMO, *PAIR, num_examples=3)
    assert [example.right for example in errors.examples] == [PAIR[0]] * 3 + [PAIR[1]] * 3
    sides = {row: [spans_in(file) for file in files_of(row)] for row in PAIR}
    words = sides[PAIR[0]][0][0]
    for example in errors.examples:
        assert example.right is not None
        assert example.of_seeds == 3
        other = PAIR[1 - PAIR.index(example.right)]
        span = (words.index(example.words), example.kind, example.start, example.end - 1)
        assert all(span in found[2] for found in sides[example.right])
        assert all(span not in found[2] for found in sides[other])
    shown = [line for line in lines(errors) if "3 of 3 seeds" in line]
    assert [line.split()[1] for line in shown] == [PAIR[0]] * 3 + [PAIR[1]] * 3


def test_one_row_alone_shows_what_it_gets_wrong():
    errors = compare_errors(DEMO, "last", None, split="dev", seed=2, num_examples=2)
    assert (errors.seeds, errors.split) == ([2], "dev")
    text = "\n".join(lines(errors))
    assert "last (A): dev, seed 2" in text
    assert "B right" not in text
    assert len(errors.examples) == 2
    file = next((DEMO / "predictions").glob("last-seed2-*.dev.conll"))
    words, gold, predicted = spans_in(file)
    for example in errors.examples:
        assert (words.index(example.words), example.kind, example.start, example.end - 1) in gold - predicted
        assert example.right is None


def test_words_seen_in_training_are_left_out_where_nobody_knows_them(tmp_path: Path):
    shutil.copytree(DEMO, tmp_path / "demo")
    for file in (tmp_path / "demo/records").iterdir():
        record = json.loads(file.read_text())
        record["config"]["data"]["path"] = "gone"
        file.write_text(json.dumps(record))
    errors = compare_errors(tmp_path / "demo", *PAIR)
    assert "seen words only" not in by_name(errors)
    *_, told = lines(errors)
    names(told, "training", "gone")


def test_what_cannot_be_compared_is_refused_with_what_there_is(tmp_path: Path):
    with pytest.raises(UserError, match=r"'lats'.*embeddings, second_to_last"):
        compare_errors(DEMO, "lats", None)
    with pytest.raises(UserError, match=r"\b9\b.*last \[1, 2, 3\]"):
        compare_errors(DEMO, "last", None, seed=9)
    shutil.copytree(DEMO, tmp_path / "demo")
    file = next((tmp_path / "demo/predictions").glob("last-seed1-*.test.conll"))
    file.write_text(file.read_text().replace(" B-PER\n", " O\n", 1))
    with pytest.raises(UserError, match=r"\.conll.*sha256"):
        compare_errors(tmp_path / "demo", *PAIR)
    make_record(tmp_path / "two", "last", 1, 0.8, 0.7)
    make_record(tmp_path / "two", "last", 1, 0.8, 0.7, context="document")
    with pytest.raises(UserError, match=r"\b2\b.*'last'"):
        compare_errors(tmp_path / "two", "last", None)


def test_labels_that_are_no_spans_are_compared_word_by_word(tmp_path: Path, inputs: list[str], typed: Callable):
    tags = ["data.task=tags", "probe=linear", "probe.max_epochs=2", "jobs=1"]
    for layers in ("last", "embeddings"):
        own = [word for word in inputs if not word.startswith("probe.")]
        assert typed(*own, *tags, f"layers={layers}", "results_dir=results").returncode == 0
    errors = compare_errors(tmp_path / "results", "last", "embeddings")
    parts = by_name(errors)
    counts: Counter[str] = Counter()
    files = [next((tmp_path / "results/predictions").glob(f"{row}-*.test.conll")) for row in ("last", "embeddings")]
    for own_line, other in zip(*(file.read_text().splitlines() for file in files), strict=True):
        if own_line:
            right = [line.split(" ")[1] == line.split(" ")[2] for line in (own_line, other)]
            counts.update(gold=1, only_a=right == [True, False], only_b=right == [False, True])
    assert (parts["all"].gold, parts["all"].only_a, parts["all"].only_b) == tuple(
        counts[key] for key in ("gold", "only_a", "only_b")
    )
    assert errors.kinds == {}
    assert "O" in parts


def test_errors_needs_no_torch_and_json_says_the_same():
    code = (
        "import sys; from probe.cli import dispatch\n"
        "dispatch(['errors', sys.argv[1], '--row', 'last', '--against', 'embeddings', '--format', 'json'])\n"
        "assert not {'torch', 'transformers', 'hydra'} & set(sys.modules)"
    )
    done = python(code, str(DEMO))
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    parts = by_name(compare_errors(DEMO, "last", "embeddings"))
    assert content["parts"][0][0]["only_a"] == parts["all"].only_a
    refused = subprocess.run(
        [sys.executable, "-m", "probe", "errors", str(DEMO), "--row", "last", "--against", "last"],
        capture_output=True,
        text=True,
    )
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
