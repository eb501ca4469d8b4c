"""Tests assert facts (exit codes, settings, places, numbers), not sentences."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__)
FILES = sorted(file for file in HERE.parent.rglob("test_*.py") if file != HERE)  # its own sentences are examples
SENTENCE = re.compile(r"(?<![\w.=/-])[A-Za-z][a-z']*(?: [a-z][a-z']*){3,}(?![\w=/])")
# What has four words or more and is no sentence.
NAMES = {
    "Tasks on one text": "a table has this heading",
    "blanks at line ends": "a key of what a corpus counts",
    "invisible characters around tags": "a key of what a corpus counts",
}


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the strings within a node, with their lines."""
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.lineno, one.value


def compared(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields what is asserted, matched or named; of a parametrized test also the arguments that are compared."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield node.test
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "names":
            yield from node.args[1:]
        elif isinstance(node, ast.FunctionDef):
            used = {one.id for part in compared_in(node) for one in ast.walk(part) if isinstance(one, ast.Name)}
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("parametrize"):
                    yield from columns(call, used)


def compared_in(function: ast.FunctionDef) -> Iterator[ast.AST]:
    return (part for statement in function.body for part in compared(statement))


def columns(call: ast.Call, used: set[str]) -> Iterator[ast.AST]:
    """Yields the values of those arguments of `parametrize` that a test compares."""
    names, rows = call.args[:2]
    listed = [text for _, text in texts(names)]
    if isinstance(names, ast.Constant):
        listed = [name.strip() for name in listed[0].split(",")]
    for row in rows.elts if isinstance(rows, ast.List | ast.Tuple) else []:
        values = row.elts if len(listed) > 1 and isinstance(row, ast.Tuple) else [row]
        yield from (value for name, value in zip(listed, values, strict=False) if name in used)


def sentences(source: str) -> list[str]:
    """Returns the sentences that a test's source compares, with their lines."""
    found = {
        f"{line}: {text}"
        for part in compared(ast.parse(source))
        for line, text in texts(part)
        if text not in NAMES and SENTENCE.search(text)
    }
    return sorted(found)


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("assert 'the store is in use by a job' in told", 1),
        ("assert told == f'probe: {file} has no counts of test here'", 1),
        ("with raises(E, match=r'runs\\.conll: there is no such file'): pass", 1),
        ("names(told, 'Nothing was sent to the cluster')", 1),
        ("@mark.parametrize('a, b', [('x', 'y is no name of them')])\ndef test(a, b): assert b in f(a)", 1),
        (
            "@mark.parametrize(('a', 'b'), [('more than three words', 'y')])\ndef test(a, b): assert f(a) == b",
            1,
        ),
        (
            "@mark.parametrize('a', ['more than three words'])\ndef test(a):\n    b = f(a)\n    assert b == 1",
            0,
        ),
        ("assert found == {'blanks at line ends'}", 0),
        ("assert told, 'why that is not as it should be'", 0),
        ("assert 'data.path=DIR or data=demo encoder=minilm_l6' in told", 0),
        ("names(told, 'sum, mean, concat, mix, none, layer')", 0),
    ],
)
def test_sentences_are_seen_where_they_are_compared(source: str, number: int):
    assert len(sentences(source)) == number


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_test_asserts_a_sentence(file: Path):
    assert sentences(file.read_text(encoding="utf-8")) == []
