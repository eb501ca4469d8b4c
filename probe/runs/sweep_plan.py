"""What sweeps into a results folder have asked for: `sweep.json`. A run asked for stays so until the file is removed,
so that a narrower sweep does not hide what a wider one left open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probe.format import encoder_labels, with_encoder
from probe.runs.identity import RunIdentity, Scalars, label_of
from probe.runs.records import load_json, refusal
from probe.system.files import now, write_json
from probe.system.grouping import group_by
from probe.system.locks import alone

SWEEP = "sweep.json"


@dataclass(frozen=True)
class Setting:
    """Holds what the caption of a table says of its runs: names, and two groups of the config.

    order: of the text's sentences, as data.order states it. It may be stated when runs are done, by the same command.
    Which runs belong together is another question: their identities settle it, which hold content and not names.
    """

    data: str
    encoder: str
    features: Scalars
    probe: Scalars
    order: str | None = None


@dataclass(frozen=True)
class RequestedRun:
    """Holds a run that a sweep asked for. width: values per word.

    asked: when a sweep first asked for it, in UTC. command: what was typed then.
    """

    key: str
    row: str
    identity: RunIdentity
    width: int
    setting: Setting
    asked: str = ""
    command: str = ""

    @property
    def label(self) -> str:
        return label_of(self.row, self.identity)


@dataclass(frozen=True)
class Asked:
    """Holds the content of sweep.json. margin: of the tables, in points, as the first sweep had it."""

    runs: list[RequestedRun]
    margin: float | None = None


def labels_of(runs: Sequence[RequestedRun]) -> dict[str, str]:
    """Returns what people call some runs, by their keys: with the encoder's name where there are several.

    Runs of one name also get settings in which they differ, until no two have the same name.
    """
    names = list(dict.fromkeys(run.setting.encoder for run in runs))
    short_names = dict(zip(names, encoder_labels(names), strict=True)) if len(names) > 1 else {}
    labels = {
        run.key: label_of(with_encoder(run.row, short_names.get(run.setting.encoder)), run.identity) for run in runs
    }
    for same in group_by(runs, lambda run: labels[run.key]).values():
        settings = {run.key: _typed(run.setting) for run in same}
        for name in dict.fromkeys(name for own in settings.values() for name in own):
            longer = {key: f"{labels[key]}, {name}={own.get(name)}" for key, own in settings.items()}
            if len(set(longer.values())) > len({labels[key] for key in longer}):
                labels.update(longer)
    return labels


def _typed(setting: Setting) -> dict[str, Any]:
    """Returns a run's settings by the names that are typed; the kind of probe first, as others depend on it."""
    groups = {"probe": {"kind": None} | setting.probe, "features": setting.features}
    return {"data": setting.data} | {f"{group}.{name}": own[name] for group, own in groups.items() for name in own}


def write_expected(
    folder: Path, runs: Iterable[RequestedRun], *, margin: float | None = None, command: str = ""
) -> Asked:
    """Adds the runs that a sweep asks for to those asked for before, also by one that starts at the same time.

    Returns all that is asked for. margin: of the tables; the first one stays, so that no result can decide it. command:
    what was typed.
    """
    at = now()
    new = [replace(run, asked=at, command=command) for run in runs]
    with alone(folder / "logs" / "sweep.lock"):
        before = read_asked(folder)
        first = {run.key: run for run in [*new, *before.runs]}
        merged = {
            run.key: replace(run, asked=first[run.key].asked, command=first[run.key].command)
            for run in [*before.runs, *new]
        }
        asked = Asked([*merged.values()], margin if before.margin is None else before.margin)
        write_json(folder / SWEEP, asked)
    return asked


def read_asked(folder: Path) -> Asked:
    """Returns what was asked for; no runs where no sweep was started. Raises UserError if sweep.json cannot be read."""
    refuse = refusal(folder / SWEEP, "Move it away and start the sweep again; records stay.")
    asked = load_json(folder / SWEEP, Asked, refuse) or Asked([])
    for run in asked.runs:
        if run.setting.probe != run.identity.probe:
            raise refuse(f"the settings of {run.label} are not those of its identity")
    if changed := next((run for run in asked.runs if run.key != run.identity.key), None):
        raise refuse(f"the key of {changed.label} is not the hash of its identity")
    return asked
