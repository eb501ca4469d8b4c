"""Anybody's predictions: scores against seqeval, files read in every form, and the paired test."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from seqeval.metrics import classification_report, f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, IOBES
from sklearn.metrics import accuracy_score
from sklearn.metrics import f1_score as sklearn_f1
from support.commands import here, python
from support.facts import names
from support.inputs import SCHEMES, random_spans, written

from probe.config import UserError
from probe.data.task import SPANS, TAGS
from probe.runs.outputs import write_predictions
from probe.score.predictions import paired_test, read_predictions, render
from probe.system.files import to_jsonable


def write(file: Path, gold: list[list[str]], predicted: list[list[str]], separator: str = " ") -> Path:
    blocks = [
        "".join(f"w{i}{separator}x{separator}{g}{separator}{p}\n" for i, (g, p) in enumerate(zip(*pair, strict=True)))
        for pair in zip(gold, predicted, strict=True)
    ]
    file.write_text("\n".join(blocks))
    return file


def fuzzed(seed: int, scheme: str = "IOB2", sentences: int = 12) -> tuple[list[list[str]], list[list[str]]]:
    """Well-formed gold in a scheme; predictions with the same tags in any disorder, and often right."""
    choose = random.Random(seed)
    gold = [written(n, random_spans(choose, n), scheme) for n in (choose.randint(1, 12) for _ in range(sentences))]
    gold.append(written(3, [("PER", 0, 2), ("PER", 2, 3)], scheme))
    kinds = sorted({tag for tags in gold for tag in tags} | {"O"})
    return gold, [[choose.choice(kinds) if choose.random() < 0.4 else tag for tag in tags] for tags in gold]


def test_200_files_score_as_in_seqevals_modes(tmp_path: Path):
    for seed in range(200):
        gold, predicted = fuzzed(seed)
        found = read_predictions(write(tmp_path / "file", gold, predicted, " \t"[seed % 2]), SPANS, False)
        scores = to_jsonable(found.scores())
        theirs = classification_report(gold, predicted, output_dict=True, zero_division=0)
        micro = theirs["micro avg"]
        for ours, name in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            assert scores["span"][ours] == pytest.approx(micro[name])
            assert all(
                scores["per_type"][kind][ours] == pytest.approx(theirs[kind][name]) for kind in scores["per_type"]
            )
        for ours, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
            strict = function(gold, predicted, mode="strict", scheme=IOB2, average="micro", zero_division=0)
            assert scores["strict"][ours] == pytest.approx(strict)
        total = scores["counts"]
        true, guessed = get_entities(gold), get_entities(predicted)
        assert total["sentences"] == len(gold)
        assert total["words"] == sum(map(len, gold))
        assert (total["gold"], total["predicted"]) == (len(true), len(guessed))
        assert total["correct"] == len(set(true) & set(guessed))
        assert total["gold"] == sum(score["gold"] for score in scores["per_type"].values())
        assert found.table().sum(0).tolist() == [total["gold"], total["predicted"], total["correct"]]


@pytest.mark.parametrize(("scheme", "theirs"), [("BIOES", IOBES), ("BILOU", BILOU)])
def test_other_schemes_are_scored_as_what_they_are(tmp_path: Path, scheme: str, theirs: type):
    for seed in range(30):
        gold, predicted = fuzzed(seed, scheme)
        found = read_predictions(write(tmp_path / "file", gold, predicted), SPANS, False)
        assert found.schemes == (scheme, scheme)
        strict = f1_score(gold, predicted, mode="strict", scheme=theirs, average="micro", zero_division=0)
        assert to_jsonable(found.scores())["strict"]["f1"] == pytest.approx(strict)
        if scheme == "BIOES":
            assert to_jsonable(found.scores())["span"]["f1"] == pytest.approx(f1_score(gold, predicted))


def test_gold_in_iob1_may_stand_beside_predictions_in_iob2(tmp_path: Path):
    choose = random.Random(0)
    entities = [random_spans(choose, 12) for _ in range(30)] + [[("PER", 0, 1), ("PER", 1, 2)]]
    gold = [written(12, found, "IOB1") for found in entities]
    predicted = [written(12, found, "IOB2") for found in entities]
    found = read_predictions(write(tmp_path / "file", gold, predicted), SPANS, False)
    assert found.schemes == ("IOB1", "IOB2")
    scores = to_jsonable(found.scores())
    assert scores["span"]["f1"] == scores["strict"]["f1"] == scores["word"]["f1"] == 1.0
    assert scores["ill_formed"] == 0
    assert scores["accuracy"] == conlleval_accuracy(tmp_path / "file") < 1
    names(render(found).splitlines()[-1], "Accuracy", "two schemes")


def conlleval_accuracy(file: Path) -> float:
    """Token accuracy by conlleval's rules, transcribed: the last two fields, split at the first "-", agree in both."""
    tokens = correct = 0
    for line in file.read_text().splitlines():
        fields = line.split()
        if not fields:
            continue  # a boundary: counted as no token
        (gold_tag, _, gold_type), (guessed_tag, _, guessed_type) = (tag.partition("-") for tag in fields[-2:])
        tokens += 1
        if gold_tag == guessed_tag and gold_type == guessed_type:
            correct += 1
    return correct / tokens


@pytest.mark.parametrize("gold_scheme", SCHEMES)
@pytest.mark.parametrize("predicted_scheme", SCHEMES)
def test_accuracy_is_conllevals_whatever_the_schemes(tmp_path: Path, gold_scheme: str, predicted_scheme: str):
    choose = random.Random(7)
    truth = [random_spans(choose, 12, touching=False) for _ in range(40)]
    guess = [[span for span in found if choose.random() < 0.7] for found in truth]
    gold, predicted = (
        [written(12, found, scheme) for found in spans]
        for spans, scheme in ((truth, gold_scheme), (guess, predicted_scheme))
    )
    file = write(tmp_path / "file", gold, predicted)
    scores = read_predictions(file, SPANS, False).scores()
    assert scores.accuracy == pytest.approx(conlleval_accuracy(file), abs=0)
    assert scores.ill_formed == 0
    assert scores.span is not None
    assert scores.span.precision == 1.0
    assert scores.span == scores.strict


def test_accuracy_in_iob1_is_of_the_files_own_tags(tmp_path: Path):
    """gold I-A B-A, predicted I-A I-A: one of two tags is right; in IOB2 it would be two changes of spelling."""
    file = write(tmp_path / "file", [["I-A", "B-A", "O", "I-A"]], [["O", "I-A", "O", "I-A"]])
    found = read_predictions(file, SPANS, False)
    assert found.scores().accuracy == conlleval_accuracy(file) == 0.5


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [("BIOES", "IOB2"), ("BIOES", "IOB1"), ("BILOU", "IOB2"), ("BIOES", "BILOU"), ("IOB2", "IOB1"), ("IOB2", "BIOES")],
)
def test_predictions_in_another_scheme_than_golds_are_recognised_and_named(tmp_path: Path, gold: str, predicted: str):
    choose = random.Random(3)
    spans = [random_spans(choose, 12) for _ in range(30)]
    truth, guess = ([written(12, found, scheme) for found in spans] for scheme in (gold, predicted))
    file = write(tmp_path / "file", truth, guess)
    done = here("score", str(file), "--format", "json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["schemes"] == {"gold": gold, "predicted": predicted}
    assert found["ill_formed"] == 0
    assert found["span"]["f1"] == found["strict"]["f1"] == 1.0
    assert f"gold {gold}, predicted {predicted}, 0 predicted" in render(read_predictions(file, SPANS, False))


def test_a_stray_i_against_iob2_gold_is_ill_formed(tmp_path: Path):
    gold = [["B-A", "I-A", "O"]] * 20
    for strays in (1, 9):
        predicted = [["O", "I-A", "O"]] * strays + [["O", "O", "O"]] * (20 - strays)
        found = read_predictions(write(tmp_path / "file", gold, predicted), SPANS, False)
        assert found.schemes == ("IOB2", "IOB2")
        assert found.scores().ill_formed == strays
    predicted = [["O", "I-A", "O"]] * 19 + [["B-A", "I-A", "O"]]
    found = read_predictions(write(tmp_path / "file", gold, predicted), SPANS, False)
    assert found.schemes == ("IOB2", "IOB2")
    assert found.scores().ill_formed == 19


@pytest.mark.parametrize("scheme", ["IOB2", "BIOES"])
def test_gold_with_i_alone_may_stand_beside_predictions_in_another_scheme(tmp_path: Path, scheme: str):
    found = [[("PER", 0, 2), ("LOC", 4, 5)], [("PER", 1, 2)]]
    gold, predicted = ([written(6, spans, name) for spans in found] for name in ("IOB1", scheme))
    assert {tag[0] for tags in gold for tag in tags} == {"I", "O"}
    scores = to_jsonable(read_predictions(write(tmp_path / "file", gold, predicted), SPANS, False).scores())
    assert set(scores["per_type"]) == {"PER", "LOC"}
    assert scores["span"]["f1"] == scores["strict"]["f1"] == scores["word"]["f1"] == 1.0


def test_an_empty_last_column_is_none(tmp_path: Path):
    lines = ["John\tB-PER\tO", "lives\tO\tO", "", "Bob\tB-PER\tB-PER", ""]
    for number, end in enumerate(("", "\t", "\t\t")):
        (tmp_path / f"{number}.tsv").write_text("".join(f"{line}{end if line else ''}\n" for line in lines))
    scored = [read_predictions(tmp_path / f"{number}.tsv", SPANS, False).as_json() for number in range(3)]
    assert scored[0] == scored[1] == scored[2]
    assert scored[0]["counts"] == {"sentences": 2, "words": 3, "gold": 2, "predicted": 1, "correct": 1}


@pytest.mark.parametrize("line", ["EU B-ORG", "EU"])
def test_too_few_columns_are_told_with_what_is_needed(tmp_path: Path, line: str):
    (tmp_path / "file").write_text(f"{line}\n")
    with pytest.raises(UserError, match=r"file:1: .*\bword\b.*\bgold\b.*\bpredicted\b"):
        read_predictions(tmp_path / "file", SPANS, False)


def test_bare_types_are_spans_too(tmp_path: Path):
    file = write(tmp_path / "file", [["O", "art", "art", "art-x"]], [["O", "art", "art", "O"]])
    scores = to_jsonable(read_predictions(file, SPANS, False).scores())
    assert scores["counts"] == {"sentences": 1, "words": 4, "gold": 2, "predicted": 1, "correct": 1}


def test_tags_without_spans_score_as_in_scikit_learn(tmp_path: Path):
    choose = random.Random(0)
    gold, predicted = ([[choose.choice(["NN", "VB", "DT"]) for _ in range(5)] for _ in range(20)] for _ in range(2))
    file = write(tmp_path / "file", gold, predicted)
    scores = to_jsonable(read_predictions(file, TAGS, False).scores())
    flat = [[tag for sentence in tags for tag in sentence] for tags in (gold, predicted)]
    assert scores["accuracy"] == pytest.approx(accuracy_score(*flat))
    assert scores["macro_f1"] == pytest.approx(sklearn_f1(*flat, average="macro"))
    with pytest.raises(UserError, match=r"file:\d+ .*--task tags"):
        read_predictions(file, SPANS, False)


def test_document_marks_count_as_words_only_until_they_are_ignored(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("-DOCSTART- O O\n\na B-X B-X\n\n-DOCSTART- O O\n\nb O B-X\n")
    as_words = read_predictions(file, SPANS, False)
    assert to_jsonable(as_words.scores())["counts"]["words"] == 4
    assert "2 lines -DOCSTART- count as words; --ignore-docstart" in render(as_words)
    ignored = read_predictions(file, SPANS, True)
    assert to_jsonable(ignored.scores())["counts"]["words"] == 2
    assert ignored.split.documents == [1, 2]
    file.write_text("a B-X B-X\n\n-DOCSTART-\n")
    with pytest.raises(UserError, match=r"file:3: .*--ignore-docstart"):
        read_predictions(file, SPANS, False)


def test_what_a_run_writes_can_be_read_back(tmp_path: Path):
    gold, predicted = [["B-X", "O"], ["O"]], [["B-X", "I-X"], ["O"]]
    for words in ([["a", "b"], ["c"]], [["a", "New York"], ["\u00a0"]]):
        write_predictions(tmp_path / "records" / "r.json", "dev", words, gold, predicted)
        found = read_predictions(tmp_path / "predictions" / "r.dev.conll", SPANS, False)
        assert found.split.words == words
        assert to_jsonable(found.scores())["counts"]["predicted"] == 1


def test_invisible_characters_behind_tags_are_dropped_and_counted(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("Ana B-PER B-PER\u200b\nx O\ufeff O\n")
    found = read_predictions(file, SPANS, False)
    assert found.scores().accuracy == 1
    names(render(found).splitlines()[-1], "2 tags", "invisible characters")


def test_the_paired_test_finds_differences_and_refuses_other_texts(tmp_path: Path):
    gold, _ = fuzzed(1, sentences=200)
    worse = [["O"] * len(tags) if i % 3 == 0 else tags for i, tags in enumerate(gold)]
    a, b = (
        read_predictions(write(tmp_path / name, gold, tags), SPANS, False) for name, tags in (("a", gold), ("b", worse))
    )
    tested, unit = paired_test(a, b)
    assert tested.difference == pytest.approx(1 - f1_score(gold, worse))
    assert tested.p < 0.001
    assert unit == "sentence"
    assert paired_test(a, a)[0].p == 1.0
    shorter = read_predictions(write(tmp_path / "c", gold[:-1], gold[:-1]), SPANS, False)
    with pytest.raises(UserError, match=r"\b201\b.*\b200\b"):
        paired_test(a, shorter)
    others = [["B-OTHER", *tags[1:]] for tags in gold]
    with pytest.raises(UserError, match=r"\ba:1\b.*\bd:1\b"):
        paired_test(a, read_predictions(write(tmp_path / "d", others, gold), SPANS, False))


def test_the_command_prints_text_and_json(tmp_path: Path):
    gold, predicted = fuzzed(3)
    file = write(tmp_path / "file", gold, predicted)
    done = here("score", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{100 * f1_score(gold, predicted):.2f}" in next(
        line for line in done.stdout.splitlines() if "conlleval" in line
    )
    scores = json.loads(here("score", str(file), "--format", "json", cwd=tmp_path).stdout)
    assert scores.keys() == {
        "span", "strict", "word", "entity_word_recall", "ill_formed", "accuracy", "per_type", "counts", "schemes",
    }  # fmt: skip
    assert scores["span"].keys() == {"precision", "recall", "f1"}
    both = json.loads(here("score", str(file), str(file), "--format", "json", cwd=tmp_path).stdout)
    assert both["a"]["span"] == scores["span"]
    assert both["test"]["p"] == 1.0


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ("a B-X\n", ["file:1", "2 columns"]),
        ("a O O\nb B-X S-X\n", []),
        ("a B-X X\n", ["file:1", "'a'", "'X'", "O"]),
        ("a B-X O\nb O\n", ["file:2", "2 columns"]),
    ],
)
def test_files_that_do_not_fit_are_refused_with_their_line(tmp_path: Path, content: str, facts: list[str]):
    file = tmp_path / "file"
    file.write_text(content)
    if not facts:
        assert read_predictions(file, SPANS, False).schemes == ("IOB2", "BIOES")
        return
    with pytest.raises(UserError) as caught:
        read_predictions(file, SPANS, False)
    names(caught.value, *facts)


def test_scoring_imports_nothing_that_takes_long(tmp_path: Path):
    file = write(tmp_path / "file", [["B-X"]], [["B-X"]])
    code = (
        "import sys; from probe.cli import dispatch; dispatch(sys.argv[1:]); "
        "print({'torch', 'transformers', 'datasets', 'hydra', 'sklearn', 'scipy'} & set(sys.modules))"
    )
    done = python(code, "score", str(file), str(file))
    assert done.stdout.splitlines()[-1] == "set()", done.stderr
