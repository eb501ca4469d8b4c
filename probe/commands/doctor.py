"""Implements `probe doctor`."""

from __future__ import annotations

from probe.commands.arguments import Parser, results_path
from probe.settings import configs_of


def doctor(arguments: list[str]) -> int:
    """Checks that data, encoder and device are ready for the runs that these settings describe, and
    estimates their cost in disk and time. Exit code 0 if they would work, 1 if not.

    examples:
      probe doctor data=DATA encoder=DIR
      probe doctor +sweep=floors_and_ceilings data=demo encoder=minilm_l6
      probe doctor +sweep=quickstart --like results/demo-quickstart
    """
    parser = Parser(doctor)
    parser.add_settings(multirun=True)
    parser.add_argument(
        "--like", type=results_path, metavar="DIR",
        help="also say which differences 3 to 20 seeds would show, if scores vary as in this results folder",
    )  # fmt: skip
    options = parser.parse_intermixed_args(arguments)
    configs, _ = configs_of(["-m"] * options.multirun + options.overrides)

    from probe.doctor.doctor import examine

    failed: list[str] = []
    num_warnings = 0
    for part in examine(configs, options.like):
        print(part.text(), flush=True)
        failed += [part.name] * (not part.ok)
        num_warnings += part.num_warnings
    first = " Look at the warnings above first." if num_warnings else ""
    print((f"This would fail: {', '.join(dict.fromkeys(failed))}." if failed else "This would work.") + first)
    return 1 if failed else 0
