"""What a race says of its rounds, in lines. Scores in percent, of dev alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from probe.race.rule import Elimination, Round
from probe.system.format import percent


def round_lines(done: Round, all_left: Mapping[str, Elimination]) -> Iterator[str]:
    """Who leads after a round, and who left in it."""
    head = f"Round {done.number} ({len(done.runs)} runs)"
    if done.leader is None:
        yield f"{head}: no row can be ranked."
    else:
        lead = f"{head}: {done.leader} leads with dev {percent(done.means[done.leader])}"
        spread = "" if done.spread is None else f"; spread over seeds {percent(done.spread)}, {done.df} df"
        yield f"{lead}{spread}."
    for row, left in all_left.items():
        if left.round == done.number:
            yield f"  {row} leaves: {why_left(left)}"


def why_left(left: Elimination) -> str:
    """Why a row got no more seeds."""
    if left.behind is None or left.t is None or left.threshold is None:
        return left.why
    return f"{left.why}, {percent(left.behind)} behind (t {left.t:.2f}, more than {left.threshold:.2f})"


def ending_line(rounds: Sequence[Round], ended: str | None) -> str:
    so_far = f"{len(rounds)} rounds and {sum(len(done.runs) for done in rounds)} runs"
    return f"The race has ended after {so_far}: {ended}." if ended else f"The race goes on, after {so_far}."
