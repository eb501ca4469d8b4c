"""What a run is, before it is made: everything that its key depends on, and what can be refused at once."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from probe.config import Config, DataConfig, EncoderConfig, FeaturesConfig, UserError
from probe.data.corpus import Corpus, load_corpus
from probe.features.checkpoint import Encoder, open_encoder
from probe.features.store import FeatureStore
from probe.probing.schedule import FULL_UPDATES, updates
from probe.probing.selection import Selection, select
from probe.runs.expected import ExpectedRun, Setting
from probe.runs.outputs import is_done
from probe.runs.records import RECIPE, RECIPE_OF_SMALL, Layers, RunIdentity, Settings, record_path
from probe.system.files import canonical

ROOM_FOR_A_RUN = 2**20  # bytes; a record, its counts and predictions take about that


@dataclass(frozen=True)
class Plan:
    """A run that is known but not done: everything that its key depends on, nothing that takes long."""

    cfg: Config
    corpus: Corpus
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
    def expected(self) -> ExpectedRun:
        """The run as a sweep asks for it."""
        settings = settings_of(self.cfg)
        setting = Setting(self.corpus.name, self.encoder.name, settings.features, settings.probe)
        return ExpectedRun(self.identity.key, self.selection.name, self.identity, self.selection.width, setting)

    @property
    def label(self) -> str:
        return f"{self.selection.name} seed {self.identity.seed}"


def plan(cfg: Config) -> Plan:
    """Settles what a run is. Raises UserError for data, encoder or layers that cannot be."""
    if cfg.encoder.num_layers is not None:
        select(cfg.layers, cfg.encoder.num_layers, hidden_size=1)  # refuses a wrong layer before anything is fetched
    inputs = canonical([asdict(cfg.data), asdict(cfg.encoder), asdict(cfg.features)])
    corpus, encoder, store, fingerprint = _inputs(inputs)
    selection = select(cfg.layers, encoder.num_layers, encoder.hidden_size)
    layers = Layers(list(selection.indices), selection.combine)
    is_small = updates(len(corpus.splits["train"].tags), cfg.probe.batch_size) < FULL_UPDATES
    recipe = RECIPE_OF_SMALL if is_small else RECIPE
    identity = RunIdentity(fingerprint, corpus.task.name, store.key, layers, asdict(cfg.probe), cfg.seed, recipe)
    return Plan(cfg, corpus, encoder, selection, store, identity)


@functools.lru_cache(maxsize=2)
def _inputs(inputs: str) -> tuple[Corpus, Encoder, FeatureStore, str]:
    """Text, encoder and store, kept between the runs of a sweep that share them."""
    data, encoder_cfg, features = json.loads(inputs)
    corpus = load_corpus(DataConfig(**data))
    encoder = open_encoder(EncoderConfig(**encoder_cfg), Path(features["cache_dir"]))
    store = FeatureStore.of(corpus, encoder, FeaturesConfig(**features))
    return corpus, encoder, store, corpus.fingerprint()


def resolve_device(device: str) -> str:
    """cpu or cuda; `auto` takes a GPU where there is one. Raises UserError if the one asked for is not there."""
    # Deterministic products on a GPU need it, and it is read when the GPU is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: PyTorch sees no GPU here. Use device=cpu, or auto.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def training_device(cfg: Config) -> str:
    """The device a probe trains on. Raises UserError for what it would not do as it is told to."""
    device = resolve_device(cfg.device)
    if device == "cuda" and cfg.probe.num_layers and cfg.probe.precision == "bfloat16":
        raise UserError(
            "probe.precision=bfloat16 is for CPUs: PyTorch's autocast gives a GPU's LSTM float16. "
            "Type probe.precision=float32, or device=cpu."
        )
    return device


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
    """The config without what only says where things lie and how many run at once."""
    config = asdict(cfg)
    for name in ("results_dir", "jobs", "save_probe"):
        del config[name]
    for name in ("cache_dir", "placement"):
        del config["features"][name]
    return Settings(**config)
