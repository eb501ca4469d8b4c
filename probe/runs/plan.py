"""What a run is, before it is made: everything that its key depends on, and what can be refused at once."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from probe.config import Config, DataConfig, EncoderConfig, FeaturesConfig, LayersConfig, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.data.derived import Sample, base_data_config, derived
from probe.encoders.checkpoint import Encoder, open_encoder
from probe.features.indices import stored_layers
from probe.features.store import FeatureStore
from probe.probes.schedule import FULL_UPDATES, Schedule, passes, updates
from probe.probes.selection import Selection, select
from probe.runs.identity import (
    CONTROL,
    FINE_TUNED,
    LOWER_CASED,
    RANDOM,
    RECIPE,
    RECIPE_OF_SMALL,
    RECIPE_OF_SMALLEST,
    SHARE,
    Layers,
    RunIdentity,
    Treatment,
    label_of,
)
from probe.runs.outputs import is_done
from probe.runs.records import Settings, record_path
from probe.runs.sweep_plan import RequestedRun, Setting
from probe.system.files import canonical

ROOM_FOR_A_RUN = 2**20  # bytes; a record, its counts and predictions take about that


@dataclass(frozen=True)
class Plan:
    """A planned run: everything that its key depends on, nothing that takes long.

    text: the original corpus, whose features are read. corpus: the one to train and score on, with the tags of a
    control or a sample of train where the config asks for one. sample: which sentences of train were sampled.
    """

    cfg: Config
    text: Corpus
    corpus: Corpus
    sample: Sample | None
    encoder: Encoder
    selection: Selection
    store: FeatureStore
    identity: RunIdentity

    @property
    def record_path(self) -> Path:
        return record_path(self.results_dir, self.selection.name, self.identity)

    @property
    def is_done(self) -> bool:
        """Whether its record is there, with the probe's weights where they are to be kept."""
        return is_done(self.record_path, self.cfg.save_probe)

    @property
    def results_dir(self) -> Path:
        return Path(self.cfg.results_dir)

    @property
    def expected(self) -> RequestedRun:
        """The run as a sweep asks for it."""
        settings = settings_of(self.cfg)
        setting = Setting(self.corpus.name, self.encoder.name, settings.features, settings.probe)
        return RequestedRun(self.identity.key, self.selection.name, self.identity, self.selection.width, setting)

    @property
    def label(self) -> str:
        return label_of(self.selection.name, self.identity)


def plan(cfg: Config) -> Plan:
    """Settles what a run is. Raises UserError for data, encoder or layers that cannot be."""
    if cfg.encoder.num_layers is not None:
        select(cfg.layers, cfg.encoder.num_layers, hidden_size=1)  # refuses a wrong layer before anything is fetched
    if cfg.probe.train_encoder:
        cfg = _of_fine_tuning(cfg)
    elif cfg.layers.combine == "none":
        cfg = _of_memory(cfg)
    of_text, encoder_settings, feature_settings = _parts(cfg)
    text, text_fingerprint = _text(of_text)
    encoder, store, pretrained = _features(of_text, encoder_settings, feature_settings)
    is_lower_cased = cfg.data.control is not None and encoder.lower_cases
    corpus, sample, fingerprint = _derived(of_text, cfg.data.control, cfg.data.train_fraction, cfg.seed, is_lower_cased)
    selection = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
    refuse_unstored(cfg, selection, encoder)
    layers = Layers(list(selection.indices), selection.combine, selection.normalize)
    recipe, recipe_of_text = (_recipe(one, cfg) for one in (corpus, text))
    cfg = _settled(cfg, text)
    treatment = None
    if names := _names(cfg):
        base = {"corpus": text_fingerprint, "features": pretrained or store.vectors_key, "recipe": recipe_of_text}
        here = {"corpus": fingerprint, "features": store.vectors_key, "recipe": recipe}
        changed = {name: value for name, value in base.items() if value != here[name]}
        treatment = Treatment(", ".join(names), _settings(cfg, is_lower_cased), changed)
    identity = RunIdentity(
        fingerprint, text.task.name, store.vectors_key, layers, cfg.probe.stated, cfg.seed, recipe, treatment
    )
    return Plan(cfg, text, corpus, sample, encoder, selection, store, identity)


def _of_memory(cfg: Config) -> Config:
    """The config of a word memory with settings that it ignores reset: encoder weights, normalization, and the seed
    unless it draws a sample. So a sweep over these makes one run."""
    seed = cfg.seed if cfg.data.train_fraction not in (None, 1) else 0
    return replace(
        cfg,
        seed=seed,
        layers=replace(cfg.layers, normalize=None),
        encoder=replace(cfg.encoder, weights="pretrained", weights_seed=0),
    )


def _of_fine_tuning(cfg: Config) -> Config:
    """The config of a fine-tuning run with the last layer chosen, so that a sweep over layers makes one run.

    Raises UserError for settings that do not apply: of a store, another treatment, a probe's weights.
    """
    places = {"placement": "auto", "layers": None, "batch_pieces": "auto"}
    odd = [f"features.{name}" for name, as_it_is in places.items() if getattr(cfg.features, name) != as_it_is]
    odd += ["encoder.weights"] * (cfg.encoder.weights != "pretrained")
    odd += ["data.control"] * (cfg.data.control is not None)
    odd += ["data.train_fraction"] * (cfg.data.train_fraction not in (None, 1))
    odd += ["save_probe"] * cfg.save_probe
    if odd:
        raise UserError(
            f"probe=finetune has no use for {', '.join(odd)}: it reads no stored features, trains the encoder as it is "
            "on the whole text, and keeps no weights. Leave that out."
        )
    return replace(cfg, layers=LayersConfig([-1], "concat", "last"))


def _settled(cfg: Config, text: Corpus) -> Config:
    """The config with the number of epochs that `auto` comes to: the same for a share of train as for all of it, with
    which it stands in one table."""
    most = Schedule.of(cfg.probe, len(text.splits["train"].tags)).max_epochs
    return replace(cfg, probe=replace(cfg.probe, max_epochs=most))


def _recipe(corpus: Corpus, cfg: Config) -> int:
    if cfg.probe.train_encoder:
        return RECIPE
    text = len(corpus.splits["train"].tags), cfg.probe.batch_size
    if passes(*text) > 1:
        return RECIPE_OF_SMALLEST
    return RECIPE_OF_SMALL if updates(*text) < FULL_UPDATES else RECIPE


def _names(cfg: Config) -> list[str]:
    """The names of a run's treatments."""
    names = [RANDOM[cfg.encoder.weights]] if cfg.encoder.weights != "pretrained" else []
    names += [CONTROL] if cfg.data.control is not None else []
    names += [FINE_TUNED] if cfg.probe.train_encoder else []
    share = cfg.data.train_fraction
    return names + ([f"{100 * share:g}{SHARE}"] if share not in (None, 1) else [])


def _settings(cfg: Config, is_lower_cased: bool) -> dict[str, Any]:
    """What the names of a run's treatment do not say. A control drawn without case is another than one drawn with it,
    and so another row."""
    settings: dict[str, Any] = {}
    if cfg.encoder.weights != "pretrained":
        settings["weights_seed"] = cfg.encoder.weights_seed
    if cfg.data.control is not None:
        settings["control"] = cfg.data.control
    if is_lower_cased:
        settings[LOWER_CASED] = True
    if cfg.data.train_fraction not in (None, 1):
        settings["share"] = cfg.data.train_fraction
    return settings


class Inputs(NamedTuple):
    """What runs share: text, encoder and store. fingerprint: the text's."""

    corpus: Corpus
    encoder: Encoder
    store: FeatureStore
    fingerprint: str


def inputs_of(cfg: Config) -> Inputs:
    """What a config's runs read, the text as it is. Raises UserError for data or an encoder that cannot be."""
    of_text, encoder_settings, feature_settings = _parts(cfg)
    encoder, store, _ = _features(of_text, encoder_settings, feature_settings)
    return Inputs(_text(of_text)[0], encoder, store, _text(of_text)[1])


def _parts(cfg: Config) -> tuple[str, str, str]:
    """The settings of text, encoder and features as cache keys for what follows."""
    return (
        canonical(asdict(base_data_config(cfg.data))),
        canonical(asdict(cfg.encoder)),
        canonical(asdict(cfg.features)),
    )


@functools.lru_cache(maxsize=8)
def _text(data: str) -> tuple[Corpus, str]:
    """The original corpus and its fingerprint; like the functions below, cached for the runs that share it."""
    text = load_corpus(DataConfig(**json.loads(data)))
    return text, text.fingerprint()


@functools.lru_cache(maxsize=8)
def _derived(
    data: str, control: int | None, share: float | None, seed: int, lower_cases: bool
) -> tuple[Corpus, Sample | None, str]:
    """The corpus to train and score on, its sample of train if any, and its fingerprint."""
    text, fingerprint = _text(data)
    corpus, sample = derived(text, control, share, seed, lower_cases)
    return corpus, sample, fingerprint if corpus is text else corpus.fingerprint()


@functools.lru_cache(maxsize=8)
def _features(data: str, encoder_settings: str, feature_settings: str) -> tuple[Encoder, FeatureStore, str | None]:
    """Encoder, store and, for random weights, the key of the checkpoint's own features, where it has weights."""
    text, _ = _text(data)
    features = FeaturesConfig(**json.loads(feature_settings))
    encoder = open_encoder(EncoderConfig(**json.loads(encoder_settings)), Path(features.cache_dir))
    store, pretrained = FeatureStore.of(text, encoder, features), None
    if encoder.pretrained is not None:
        pretrained = FeatureStore.of(text, replace(encoder, fingerprint=encoder.pretrained), features).vectors_key
    return encoder, store, pretrained


def forget_inputs() -> None:
    """Reads files anew from here on: in a process that stays, they may have changed."""
    for cached in (_text, _derived, _features):
        cached.cache_clear()


def refuse_unstored(cfg: Config, selection: Selection, encoder: Encoder) -> None:
    """Raises UserError where a run wants layers that `features.layers` leaves out."""
    stored = stored_layers(cfg.features, encoder.num_layers)
    if left_out := set(selection.indices) - set(stored):
        both = ",".join(map(str, sorted({*stored, *left_out})))
        raise UserError(
            f"features.layers={cfg.features.layers} leaves out layers that are needed: {selection.as_text()}. "
            f"Type 'features.layers=[{both}]', or features.layers=null for all."
        )


def resolve_device(device: str) -> str:
    """cpu or cuda; `auto` takes a GPU where there is one. Raises UserError if the one asked for is not there."""
    # Deterministic products on a GPU need it, and it is read when the GPU is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: PyTorch sees no GPU here. Use device=cpu, or auto.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def prepare_results(results_dir: Path) -> None:
    """Makes the folders of results and tries them, before anything is computed that could be lost."""
    for folder in (results_dir / "records", results_dir / "logs"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as stream:
                stream.write(bytes(ROOM_FOR_A_RUN))
        except OSError as error:
            raise UserError(
                f"results_dir={results_dir}: {folder} cannot be written ({error.strerror}). What is finished is kept; "
                "once it can, the same command continues."
            ) from None


def settings_of(cfg: Config) -> Settings:
    """The config without what only says where things lie, what else is stored there, and how many run at once."""
    config = asdict(cfg) | {"layers": cfg.layers.stated, "probe": cfg.probe.stated}
    for name in ("race", "results_dir", "jobs", "screen", "save_probe", "margin"):
        del config[name]
    for name in ("cache_dir", "placement", "layers"):
        del config["features"][name]
    return Settings(**config)
