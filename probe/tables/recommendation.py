"""Recommends the cheapest row that is shown to lie within the margin of the best one. A pure function of a table's
rows.

Cost is compared by the operations of the encoder blocks needed, then by the width of the vectors, then by the
parameters of the probe. Of one encoder, fewer operations are fewer blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from probe.conditions import MAIN
from probe.probes.selection import encoder_flops
from probe.system.files import to_jsonable
from probe.system.format import first_few, format_count, percent, with_encoder
from probe.tables.decisions import BEST, ELIMINATED, UNDECIDED, cheapest_within
from probe.tables.row import Row

MOST_TIMES = 20  # more seeds or text than so many times are "more than"
NAMED = 4  # rows in a sentence


@dataclass(frozen=True)
class RowCost:
    """Holds a row's score and cost. behind: how far it lies behind the truly best row on dev, a fraction, [low, high].
    num_blocks: of the encoder's `encoder_blocks`, how many have to be computed. parameters: of the probe.

    encoder_flops: for a piece, at 24 H^2 a BERT block (without products inside attention). probe_flops: for a word.
    encoder: its name where the table has several. hidden_size: of the encoder.
    """

    row: str
    layers: str
    dev: float
    behind: list[float]
    num_blocks: int
    encoder_blocks: int
    width: int
    parameters: int
    encoder_flops: int
    probe_flops: int
    encoder: str | None = None
    hidden_size: int = 0

    @property
    def title(self) -> str:
        return with_encoder(self.row, self.encoder)


@dataclass(frozen=True)
class Effort:
    """Holds what would show a row to lie within the margin: so many times the seeds, and so many times seeds and text
    together, [least, most]. None: no amount. The row's true difference to the best is taken to be within one standard
    error of the one measured.
    """

    row: str
    seeds: list[float | None]
    seeds_and_text: list[float | None]


@dataclass(frozen=True)
class Recommendation:
    """Holds a recommendation.

    margin: points that the user does not mind. best: the highest dev mean. use: the cheapest row within the margin, or
    the best where no row is shown to be. within: whether `use` is. over_text: whether intervals cover seeds and text,
    or seeds only. undecided: cheaper rows that could be within the margin. effort: for the likeliest of them. none: why
    there is no recommendation.
    """

    score: str
    margin: float
    best: RowCost | None = None
    use: RowCost | None = None
    within: bool = False
    over_text: bool = False
    undecided: tuple[str, ...] = ()
    effort: Effort | None = None
    none: str | None = None

    def as_json(self) -> dict[str, Any]:
        return to_jsonable(self)

    def __str__(self) -> str:
        return self.as_text()

    def as_text(self) -> str:
        """Writes it as a few sentences."""
        return " ".join(_sentences(self))


def recommend(rows: Sequence[Row]) -> Recommendation:
    """Recommends a row of one table, its rows as `decisions.label_rows` returns them."""
    score, margin = rows[0].task.score, rows[0].margin or 0.0
    rows = [row for row in rows if row.section == MAIN]
    best = next((row for row in rows if row.label == BEST), None)
    if best is None:
        return Recommendation(score, margin, none=_why_none(rows))
    ranked = [row for row in rows if row.behind is not None]
    bounds, means = [row.behind or [] for row in ranked], [row.dev_mean for row in ranked]
    place = cheapest_within(bounds, [_cost(row) for row in ranked], means, margin / 100)
    chosen = best if place is None else ranked[place]
    open_rows = [row for row in ranked if row.label == UNDECIDED and _cost(row) < _cost(chosen)]
    open_rows.sort(key=lambda row: -(row.behind or [0.0])[0])
    return Recommendation(
        score,
        margin,
        _row_cost(best),
        _row_cost(chosen),
        place is not None,
        best.over_text,
        tuple(row.title for row in open_rows),
        _effort(open_rows[0], best, margin / 100) if open_rows else None,
    )


def _why_none(rows: Sequence[Row]) -> str:
    if not any(row.n for row in rows):
        return "no run is done" if rows else "there is no row to compare with another"
    if any(row.label == ELIMINATED for row in rows):
        return "the race leaves no two rows to compare"
    ranked = [row for row in rows if row.n and not row.unconverged]
    if max((row.n for row in ranked), default=0) == 1:
        return "every row has one seed, and the seed alone moves a score by about a point; type seed=1,2,3"
    return "one row alone cannot be compared" if len(ranked) == 1 else "no two rows converged"


def _cost(row: Row) -> tuple[int, int, int]:
    record = next(iter(row.records.values()))
    operations = encoder_flops(record.encoder.hidden_size, row.num_blocks)
    return operations, row.width, row.cost.parameters if row.cost else 0


def _row_cost(row: Row) -> RowCost:
    record = next(iter(row.records.values()))
    cost, mean = row.cost, row.cells["dev_f1"].mean
    assert cost is not None
    assert mean is not None
    assert row.behind is not None
    return RowCost(
        row=row.name,
        layers=row.layers_as_text,
        dev=mean,
        behind=row.behind,
        num_blocks=row.num_blocks,
        encoder_blocks=record.encoder.num_layers,
        width=row.width,
        parameters=cost.parameters,
        encoder_flops=encoder_flops(record.encoder.hidden_size, row.num_blocks),
        probe_flops=2 * cost.parameters,
        encoder=row.encoder,
        hidden_size=record.encoder.hidden_size,
    )


def _effort(row: Row, best: Row, margin: float) -> Effort | None:
    """Estimates how much more it takes to show a row within the margin; None if the parts of its error are unknown.

    The error's square has a part that falls with seeds and one that falls with the text only.
    """
    assert row.behind is not None
    assert row.to_best is not None
    if row.error is None:
        return None
    difference, (over_seeds, over_text) = row.to_best.dev.difference, row.error
    reach = (
        difference - row.behind[0]
    )  # of the interval's low end, in points; against the best itself or a closer rival
    error = math.sqrt(over_seeds + over_text)
    seeds: list[float | None] = []
    both: list[float | None] = []
    for truth in (difference + error, difference - error):
        allowed = (truth + margin) * error / reach if reach > 0 else 0.0  # the standard error that would do
        room = allowed**2 if allowed > 0 else 0.0
        both.append((over_seeds + over_text) / room if room else None)
        seeds.append(over_seeds / (room - over_text) if room > over_text else None)
    return Effort(row.title, seeds, both)


def _sentences(given: Recommendation) -> Iterator[str]:
    best, use = given.best, given.use
    if best is None or use is None:
        yield f"No recommendation yet: {given.none}."
        return
    over = f"95 % confidence, over {'seeds and text' if given.over_text else 'seeds'}"
    low = f"at most {percent(abs(use.behind[0]))} points behind the truly best row ({over})"
    margin = f"{given.margin:g} point{'s' * (given.margin != 1)}"
    if use.title == best.title:
        head = f"Use {use.title} ({_layers(use)}): it has the best dev {given.score}, {percent(use.dev)}"
        if percent(abs(use.behind[0])) == percent(0):
            yield f"{head}, and no other row is better ({over})."
        elif given.within:
            yield f"{head}, and lies {low}."
        else:
            yield f"{head}, and lies {low}. No row is shown to lie within {margin} of the truly best one."
    else:
        yield (
            f"Use {use.title} ({_layers(use)}): it is the cheapest row within {margin} of the best, {best.title}. Its "
            f"dev {given.score} is {percent(best.dev - use.dev)} points lower, and it lies {low}. It needs "
            f"{_saved(use, best)}."
        )
    if given.undecided:
        names = first_few(given.undecided, NAMED)
        yield f"Cheaper, but undecided: {names}." + (_effort_sentence(given.effort) if given.effort else "")


def _effort_sentence(effort: Effort) -> str:
    """Says what it would take, as a range: a single number would look more certain than it is."""
    within = f"that {effort.row} lies within the margin"
    if effort.seeds_and_text[0] is None:
        return f" No number of seeds and no amount of text is likely to show {within}."
    amounts, what = (
        (effort.seeds, "seeds") if effort.seeds[0] is not None else (effort.seeds_and_text, "seeds and text")
    )
    times = _times(amounts)
    if times is None:
        return (
            f" These data do not tell how many {what} would show {within}: no more than now, or more than {MOST_TIMES} "
            "times as many."
        )
    return f" To show {within} would take {times} the seeds{f' and {times} the dev text' * (what != 'seeds')}."


def _times(amounts: Sequence[float | None]) -> str | None:
    """Returns a range as text, and None for one that says nothing."""
    least, most = amounts
    assert least is not None
    if least > MOST_TIMES:
        return f"more than {MOST_TIMES} times"
    if most is not None and most <= MOST_TIMES:
        return f"{max(1.0, least):.1f} to {most:.1f} times"
    return f"at least {least:.1f} times" if least > 1 else None


def _layers(use: RowCost) -> str:
    return f"layer{'s' * (not use.layers.isdecimal())} {use.layers}"


def _saved(use: RowCost, best: RowCost) -> str:
    """Says what the row to use needs, and what the best needs."""
    if use.encoder == best.encoder:
        blocks = f"{use.num_blocks} instead of {best.num_blocks} of the encoder's {best.encoder_blocks} blocks"
    else:
        blocks = (
            f"{use.num_blocks} encoder blocks of width {use.hidden_size} instead of {best.num_blocks} of width "
            f"{best.hidden_size}"
        )
    parts = [
        blocks * ((use.num_blocks, use.hidden_size) != (best.num_blocks, best.hidden_size)),
        f"{use.width} instead of {best.width} features per word" * (use.width != best.width),
    ]
    needs = " and ".join(part for part in parts if part) or "the same blocks and width"
    speeds = ""
    if use.encoder_flops != best.encoder_flops:
        speeds = (
            f" ({format_count(use.encoder_flops)} instead of {format_count(best.encoder_flops)} operations per piece)"
        )
    return needs + speeds
