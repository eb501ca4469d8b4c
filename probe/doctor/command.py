"""`probe doctor`: is everything here for a run?"""

from __future__ import annotations

import functools

from probe.arguments import Parser
from probe.settings import configs_of


def doctor(arguments: list[str]) -> int:
    from probe.doctor.doctor import examine

    parser = Parser(
        prog="probe doctor",
        description="Is everything here for the run that these settings ask for? Of a sweep, also what it costs.",
    )
    parser.add_argument("-m", "--multirun", action="store_true", help="a sweep: settings name several values")
    parser.add_argument("overrides", nargs="*", metavar="setting=value")
    options = parser.parse_intermixed_args(arguments)
    configs = configs_of(["-m"] * options.multirun + options.overrides)[0]
    return 0 if examine(configs[0], functools.partial(print, flush=True), configs) else 1
