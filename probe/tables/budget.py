"""Recommends the best row within a budget of blocks or of features per word."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from probe.config import UserError, suggestion
from probe.format import percent
from probe.tables.recommendation import recommend
from probe.tables.row import Row

# What a row takes, by the name of its budget, and the unit.
BUDGETS = {
    "blocks": (lambda row: row.num_blocks, "blocks of the encoder"),
    "width": (lambda row: row.width, "features per word"),
}


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


def within_budget(rows: Sequence[Row], name: str, limit: float) -> str:
    """Says which row of a table is the best within a budget, and how far it lies behind the best of all."""
    recommended = recommend(rows)
    if recommended.best is None:
        return recommended.text
    best, (cost, unit) = recommended.best, BUDGETS[name]
    ranked = [row for row in rows if row.behind]
    fitting = [row for row in ranked if cost(row) <= limit]
    if not fitting:
        edge = min(ranked, key=cost)
        return f"No row is within {name}={limit:g}: {edge.title} comes nearest with {cost(edge):,} {unit}."
    use = best if best in fitting else max(fitting, key=lambda row: row.dev_mean)
    score = use.task.headline.name
    head = f"Within {name}={limit:g} use {use.title}: {cost(use):,} {unit}, dev {score} {percent(use.dev_mean)}."
    if use is best:
        return f"{head} It is the best of all rows."
    lower, behind = percent(best.dev_mean - use.dev_mean), percent(use.most_behind)
    return (
        f"{head} It is {lower} points below the best, {best.title} ({cost(best):,} {unit}), "
        f"at most {behind} behind the truly best."
    )
