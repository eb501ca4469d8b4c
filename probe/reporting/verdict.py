"""What to use, what it costs, and what would settle the rest: the verdict on one table. A pure function of its rows.

Cost is compared by the encoder blocks needed, then by the width of the vectors, then by the parameters of the probe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from probe.reporting.order import has_counts
from probe.reporting.row import PLAIN, Row
from probe.scoring.significance import ALPHA, lowest_p, sample_size
from probe.system.files import plain
from probe.system.show import amount, p_value, percent

POWER = 0.8  # the chance that a difference as large as the one seen is found: "4 times in 5"
MOST_SEEDS = 100  # more is "more than"
NAMED = 6  # open rows in a sentence


@dataclass(frozen=True)
class Use:
    """A row to use. blocks: of the encoder's `of_blocks` that have to be computed. parameters: of the probe.

    encoder_flops: for a piece, at 24 H^2 a BERT block (products inside attention left out). probe_flops: for a word.
    words_per_second: of the encoder cut after these blocks, on `measured_on`; None until `probe bench` has measured it.
    """

    row: str
    dev: float
    blocks: int
    of_blocks: int
    width: int
    parameters: int
    encoder_flops: int
    probe_flops: int
    words_per_second: int | None = None
    measured_on: str | None = None


@dataclass(frozen=True)
class Open:
    """A row not told apart from the best, and what would do so with power POWER if the true difference is the one seen:
    seeds in each of the two rows, and how many times the test text. None: enough already, or no number would do.
    order: tied or untested. reversed: the row is ahead on test, so neither would do."""

    row: str
    order: str
    difference: float
    seeds: int | None = None
    text: float | None = None
    reversed: bool = False


@dataclass(frozen=True)
class Verdict:
    """best: highest dev mean. cheapest: of the best and the rows tied with it. none: why there is no verdict,
    where the tests could not tell anything apart."""

    score: str
    best: Use | None = None
    cheapest: Use | None = None
    none: str | None = None
    open: list[Open] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return plain(self)

    def as_text(self) -> str:
        """One paragraph."""
        return " ".join(_sentences(self))


def verdict(rows: Sequence[Row]) -> Verdict:
    """The verdict on one table, its rows as `order.in_order` gives them."""
    score = rows[0].task.score
    rows = [row for row in rows if row.place == PLAIN]
    best = next((row for row in rows if row.order == "best"), None)
    if best is None:
        many = [row for row in rows if row.n > 1 and not row.left]
        reason = "no two rows converged" if len(many) > 1 else "one row alone is the best of nothing"
        if many and any(row.left for row in rows):
            reason = "the race has left no two rows to compare"
        if not rows:
            reason = "there is no row to compare with another"
        elif not many:
            reason = (
                "one seed a row allows no test (five: seed=1,2,3,4,5)"
                if any(row.n for row in rows)
                else "no run is done"
            )
        return Verdict(score, none=reason)
    others = [row for row in rows if "best" in row.against]
    with_counts = has_counts([row.against["best"] for row in others])
    alpha = ALPHA if with_counts else ALPHA / len(others)  # without counts the seeds decide, corrected
    rest = sorted((row for row in others if row.order != "below"), key=lambda row: -row.against["best"].dev.difference)
    still = [_open(row, best, alpha, len(others), with_counts) for row in rest]
    if all(row.order == "untested" for row in others):
        few = [row for row in others if lowest_p(*row.against["best"].n) >= alpha]  # not those that lack counts
        least = min(lowest_p(*row.against["best"].n) for row in few)
        seeds = " or ".join(map(str, sorted({row.n for row in [best, *few]})))
        reason = f"{seeds} seeds a row cannot tell any two apart (their test cannot go below p {p_value(least)})"
        return Verdict(score, use(best), none=reason, open=still)
    candidates = [best, *(row for row in rest if row.order == "tied")]
    return Verdict(score, use(best), min(map(use, candidates), key=_cost), open=still)


def use(row: Row) -> Use:
    """What a row with records costs where it is used."""
    record = next(iter(row.records.values()))
    cost, mean = row.cost, row.cells["dev_f1"].mean
    assert cost is not None
    assert mean is not None
    return Use(
        row=row.name,
        dev=mean,
        blocks=row.blocks,
        of_blocks=record.encoder.num_layers,
        width=row.width,
        parameters=cost.parameters,
        encoder_flops=24 * record.encoder.hidden_size**2 * row.blocks,
        probe_flops=2 * cost.parameters,
        words_per_second=cost.words_per_second,
        measured_on=cost.measured_on,
    )


def _cost(used: Use) -> tuple[int, int, int]:
    return used.blocks, used.width, used.parameters


def _open(row: Row, best: Row, alpha: float, comparisons: int, with_counts: bool) -> Open:
    difference = row.against["best"]
    dev = difference.dev
    if difference.test.difference > 0 and lowest_p(*difference.n) < alpha:
        return Open(row.name, str(row.order), dev.difference, reversed=True)
    seeds, text = None, None
    p_seeds = dev.p_seeds if with_counts else dev.p_seeds_holm
    if p_seeds is None or p_seeds >= ALPHA:
        spread = math.sqrt(sum((one.cells["dev_f1"].std or 0.0) ** 2 for one in (row, best)) / 2)
        found = sample_size(abs(dev.difference), spread, alpha, POWER, MOST_SEEDS)
        seeds = max(found, min(difference.n) + 1)  # with those that are there it did not come out
    if difference.p_text is not None and difference.p_text_holm is not None and difference.p_text_holm >= ALPHA:
        corrected = difference.p_text_holm  # capped at 1 it hides Holm's factor: then that of all comparisons
        correction = corrected / difference.p_text if corrected < 1 else comparisons
        text = _text_needed(difference.p_text, ALPHA / correction)
    return Open(row.name, str(row.order), dev.difference, seeds, text)


def _text_needed(p: float, alpha: float) -> float | None:
    """How many times the text makes a paired difference of the observed size significant, with power POWER.

    In standard errors the difference grows with the square root of the text. None: there is no difference.
    """
    normal = NormalDist()
    seen = normal.inv_cdf(1 - p / 2)
    return None if seen < 1e-3 else round(((normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(POWER)) / seen) ** 2, 1)


def _sentences(verdict: Verdict) -> Iterator[str]:
    best, cheapest = verdict.best, verdict.cheapest
    if verdict.none is not None:
        yield f"verdict: none, for {verdict.none}."
        if best is not None:
            yield f"{best.row} has the highest dev mean ({_shown(best)})."
    elif best is not None and cheapest is not None:
        if best == cheapest:
            yield f"verdict: {best.row}, {_shown(best)}: no cheaper row came out as good."
        else:
            yield f"verdict: {best.row} has the best dev {verdict.score}, {percent(best.dev)} ({_shown(best)})."
            yield (
                f"The cheapest row tied with it is {cheapest.row}, {percent(cheapest.dev)} "
                f"({_shown(cheapest)}): {_saving(cheapest, best)}."
            )
    if verdict.open:
        yield _what_it_would_take(verdict.open)


def _shown(used: Use) -> str:
    blocks = f"{used.blocks} of {used.of_blocks} blocks" if used.blocks else f"none of {used.of_blocks} blocks"
    return f"{blocks}, width {used.width}, {amount(used.parameters)} parameters"


def _saving(cheapest: Use, best: Use) -> str:
    if cheapest.words_per_second and best.words_per_second:
        return (
            f"{cheapest.words_per_second:,} words/s through the encoder instead of {best.words_per_second:,} "
            f"({cheapest.measured_on})"
        )
    parts = [
        f"{where} {amount(ours)} instead of {amount(theirs)} operations a {unit}"
        for where, unit, ours, theirs in (
            ("in the encoder", "piece", cheapest.encoder_flops, best.encoder_flops),
            ("in the probe", "word", cheapest.probe_flops, best.probe_flops),
        )
        if ours != theirs
    ]
    return f"{', '.join(parts)} (counted)" if parts else "at the same cost"


def _what_it_would_take(rows: Sequence[Open]) -> str:
    """Which rows are open, and by what they could be settled."""
    which = " and ".join(sorted({row.order for row in rows}))
    ways: dict[str, list[str]] = {}
    for row in rows:
        parts = []
        if row.seeds is not None:
            parts.append(f"{row.seeds} seeds a row" if row.seeds <= MOST_SEEDS else f"more than {MOST_SEEDS} seeds")
        if row.text is not None:
            parts.append(f"{row.text:.1f} times the test text" if row.text <= 100 else "more than 100 times the text")
        way = " and ".join(parts) or ("none will, ahead on test" if row.reversed else "another text, or counts")
        ways.setdefault(way, []).append(row.row)
    shown = [f"{', '.join(names)}: {way}" for way, names in list(ways.items())[:NAMED]]
    more = sum(len(names) for names in list(ways.values())[NAMED:])
    told = "; ".join(shown) + (f"; and {more} more" if more else "")
    return f"To tell the {which} rows from it, at the differences and spreads seen, takes about (4 times in 5): {told}."
