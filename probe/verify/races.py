"""Checks a race: simulates its thresholds again, and derives its decisions again from the records."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from probe.config import UserError
from probe.race.rule import VERSION, num_ahead, thresholds
from probe.race.spec import DECISIONS, RACE, RaceSpec, decide_again, read_decisions, read_spec
from probe.verify.check import Check
from probe.verify.compare import unequal_facts

NEAR = 0.02  # relative tolerance of a threshold: another version of numpy may draw other numbers
SIX_DIGITS = 1e-5  # relative tolerance of the numbers in decisions.json


def check_race(folder: Path) -> Iterator[Check]:
    """Checks the race of a results folder, if there is one."""
    try:
        spec, decisions = read_spec(folder), read_decisions(folder)
    except UserError as error:
        yield Check(RACE, False, str(error))
        return
    if spec is None:
        if decisions is not None:
            yield Check(RACE, False, f"it is missing, but there is a {DECISIONS}")
        return
    if spec.rules.version != VERSION:
        for name in (f"{RACE}: rules", DECISIONS):
            yield Check(name, None, f"version {spec.rules.version} of the rule; this code has version {VERSION}")
        return
    problem = _rule_problem(spec)
    message = f"{len(spec.entries)} rows, up to {len(spec.rules.seeds)} seeds, alpha {spec.rules.alpha}"
    yield Check(f"{RACE}: rules", problem is None, problem or message)
    if decisions is None:
        yield Check(DECISIONS, None, "missing; the same race writes it")
        return
    try:
        state, again = decide_again(folder, spec, decisions.failed)
    except (ValueError, IndexError) as error:  # also UserError; counts of another text, invalid rules
        yield Check(DECISIONS, False, str(error))
        return
    difference = next(unequal_facts(json.loads(decisions.text()), json.loads(again.text()), SIX_DIGITS), None)
    if difference:
        place, recorded, derived = difference
        yield Check(DECISIONS, False, f"{place} is {recorded}, the records give {derived}")
    elif state.ended is None:
        yield Check(DECISIONS, None, f"as the records give so far; the same race makes {len(state.todo)} more runs")
    else:
        remaining = f"{len(state.remaining)} of {len(spec.rows)} rows remain"
        yield Check(DECISIONS, True, f"as rules and records give: {remaining}")


def _rule_problem(spec: RaceSpec) -> str | None:
    """Returns what is wrong with a race's rules: too low a threshold would eliminate the best row too often."""
    rules, num_rows = spec.rules, len(spec.entries)
    if not 0 < rules.alpha < 1:
        return f"alpha {rules.alpha} is not a probability"
    again = thresholds(num_rows, num_ahead(num_rows), len(rules.seeds), rules.alpha)
    if rules.ahead != num_ahead(num_rows) or len(again) != len(rules.thresholds):
        return f"{rules.ahead} rows ahead and {len(rules.thresholds)} thresholds are not those of {num_rows} rows"
    for recorded, simulated in zip(rules.thresholds, again, strict=True):
        if not math.isclose(recorded, simulated, rel_tol=NEAR):
            return f"threshold {recorded:.3f}, simulated again {simulated:.3f}"
    return None
