"""Shows how far long work is."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from tqdm import tqdm

from probe.system.processes import LOOK_EVERY_S


def progress_bar(total: int | None, what: str, unit: str = "words") -> tqdm:
    """Returns a bar with the time left. Where nobody watches, as in a log, it is renewed every half minute."""
    return tqdm(
        total=total,
        desc=what,
        unit=f" {unit}",
        unit_scale=unit == "words",
        dynamic_ncols=True,
        mininterval=0.5 if sys.stderr.isatty() else 30,
        delay=1,  # seconds; what is done by then needs no bar
    )


def run_with_bar(arguments: Sequence[str], what: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. In a notebook or a terminal, a bar shows its runs, or what it printed last."""
    from tqdm.auto import tqdm

    is_hidden = False if "ipykernel" in sys.modules else None  # None: unless there is a terminal
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as errors,
        tqdm(desc=what, unit=" runs", disable=is_hidden, leave=False) as bar,
    ):

        def printed() -> list[str]:
            numbers = [file.fileno() for file in (out, errors)]
            return [os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace") for number in numbers]

        process = subprocess.Popen(arguments, stdout=out, stderr=errors)
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_EVERY_S)
                stdout, stderr = printed()
                runs = re.findall(r"^run (\d+) of (\d+)", stdout, flags=re.M)
                for over, total in runs[-1:]:
                    if bar.total != int(total):
                        bar.reset(int(total))
                    bar.update(int(over) - bar.n)
                bar.set_postfix_str("" if runs else re.split(r"[\r\n]", stderr.strip())[-1][:60])
        finally:
            process.terminate()  # after Ctrl-C, with the processes that it started
            process.wait()
        return subprocess.CompletedProcess(arguments, process.returncode, *printed())
