"""A screen to tables: the best of each width, and the presets; everything as CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from probe.config import UserError, layer_presets
from probe.data.task import TASKS
from probe.runs.sweep_plan import SWEEP
from probe.screen.ranking import TIES, Scored, selection_bias
from probe.screen.record import ScreenRecord, load_screen
from probe.system.files import plain, write_atomically
from probe.system.format import percent
from probe.tables.formats import TextTable, as_json
from probe.tables.row import Row, short_name
from probe.tables.rows import build_rows

SHOWN = 3  # of each width
FILES = {"md": "screen.md", "csv": "screen.csv"}


def render_screen(record: ScreenRecord, form: str) -> str:
    """As text, md, csv, tex or json."""
    if form == "json":
        return as_json(plain(record))
    return _csv(record) if form == "csv" else grid(record).render(form)


def shown(ranked: Sequence[Scored]) -> list[Scored]:
    """The best few of each width and every preset, best first."""
    names = {preset.name for preset in layer_presets()}
    by_width: dict[int, int] = {}
    kept = []
    for one in ranked:
        by_width[one.width] = by_width.get(one.width, 0) + 1
        if by_width[one.width] <= SHOWN or names & {one.name, *one.alike}:
            kept.append(one)
    return kept


def layers_of(one: Scored) -> str:
    """Its layers, as tables have them."""
    indices = one.layers.indices
    in_a_row = len(indices) > 2 and indices == list(range(indices[0], indices[-1] + 1))
    return f"{indices[0]}..{indices[-1]}" if in_a_row else ", ".join(map(str, indices))


def label(one: Scored) -> str:
    return " = ".join([one.name, *one.alike])


def grid(record: ScreenRecord) -> TextTable:
    """The short table."""
    task = TASKS[record.identity.task]
    rows = shown(record.ranked)
    places = {id(one): place for place, one in enumerate(record.ranked, 1)}
    lines = [
        [
            str(places[id(one)]),
            label(one),
            layers_of(one),
            str(one.width),
            str(one.blocks),
            f"{percent(one.dev_f1)} ± {percent(one.spread)}",
            f"{one.dev_error:.4f}",
            "first" if one is record.ranked[0] else "tied" if one.tied else "",
        ]
        for one in rows
    ]
    headers = ["place", "layers chosen", "layers", "width", "blocks", f"dev {task.score}", "error", "order"]
    left = [False, True, True, False, False, False, False, True]
    return TextTable(headers, lines, left, [caption(record)], notes(record), [0], [1, 5], "tab:screen")


def caption(record: ScreenRecord) -> str:
    """What was screened, and what the numbers are."""
    setting, words = record.setting, record.words
    screen = record.identity.screen
    neighbours = f"a word and {screen['window']} to each side" if screen["window"] else "a word alone"
    return (
        f"{setting.data}, {short_name(setting.encoder)}, {setting.features['context']} context, "
        f"{setting.features['subword']} piece. A screen: nothing is trained. A linear readout of {neighbours}, fitted "
        f"to {words['train']} words of train; {TASKS[record.identity.task].title} on {words['dev']} words of dev in "
        f"percent, mean ± standard error over {screen['samples']} samples."
    )


def notes(record: ScreenRecord) -> list[str]:
    """What a reader must know of the numbers."""
    ranked = record.ranked
    tied = sum(one.tied for one in ranked) - 1
    about, most = (100 * bias for bias in selection_bias(ranked))
    how = (
        "not corrected for the number of choices: an older screen"
        if record.ties != TIES
        else "of screens of equally good choices at most 5 % call any of them not tied"
    )
    lines = [
        f"{len(ranked)} choices of layers; shown: the best {SHOWN} of each width, and the presets. Not significantly "
        f"behind the first (order: tied): {tied}; {how}. blocks: of the encoder, that must be run.",
        f"The first of {len(ranked)} was chosen for its score, so this score is too high: by about {about:.1f} points "
        f"at this spread, by {most:.1f} if all choices were equally good. A test score has no such bias.",
        "The scores rank; a trained probe's are higher. A linear readout cannot tell a sum, a mean and a mix (here at "
        "equal weights) of the same layers apart: they stand in one line, joined by =.",
    ]
    if record.grown:
        sizes = ", ".join(map(str, record.grown))
        lines.append(
            f"Of concatenations of {sizes} layers not all were tried: the best of one layer less were extended."
        )
    if record.directions < record.hidden_size:
        lines.append(
            f"Each layer was reduced to the {record.directions} of {record.hidden_size} directions along which it "
            f"varies most ({100 * record.variance_kept:.1f} % of its variance or more): screen.directions."
        )
    return lines


def _csv(record: ScreenRecord) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow("place name alike indices combine width blocks dev_f1 spread error error_spread tied".split())
    for place, one in enumerate(record.ranked, 1):
        layers = one.layers
        writer.writerow(
            [
                *(place, layers.name, " ".join(one.alike), " ".join(map(str, layers.indices)), layers.combine),
                *(one.width, one.blocks, one.dev_f1, one.spread, one.dev_error, one.error_spread, one.tied),
            ]
        )
    return out.getvalue()


def screen_files(record: ScreenRecord) -> dict[str, str]:
    """What the files of a screen's tables hold."""
    return {name: render_screen(record, form) for form, name in FILES.items()}


def write_screen_tables(folder: Path, record: ScreenRecord) -> list[Path]:
    """The tables beside screen.json; returns the files."""
    for name, text in screen_files(record).items():
        write_atomically(folder / name, text)
    return [folder / name for name in FILES.values()]


def rows_or_screen(folder: Path, margin: float | None = None) -> list[Row]:
    """A results folder's rows; none where it holds a screen alone. Raises UserError where it holds nothing."""
    try:
        return build_rows(folder, margin)
    except UserError:
        if sound_screen(folder) is None or any((folder / "records").glob("*.json")) or (folder / SWEEP).exists():
            raise
        return []


def sound_screen(folder: Path) -> ScreenRecord | None:
    """A folder's screen; None where there is none, or none that can be understood, which `probe verify` says."""
    try:
        return load_screen(folder)
    except UserError:
        return None
