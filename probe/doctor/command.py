"""Implements `probe doctor`."""

from __future__ import annotations

from probe.arguments import Parser
from probe.settings import add_multirun, configs_of

DESCRIPTION = """\
Checks that data, encoder, feature store and device are ready for the run that these settings
describe. For a sweep it also estimates the cost. Exit code 0 if the run would work, 1 if not.
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
    parser.add_format("text", "json")
    options = parser.parse_intermixed_args(arguments)

    from probe.doctor.doctor import Part, examine
    from probe.doctor.report import as_json, last_lines, part_lines

    def show(part: Part) -> None:
        if options.format == "text":
            print(*part_lines(part), sep="\n", flush=True)

    configs, _ = configs_of(["-m"] * options.multirun + options.overrides)
    found = examine(configs[0], configs, show)
    print(*(last_lines(found) if options.format == "text" else [as_json(found)]), sep="\n")
    return 0 if found.works else 1
