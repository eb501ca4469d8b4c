"""Implements `probe report`."""

from __future__ import annotations

from probe.commands.arguments import Parser, report_bad_records, results_or_last


def report(arguments: list[str]) -> int:
    """Writes the tables, the figures and one self-contained page (report.html) of a results folder.
    A sweep and a screen do so at their end. A figure is PNG; for papers, it can be SVG or PDF.

    examples:
      probe report results/quickstart
      probe report results/quickstart --margin 1
      probe report results/quickstart --format pdf
    """
    parser = Parser(report)
    parser.add_folder()
    parser.add_margin()
    parser.add_format("png", "svg", "pdf")
    options = parser.parse_intermixed_args(arguments)

    from probe.report.page import write_report

    folder = results_or_last(options.dir)
    code = report_bad_records(folder)
    print(*write_report(folder, options.margin, options.format), sep="\n")
    return code
