"""Many runs: what is asked for, what is done, what failed and why; shown from what is on disk.

A launcher starts the jobs, in whatever processes; each job calls `run_one`. All that they share is the results folder:
a record says done, a file under logs/ says failed, and `sweep.json` says what the sweep asks for. So another terminal,
a continued sweep and the table see the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from probe.config import Config, UserError
from probe.reporting.formats import render, write_tables
from probe.reporting.rows import build_rows, setting_of
from probe.runs.plan import Plan, plan, prepare_results, science, training_device
from probe.runs.progress import count, first_line, minutes, read_expected, running, write_expected
from probe.runs.run import extract, run
from probe.scoring.metrics import headline
from probe.system.machine import gpus, side_by_side, take_gpu

# Environment variable: which runs there are, how many were over before, since when, how many share this machine, and
# its GPUs.
STATE = "PROBE_SWEEP"


def scores(record: dict[str, Any]) -> str:
    dev, test = (100 * headline(record["scores"][split]) for split in ("dev", "test"))
    name = "accuracy" if record["data"]["task"] == "tags" else "F1"
    return (
        f"dev {name} {dev:.2f} · test {name} {test:.2f} · best epoch {record['best_epoch']} of {len(record['curve'])}"
    )


def run_sweep(configs: list[Config], launch: Callable[[int], None], here: bool = True) -> int:
    """Extracts, launches what is not done, shows the table. Returns the exit code: 0, or 1 if a run is not there.

    launch: starts the jobs, so many at once. here: on this machine; elsewhere each job extracts what it finds missing.
    """
    plans = list({planned.identity.key: planned for planned in map(plan, configs)}.values())
    folders = sorted({Path(planned.cfg.results_dir) for planned in plans})
    for folder in folders:
        prepare_results(folder)
        write_expected(folder, [_expected(p) for p in plans if Path(p.cfg.results_dir) == folder])
    for corpus in {id(planned.corpus): planned.corpus for planned in plans}.values():
        for note in corpus.notes:
            print(f"data {corpus.name}: {note}.", flush=True)
    todo = _not_done(plans)
    print(f"{len(plans)} runs, {len(plans) - len(todo) if todo else 'all'} done already.", flush=True)
    for planned in todo:
        _failure_file(planned).unlink(missing_ok=True)
    jobs, names = 1, []
    if here and todo:
        names = gpus() if "cuda" in [training_device(planned.cfg) for planned in todo] else []
        jobs = side_by_side(todo[0].cfg.jobs, len(names))
        _extract_each(todo)
    elif todo:
        print(f"Runs are sent elsewhere; `probe sweep-status {folders[0]}` shows where they stand.", flush=True)
    os.environ[STATE] = json.dumps(
        {
            "keys": [planned.identity.key[:10] for planned in plans],
            "before": len(plans) - len(todo),
            "start": time.time(),
            "runs": min(jobs, len(todo)),
            "gpus": names,
        }
    )
    while waiting := _neither_done_nor_failed(plans):
        with _stderr_to(Path(waiting[0].cfg.results_dir) / "logs" / "launcher.log"):
            launch(jobs)
        for folder in folders:
            prepare_results(folder)
        still = _neither_done_nor_failed(plans)
        if not here:  # others of the array may still run: never send them twice
            break
        no_progress = len(still) == len(waiting)
        if no_progress and jobs == 1:
            break
        jobs = max(1, jobs // 2) if no_progress else jobs
        if still:
            print(
                f"A process of the sweep was killed (often for lack of memory); {len(still)} runs are left"
                + (f", now {jobs} at a time" if no_progress else "")
                + ".",
                flush=True,
            )
    for folder in folders:
        rows = build_rows(folder)
        write_tables(folder, rows)
        print(f"\n{render(rows, 'text')}\nRecords and tables: {folder}")
    for planned in _not_done(plans):
        print(f"failed: {planned.label}: {_failure(planned, here)}", file=sys.stderr)
    return 1 if _not_done(plans) else 0


def run_one(cfg: Config) -> None:
    """One run of a sweep. A failure is written down, never raised, so that the others go on."""
    try:
        planned = plan(cfg)
    except UserError as error:  # the sweep could plan it: on a node of a cluster something is not there
        print(f"probe: {error}", file=sys.stderr, flush=True)
        return
    if planned.record_path.exists() or _failure_file(planned).exists():
        return
    try:
        prepare_results(Path(cfg.results_dir))
    except UserError:
        return  # the sweep says it once, at its end
    state, clock = _state(), time.perf_counter()
    take_gpu(state["gpus"])
    try:
        with running(Path(cfg.results_dir), planned.identity.key) as tell:
            there = planned.record_path.exists()
            record = run(cfg, tell, state["runs"], len(state["gpus"]))
        outcome = f"{scores(record)} · " + ("by another process" if there else f"{time.perf_counter() - clock:.0f} s")
    except Exception as error:
        outcome = f"failed: {_write_failure(planned, error)}"
    print(f"{_standing(Path(cfg.results_dir))} · {planned.label} · {outcome}", flush=True)


def _expected(planned: Plan) -> dict[str, Any]:
    return {
        "key": planned.identity.key,
        "row": planned.selection.name,
        "identity": planned.identity.as_dict(),
        "width": planned.selection.width,
        "setting": setting_of(science(planned.cfg), planned.corpus.name, planned.encoder.name),
    }


def _extract_each(plans: list[Plan]) -> None:
    """Fills every store that these runs read; where one cannot be, its runs have failed and the others go on."""
    for key, cfg in {planned.store.key: planned.cfg for planned in plans}.items():
        try:
            extract(cfg)
        except Exception as error:
            for planned in plans:
                if planned.store.key == key:
                    _write_failure(planned, error)


def _not_done(plans: list[Plan]) -> list[Plan]:
    return [planned for planned in plans if not planned.record_path.exists()]


def _neither_done_nor_failed(plans: list[Plan]) -> list[Plan]:
    return [planned for planned in _not_done(plans) if not _failure_file(planned).exists()]


def _failure_file(planned: Plan) -> Path:
    return Path(planned.cfg.results_dir) / "logs" / f"{planned.record_path.stem}.failed.txt"


def _write_failure(planned: Plan, error: Exception) -> str:
    """Keeps the traceback in a file; returns the one line that says why."""
    reason = str(error).splitlines()[0] if str(error) else ""
    line = reason if isinstance(error, UserError) else f"{type(error).__name__}: {reason}"
    trace = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):  # a full disk may be the very reason
        _failure_file(planned).write_text(f"{line}\n\n{trace}", encoding="utf-8")
    return line


def _failure(planned: Plan, here: bool) -> str:
    file = _failure_file(planned)
    if not file.exists():
        log = file.parent / "launcher.log"
        last = log.read_text(encoding="utf-8", errors="replace").split("\n") if log.exists() else []
        said = next((line.strip() for line in reversed(last) if line.strip()), "nothing")
        what = (
            "its process was killed; the same command tries again"
            if here
            else f"no result came back. It may still run: `probe sweep-status {planned.cfg.results_dir}`; once nothing "
            "does, the same command sends what is left"
        )
        return f"{what} (log: {log}, which ends: {said[:120]})"
    return f"{first_line(file)} (log: {file})"


def _state() -> dict[str, Any]:
    """What the process that started this sweep said of it; a run that somebody launched by hand is alone."""
    alone: dict[str, Any] = {"keys": [], "before": 0, "start": time.time(), "runs": 1, "gpus": []}
    return json.loads(os.environ.get(STATE, "null")) or alone


def _standing(results_dir: Path) -> str:
    """Where the sweep stands: "run 7 of 18, 2 failed, about 6 min left"."""
    state = _state()
    keys = set(state["keys"])
    done, failed = count(results_dir, keys & {expected["key"][:10] for expected in read_expected(results_dir)})
    left = len(keys) - done - failed
    under_way = (state["runs"] - 1) / 2  # the runs beside the one that just ended: half done, on average
    left_s = (time.time() - state["start"]) / max(1, done + failed - state["before"] + under_way) * left
    parts = [f"run {done + failed} of {len(keys)}"] + [f"{failed} failed"] * bool(failed)
    return ", ".join(parts + [f"{minutes(left_s)} left"] * (left > 0))


@contextlib.contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Sends what libraries and dying processes write on stderr, here and in child processes, to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("ab") as stream:
        os.dup2(stream.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
