"""Each script of tests/benchmarks runs at its smallest size and ends with its numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import DEADLINE_S
from support.records import RESULTS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
READ_BY_PEOPLE = {"goldens.py", "bakeoff.py", "jobs.py"}  # they take minutes to hours
TRIED = {  # with what
    "decisions.py": ["--tables", "4", "--jobs", "1", "--only", "nine equal rows,detection"],
    "gpu.py": ["--size", "tiny", "--device", "cpu"],
    "scale.py": ["--words", "3000"],
    "transfer.py": [str(RESULTS / "conll2003-minilm-tasks")],
    "screen_cost.py": ["data=demo", "encoder=minilm_l6", "screen.sentences=200", "screen.max_layers=1"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({file.name for file in BENCHMARKS.glob("*.py")} - READ_BY_PEOPLE))
def test_a_benchmark_runs_at_its_smallest_size(tmp_path: Path, name: str):
    env = {**os.environ, "LAYER_PROBE_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, str(BENCHMARKS / name), *TRIED[name]]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr[-2000:]
    assert isinstance(json.loads(done.stdout.splitlines()[-1]), dict)


@pytest.mark.slow
def test_a_part_of_the_gpu_benchmark_that_fails_is_in_its_last_line(tmp_path: Path):
    arguments = ["--size", "tiny", "--device", "cpu", "--encoder", "nowhere", "--only", "extraction"]
    command = [sys.executable, str(BENCHMARKS / "gpu.py"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S)
    result = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, result["ok"], result["parts"]["extraction"]["ok"]) == (1, False, False)
    assert json.loads((tmp_path / "gpu.json").read_text()) == result
