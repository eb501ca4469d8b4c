"""Renders screens as one ranking: which layers, of which encoder, at what cost; all choices as CSV, all as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probe.config import UserError, layer_presets
from probe.data.task import TASKS
from probe.probes.selection import encoder_flops
from probe.runs.sweep_plan import SWEEP
from probe.screen.ranking import TIES, Scored, rank_encoders, selection_bias
from probe.screen.record import ScreenRecord, load_screens
from probe.system.files import to_jsonable, write_atomically
from probe.system.format import format_count, format_layers, percent, pluralize, with_encoder
from probe.tables.formats import TextTable, as_csv, as_json
from probe.tables.row import Row
from probe.tables.rows import build_rows

SHOWN = 3  # of each width; of several encoders, the best of each
FILES = {"md": "screen.md", "csv": "screen.csv"}
Screens = Mapping[str, ScreenRecord]  # by encoder, see `load_screens`


@dataclass(frozen=True)
class RankedChoice:
    """Holds a choice of layers in its place among all choices, with the cost of its encoder.

    encoder_flops: operations per piece. title: names the encoder where there are several.
    """

    place: int
    title: str
    encoder: str
    hidden_size: int
    encoder_flops: int
    choice: Scored

    @property
    def order(self) -> str:
        return "first" if self.place == 1 else "tied" if self.choice.tied else ""


def rank_screens(screens: Screens) -> list[RankedChoice]:
    """Ranks the choices of all encoders, with their costs."""
    choices = {encoder: record.ranked for encoder, record in screens.items()}
    every = rank_encoders(choices) if len(screens) > 1 else [(name, one) for name in choices for one in choices[name]]
    ranked = []
    for place, (encoder, choice) in enumerate(every, 1):
        record = screens[encoder]
        flops = encoder_flops(record.hidden_size, choice.num_blocks)
        title = with_encoder(choice.name, encoder if len(screens) > 1 else None)
        ranked.append(RankedChoice(place, title, encoder, record.hidden_size, flops, choice))
    return ranked


def render_screens(screens: Screens, form: str) -> str:
    """Renders screens as text, md, csv, tex or json."""
    if form == "json":
        records = [to_jsonable(record) for record in screens.values()]
        return as_json(records[0] if len(records) == 1 else records)
    if form == "csv":
        lines = choice_fields(screens)
        return as_csv(lines[0], (line.values() for line in lines))
    return screen_table(screens).render(form)


def screen_table(screens: Screens) -> TextTable:
    """Makes the short table of the ranking: of each encoder the best of each width, and the presets."""
    ranked, score = rank_screens(screens), score_of(screens)
    places = places_shown(ranked)
    shown = [one for one in ranked if one.place in places]
    cells = {
        "place": [str(one.place) for one in shown],
        "encoder": [one.encoder for one in shown],
        "layers chosen": [" = ".join([one.choice.name, *one.choice.alike]) for one in shown],
        "layers": [format_layers(one.choice.layers.indices) for one in shown],
        "width": [str(one.choice.width) for one in shown],
        "blocks": [str(one.choice.num_blocks) for one in shown],
        "operations": [format_count(one.encoder_flops) for one in shown],
        f"dev {score}": [f"{percent(one.choice.dev_f1)} ± {percent(one.choice.spread)}" for one in shown],
        "error": [f"{one.choice.dev_error:.4f}" for one in shown],
        "order": [one.order for one in shown],
    }
    left_out = set() if len(screens) > 1 else {"encoder", "operations"}
    headers = [header for header in cells if header not in left_out]
    return TextTable(
        headers=headers,
        lines=[list(line) for line in zip(*(cells[header] for header in headers), strict=True)],
        align_left=[header in ("encoder", "layers chosen", "layers", "order") for header in headers],
        above=[caption(screens)],
        below=notes(ranked, screens),
        bold=[0],
        emphasised=[k for k, header in enumerate(headers) if header in ("encoder", "layers chosen", f"dev {score}")],
        label="tab:screen",
        first=[" ".join(_verdict(ranked, screens))],
    )


def places_shown(ranked: Sequence[RankedChoice]) -> set[int]:
    """Selects of each encoder the best of each width, of a single one the best few, and every preset."""
    most = num_shown(ranked)
    names = {preset.name for preset in layer_presets()}
    seen: Counter[tuple[str, int]] = Counter()
    places = set()
    for one in ranked:
        seen[one.encoder, one.choice.width] += 1
        if seen[one.encoder, one.choice.width] <= most or names & {one.choice.name, *one.choice.alike}:
            places.add(one.place)
    return places


def num_shown(ranked: Sequence[RankedChoice]) -> int:
    """Returns how many choices of each width are shown."""
    return 1 if len({one.encoder for one in ranked}) > 1 else SHOWN


def score_of(screens: Screens) -> str:
    """Gives the name of the score that the screens are ranked by."""
    return TASKS[_any(screens).identity.task].score


def _any(screens: Screens) -> ScreenRecord:
    """Gives one of the screens, for what they have in common."""
    return next(iter(screens.values()))


def _verdict(ranked: Sequence[RankedChoice], screens: Screens) -> Iterator[str]:
    """Yields what a reader wants first: the first choice, and of several encoders the first of each with its cost."""
    first = ranked[0]
    num_tied = sum(one.choice.tied for one in ranked[1:])
    yield (
        f"The screen ranks {first.title} first ({_layers(first)}): dev {score_of(screens)} "
        f"{percent(first.choice.dev_f1)} of a linear readout. {num_tied} of the other {len(ranked) - 1} choices are "
        "not significantly behind it."
    )
    if len(screens) == 1:
        return
    yield f"It needs {_cost(first)}."
    for encoder in screens:
        best = next(one for one in ranked if one.encoder == encoder)
        if best is not first:
            yield (
                f"The first of {encoder} is {best.choice.name} ({_layers(best)}), in place {best.place}: "
                f"{percent(first.choice.dev_f1 - best.choice.dev_f1)} points lower, "
                f"{'not ' * best.choice.tied}significantly behind. It needs {_cost(best)}."
            )


def _layers(one: RankedChoice) -> str:
    indices = one.choice.layers.indices
    return f"layer{'s' * (len(indices) > 1)} {format_layers(indices)}"


def _cost(one: RankedChoice) -> str:
    return (
        f"{pluralize(one.choice.num_blocks, 'block')} of width {one.hidden_size} and {one.choice.width:,} "
        "features per word"
    )


def caption(screens: Screens) -> str:
    """Says what was screened, and what the numbers are."""
    record = _any(screens)
    setting, words, screen = record.setting, record.words, record.identity.screen
    neighbours = f"a word and {screen['window']} to each side" if screen["window"] else "a word alone"
    return (
        f"{setting.data}, {' and '.join(screens)}, {setting.features['context']} context, "
        f"{setting.features['subword']} piece. A screen: nothing is trained. A linear readout of {neighbours}, fitted "
        f"to {words['train']} words of train; {TASKS[record.identity.task].title} on {words['dev']} words of dev in "
        f"percent, mean ± standard error over {screen['samples']} samples."
    )


def notes(ranked: Sequence[RankedChoice], screens: Screens) -> list[str]:
    """Gives the notes below the table."""
    choices, several = [one.choice for one in ranked], len(screens) > 1
    about, most = (100 * bias for bias in selection_bias(choices))
    is_corrected = several or _any(screens).ties == TIES
    how = (
        "of screens of equally good choices at most 5 % call any of them not tied"
        if is_corrected
        else "not corrected for the number of choices: an older screen"
    )
    shown = "of each encoder the best of each width" if several else f"the best {SHOWN} of each width"
    lines = [
        f"{len(choices)} choices of layers{f' of {len(screens)} encoders' * several}; shown: {shown}, and the presets. "
        f"Not significantly behind the first (order: tied): {sum(one.tied for one in choices) - 1}; {how}. blocks: of "
        "the encoder, that must be run.",
        f"The first of {len(choices)} was chosen for its score, so this score is too high: by about {about:.1f} points "
        f"at this spread, by {most:.1f} if all choices were equally good. A test score has no such bias.",
        "The scores rank; a trained probe's are higher. A linear readout cannot tell a sum, a mean and a mix (here at "
        "equal weights) of the same layers apart: they stand in one line, joined by =.",
    ]
    if several:
        lines.append(
            "All encoders are scored on the same sentences. operations: of the encoder per piece, 24 times blocks "
            "times width squared, without products inside attention. Layers of one number in two encoders have nothing "
            "in common."
        )
    for encoder, record in screens.items():
        of = f" of {encoder}" if several else ""
        if record.beam_sizes:
            sizes = ", ".join(map(str, record.beam_sizes))
            lines.append(
                f"Of concatenations of {sizes} layers{of} not all were tried: the best of one layer less were extended."
            )
        if record.pca_components < record.hidden_size:
            lines.append(
                f"Each layer{of} was reduced to the {record.pca_components} of {record.hidden_size} directions along "
                f"which it varies most ({100 * record.variance_kept:.1f} % of its variance or more): "
                "screen.pca_components."
            )
    return lines


def choice_fields(screens: Screens) -> list[dict[str, Any]]:
    """Gives each choice's values by the headers of screen.csv, best first."""
    return [
        {
            "place": one.place,
            "encoder": one.encoder,
            "name": one.choice.layers.name,
            "alike": " ".join(one.choice.alike),
            "indices": " ".join(map(str, one.choice.layers.indices)),
            "combine": one.choice.layers.combine,
            "width": one.choice.width,
            "num_blocks": one.choice.num_blocks,
            "encoder_flops": one.encoder_flops,
            "dev_f1": one.choice.dev_f1,
            "spread": one.choice.spread,
            "error": one.choice.dev_error,
            "error_spread": one.choice.error_spread,
            "tied": one.choice.tied,
        }
        for one in rank_screens(screens)
    ]


def write_screen_tables(folder: Path, screens: Screens) -> None:
    """Writes the tables into the folder of screen.json."""
    for form, name in FILES.items():
        write_atomically(folder / name, render_screens(screens, form))


def rows_or_screen(folder: Path, margin: float | None = None) -> list[Row]:
    """Builds a results folder's rows; none where it holds a screen alone. Raises UserError where it holds nothing."""
    try:
        return build_rows(folder, margin)
    except UserError:
        is_more = any((folder / "records").glob("*.json")) or (folder / SWEEP).exists()
        if is_more or not sound_screens(folder):
            raise
        return []


def sound_screens(folder: Path) -> dict[str, ScreenRecord]:
    """Loads a folder's screens; none where there are none, or invalid ones, which `probe verify` reports."""
    try:
        return load_screens(folder)
    except UserError:
        return {}
