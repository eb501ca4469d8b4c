"""Every command of the README does what it should: none may rot.

They run in the order of the README, in one folder, with a small random encoder of twelve blocks and a probe of one
epoch; what lies under results/ in the repository is there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from support.inputs import make_bert, make_split, write_columns

from probe.data.corpus import Corpus

ROOT = Path(__file__).parent.parent
OTHER_COMMANDS = ("extract", "table", "report", "verify", "sweep-status", "inspect", "cache", "doctor", "score")
INSTALLS = ("python3 -m venv", "pip install", "eval ")  # the first is what the build runs; completion has its own test
ELSEWHERE = "hydra/launcher=slurm"  # needs a cluster; the launcher has its own test


def commands() -> list[str]:
    """Each command of the README's bash blocks, without its comment."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [re.split(r"\s#\s", line)[0].strip() for line in lines if line.strip()]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder, corpora in the forms that the README speaks of, and results."""
    home = tmp_path_factory.mktemp("readme")
    encoder = home / "encoder"
    encoder.mkdir()
    make_bert(encoder, num_layers=12, limit=64)

    splits = {"train": make_split(60, 1), "dev": make_split(20, 2), "test": make_split(20, 3)}
    data = write_columns(home / "data", Corpus("tiny", splits))
    for name, original in (("train", "eng.train"), ("dev", "eng.testa"), ("test", "eng.testb")):
        text = (data / f"{name}.conll").read_text()
        (data / f"{name}.txt").write_text(text)
        four_columns = re.sub(r"^(\S+) (\S+)$", r"\1 POS-\2 X \2", text, flags=re.M)
        (data / original).write_text(four_columns)
        rows = [{"tokens": w, "ner_tags": t} for w, t in zip(splits[name].words, splits[name].tags, strict=True)]
        (data / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data / "test.parquet")
    indexed = home / "indexed"
    indexed.mkdir()
    for name in splits:
        text = re.sub(r"^-DOCSTART.*$", "# doc", (data / f"{name}.conll").read_text(), flags=re.M)
        (indexed / f"{name}.txt").write_text(re.sub(r"^([^#\s]\S*) (\S+)$", r"1 \1 \2 O", text, flags=re.M))

    shutil.copytree(ROOT / "results", home / "results")
    shutil.copytree(ROOT / "results/demo-minilm", home / "results/quickstart")
    done = run("probe extract data=demo encoder=minilm_l6", home)
    assert done.returncode == 0, done.stderr
    return home


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A command as it stands, but small, with places for DIR, FILE, A and B, and with our encoder and corpus."""
    words = shlex.split(command)[1:]
    kind = words[0] if words[0] in OTHER_COMMANDS else "train"
    predictions = min((home / "results/quickstart/predictions").glob("*.test.conll"))
    data = home / ("indexed" if "word_column" in command else "data")
    places = {"DIR": data, "FILE": predictions, "A": "results/demo-minilm", "B": "results/quickstart"}
    words = [re.sub(r"^(.*=)?(DIR|FILE|A|B)$", lambda m: f"{m[1] or ''}{places[m[2]]}", word) for word in words]
    if kind in ("train", "extract", "inspect", "doctor", "cache"):
        words = [word for word in words if not word.startswith("encoder.path=")] + [f"encoder.path={home / 'encoder'}"]
    if kind == "train":
        words += ["probe.max_epochs=1", "jobs=1", "results_dir=results/small"]  # not among the real records
        if "probe=linear" not in words:
            words.append("probe.hidden_size=4")
        if not any(word.startswith(("data=demo", "data.path=")) for word in words):
            words.append(f"data.path={data}")
        if words[0].startswith("+sweep"):
            words += ["seed=1"] + ["encoder.num_layers=12"] * (words[0] == "+sweep=each_layer")
    environment = {**os.environ, "LAYER_PROBE_CACHE": str(home / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "probe", *words], cwd=home, env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("probe ") and ELSEWHERE not in c])
def test_the_readmes_command_works(command: str, home: Path):
    done = run(command, home)
    assert done.returncode == 0, f"{done.args}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert done.stdout.strip()


def test_every_command_is_of_a_kind_that_some_test_runs():
    odd = [c for c in commands() if not c.startswith(("probe ", *INSTALLS))]
    assert odd == []
    assert len(commands()) > 30


@pytest.mark.parametrize(
    ("mark", "folder"),
    [
        ("quickstart", "demo-minilm"),
        ("conll2003", "conll2003-minilm-sentence"),
        ("conll2003-document", "conll2003-minilm-document"),
    ],
)
def test_a_table_of_the_readme_is_the_one_in_results(mark: str, folder: str):
    readme = (ROOT / "README.md").read_text()
    shown = re.search(rf"<!-- {mark} -->\n```\n(.*?)```", readme, flags=re.S)
    assert shown is not None
    rows = [line.split() for line in shown[1].splitlines() if "±" in line and line[0].islower() and "," not in line]
    table = (ROOT / "results" / folder / "table.md").read_text().replace("*", "")
    kept = [line.strip("|").replace("|", " ").split() for line in table.splitlines() if "±" in line and line[0] == "|"]
    assert rows == kept
    assert len(rows) >= 6


def test_the_readmes_file_list_is_what_is_there():
    readme = (ROOT / "README.md").read_text()
    listed = set(re.findall(r"\b(\w+\.py)\b", readme[readme.index("## Files") :]))
    there = {file.name for file in (ROOT / "probe").glob("*.py")} - {"__init__.py", "__main__.py"}
    assert listed == there
