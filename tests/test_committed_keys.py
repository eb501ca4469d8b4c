"""The commands that made the committed sets still ask for the committed runs: no change of settings moved a key.

Nothing is trained, and no corpus is read: what a run's key says of text and features is taken from its record.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import records as support
from support.records import committed_sets

from probe.conditions import conditions_of, settings_of_conditions
from probe.config import Config
from probe.format import short_name
from probe.probes.kinds import kind_of, recorded_settings
from probe.probes.schedule import Schedule
from probe.probes.selection import select
from probe.runs.identity import Layers
from probe.runs.records import RunRecord, load_records
from probe.settings import configs_of

ROOT = Path(__file__).parent.parent
COMMAND = r"^(?:\|.*`)?({}[^`#\n]*)"


def commands(start: str = r"probe (?:-m|\+sweep)") -> list[str]:
    """The commands of results/README.md that train a committed set, with the start that this expression matches."""
    text = (ROOT / "results/README.md").read_text().replace("\\\n", " ")
    found = re.findall(COMMAND.format(start), text, flags=re.MULTILINE)
    return sorted({re.sub(r"\s+", " ", one).strip() for one in found if "paper_table" not in one})


@functools.cache
def asked_by(command: str) -> list[Config]:
    """The settings of all runs of a command, composed once."""
    return configs_of(shlex.split(command)[1:])[0]


def as_planned(cfg: Config, sentences: int) -> Config:
    """A run's settings as its plan has them."""
    cfg = kind_of(cfg).prepare(cfg)
    return replace(cfg, probe=replace(cfg.probe, max_epochs=Schedule.of(cfg.probe, sentences).max_epochs))


def records_of(cfg: Config, records: list[RunRecord]) -> Iterator[RunRecord]:
    """The records whose keys these settings give, on the text and features of each record itself."""
    encoder = records[0].encoder
    selection = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
    layers = Layers(list(selection.indices), selection.combine, selection.normalize)
    for record in records:
        if record.identity.seed != cfg.seed:
            continue  # and no key is computed
        condition = record.identity.condition
        lower_cases = condition is not None and condition.settings.get("lower_cased") is True  # older controls: not
        asked_for = [conditions_of(cfg), settings_of_conditions(cfg, lower_cases)]
        if asked_for == ([condition.ids, condition.settings] if condition else [[], {}]):
            asked = replace(record.identity, layers=layers, probe=recorded_settings(cfg.probe), seed=cfg.seed)
            if asked.key == record.key:
                yield record


@pytest.mark.parametrize("command", commands())
def test_every_run_that_a_command_asks_for_is_committed(command: str):
    configs = asked_by(command)
    folder = ROOT / configs[0].results_dir
    assert (folder / "records").is_dir(), f"{folder.name} is not committed"
    records = list(load_records(folder).values())
    sentences = max(record.data.splits.train.sentences for record in records)
    for cfg in configs:
        planned = as_planned(cfg, sentences)
        of_task = [record for record in records if record.data.task == cfg.data.task]
        of_task = [record for record in of_task if record.config.data["tag_column"] == cfg.data.tag_column]
        of_task = [
            one for one in of_task if short_name(one.encoder.name) == short_name(cfg.encoder.name)
        ]  # or a folder
        found = list(records_of(planned, of_task))
        assert found, f"{cfg.layers}, seed {cfg.seed}: no record has this key"


def test_the_commands_are_found_and_cover_the_sets():
    typed = {command: re.search(r"results_dir=(\S+)", command) for command in commands()}
    folders = {found[1] if found else asked_by(command)[0].results_dir for command, found in typed.items()}
    committed = {f"results/{folder.name}" for folder in committed_sets()}
    assert committed <= folders


def test_a_set_that_a_user_made_is_not_among_the_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "README.md").write_text("| folder | what |\n|---|---|\n| `demo` | six rows |\n")
    for name in ("demo", "quickstart"):
        (tmp_path / name / "records").mkdir(parents=True)
    monkeypatch.setattr(support, "RESULTS", tmp_path)
    assert committed_sets() == [tmp_path / "demo"]
