"""Checks the screens in screen.json, of one encoder or several, by reading files only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from probe.config import EncoderConfig, UserError
from probe.data.task import TASKS
from probe.encoders.checkpoint import file_fingerprints
from probe.features.pooled import unit_size
from probe.probes.selection import width_of
from probe.runs.records import RunRecord
from probe.screen.candidates import readout_of
from probe.screen.ranking import TIES, Scored, rank
from probe.screen.record import SCREEN, ScreenRecord, load_screens
from probe.system.files import key_of
from probe.verify.check import Check


def check_screens(folder: Path, records: Sequence[RunRecord], cache_dir: Path) -> Iterator[Check]:
    """Checks a folder's screens, if it has any: their content, and that they fit the folder's runs."""
    try:
        screens = load_screens(folder)
    except UserError as error:
        yield Check(SCREEN, False, str(error))
        return
    for encoder, screen in screens.items():
        yield from _check_screen(f"{SCREEN} of {encoder}" if len(screens) > 1 else SCREEN, screen, records, cache_dir)


def _check_screen(file: str, screen: ScreenRecord, records: Sequence[RunRecord], cache_dir: Path) -> Iterator[Check]:
    problems = list(_problems(screen, records))
    try:
        found = file_fingerprints(EncoderConfig(**screen.encoder), cache_dir)
    except TypeError:
        problems.append("its settings are not those of an encoder")
        found = None
    if found and any(screen.fingerprint.get(part) != found[part] for part in found):
        problems.append("the encoder's files differ from those of the screen")
    yield Check(file, not problems, "; ".join(problems) or "key, ranks, widths")
    if problems:
        return
    name = f"{file}: ties"
    if screen.ties != TIES:
        yield Check(name, None, "decided by an earlier version; the same screen in another folder decides anew")
        return
    wrong = next((one.name for one, again in _ranked_again(screen) if one.tied != again.tied), None)
    problem = f"the tie of {wrong} does not follow from its scores"
    yield Check(name, wrong is None, problem if wrong else "what the scores give")


def _problems(screen: ScreenRecord, records: Sequence[RunRecord]) -> Iterator[str]:
    """Yields contradictions within a screen, and between the screen and the folder's runs."""
    identity = screen.identity
    if key_of(screen.features) != identity.features:
        yield "identity.features is not the hash of features"
    if screen.features.get("encoder") != screen.fingerprint:
        yield "fingerprint is not that of features.encoder"
    for name, value in screen.setting.features.items():
        if name in screen.features and screen.features[name] != value:
            yield f"features.{name} is {value}, but the feature key was made with {screen.features[name]}"
    samples = identity.screen.get("samples")
    for one in screen.ranked:
        layers = one.layers
        if any(not 0 <= k <= screen.num_layers for k in layers.indices) or one.num_blocks != max(
            layers.indices, default=-1
        ):
            yield f"{one.name}: {one.num_blocks} blocks are not what layers {layers.indices} need"
        width = width_of(layers.combine, layers.indices, unit_size(screen.hidden_size, TASKS[identity.task]))
        if one.width != width:
            yield f"{one.name}: its width is {one.width}, its layers have {width}"
        if {len(one.f1), len(one.error)} != {samples} or not all(0 <= f1 <= 1 for f1 in one.f1):
            yield f"{one.name}: not {samples} scores from 0 to 1"
            return
    if len({readout_of(one.layers.combine, one.layers.indices) for one in screen.ranked}) < len(screen.ranked):
        yield "a choice of layers is ranked twice"
    if wrong := next((one.name for one, again in _ranked_again(screen) if one.layers != again.layers), None):
        yield f"the rank of {wrong} does not follow from its scores"
    texts = {record.identity.corpus for record in records if record.identity.features == identity.features}
    if texts and identity.corpus not in texts:
        yield "the folder's runs with the same features have other tags"


def _ranked_again(screen: ScreenRecord) -> Iterator[tuple[Scored, Scored]]:
    """Pairs each candidate with the one that has its rank by the scores."""
    return zip(screen.ranked, rank(screen.ranked), strict=True)
