"""What makes a run that run: content, never names or paths; its hash is the run's key."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from probe.conditions import label_of_conditions, recorded_parts
from probe.system.files import canonical, key_of, plain

# How a probe is trained: these rise when the code that trains changes what comes out for the same settings.
RECIPE = 1  # with schedule.FULL_UPDATES a pass or more
RECIPE_OF_SMALL = 3  # with fewer, down to schedule.EPOCH_UPDATES
RECIPE_OF_SMALLEST = 4  # below
RECIPES = (RECIPE, RECIPE_OF_SMALL, RECIPE_OF_SMALLEST)  # whose ends of training the Schedule of today gives


@dataclass(frozen=True)
class RecordedCondition:
    """How a run differs from the main runs it is compared with; several conditions may hold at once.

    name: their recorded names, see `conditions.recorded_name`. settings: what the name does not say (a seed, a share).
    base: the identity's fields that the conditions change, with their values in the main runs.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    base: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The conditions, each by its name in `CONDITIONS`."""
        return tuple(recorded_parts(self.name))

    @property
    def label(self) -> str:
        """The conditions as people call them."""
        return label_of_conditions(self.name)


@dataclass(frozen=True)
class Layers:
    """Absolute indices, in the order chosen, how they are combined, and how they are normalized before (None: not)."""

    indices: list[int]
    combine: str
    normalize: str | None = None


@dataclass(frozen=True)
class RunIdentity:
    """What makes a run that run: content, never names or paths. Its hash is the run's key."""

    corpus: str  # fingerprint of words, tags and documents
    task: str  # how tags are read and scored
    features: str  # key of the feature store
    layers: Layers
    probe: dict[str, Any]
    seed: int
    recipe: int = RECIPE
    treatment: RecordedCondition | None = None  # left out of the hash where there is none; so named in records

    @property
    def key(self) -> str:
        return key_of(plain(self))

    @property
    def group(self) -> str:
        """The table that the run belongs to: its identity without layers, seed and condition. A control stands in the
        table of what it controls."""
        return self._without("layers", "seed", "treatment")

    @property
    def across_rates(self) -> str:
        """What a table has in common whose rows were trained at several learning rates."""
        probe = {name: value for name, value in self.probe.items() if name != "learning_rate"}
        return replace(self, probe=probe).group

    @property
    def beside(self) -> str:
        """What all tables that show a fine-tuned run have in common: what is read, not the probe or its recipe."""
        return self._without("layers", "seed", "treatment", "probe", "recipe")

    def _without(self, *names: str) -> str:
        """The hash of the identity without some fields, those that a condition changes set back to `base`."""
        base = plain(self) | (self.treatment.base if self.treatment else {})
        return key_of({name: part for name, part in base.items() if name not in names})

    @property
    def cell(self) -> str:
        """The row that the run belongs to: runs of one cell differ in their seed alone."""
        parts = [self.group, plain(self.layers)]
        if self.treatment:
            parts += [self.treatment.name, self.treatment.settings]
        return canonical(parts)


def label_of(row: str, identity: RunIdentity) -> str:
    """What people call a run."""
    condition = f", {identity.treatment.label}," if identity.treatment else ""
    return f"{normalized_name(row, identity.layers.normalize)}{condition} seed {identity.seed}"


def normalized_name(row: str, normalize: str | None) -> str:
    """A row's name with how its layers are normalized, where they are."""
    return f"{row}:{normalize}" if normalize else row
