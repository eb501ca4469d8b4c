"""What makes a run that run: content, never names or paths; its hash is the run's key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from probe.conditions import label_of_conditions
from probe.system.files import canonical, key_of, to_jsonable

VERSION = 1  # rises when the code that trains a probe changes what comes out for the same settings


@dataclass(frozen=True)
class RecordedCondition:
    """How a run differs from the main runs it is compared with; several conditions may hold at once.

    ids: of the conditions, in the order of `CONDITIONS`. settings: theirs (a seed, a share). base: the identity's
    fields that the conditions change, with their values in the main runs.
    """

    ids: list[str]
    settings: dict[str, Any] = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The conditions as people call them."""
        return label_of_conditions(self.ids, self.settings)


@dataclass(frozen=True)
class Layers:
    """Absolute indices, in the order chosen, how they are combined, and how they are normalized before (None: not)."""

    indices: list[int]
    combine: str
    normalize: str | None = None


@dataclass(frozen=True)
class RunIdentity:
    """What makes a run that run: content, never names or paths. Its hash is the run's key.

    condition: left out of the hash in main runs, as `layers.normalize` is where layers are not normalized. probe: its
    kind, and the settings that its kind has.
    """

    corpus: str  # fingerprint of words, tags and documents
    task: str  # how tags are read and scored
    features: str  # key of the feature store
    layers: Layers
    probe: dict[str, Any]
    seed: int
    version: int = VERSION
    condition: RecordedCondition | None = None

    @property
    def key(self) -> str:
        return key_of(to_jsonable(self))

    @property
    def group(self) -> str:
        """The table that the run belongs to: its identity without layers, seed and condition. A control stands in the
        table of what it controls."""
        return self._without("layers", "seed", "condition")

    @property
    def across_rates(self) -> str:
        """What a table has in common whose rows were trained at several learning rates."""
        probe = {name: value for name, value in self.probe.items() if name != "learning_rate"}
        return replace(self, probe=probe).group

    @property
    def beside(self) -> str:
        """What all tables that show a fine-tuned run have in common: what is read, not the probe or its training."""
        return self._without("layers", "seed", "condition", "probe", "version")

    def _without(self, *names: str) -> str:
        """The hash of the identity without some fields, those that a condition changes set back to `base`."""
        base = to_jsonable(self) | (self.condition.base if self.condition else {})
        return key_of({name: part for name, part in base.items() if name not in names})

    @property
    def cell(self) -> str:
        """The row that the run belongs to: runs of one cell differ in their seed alone."""
        parts = [self.group, to_jsonable(self.layers)]
        if self.condition:
            parts += [self.condition.ids, self.condition.settings]
        return canonical(parts)


def label_of(row: str, identity: RunIdentity) -> str:
    """What people call a run."""
    condition = f", {identity.condition.label}," if identity.condition else ""
    return f"{normalized_name(row, identity.layers.normalize)}{condition} seed {identity.seed}"


def normalized_name(row: str, normalize: str | None) -> str:
    """A row's name with how its layers are normalized, where they are."""
    return f"{row}:{normalize}" if normalize else row
