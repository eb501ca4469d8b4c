"""Defines a run's identity: content, never names or paths. Its hash is the run's key."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from probe.conditions import BASELINE, CONDITIONS, MAIN, UPPER_BOUND
from probe.config import UNUSED_SETTINGS, ProbeConfig
from probe.data.tasks import TASKS
from probe.probes.kinds import PROBES
from probe.scoring.metrics import Count
from probe.system.files import key_of, to_jsonable

if TYPE_CHECKING:
    Scalars = dict[str, Any]
else:
    Scalars = dict[str, str | int | float | bool | None]  # settings in a record: none is a list, or holds others
VERSION = 1  # raise it when a code change gives other results for the same settings


@dataclass(frozen=True)
class RecordedCondition:
    """Describes how a run differs from the main runs it is compared with. It may have several conditions.

    ids: of the conditions, in the order of `CONDITIONS`. settings: theirs (a seed). base: the identity's
    fields that the conditions change, with their values in the main runs.
    """

    ids: Annotated[list[str], msgspec.Meta(min_length=1)]
    settings: Scalars = field(default_factory=dict)
    base: Scalars = field(default_factory=dict)

    @property
    def label(self) -> str:
        return ", ".join(CONDITIONS[name].label for name in self.ids)


@dataclass(frozen=True)
class Layers:
    """Holds absolute indices in the chosen order, and how they are combined. normalize: before that; None: not."""

    indices: list[Count]
    combine: str
    normalize: str | None = None


@dataclass(frozen=True)
class RunIdentity:
    """Identifies a run by its content, never by names or paths. Its hash is the run's key.

    Omitted from the hash: `condition` in main runs, `layers.normalize` if layers are not normalized, and `sentence`
    (features.sentence) if sentences have no labels. probe: its kind, and the settings of its kind.
    """

    corpus: str  # fingerprint of words, tags and documents
    task: str  # how tags are read and scored
    features: str  # key of the feature store with all layers
    layers: Layers
    probe: Scalars
    seed: int
    version: int = VERSION
    condition: RecordedCondition | None = None
    sentence: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a task, a condition or a setting of a probe that this version does not have."""
        kind = str(self.probe.get("kind"))
        parts = ("task", [self.task], TASKS), ("condition", self.conditions, CONDITIONS), ("probe.kind", [kind], PROBES)
        for place, names, known in parts:
            if unknown := [name for name in names if name not in known]:
                raise ValueError(f"{place}: {unknown[0]!r} is none of {', '.join(known)}")
        if others := {"kind", *PROBES[kind].settings} ^ self.probe.keys():
            raise ValueError(f"probe.{min(others)} is missing, or no setting of this kind")
        try:
            probe = msgspec.convert({**UNUSED_SETTINGS, **self.probe}, ProbeConfig)
        except msgspec.ValidationError as error:
            raise ValueError(f"probe: {error}") from None
        if isinstance(probe.max_epochs, str):
            raise ValueError(f"probe.max_epochs={probe.max_epochs!r} is no number")

    @functools.cached_property
    def key(self) -> str:
        return key_of(to_jsonable(self))

    @property
    def conditions(self) -> tuple[str, ...]:
        """Returns the ids of its conditions in `CONDITIONS`; none for main runs."""
        return tuple(self.condition.ids) if self.condition else ()

    @property
    def section(self) -> int:
        """Returns the section of its table: BASELINE, also for a row without layers, MAIN or UPPER_BOUND."""
        sections = {CONDITIONS[name].section for name in self.conditions}
        if not self.layers.indices or BASELINE in sections:
            return BASELINE
        return max(sections, default=MAIN)

    @property
    def is_fine_tuned(self) -> bool:
        """Tells whether the encoder itself was trained."""
        return self.section == UPPER_BOUND


def label_of(row: str, identity: RunIdentity) -> str:
    condition = f", {identity.condition.label}," if identity.condition else ""
    return f"{normalized_name(row, identity.layers.normalize)}{condition} seed {identity.seed}"


def normalized_name(row: str, normalize: str | None) -> str:
    return f"{row}:{normalize}" if normalize else row
