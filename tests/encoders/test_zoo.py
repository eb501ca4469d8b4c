"""Every model type of transformers that reads text: its vectors are right, or it is refused.

`zoo.txt` says what comes of each type. After a change of transformers or of the package, write it again and read the
difference: LAYER_PROBE_ZOO=write pytest -m slow tests/encoders/test_zoo.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import zoo

TABLE = Path(__file__).with_name("zoo.txt")
FEW = "bros cpmant data2vec-text fnet glm_moe_dsa ibert idefics layoutlm led mobilebert pegasus_x squeezebert".split()


def expected() -> dict[str, str]:
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    return dict(row.split(maxsplit=1) for row in lines if not row.startswith("#"))


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.filterwarnings("ignore")
def test_an_encoder_is_right_or_refused(kind: str, tmp_path: Path):
    assert zoo.outcome(kind, tmp_path / kind) == expected()[kind]


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.filterwarnings("ignore")
def test_every_type_of_transformers_is_right_or_refused(half: int, tmp_path: Path):
    found = {kind: zoo.outcome(kind, tmp_path / kind) for kind in zoo.kinds(half)}
    if os.environ.get("LAYER_PROBE_ZOO") == "write":
        others = {kind: line for kind, line in expected().items() if kind in zoo.kinds(1 - half)}
        TABLE.write_text(zoo.table(others | found))
    assert not [kind for kind, line in found.items() if line.startswith("WRONG")]
    assert {kind: line for kind, line in found.items() if line != expected().get(kind)} == {}
