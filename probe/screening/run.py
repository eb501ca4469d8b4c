"""Screens a config's text and encoder, and writes the result into the results folder."""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from probe.config import Config, ScreenConfig, UserError
from probe.probes.kinds import PROBES
from probe.runs.plan import features_read, prepare_results, refuse_one_name, settings_of, store_of
from probe.runs.screens import SCHEMA, SCREEN, ScreenIdentity, ScreenRecord, by_encoder, load_screens
from probe.runs.sweep_plan import Setting
from probe.screening.report import screen_table
from probe.system.files import now, write_atomically, write_json
from probe.system.machine import resolve_device
from probe.system.provenance import hardware, provenance
from probe.vectors.sources import complete_store
from probe.vectors.store import FeatureStore, read_again_if_damaged


def screen_identity(store: FeatureStore, cfg: Config) -> ScreenIdentity:
    """Returns the identity of the screen that a config asks for."""
    task, screen = store.corpus.task, asdict(_settings(store, cfg))
    del screen["first"]  # when, not what
    if sentence := features_read(cfg, store.source).get("sentence"):
        screen["sentence"] = sentence
    return ScreenIdentity(store.corpus.key, task.name, store.vectors_key, screen, cfg.seed)


def _settings(store: FeatureStore, cfg: Config) -> ScreenConfig:
    """Returns the screen's settings. Only words have neighbours, so only they have a window."""
    return cfg.screen if store.corpus.task.is_per_word else replace(cfg.screen, window=0)


def run_screens(
    configs: Sequence[Config], log: Callable[[str], None], command: str | None = None
) -> dict[str, ScreenRecord]:
    """Screens the encoder of each config, after extracting missing features, and returns the screens by encoder.

    Reuses the screens that screen.json has, and writes it after each new one. The first new screen replaces those of
    another text, encoder or setting. Raises UserError for a damaged screen.json, for an encoder that cannot be opened,
    and for two of one name.
    """
    for cfg in configs:
        if not PROBES[cfg.probe.kind].reads_features:
            raise UserError(f"A screen ranks the layers of a frozen encoder: leave out probe={cfg.probe.kind}.")
        if cfg.data.control is not None or cfg.features.layers is not None:
            raise UserError(
                "A screen reads every layer of the text as it is: leave out data.control and features.layers."
            )
    refuse_one_name(configs)
    folder = Path(configs[0].results_dir)
    wanted = {screen_identity(store_of(cfg), cfg).key: cfg for cfg in configs}
    done = {one.key: one for one in load_screens(folder).values()}
    if list(done) == list(wanted):
        log(f"screened already: {folder / SCREEN}")
        return by_encoder([*done.values()])
    prepare_results(folder)
    for key, cfg in wanted.items():
        if key not in done:
            done[key] = _run_screen(cfg, log, command)
        screens = [done[key] for key in wanted if key in done]
        write_json(folder / SCREEN, screens[0] if len(screens) == 1 else screens)
        write_atomically(folder / "screen.md", screen_table(by_encoder(screens)).render("md"))
    return by_encoder(screens)


def _run_screen(cfg: Config, log: Callable[[str], None], command: str | None) -> ScreenRecord:
    """Screens one encoder. Its seconds do not include those of extraction."""
    import torch

    from probe.screening.screen import Screening, screen

    store = store_of(cfg)
    identity, settings = screen_identity(store, cfg), settings_of(cfg, store.source)
    software = provenance(command)  # of the code as it was loaded
    device = resolve_device(cfg.device)
    for note in store.corpus.notes:
        log(f"data: {note}.")

    def read() -> tuple[Screening, float]:
        complete_store(store, device)
        clock = time.perf_counter()
        screened = screen(store, store.corpus, _settings(store, cfg), cfg.seed, device, log)
        return screened, time.perf_counter() - clock

    screened, seconds = read_again_if_damaged(read, functools.partial(print, file=sys.stderr))
    return ScreenRecord(
        schema=SCHEMA,
        key=identity.key,
        identity=identity,
        setting=Setting(store.corpus.name, store.source.name, settings.features, {}),
        data=settings.data,
        encoder=settings.encoder,
        fingerprint=store.source.fingerprint,
        num_layers=store.num_layers,
        hidden_size=store.hidden_size,
        features=store.identity,
        words={text.split: len(text.rows) for text in (screened.train, screened.dev)},
        pca_components=screened.to.pca_components.shape[2],
        variance_kept=min(screened.to.kept),
        ridge_alphas={str(size): alpha for size, alpha in screened.ridge_alphas.items()},
        beam_sizes=screened.beam_sizes,
        ranked=screened.ranked,
        seconds=round(seconds, 3),
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        software=software,
        hardware=hardware(device, torch.get_num_threads()),
        finished=now(),
    )
