"""Each layer of the package imports only the layers below it, and no folder has a circle of imports."""

from __future__ import annotations

import ast
import importlib.util
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import probe
from probe.cli import COMMANDS

PACKAGE = Path(probe.__file__).parent
# From the top down: folders, and modules that stand beside them.
LAYERS = [
    ["cli"],
    ["commands", "api"],
    ["lists"],
    ["settings"],
    ["verify", "doctor", "inspect", "export", "tag", "report"],
    ["screening"],
    ["tables"],
    ["runs"],
    ["probes"],
    ["vectors"],
    ["encoders"],
    ["conditions"],
    ["data"],
    ["scoring"],
    ["system"],
    ["config"],
    ["format"],
]
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}
FILES = sorted(PACKAGE.rglob("*.py"))
INSIDE = [file for file in FILES if file.parent != PACKAGE or file.stem in LAYER_OF]


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


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


def layer_of(module: str) -> int:
    """The number of the layer of a module's folder."""
    name = module.removeprefix("probe.")
    return LAYER_OF[name.split(".")[0]]


def is_command(module: str) -> bool:
    return module.startswith("probe.commands.") and not module.endswith(".arguments")


def test_every_folder_has_a_layer():
    assert {module_of(file).split(".")[1] for file in INSIDE} == LAYER_OF.keys()
    assert {f"probe.{name}" for name in LAYER_OF} <= MODULES
    assert {file.name for file in FILES if file not in INSIDE} == {"__init__.py", "__main__.py"}


def test_imports_are_seen_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path / "probe")
    file = tmp_path / "probe/data/odd.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import probe.config\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from probe.runs import plan\n"
        "def f():\n    from . import corpus\n    from ..runs.run import make\nfrom probe import word_vectors\n"
    )
    assert imports(file) == {"probe.config", "probe.runs.plan", "probe.data.corpus", "probe.runs.run"}


@pytest.mark.parametrize("file", INSIDE, ids=module_of)
def test_imports_go_down(file: Path):
    here = module_of(file)
    up = sorted(name for name in imports(file) if layer_of(name) < layer_of(here))
    assert not up, f"{here} stands below what it imports"


@pytest.mark.parametrize("file", [file for file in FILES if is_command(module_of(file))], ids=module_of)
def test_a_command_imports_no_other_command(file: Path):
    assert not [name for name in imports(file) if is_command(name)]


def test_every_command_module_is_in_the_list_of_commands():
    assert {f"probe.commands.{module}" for module, _ in COMMANDS.values()} == set(filter(is_command, MODULES))


@pytest.mark.parametrize("folder", sorted(LAYER_OF))
def test_no_folder_has_a_circle_of_imports(folder: str):
    here = {module_of(file): file for file in INSIDE if module_of(file).split(".")[1] == folder}
    within = {name: imports(file) & here.keys() - {name} for name, file in here.items()}
    try:
        TopologicalSorter(within).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize(
    "file", [f for f in FILES if f.stem == "__init__" and f.parent.parent == PACKAGE], ids=module_of
)
def test_a_folder_is_no_second_name_for_what_lies_in_it(file: Path):
    assert file.read_text(encoding="utf-8") == ""
