"""Renders a screen as tables: the best of each width and the presets; everything as CSV and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probe.config import UserError, layer_presets
from probe.data.task import TASKS
from probe.runs.sweep_plan import SWEEP
from probe.screen.ranking import TIES, Scored, selection_bias
from probe.screen.record import ScreenRecord, load_screen
from probe.system.files import to_jsonable, write_atomically
from probe.system.format import format_layers, percent, short_name
from probe.tables.formats import TextTable, as_csv, as_json
from probe.tables.row import Row
from probe.tables.rows import build_rows

SHOWN = 3  # of each width
FILES = {"md": "screen.md", "csv": "screen.csv"}


def render_screen(record: ScreenRecord, form: str) -> str:
    """Renders a screen as text, md, csv, tex or json."""
    if form == "json":
        return as_json(to_jsonable(record))
    return _csv(record) if form == "csv" else screen_table(record).render(form)


def select_shown(ranked: Sequence[Scored]) -> list[Scored]:
    """Selects the best few of each width and every preset, best first."""
    names = {preset.name for preset in layer_presets()}
    seen_of_width: dict[int, int] = {}
    selected = []
    for choice in ranked:
        seen_of_width[choice.width] = seen_of_width.get(choice.width, 0) + 1
        if seen_of_width[choice.width] <= SHOWN or names & {choice.name, *choice.alike}:
            selected.append(choice)
    return selected


def screen_table(record: ScreenRecord) -> TextTable:
    """Makes the short table of a screen."""
    task = TASKS[record.identity.task]
    places = {id(choice): place for place, choice in enumerate(record.ranked, 1)}
    lines = [
        [
            str(places[id(choice)]),
            " = ".join([choice.name, *choice.alike]),
            format_layers(choice.layers.indices),
            str(choice.width),
            str(choice.num_blocks),
            f"{percent(choice.dev_f1)} ± {percent(choice.spread)}",
            f"{choice.dev_error:.4f}",
            "first" if choice is record.ranked[0] else "tied" if choice.tied else "",
        ]
        for choice in select_shown(record.ranked)
    ]
    headers = ["place", "layers chosen", "layers", "width", "blocks", f"dev {task.score}", "error", "order"]
    align_left = [False, True, True, False, False, False, False, True]
    return TextTable(headers, lines, align_left, [caption(record)], notes(record), [0], [1, 5], "tab:screen")


def first_choice(record: ScreenRecord) -> str:
    """Says what the screen ranks first, and how many choices are not significantly behind."""
    first, tied = record.ranked[0], sum(choice.tied for choice in record.ranked[1:])
    layers = format_layers(first.layers.indices)
    return (
        f"The screen ranks {first.name} first (layer{'s' * (len(first.layers.indices) > 1)} {layers}): dev "
        f"{TASKS[record.identity.task].score} {percent(first.dev_f1)} of a linear readout. {tied} of the other "
        f"{len(record.ranked) - 1} choices are not significantly behind it. A screen trains nothing: to train the best "
        "choices, type `probe race` with the same settings."
    )


def caption(record: ScreenRecord) -> str:
    """Says what was screened, and what the numbers are."""
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
    """Gives the notes below the table."""
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
    if record.beam_sizes:
        sizes = ", ".join(map(str, record.beam_sizes))
        lines.append(
            f"Of concatenations of {sizes} layers not all were tried: the best of one layer less were extended."
        )
    if record.pca_components < record.hidden_size:
        lines.append(
            f"Each layer was reduced to the {record.pca_components} of {record.hidden_size} directions along which it "
            f"varies most ({100 * record.variance_kept:.1f} % of its variance or more): screen.pca_components."
        )
    return lines


def _csv(record: ScreenRecord) -> str:
    lines = choice_fields(record)
    return as_csv(lines[0], (line.values() for line in lines))


def choice_fields(record: ScreenRecord) -> list[dict[str, Any]]:
    """Gives each choice's values by the headers of screen.csv, best first."""
    return [
        {
            "place": place,
            "name": choice.layers.name,
            "alike": " ".join(choice.alike),
            "indices": " ".join(map(str, choice.layers.indices)),
            "combine": choice.layers.combine,
            "width": choice.width,
            "num_blocks": choice.num_blocks,
            "dev_f1": choice.dev_f1,
            "spread": choice.spread,
            "error": choice.dev_error,
            "error_spread": choice.error_spread,
            "tied": choice.tied,
        }
        for place, choice in enumerate(record.ranked, 1)
    ]


def screen_files(record: ScreenRecord) -> dict[str, str]:
    """Gives the content of the files of a screen's tables, by name."""
    return {name: render_screen(record, form) for form, name in FILES.items()}


def write_screen_tables(folder: Path, record: ScreenRecord) -> list[Path]:
    """Writes the tables into the folder of screen.json; returns the files."""
    for name, text in screen_files(record).items():
        write_atomically(folder / name, text)
    return [folder / name for name in FILES.values()]


def rows_or_screen(folder: Path, margin: float | None = None) -> list[Row]:
    """Builds a results folder's rows; none where it holds a screen alone. Raises UserError where it holds nothing."""
    try:
        return build_rows(folder, margin)
    except UserError:
        if sound_screen(folder) is None or any((folder / "records").glob("*.json")) or (folder / SWEEP).exists():
            raise
        return []


def sound_screen(folder: Path) -> ScreenRecord | None:
    """Loads a folder's screen; None where there is none, or an invalid one, which `probe verify` reports."""
    try:
        return load_screen(folder)
    except UserError:
        return None
