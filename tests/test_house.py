"""The house stands: each folder of the package imports only what lies below it, and no file is a room too large."""

from __future__ import annotations

import ast
import importlib.util
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import probe

HOUSE = Path(probe.__file__).parent
# From the door down, the way that data comes up.
FLOORS = (
    "cli checks reporting inspection export racing runs screening probing features scoring data system config".split()
)
FILES = sorted(HOUSE.rglob("*.py"))
ROOMS = [file for file in FILES if file.parent != HOUSE or file.stem in FLOORS]


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(file) for file in FILES}


def imports(file: Path) -> set[str]:
    """The modules of the package that a file imports anywhere: in functions and for type checkers too."""
    package = module_of(file) if file.stem == "__init__" else module_of(file).rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found |= {f"{source}.{alias.name}" for alias in node.names}
    # `from probe.a.b import c` is probe.a.b where c is no module itself.
    found = {name if name in MODULES else name.rpartition(".")[0] for name in found}
    return {name for name in found if name in MODULES and name != "probe"}


def floor_of(module: str) -> int:
    return FLOORS.index(module.split(".")[1])


def test_every_floor_is_there_and_no_other():
    assert {module_of(file).split(".")[1] for file in ROOMS} == set(FLOORS)
    assert {file.name for file in FILES if file not in ROOMS} == {"__init__.py", "__main__.py"}


def test_imports_are_seen_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{__name__}.HOUSE", tmp_path / "probe")
    file = tmp_path / "probe/data/odd.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import probe.config\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from probe.runs import plan\n"
        "def f():\n    from . import tags\n    from ..cli.parser import Parser\nfrom probe import word_vectors\n"
    )
    assert imports(file) == {"probe.config", "probe.runs.plan", "probe.data.tags", "probe.cli.parser"}


@pytest.mark.parametrize("file", ROOMS, ids=module_of)
def test_imports_go_down(file: Path):
    here = module_of(file)
    up = sorted(name for name in imports(file) if floor_of(name) < floor_of(here))
    assert not up, f"{here} stands below what it imports"


@pytest.mark.parametrize("floor", FLOORS)
def test_no_module_of_a_folder_imports_itself_by_way_of_others(floor: str):
    here = {module_of(file): file for file in ROOMS if module_of(file).split(".")[1] == floor}
    within = {name: imports(file) & here.keys() - {name} for name, file in here.items()}
    try:
        TopologicalSorter(within).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("file", [f for f in FILES if f.stem == "__init__" and f.parent != HOUSE], ids=module_of)
def test_a_folder_is_no_second_name_for_what_lies_in_it(file: Path):
    assert file.read_text(encoding="utf-8") == ""
