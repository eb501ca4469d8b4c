"""Writes the rounds of a race as lines. Scores are dev scores, in percent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from probe.race.rule import Elimination, Round
from probe.system.format import percent, pluralize


def round_lines(done: Round, eliminations: Mapping[str, Elimination]) -> Iterator[str]:
    """Yields who leads after a round, and which rows it eliminated."""
    head = f"Round {done.number} ({pluralize(len(done.runs), 'run')})"
    if done.leader is None:
        yield f"{head}: no row can be ranked."
    else:
        lead = f"{head}: {done.leader} leads with dev {percent(done.means[done.leader])}"
        spread = "" if done.spread is None else f"; spread over seeds {percent(done.spread)}, {done.df} df"
        yield f"{lead}{spread}."
    for row, elimination in eliminations.items():
        if elimination.round == done.number:
            yield f"  {row} is eliminated: {elimination_reason(elimination)}"


def elimination_reason(elimination: Elimination) -> str:
    """Returns why a row gets no more seeds."""
    if elimination.behind is None or elimination.t is None or elimination.threshold is None:
        return elimination.why
    details = f"t {elimination.t:.2f}, more than {elimination.threshold:.2f}"
    return f"{elimination.why}, {percent(elimination.behind)} behind ({details})"


def ending_line(rounds: Sequence[Round], ended: str | None) -> str:
    """Says whether and why the race has ended. ended: the reason; None while it continues."""
    so_far = f"{pluralize(len(rounds), 'round')} and {pluralize(sum(len(done.runs) for done in rounds), 'run')}"
    return f"The race has ended after {so_far}: {ended}." if ended else f"The race continues after {so_far}."
