"""Plans a run before it is made: everything that its key depends on, and what can be refused at once."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from probe.conditions import conditions_of, settings_of_conditions
from probe.config import Config, DataConfig, EncoderConfig, FeaturesConfig, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.tasks import task_of
from probe.probes.fitting import FitInputs
from probe.probes.kinds import ProbeKind, kind_of, recorded_settings
from probe.probes.schedule import Schedule
from probe.probes.selection import Selection, select
from probe.runs.identity import Layers, RecordedCondition, RunIdentity, label_of
from probe.runs.outputs import unfinished_path, weights_path
from probe.runs.records import Settings, load_record, record_path
from probe.runs.sweep_plan import RequestedRun, Setting
from probe.system.files import key_of, to_jsonable
from probe.system.grouping import group_by
from probe.vectors.sources import open_source
from probe.vectors.store import FeatureStore, Source, stored_layers

ROOM_FOR_A_RUN = 2**20  # bytes; a record, its counts and predictions take about that


@dataclass(frozen=True, kw_only=True)
class Plan(FitInputs):
    """Holds a planned run: what its probe is fitted on, and everything that its key depends on. Nothing takes long."""

    identity: RunIdentity

    @property
    def record_path(self) -> Path:
        return record_path(self.results_dir, self.selection.name, self.identity)

    @property
    def kind(self) -> ProbeKind:
        return kind_of(self.cfg)

    @property
    def is_done(self) -> bool:
        """Tells whether its record exists, with the probe's weights where they are to be saved and there are any."""
        if not self.record_path.exists() or not self.cfg.save_probe:
            return self.record_path.exists()
        try:
            named = load_record(self.record_path).sha256.weights
        except UserError:
            return True  # the error is reported when the record is read
        return named == "" or (named is not None and weights_path(self.record_path).exists())

    @property
    def results_dir(self) -> Path:
        return Path(self.cfg.results_dir)

    @property
    def expected(self) -> RequestedRun:
        """Returns the run as a sweep asks for it."""
        settings = settings_of(self.cfg, self.encoder)
        setting = Setting(self.corpus.name, self.encoder.name, settings.features, settings.probe, self.cfg.data.order)
        return RequestedRun(self.identity.key, self.selection.name, self.identity, self.selection.width, setting)


def plan(cfg: Config) -> Plan:
    """Opens what a run needs, and gives it its key. Raises UserError for data, encoder or layers that cannot be."""
    if cfg.encoder.num_layers is not None:
        select(cfg.layers, cfg.encoder.num_layers, hidden_size=1)  # refuses a wrong layer before anything is fetched
    cfg = kind_of(cfg).prepare(cfg)
    store = store_of(cfg)
    text, encoder = store.corpus, store.source
    lower_cases = cfg.data.control is not None and encoder.lower_cases
    corpus = text
    if cfg.data.control is not None:
        corpus = _control(replace(cfg.data, control=None), cfg.data.control, lower_cases)
    selection = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
    refuse_unstored(cfg, selection, encoder)
    epochs = Schedule.of(cfg.probe, len(text.splits["train"].tags)).max_epochs
    cfg = replace(cfg, probe=replace(cfg.probe, max_epochs=epochs))
    condition = None
    if names := conditions_of(cfg):
        trained = store.identity | ({"encoder": encoder.pretrained} if encoder.pretrained else {})
        keys = {"corpus": (text.key, corpus.key), "features": (key_of(trained), store.vectors_key)}
        changed = {name: base for name, (base, own) in keys.items() if base != own}
        condition = RecordedCondition(names, settings_of_conditions(cfg, lower_cases), changed)
    identity = RunIdentity(
        corpus.key,
        text.task.name,
        store.vectors_key,
        Layers(list(selection.indices), selection.combine, selection.normalize),
        recorded_settings(cfg.probe),
        cfg.seed,
        condition=condition,
        sentence=features_read(cfg, encoder).get("sentence"),
    )
    label = label_of(selection.name, identity)
    unfinished = unfinished_path(record_path(Path(cfg.results_dir), selection.name, identity))
    return Plan(cfg, corpus, selection, store, label, unfinished, identity=identity)


def store_of(cfg: Config) -> FeatureStore:
    """Opens what a config's runs share: a text with its own tags, an encoder, and the store of its features.

    Raises UserError for invalid data or encoder.
    """
    return _store(replace(cfg.data, control=None), cfg.encoder, cfg.features)


def one_per_encoder(configs: Sequence[Config]) -> list[Config]:
    return [same[0] for same in group_by(configs, lambda cfg: cfg.encoder).values()]


# What several runs share is opened once.
_corpus = functools.lru_cache(maxsize=8)(load_corpus)


@functools.lru_cache(maxsize=8)
def _store(data: DataConfig, encoder: EncoderConfig, features: FeaturesConfig) -> FeatureStore:
    store = FeatureStore.of(_corpus(data), open_source(encoder, Path(features.cache_dir)), features)
    if store.held:
        for split in store.corpus.splits:
            store.held.places_of(store.corpus, split)  # here, so that a sweep begins with vectors that fit
    return store


@functools.lru_cache(maxsize=8)
def _control(data: DataConfig, seed: int, lower_cases: bool) -> Corpus:
    return _corpus(data).control(seed, lower_cases)


def forget_inputs() -> None:
    """Reads files anew from here on: in a process that stays, they may have changed."""
    for cached in (_corpus, _store, _control):
        cached.cache_clear()


def refuse_unstored(cfg: Config, selection: Selection, encoder: Source) -> None:
    """Raises UserError where a run wants layers that `features.layers` leaves out."""
    stored = stored_layers(cfg.features, encoder.num_layers)
    if left_out := set(selection.indices) - set(stored):
        both = ",".join(map(str, sorted({*stored, *left_out})))
        raise UserError(
            f"features.layers={cfg.features.layers} leaves out layers that are needed: {selection.as_text()}. "
            f"Type 'features.layers=[{both}]', or features.layers=null for all."
        )


def prepare_results(results_dir: Path) -> None:
    """Makes the folders of results and tries them, before anything is computed that could be lost."""
    for folder in (results_dir / "records", results_dir / "logs"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as stream:
                stream.write(bytes(ROOM_FOR_A_RUN))
        except OSError as error:
            remedy = "Another: results_dir=DIR."
            if any(results_dir.glob("records/*.json")):
                remedy = "What is finished is kept; once it can, the same command continues."
            raise UserError(
                f"results_dir={results_dir}: {folder} cannot be written ({error.strerror}). {remedy}"
            ) from None


def settings_of(cfg: Config, encoder: Source) -> Settings:
    """Returns the config without what changes no run: the folder of results, jobs, save_probe, screen, margin.

    Of `features` it has the settings that this encoder reads.
    """
    config = asdict(cfg) | {
        "features": features_read(cfg, encoder),
        "layers": to_jsonable(cfg.layers),
        "probe": recorded_settings(cfg.probe),
    }
    for name in ("results_dir", "jobs", "screen", "save_probe", "margin"):
        del config[name]
    return Settings(**config)


def features_read(cfg: Config, encoder: Source) -> dict[str, Any]:
    """Returns the settings of `features` that this encoder reads of this text."""
    unread = ["sentence"] * task_of(cfg.data).is_per_word + ["final_norm"] * (cfg.features.final_norm == "last")
    read = {*encoder.settings} - {*unread}
    return {name: value for name, value in vars(cfg.features).items() if name in read}
