"""`probe report`: tables, figures and one page."""

from __future__ import annotations

from pathlib import Path

from probe.arguments import Parser, at_least, results_or_last, say_bad_records


def report(arguments: list[str]) -> int:
    from probe.report.page import write_report

    parser = Parser(prog="probe report", description="Tables, figures and one self-contained page (report.html).")
    parser.add_argument("dir", nargs="?", type=Path, help="folder with records/; none: the one written last")
    parser.add_argument(
        "--margin", type=at_least(float, 0), help="points of dev F1 that you do not mind; see probe table"
    )
    options = parser.parse_args(arguments)
    folder = results_or_last(options.dir)
    code = say_bad_records(folder)
    print(*write_report(folder, options.margin), sep="\n")
    return code
