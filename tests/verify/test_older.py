"""Results of an older version verify and make tables under this one, whatever it decides and says otherwise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

OLDER = Path(__file__).parents[1] / "fixtures/older"
FOLDERS = {"demo": 9, "race": 7}  # records


@pytest.fixture
def older(tmp_path: Path, typed) -> Path:
    """A copy, in the working directory of `typed`: the text of `race` is at hand."""
    shutil.copytree(OLDER, tmp_path, dirs_exist_ok=True)
    return tmp_path


def checks(typed, folder: str) -> tuple[int, dict[str, bool | None]]:
    done = typed("verify", folder, "--format", "json")
    return done.returncode, {check["name"]: check["ok"] for check in json.loads(done.stdout)}


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_older_folder_verifies(older: Path, typed, folder: str):
    code, found = checks(typed, folder)
    assert [name for name, ok in found.items() if ok is False] == []
    assert code == 0
    records = {path.name for path in (older / folder / "records").iterdir()}
    assert len(records) == FOLDERS[folder]
    assert {name for name, ok in found.items() if ok} >= {*records, "table.json"}
    assert found["corpus tiny" if folder == "race" else "corpus demo"]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("form", ["text", "md", "csv", "tex", "json"])
def test_an_older_folder_makes_a_table(older: Path, typed, folder: str, form: str):
    done = typed("table", folder, "--format", form)
    assert done.returncode == 0, done.stderr
    rows = json.loads((older / folder / "table.json").read_text())
    shown = done.stdout.replace("\\_", "_")
    for row in rows:
        assert row["row"] in shown
        assert f"{row['dev_f1']['mean'] * (1 if form in ('csv', 'json') else 100):.2f}"[:4] in shown


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_changed_score_of_an_older_table_is_found(older: Path, typed, folder: str):
    file = older / folder / "table.json"
    rows = json.loads(file.read_text())
    rows[0]["dev_f1"]["mean"] += 1e-4
    file.write_text(json.dumps(rows))
    code, found = checks(typed, folder)
    assert code == 1
    assert [name for name, ok in found.items() if ok is False] == ["table.json"]
