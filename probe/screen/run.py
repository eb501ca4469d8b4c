"""Screens a config's text and encoder, and writes the result into the results folder."""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from probe.config import Config, ScreenConfig, UserError
from probe.probes.kinds import PROBES
from probe.runs.plan import Inputs, inputs_of, named_encoders, settings_of
from probe.runs.sweep_plan import Setting
from probe.screen.ranking import TIES
from probe.screen.record import (
    SCHEMA,
    SCREEN,
    BadScreen,
    ScreenIdentity,
    ScreenRecord,
    by_encoder,
    load_screens,
    write_screens,
)
from probe.system.machine import resolve_device
from probe.system.provenance import hardware, provenance

if TYPE_CHECKING:
    from probe.features.store import FeatureStore
    from probe.screen.screen import Screened


def screen_identity(inputs: Inputs, cfg: Config) -> ScreenIdentity:
    """Returns the identity of the screen that a config asks for."""
    task = inputs.corpus.task
    screen = {
        name: value for name, value in asdict(_settings(inputs, cfg)).items() if name != "first"
    }  # when, not what
    pooled = {} if task.is_per_word else {"sentence": cfg.features.sentence}
    return ScreenIdentity(inputs.fingerprint, task.name, inputs.store.vectors_key, screen | pooled, cfg.seed)


def _settings(inputs: Inputs, cfg: Config) -> ScreenConfig:
    """Returns the screen's settings. Only words have neighbours, so only they have a window."""
    return cfg.screen if inputs.corpus.task.is_per_word else replace(cfg.screen, window=0)


def run_screens(
    configs: Sequence[Config], log: Callable[[str], None], command: str | None = None
) -> dict[str, ScreenRecord]:
    """Screens the encoder of each config, after extracting missing features, and returns the screens by encoder.

    Reuses the screens that screen.json has, and writes it after each new one. The first new screen replaces a damaged
    screen.json, and one of another text, encoder or setting. Raises UserError for an encoder that cannot be opened, and
    for two of one name.
    """
    for cfg in configs:
        if not PROBES[cfg.probe.kind].reads_features:
            raise UserError(f"A screen ranks the layers of a frozen encoder: leave out probe={cfg.probe.kind}.")
        if cfg.data.control is not None or cfg.features.layers is not None:
            raise UserError(
                "A screen reads every layer of the text as it is: leave out data.control and features.layers."
            )
    named_encoders(configs)
    folder = Path(configs[0].results_dir)
    wanted = [screen_identity(inputs_of(cfg), cfg).key for cfg in configs]
    try:
        there = [*load_screens(folder).values()]
    except BadScreen as error:
        log(f"{error} It is replaced.")
        there = []
    if [one.key for one in there] == wanted:
        log(f"screened already: {folder / SCREEN}")
        return by_encoder(there)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"results_dir={folder} cannot be written ({error.strerror}).") from None
    done = {one.key: one for one in there if one.key in wanted}
    for key, cfg in zip(wanted, configs, strict=True):
        if key not in done:
            done[key] = _run_screen(cfg, log, command)
        write_screens(folder, [done[key] for key in wanted if key in done])
    return by_encoder([done[key] for key in wanted])


def _run_screen(cfg: Config, log: Callable[[str], None], command: str | None) -> ScreenRecord:
    """Screens one encoder."""
    inputs = inputs_of(cfg)
    identity = screen_identity(inputs, cfg)
    software = provenance(command)  # of the code as it was loaded
    device = resolve_device(cfg.device)
    for note in inputs.corpus.notes:
        log(f"data: {note}.")
    store, found, seconds = _screened(inputs, cfg, device, log)
    import torch

    settings = settings_of(cfg)
    return ScreenRecord(
        schema=SCHEMA,
        key=identity.key,
        identity=identity,
        setting=Setting(inputs.corpus.name, inputs.encoder.name, settings.features, {}),
        data=settings.data,
        encoder=settings.encoder,
        fingerprint=inputs.encoder.fingerprint,
        num_layers=store.num_layers,
        hidden_size=store.hidden_size,
        features=store.identity,
        words=found.words,
        pca_components=found.num_pca_components,
        variance_kept=found.variance_kept,
        ridge_alphas={str(size): alpha for size, alpha in found.ridge_alphas.items()},
        beam_sizes=found.beam_sizes,
        ranked=found.ranked,
        seconds=round(seconds, 3),
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        software=software,
        hardware=hardware(device, torch.get_num_threads()),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        ties=TIES,
    )


def _screened(
    inputs: Inputs, cfg: Config, device: str, log: Callable[[str], None]
) -> tuple[FeatureStore, Screened, float]:
    """Returns the complete store, the screen's result, and its seconds without those of extraction."""
    from probe.features.extraction import ensure_features
    from probe.features.pooled import vectors_to_read
    from probe.features.store import read_again_if_damaged
    from probe.screen.screen import screen

    def read() -> tuple[FeatureStore, Screened, float]:
        store = ensure_features(inputs.corpus, inputs.encoder, cfg.features, device)
        clock = time.perf_counter()
        vectors = vectors_to_read(store, inputs.corpus, cfg.features)
        found = screen(vectors, inputs.corpus, _settings(inputs, cfg), cfg.seed, device, log)
        return store, found, time.perf_counter() - clock

    return read_again_if_damaged(read, functools.partial(print, file=sys.stderr))
