"""Sentences in few bytes: read like lists of lists, and a text of ten times the words takes no ten times the memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.data.layout import Layout
from probe.data.readers import read_file
from probe.data.sentences import Sentences

ROWS = [["Ana", "won"], ["Ana"], [], ["in", "Bern", "Ana"]]


@given(st.lists(st.lists(st.text(max_size=3), max_size=6)))
def test_they_read_like_a_list_of_lists(rows: list[list[str]]):
    sentences = Sentences.of(rows)
    assert list(sentences) == rows
    assert sentences == rows
    assert rows == sentences
    assert sentences.lengths == [len(row) for row in rows]
    assert len(sentences) == len(rows)
    assert bool(sentences) == bool(rows)
    assert [sentences[number] for number in range(-len(rows), len(rows))] == rows * 2
    assert sentences[1:-1] == rows[1:-1]
    assert sentences[::-2] == rows[::-2]


def test_two_are_equal_whatever_numbers_their_strings_have():
    assert Sentences.of(ROWS) != Sentences.of(ROWS[:-1])
    assert Sentences.of(ROWS) != Sentences.of([["Ana", "won"], ["Ana"], [], ["in", "Bern", "Li"]])
    assert Sentences.of(ROWS) != Sentences.of([["Ana"], ["won", "Ana"], [], ["in", "Bern", "Ana"]])
    assert Sentences.of([["b", "a"]]) == Sentences.of(iter([["b", "a"]]))
    assert Sentences.of(ROWS) != "Ana"


def test_there_is_nothing_behind_the_last():
    for place in (4, -5):
        with pytest.raises(IndexError):
            Sentences.of(ROWS)[place]


def test_what_a_reader_does_to_a_sentence_changes_no_other():
    sentences = Sentences.of(ROWS)
    sentences[0].append("odd")
    assert sentences == ROWS


@pytest.mark.parametrize(("distinct", "bytes_each"), [(1, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_strings_are_stored_once_with_the_shortest_numbers(distinct: int, bytes_each: int):
    words = [f"w{number}" for number in range(distinct)]
    sentences = Sentences.of([words, words])
    assert sentences.distinct == words
    assert sentences.numbers.itemsize == bytes_each
    assert sentences[1] == words


def test_a_text_takes_a_few_bytes_per_word(tmp_path: Path):
    def held(num_sentences: int) -> int:
        sentence = "".join(f"word{number} {'B-PER' if number == 3 else 'O'}\n" for number in range(20))
        file = tmp_path / "text.txt"
        file.write_text((sentence + "\n") * num_sentences)
        tracemalloc.start()
        split = read_file(file, Layout(document_marker=None))
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert split.num_words == 20 * num_sentences
        return size

    few, many = held(100), held(1100)
    assert (many - few) / 20_000 < 6, "bytes a word: one for the word, one for its tag, and those of each sentence"
