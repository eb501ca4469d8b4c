"""Whether tables on disk are what the records give, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from probe.checks.check import Check
from probe.reporting.formats import FILES


def check_tables(folder: Path, tables: Mapping[str, str]) -> Iterator[Check]:
    """The files of a folder against what they should hold, by name."""
    for name, text in tables.items():
        if not (folder / name).exists():
            lost = ", and with it the sha256 of each record" if name == FILES["json"] else ""
            yield Check(name, None, f"not there{lost}; the end of a sweep and `probe report` write it")
            continue
        stored = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
        made = text.splitlines()
        lines = max(len(stored), len(made))
        odd = next((i for i in range(lines) if stored[i : i + 1] != made[i : i + 1]), None)
        detail = "what the records give"
        if odd is not None:
            detail = f"line {odd + 1} is {(stored[odd : odd + 1] or ['missing'])[0][:100]!r}, "
            detail += f"the records give {(made[odd : odd + 1] or ['nothing'])[0][:100]!r}"
        yield Check(name, odd is None, detail)
