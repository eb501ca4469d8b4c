"""Tag schemes against seqeval's reading and against a writer of each scheme made from spans."""

from __future__ import annotations

import random

import pytest
from seqeval.metrics.sequence_labeling import get_entities
from support.inputs import SCHEMES, random_spans, written

from probe.scoring.tags import TagSchemeError, find_scheme, ill_formed, spans, to_iob2, with_prefixes, with_types


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_found_well_formed_and_gives_its_spans_back(scheme: str):
    choose = random.Random(1)
    sentences = [(n, random_spans(choose, n, scheme != "IO")) for n in [choose.randint(1, 15) for _ in range(200)]]
    tags = [written(length, entities, scheme) for length, entities in sentences]
    assert find_scheme(tags, "auto") == scheme
    assert find_scheme(tags, scheme) == scheme
    for one, (length, entities) in zip(tags, sentences, strict=True):
        assert list(spans(one)) == entities
        assert to_iob2(one) == written(length, entities, "IOB2")
        assert ill_formed(one, scheme) == []


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_disordered_tags_are_read_as_by_seqevals_default_mode(seed: int, prefixes: str):
    choose = random.Random(seed)
    kinds = [f"{prefix}-{kind}" for prefix in prefixes for kind in ("A", "B")] + ["O"]
    for _ in range(30):
        tags = [choose.choice(kinds) for _ in range(choose.randint(1, 12))]
        assert [(kind, start, end - 1) for kind, start, end in spans(tags)] == get_entities(tags)
        assert get_entities(to_iob2(tags)) == get_entities(tags)


def test_bare_types_are_io_and_touching_ones_run_together():
    tags = [["O", "person-actor", "person-actor", "art"]]
    assert find_scheme(tags, "auto") == "IO"
    assert list(spans(with_prefixes(tags, "IO")[0])) == [("person-actor", 1, 3), ("art", 3, 4)]
    assert with_prefixes([["O", "I-PER"]], "IO") == [["O", "I-PER"]]
    assert with_prefixes([["O", "B-PER"]], "IOB2") == [["O", "B-PER"]]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("prefixes", ["BI", "BIES", "I", "ES"])
@pytest.mark.parametrize("dash", ["", "-"])
def test_prefixes_alone_are_one_type_as_in_seqeval(seed: int, prefixes: str, dash: str):
    choose = random.Random(seed)
    tags = [choose.choice([*(prefix + dash for prefix in prefixes), "O"]) for _ in range(12)]
    (typed,) = with_types([tags], "auto")
    assert [(kind, start, end - 1) for kind, start, end in spans(typed)] == get_entities(tags)
    assert get_entities(to_iob2(typed)) == get_entities(tags)


def test_letters_are_types_where_they_are_no_prefixes_or_io_is_asked_for():
    for tags, scheme in ((["B", "O", "C"], "auto"), (["B", "I-PER"], "auto"), (["B", "S"], "IO"), (["O"], "auto")):
        assert with_types([tags], scheme) == [tags]


@pytest.mark.parametrize(
    ("scheme", "tags", "wrong"),
    [
        ("IOB2", "I-A O B-A I-A I-B O", [0, 4]),
        ("IOB1", "I-A O B-A I-A I-B B-B", [2]),
        ("BIOES", "E-A S-A B-A O I-A B-A I-B E-B", [0, 2, 4, 5, 6]),
        ("BIOES", "B-A E-A S-B O B-B I-B E-B", []),
        ("BILOU", "L-A U-A B-A L-A B-B", [0, 4]),
        ("BMES", "B-A M-A E-A S-A M-A O B-A M-A", [4, 7]),
        ("IO", "I-A I-A O I-B", []),
    ],
)
def test_what_a_scheme_does_not_allow_is_found(scheme: str, tags: str, wrong: list[int]):
    assert ill_formed(tags.split(), scheme) == wrong


@pytest.mark.parametrize(
    ("tags", "asked", "odd", "message"),
    [
        ("O B-A person", "auto", "person", r"\bB-A\b"),
        ("O B-A S-A U-A", "auto", "U-A", r"BIOES.*S-A\b"),
        ("B-A I-A O B-A I-A O B-B O S-A", "auto", "S-A", "BIOES"),
        ("O B-A S-A", "IOB2", "S-A", r"IOB2 .*\bB, I\b"),
        ("DT NN VBZ", "auto", "DT", r"\bO\b"),
        ("O B_PER I_PER", "auto", "B_PER", "B-TYPE"),
        ("O PER-B PER-I", "auto", "PER-B", "B-TYPE"),
        ("O b-per i-per", "auto", "b-per", "B-TYPE"),
        ("O E_PER S_PER M_PER", "auto", "E_PER", "B-TYPE"),
        ("O PER-E LOC-E PER-S", "auto", "LOC-E", "B-TYPE"),
        ("O B_LOC PER B_LOV", "auto", "B_LOC", "B-TYPE"),
        ("O B C D", "auto", "B", "B-TYPE"),
        ("O B I-PER", "auto", "B", r"\bI-PER\b"),
        ("O M-A I-A", "auto", "I-A", "BMES"),
        ("O M-A", "auto", "M-A", "BMES"),
        ("O person", "BIOES", "person", "BIOES"),
    ],
)
def test_tags_that_fit_no_scheme_are_named(tags: str, asked: str, odd: str, message: str):
    with pytest.raises(TagSchemeError, match=message) as caught:
        find_scheme([tags.split()], asked)
    assert caught.value.tag == odd


def test_a_scheme_asked_for_wins_over_what_the_tags_look_like():
    assert find_scheme([["I-A", "O"]], "IOB2") == "IOB2"
    assert find_scheme([["NN", "VB"]], "IO") == "IO"
    assert find_scheme([["O", "B-A", "I-A"]], "BIOES") == "BIOES"
    assert find_scheme([["O", "O"]], "auto") == "IOB2"
    assert find_scheme([["B_cell", "O"]], "IO") == "IO"
