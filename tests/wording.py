"""What the commands say, collected in one file: `python tests/wording.py` rewrites tests/wording.txt; read its diff.

Wording is no contract, and no other test asserts it. `test_wording.py` collects the same, holds the commands and their
exit codes to the file, and says when its text is stale. What differs from machine to machine is masked: folders,
keys, times, and every number of what is computed here rather than read from the committed fixtures.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import support  # noqa: F401  says how the libraries are to behave before they are imported
from support.commands import TINY
from support.inputs import make_bert, overrides

from probe.cli import COMMANDS

HERE = Path(__file__).parent
FILE = HERE / "wording.txt"
MISTAKES = [
    "layers=nope",
    "layers=sum_al",
    "+typo=1",
    "lerning_rate=1",
    "hydra/launcher=slurm data=demo",
    "hydra.launcher.n_jobs=abc",
    "layers=single layers.indices=[99] data=demo encoder=minilm_l6",
    "layers=last,sum_all",
    "layers.indices=[1",
    "sweep=quickstart",
    "probe.hidden_size=0",
    "features.subword=middle",
    "data.path=/nowhere",
    "data=demo data.dev=null",
    "--nope",
    "tabel",
    "table /nowhere",
    "table demo race --columns cost",
    "table --compare demo",
    "verify demo data.path=x",
    "verify demo --rerun --against race",
    "verify demo --sample 2",
    "errors demo --row lats",
    "errors demo --row last",
    "score",
    "score /nowhere",
    "score data/odd.conll",
    "inspect",
    "tag demo --row last Paris",
    "cache explain nope",
    "convert",
    "convert /nowhere --to new",
]
READ = [  # what is read from fixtures, numbers and all
    "table demo",
    "table demo --columns default,differences,cost",
    "table demo --format md",
    "table demo --format tex",
    "table race",
    "table demo race",
    "table --compare demo demo",
    "verify demo",
    "verify race",
    "verify changed",
    "verify demo --against paper",
    "sweep-status demo",
    "report race",
    "errors race --row embeddings --against concat_0_1 --examples 1",
    "score PREDICTIONS",
]
COMPUTED = [  # with a random encoder: numbers are masked
    "doctor TINY layers=last",
    "extract TINY",
    "cache list",
    "inspect 'ana met smith' TINY",
    "screen TINY screen.max_layers=2 screen.sentences=40 screen.samples=2 screen.dev_sentences=20 results_dir=screened",
    "TINY layers=last results_dir=out",
    "TINY layers=last results_dir=out",
    "-m TINY layers=last,mix_all seed=1 jobs=1 results_dir=swept",
    "export TINY layers=last --to vectors",
    "table out",
    "verify out",
]


class Said(NamedTuple):
    """What a command said, masked, and how it ended."""

    command: str
    code: int
    text: str

    def entry(self) -> str:
        lines = [line.rstrip() for line in self.text.splitlines()]
        return "\n".join([f"$ probe {self.command}".rstrip(), f"exit {self.code}", *lines]).rstrip() + "\n"


def collect(folder: Path) -> Iterator[Said]:
    """What is said by help, by mistakes, and of committed results, in an empty folder."""
    shutil.copytree(HERE / "fixtures/older", folder, dirs_exist_ok=True)
    shutil.copytree(folder / "demo", folder / "changed")
    table = folder / "changed/table.json"
    table.write_text(table.read_text().replace('"mean": 0.67', '"mean": 0.76', 1))
    (folder / "data/odd.conll").write_text("Ana B-PER B-PER\nwon O\n")
    predictions = min((folder / "race/predictions").glob("embeddings-*.test.conll")).relative_to(folder)
    with contextlib.chdir(folder):
        yield _said("--help", ["--help"])
        for name in COMMANDS:
            yield _said(f"{name} --help", [name, "--help"])
        for line in [*MISTAKES, *READ]:
            yield _said(line, [str(predictions) if word == "PREDICTIONS" else word for word in line.split()])


def collect_computed(folder: Path) -> Iterator[Said]:
    """What is said of what is computed, in an empty folder."""
    (folder / "bert").mkdir()
    make_bert(folder / "bert", num_layers=5, limit=24)
    shutil.copytree(HERE / "fixtures/older/data", folder / "data")
    tiny = [*overrides(Path("bert"), Path("data")), *TINY]
    with contextlib.chdir(folder):
        for line in COMPUTED:
            words = re.findall(r"'[^']*'|\S+", line)
            yield _said(
                line, [part for word in words for part in (tiny if word == "TINY" else [word.strip("'")])], True
            )


def _said(command: str, arguments: list[str], is_computed: bool = False) -> Said:
    code, out, errors = _run(arguments)
    return Said(command, code, _masked(out if is_computed and not code else out + errors, is_computed))


def _run(arguments: list[str]) -> tuple[int, str, str]:
    """The command in this process: its exit code, and what it printed."""
    from probe.cli import main

    argv, stdin, environment = sys.argv, sys.stdin, dict(os.environ)
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    out, errors, code = io.StringIO(), io.StringIO(), 0
    os.environ |= {"LAYER_PROBE_CACHE": "cache", "COLUMNS": "100"}
    sys.argv, sys.stdin = ["probe", *arguments], io.TextIOWrapper(io.BytesIO())
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with mock.patch("probe.runs.sweep.FIRST_LINE_S", math.inf):  # a run's own lines depend on its seconds
                main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv, sys.stdin = argv, stdin
        os.environ.clear()
        os.environ.update(environment)
        for number, handler in signals.items():
            signal.signal(number, handler)
    return code, out.getvalue(), errors.getvalue()


def _masked(text: str, is_computed: bool) -> str:
    """A text without what only this machine would say."""
    text = text.replace(str(Path.cwd().resolve()), "<tmp>").replace(str(Path.cwd()), "<tmp>")
    text = text.replace(str(HERE.parent), "<checkout>").replace(str(Path.home()), "<home>")
    text = re.sub(r"(?<![\w.])[0-9a-f]{10,64}\b", "<key>", text)
    if not is_computed:
        return text
    text = re.sub("█+", "█", re.sub(r"-{3,}", "---", text))
    text = re.sub(r"(?m)^( *(device|versions|store)\b).*", r"\1 <here>", text)
    return re.sub(r" {2,}", "  ", re.sub(r"[+-]?(?<![A-Za-z\d.])\d+(,\d{3})*(\.\d+)?", "#", text))


def main() -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        said = [*collect(Path(one)), *collect_computed(Path(other))]
    FILE.write_text("\n".join(one.entry() for one in said), encoding="utf-8")
    print(f"{FILE}: {len(said)} commands")


if __name__ == "__main__":
    main()
