"""Does a race hold? Its thresholds are simulated again, and its decisions made again from the records."""

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
SIX_DIGITS = 1e-5  # relative tolerance of what decisions.json holds


def check_race(folder: Path) -> Iterator[Check]:
    """The race of a results folder, where there is one."""
    try:
        spec, decisions = read_spec(folder), read_decisions(folder)
    except UserError as error:
        yield Check(RACE, False, str(error))
        return
    if spec is None:
        if decisions is not None:
            yield Check(RACE, False, f"there is none, but its {DECISIONS} is")
        return
    if spec.rules.version != VERSION:
        for name in (f"{RACE}: rules", DECISIONS):
            yield Check(name, None, f"of version {spec.rules.version} of the rule; this code decides by {VERSION}")
        return
    problem = _rule_problem(spec)
    message = f"{len(spec.entries)} rows, up to {len(spec.rules.seeds)} seeds, alpha {spec.rules.alpha}"
    yield Check(f"{RACE}: rules", problem is None, problem or message)
    if decisions is None:
        yield Check(DECISIONS, None, "not there; the same race writes it")
        return
    try:
        state, again = decide_again(folder, spec, decisions.failed)
    except (ValueError, IndexError) as error:  # a UserError too; counts of another text, rules that are none
        yield Check(DECISIONS, False, str(error))
        return
    odd = next(unequal_facts(json.loads(decisions.text()), json.loads(again.text()), SIX_DIGITS), None)
    if odd:
        yield Check(DECISIONS, False, f"{odd[0]} is {odd[1]}, the records give {odd[2]}")
    elif state.ended is None:
        yield Check(DECISIONS, None, f"what the records give so far; {len(state.todo)} runs are to come: the same race")
    else:
        yield Check(
            DECISIONS, True, f"what rules and records give: {len(state.remaining)} of {len(spec.rows)} rows stand"
        )


def _rule_problem(spec: RaceSpec) -> str | None:
    """What is wrong with a race's rules: a threshold below what alpha asks for lets the best row leave too often."""
    rules, num_rows = spec.rules, len(spec.entries)
    if not 0 < rules.alpha < 1:
        return f"alpha {rules.alpha} is no probability"
    again = thresholds(num_rows, num_ahead(num_rows), len(rules.seeds), rules.alpha)
    if rules.ahead != num_ahead(num_rows) or len(again) != len(rules.thresholds):
        return f"{rules.ahead} rows ahead and {len(rules.thresholds)} thresholds are not those of {num_rows} rows"
    for recorded, simulated in zip(rules.thresholds, again, strict=True):
        if not math.isclose(recorded, simulated, rel_tol=NEAR):
            return f"threshold {recorded:.3f}, simulated again {simulated:.3f}"
    return None
