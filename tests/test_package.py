"""The wheel carries everything, and works from another directory without the checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

ROOT = Path(__file__).parent.parent

COMPOSE = """
from pathlib import Path
import probe
from probe.config import conf_dir
from probe.data.corpus import load_corpus
assert Path(probe.__file__).is_relative_to({site!r}), probe.__file__
assert conf_dir() == Path(probe.__file__).parent / "conf"
from probe.settings import configs_of
(config, *_), _ = configs_of(["+sweep=quickstart", "layers=last"])
assert load_corpus(config.data).counts()["train"].sentences == 1600
assert (Path(probe.__file__).parent / "data/demo/LICENSE").is_file()
from probe.report.page import TEMPLATE
assert TEMPLATE.is_file()
print(config.layers.name)
"""


def test_an_installed_wheel_composes_a_config_anywhere(tmp_path: Path):
    pip = [sys.executable, "-m", "pip"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path), str(ROOT)]
    subprocess.run([*pip, *build], check=True)
    wheel = next(tmp_path.glob("layer_probe-*.whl"))
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    scheme = {"base": str(tmp_path / "env"), "platbase": str(tmp_path / "env")}
    site = Path(sysconfig.get_path("purelib", "posix_prefix", vars=scheme))
    install = ["--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    # Its dependencies are borrowed from this environment; the checkout's own .pth file is not followed from there.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = COMPOSE.format(site=str(site))
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(python), "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "last"
    done = subprocess.run(
        [str(tmp_path / "env/bin/probe"), "--help"], cwd=tmp_path, env=clean, capture_output=True, text=True
    )
    assert "sweep-status" in done.stdout


def test_what_is_said_of_the_version_and_the_build_is_so():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.findall(r"^## (\S+),", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0] == version
    citation: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "CITATION.cff"))
    assert (citation["cff-version"], citation["version"], citation["type"]) == ("1.2.0", version, "software")
    assert all(citation[name] for name in ("message", "title", "authors"))
    (workflow,) = (ROOT / ".github/workflows").glob("*.yml")
    assert re.findall(r"^ +- run: (.+)$", workflow.read_text(), re.MULTILINE) == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
