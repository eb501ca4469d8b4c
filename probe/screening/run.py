"""Screens a config's text with one or several encoders, and writes the result into the results folder."""

from __future__ import annotations

import functools
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from probe.config import Config, UserError
from probe.format import encoder_labels
from probe.probes.kinds import PROBES
from probe.runs.plan import features_read, prepare_results, settings_of, store_of
from probe.runs.screens import SCHEMA, SCREEN, ScreenedEncoder, ScreenIdentity, ScreenRecord, load_screen
from probe.screening.report import screen_table
from probe.system.files import now, write_atomically, write_json
from probe.system.machine import resolve_device
from probe.system.progress import progress_bar
from probe.system.provenance import hardware, provenance
from probe.vectors.sources import complete_store
from probe.vectors.store import FeatureStore, read_again_if_damaged

if TYPE_CHECKING:
    from probe.screening.screen import Screened


def screen_identity(configs: Sequence[Config]) -> ScreenIdentity:
    """Returns the identity of the screen that configs ask for, one of each encoder."""
    cfg, stores = configs[0], [store_of(one) for one in configs]
    settings = asdict(cfg.screen)
    del settings["first"]  # when, not what
    if cfg.data.order is not None:  # it changes the intervals
        settings["order"] = cfg.data.order
    task = stores[0].corpus.task
    if not task.is_per_word:
        settings |= {"window": 0, "sentence": features_read(cfg, stores[0].source).get("sentence")}
    return ScreenIdentity(stores[0].corpus.key, task.name, [one.vectors_key for one in stores], settings, cfg.seed)


def run_screen(configs: Sequence[Config], log: Callable[[str], None], command: str | None = None) -> ScreenRecord:
    """Screens the encoder of each config, after extracting missing features, or reads the screen if it is done.

    Raises UserError for a damaged screen.json, for an encoder that cannot be opened, and for two of one name.
    """
    for cfg in configs:
        if not PROBES[cfg.probe.kind].reads_features:
            raise UserError(f"A screen ranks the layers of a frozen encoder: leave out probe={cfg.probe.kind}.")
        if cfg.data.control is not None or cfg.features.layers is not None:
            raise UserError(
                "A screen reads every layer of the text as it is: leave out data.control and features.layers."
            )
    folder = Path(configs[0].results_dir)
    record, identity = load_screen(folder), screen_identity(configs)
    if record is not None and record.key == identity.key:
        log(f"screened already: {folder / SCREEN}")
        record = replace(record, margin=configs[0].margin)
    else:
        record = _screen(configs, identity, log, command)
    write_json(folder / SCREEN, record)
    write_atomically(folder / "screen.md", screen_table(record).render("md"))
    return record


def _screen(
    configs: Sequence[Config], identity: ScreenIdentity, log: Callable[[str], None], command: str | None
) -> ScreenRecord:
    """Screens all encoders and compares them. The seconds do not include those of extraction."""
    from probe.screening.screen import ranked

    software = provenance(command)  # of the code as it was loaded
    device = resolve_device(configs[0].device)
    stores = [store_of(cfg) for cfg in configs]
    full_names = [store.source.name for store in stores]
    if not (names := encoder_labels(full_names)):
        double = next(name for name in full_names if full_names.count(name) > 1)
        raise UserError(f"Two of the encoders are called {double}. Rename the folder of one: encoder.path=DIR.")
    prepare_results(Path(configs[0].results_dir))
    recorded = [settings_of(cfg, store.source) for cfg, store in zip(configs, stores, strict=True)]
    for note in stores[0].corpus.notes:
        log(f"data: {note}.")
    screened, seconds = [], 0.0
    for name, store, cfg in zip(names, stores, configs, strict=True):
        settings = replace(cfg.screen, window=identity.screen["window"])
        screen = functools.partial(_screen_one, store, replace(cfg, screen=settings), device)
        found, words, took = read_again_if_damaged(screen, functools.partial(print, file=sys.stderr))
        screened += [replace(one, candidate=replace(one.candidate, encoder=name)) for one in found]
        seconds += took
    clock = time.perf_counter()
    choices, cover = ranked(screened)
    return ScreenRecord(
        schema=SCHEMA,
        key=identity.key,
        identity=identity,
        corpus=stores[0].corpus.name,
        data=recorded[0].data,
        features=recorded[0].features,
        encoders={
            name: ScreenedEncoder(
                settings.encoder, store.source.fingerprint, store.num_layers, store.hidden_size, store.identity
            )
            for name, store, settings in zip(names, stores, recorded, strict=True)
        },
        words=words,
        units=cover.units,
        condition=cover.condition,
        margin=configs[0].margin,
        ranked=choices,
        seconds=round(seconds + time.perf_counter() - clock, 3),
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        software=software,
        hardware=hardware(device, 1),
        finished=now(),
    )


def _screen_one(store: FeatureStore, cfg: Config, device: str) -> tuple[list[Screened], dict[str, int], float]:
    """Returns the choices of one encoder, the words that were drawn, and the seconds. Raises DamagedShard."""
    from probe.screening.screen import Screening

    complete_store(store, device)
    clock = time.perf_counter()
    screening = Screening(store, cfg.screen, cfg.seed, device, cfg.data.order)
    found = []
    with progress_bar(None, "screening", "choices") as bar:
        for one in screening.run():
            found.append(one)
            bar.update()
    return found, screening.words, time.perf_counter() - clock
