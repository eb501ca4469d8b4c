"""Recommends the best row within a budget, and measures what rows cost where they are used."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe.config import Config, UserError, suggestion
from probe.data.corpus import Corpus
from probe.format import percent
from probe.system.files import read_regular, write_json
from probe.system.machine import num_cores, resolve_device
from probe.system.provenance import hardware
from probe.tables.recommendation import recommend
from probe.tables.row import Row

if TYPE_CHECKING:
    from probe.encoders.checkpoint import Encoder
    from probe.vectors.words import Window

# Of each budget: whether a row may cost at most so much, or must give at least so much; and its unit.
BUDGETS = {
    "blocks": (True, "blocks of the encoder"),
    "width": (True, "features per word"),
    "words_s": (False, "words per second in batches"),
    "ms": (True, "ms for a sentence alone"),
    "mb": (True, "MB of weights"),
}
MEASURED = ("words_s", "ms", "mb")
SPEEDS = "speeds.json"
TOGETHER, SINGLE = 256, 20  # that are read together, and one by one
TIMES = 5  # the fastest counts: other work on the machine only makes it slower


@dataclass(frozen=True)
class Speed:
    """Holds what an encoder costs up to a layer, on this machine.

    words_s: words of running text per second, in batches. ms: for a sentence alone, the median. mb: of its weights.
    measured: the date.
    """

    words_s: float
    ms: float
    mb: float
    measured: str = ""


def parse_budget(text: str) -> tuple[str, float]:
    """Returns the name and the limit of NAME=NUMBER. Raises UserError."""
    name, _, number = text.partition("=")
    if name not in BUDGETS:
        names = ", ".join(BUDGETS)
        raise UserError(f"--budget {text}: expected NAME=NUMBER with one of {names}.{suggestion(name, BUDGETS)}")
    with contextlib.suppress(ValueError):
        if (limit := float(number)) > 0:
            return name, limit
    raise UserError(f"--budget {text}: {number!r} is not a number above 0.")


def within_budget(rows: Sequence[Row], name: str, limit: float, speed_of: Callable[[Row], Speed]) -> str:
    """Says which row of a table is the best within a budget, and how far it lies behind the best of all.

    speed_of: measures a row's encoder up to its deepest layer.
    """
    recommended = recommend(rows)
    if recommended.best is None:
        return recommended.text
    best, (at_most, unit) = recommended.best, BUDGETS[name]
    ranked = [row for row in rows if row.behind]
    speeds: dict[tuple[str | None, int], Speed] = {}  # rows of one encoder and depth share them

    def cost(row: Row) -> float:
        if name not in MEASURED:
            return row.num_blocks if name == "blocks" else row.width
        if (place := (row.encoder, row.num_blocks)) not in speeds:
            speeds[place] = speed_of(row)
        return float(getattr(speeds[place], name))

    def fits(row: Row) -> bool:
        return cost(row) <= limit if at_most else cost(row) >= limit

    # Best first, so that no row below the answer is measured. An interrupted measurement keeps what it has.
    in_order = sorted(ranked, key=lambda row: (row is not best, -row.dev_mean))
    use = next(filter(fits, in_order), None)
    if use is None:
        edge = (min if at_most else max)(ranked, key=cost)
        return f"No row is within {name}={limit:g}: {edge.title} comes nearest with {cost(edge):,.4g} {unit}."
    of_use, of_best = (f"{cost(row):,.4g} {unit}" for row in (use, best))
    head = f"Within {name}={limit:g} use {use.title}: {of_use}, dev {use.task.headline.name} {percent(use.dev_mean)}."
    if name in MEASURED:
        head += (
            f" This is of the encoder without the probe, measured on {speeds[use.encoder, use.num_blocks].measured}."
        )
    if use is best:
        return f"{head} It is the best of all rows."
    lower, behind = percent(best.dev_mean - use.dev_mean), percent(use.most_behind)
    return (
        f"{head} It is {lower} points below the best, {best.title} ({of_best}), at most {behind} behind the truly best."
    )


def speed_at(cfg: Config, depth: int, corpus: Corpus) -> Speed:
    """Measures a config's encoder up to a layer on a corpus's dev text; known speeds of this machine are read.

    They are kept in the folder of the feature store. Raises UserError for an encoder that cannot be loaded.
    """
    import torch

    from probe.vectors.sources import open_source, text_encoder

    folder, device, cores = Path(cfg.features.cache_dir), resolve_device(cfg.device), num_cores()
    encoder = text_encoder(open_source(cfg.encoder, folder))
    machine = f"{hardware(device, cores).device_name}, {torch.get_num_threads()} threads, {cfg.features.precision}"
    key = f"{encoder.fingerprint.get('weights')} layer {depth} on {machine}"
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        known = dict(json.loads(read_regular(folder / SPEEDS)))
    try:
        return Speed(**known[key])
    except (KeyError, TypeError):  # not measured yet, or by another version
        speed = _measured(cfg, encoder, depth, corpus, device)
        write_json(folder / SPEEDS, known | {key: asdict(speed)})
        return speed


def _measured(cfg: Config, encoder: Encoder, depth: int, corpus: Corpus, device: str) -> Speed:
    import torch

    from probe.encoders.encoder import load_model
    from probe.vectors.words import CPU_PIECES, Text, states_of

    features = replace(cfg.features, layers=[depth], context="sentence")
    model: Any = load_model(encoder, device, features.precision, deepest=depth)
    text = Text(corpus, "dev", encoder, features)
    windows = sorted(text.windows[:TOGETHER], key=lambda window: text.pieces.count(window.first, window.last))
    at_once = max(1, CPU_PIECES // max(1, text.pieces.count(windows[-1].first, windows[-1].last)))

    def seconds(parts: Sequence[list[Window]]) -> list[float]:
        times = []
        for part in parts:
            clock = time.perf_counter()
            states, _ = states_of(part, text.pieces, model, encoder, features, device)
            states.sum().item()  # waits for a GPU
            times.append(time.perf_counter() - clock)
        return times

    batches = [windows[at : at + at_once] for at in range(0, len(windows), at_once)]
    words = sum(window.last - window.first for window in windows)
    one_by_one = [[window] for window in windows[:: max(1, len(windows) // SINGLE)]]
    whole = min(sum(seconds(batches)) for _ in range(TIMES))
    alone = min(statistics.median(seconds(one_by_one)) for _ in range(TIMES))
    lists = [module for module in model.modules() if isinstance(module, torch.nn.ModuleList)]
    of_depth = (encoder.num_layers, depth + 1)  # all, or those loaded
    blocks = next((module for module in lists if len(module) in of_depth), ())
    unused = {id(weight) for block in blocks[depth:] for weight in block.parameters()}
    size = sum(weight.nbytes for weight in model.parameters() if id(weight) not in unused)
    return Speed(words / whole, 1000 * alone, size / 1e6, time.strftime("%Y-%m-%d %H:%M"))
