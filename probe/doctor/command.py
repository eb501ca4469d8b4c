"""`probe doctor`: is everything ready for a run?"""

from __future__ import annotations

import functools

from probe.arguments import Parser
from probe.settings import add_multirun, configs_of

DESCRIPTION = """\
Checks that data, encoder, feature store and device are ready for the run that these settings
describe. Of a sweep it also estimates the cost. Exit code 0 if the run would work, 1 if not.
"""
EXAMPLES = """\
  probe doctor data=columns data.path=DIR encoder=minilm_l6
  probe doctor +sweep=floors_and_ceilings data=demo encoder=minilm_l6
"""


def doctor(arguments: list[str]) -> int:
    """Checks a run or a sweep before it starts, and returns the exit code."""
    parser = Parser("doctor", DESCRIPTION, EXAMPLES)
    add_multirun(parser)
    parser.add_settings()
    options = parser.parse_intermixed_args(arguments)

    from probe.doctor.doctor import examine

    configs, _ = configs_of(["-m"] * options.multirun + options.overrides)
    return 0 if examine(configs[0], functools.partial(print, flush=True), configs) else 1
