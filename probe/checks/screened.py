"""Does a folder's screen hold? Checks of screen.json that read files alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from probe.checks.check import Check
from probe.checks.tables import check_tables
from probe.config import EncoderConfig, UserError
from probe.features.checkpoint import file_fingerprints
from probe.reporting.screen import screen_files
from probe.runs.records import RunRecord
from probe.runs.screened import SCREEN, VERSION, ScreenRecord, load_screen
from probe.screening.candidates import readout_of
from probe.screening.ranking import rank
from probe.system.files import key_of


def check_screen(folder: Path, records: Sequence[RunRecord], cache_dir: Path) -> Iterator[Check]:
    """A folder's screen, if it has one: in itself, against the runs beside it, and its tables."""
    try:
        screen = load_screen(folder)
    except UserError as error:
        yield Check(SCREEN, False, str(error))
        return
    if screen is None:
        return
    problems = list(_problems(screen, records))
    try:
        found = file_fingerprints(EncoderConfig(**screen.encoder), cache_dir)
    except TypeError:
        problems.append("its settings are not those of an encoder")
        found = None
    if found and any(screen.fingerprint.get(part) != found[part] for part in found):
        problems.append("the encoder's files are others than those of the screen")
    yield Check(SCREEN, not problems, "; ".join(problems) or "key, ranks, ties, widths")
    if not problems:
        yield from check_tables(folder, screen_files(screen))


def _problems(screen: ScreenRecord, records: Sequence[RunRecord]) -> Iterator[str]:
    """What in a screen contradicts itself, or the runs beside it."""
    identity = screen.identity
    if key_of(screen.features) != identity.features:
        yield "the feature key is not the hash of what the features are said to be"
    if screen.features.get("encoder") != screen.fingerprint:
        yield "the encoder is not the one that the feature key was made with"
    for name, value in screen.setting.features.items():
        if name in screen.features and screen.features[name] != value:
            yield f"features.{name} is {value}, but the feature key was made with {screen.features[name]}"
    samples = identity.screen.get("samples")
    for one in screen.ranked:
        layers = one.layers
        if any(not 0 <= k <= screen.num_layers for k in layers.indices) or one.blocks != max(
            layers.indices, default=-1
        ):
            yield f"{one.name}: {one.blocks} blocks are not what layers {layers.indices} need"
        width = screen.hidden_size * (len(layers.indices) if layers.combine == "concat" else 1)
        if one.width != width:
            yield f"{one.name}: its width is {one.width}, its layers have {width}"
        if {len(one.f1), len(one.error)} != {samples} or not all(0 <= f1 <= 1 for f1 in one.f1):
            yield f"{one.name}: not {samples} scores from 0 to 1"
            return
    if len({readout_of(one.layers.combine, one.layers.indices) for one in screen.ranked}) < len(screen.ranked):
        yield "a choice of layers is ranked twice"
    for one, again in zip(screen.ranked, rank(screen.ranked), strict=True):
        if one != (again if screen.version == VERSION else replace(again, tied=one.tied)):
            yield f"{one.name} does not stand where its scores put it, or is tied otherwise than they say"
            break
    texts = {record.identity.corpus for record in records if record.identity.features == identity.features}
    if texts and identity.corpus not in texts:
        yield "the runs beside it with the same features have other tags"
