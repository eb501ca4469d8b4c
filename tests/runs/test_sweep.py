"""Sweeps that are killed, that run out of disk, and that share their runs: what comes out is the same."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import DEADLINE_S, SERVER, as_nobody, finish, interpreter, num_calls, probe, start, stop, wait_for
from support.facts import names
from support.records import expect, make_record, results

from probe.config import UserError
from probe.runs.outputs import remove_leftovers
from probe.runs.plan import plan, prepare_results
from probe.runs.progress import Attempt, SweepStatus, running, write_attempts
from probe.runs.records import RecordedEncoder, load_record, record_path
from probe.runs.sweep import _Queue, scores_line
from probe.runs.sweep_plan import read_asked
from probe.settings import configs_of
from probe.system import bfloat16


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "records").glob("*.json")}


def processes_of(session: int) -> Iterator[int]:
    found = subprocess.run(["pgrep", "-s", str(session)], capture_output=True, text=True)
    return map(int, found.stdout.split())


@pytest.mark.slow
def test_a_sweep_killed_ten_times_ends_with_the_same_records(inputs: list[str], tmp_path: Path):
    sweep = ["-m", "layers=last,mix_all", "seed=range(1,5)", "results_dir=out", *inputs, "probe.max_epochs=1"]
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    for folder in (alone, killed):
        folder.mkdir()
    undisturbed = probe(*sweep, "jobs=1", cwd=alone)
    assert undisturbed.returncode == 0, undisturbed.stderr
    expected = results(alone / "out")

    choose = random.Random(7)
    seen: dict[str, int] = {}
    in_the_middle = 0
    for number, more in enumerate((None, None, 0, 1, 0, 1, 2, 0, 1, 1)):  # runs to be finished before it is killed
        process = start(*sweep, f"jobs={1 + (number in (3, 8))}", cwd=killed)
        if more is None:  # before extraction, or within it
            time.sleep(choose.uniform(0.2, 2))
        else:
            logs, before = killed / "out/logs", time.time()
            end = before + DEADLINE_S
            while process.poll() is None and (
                len(times(killed / "out")) < len(seen) + more
                or not any(path.stat().st_mtime > before for path in logs.glob("*.running.txt"))
            ):
                assert time.time() < end, stop(process)
                time.sleep(0.01)
            time.sleep(choose.uniform(0, 0.5))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        now = times(killed / "out")
        assert seen.items() <= now.items(), "what was finished is kept and not done again"
        seen = now
        in_the_middle += 0 < len(seen) < 8
    assert in_the_middle > 2, "killed too early or too late, the test shows nothing"
    last = probe(*sweep, "jobs=1", cwd=killed)
    assert last.returncode == 0, last.stderr
    assert seen.items() <= times(killed / "out").items()
    assert results(killed / "out") == expected
    assert len(expected) == 8 * 4


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_stops_a_sweep_which_continues_later(inputs: list[str], tmp_path: Path, jobs: int):
    sweep = ["-m", "layers=last", "seed=range(1,7)", "results_dir=out", *inputs, "probe.max_epochs=1"]
    process = interpreter(*sweep, f"jobs={jobs}", cwd=tmp_path)  # what it prints goes to no file
    wait_for(lambda: times(tmp_path / "out"), DEADLINE_S, "the first record", process)
    for member in processes_of(process.pid):
        resource.prlimit(member, resource.RLIMIT_FSIZE, (0, 0))  # from now on no file takes another byte
    out, errors = finish(process)
    assert process.returncode == 2, errors
    assert len([line for line in errors.splitlines() if line and "extracting" not in line]) == 1
    names(errors, "results_dir=out", "File too large")
    assert "out/records" in errors or "out/logs" in errors, "whichever could not take a byte first"
    assert out.count(" · failed: ") <= jobs, "what cannot be kept is not trained"
    finished = times(tmp_path / "out")
    assert 0 < len(finished) < 6

    again = probe(*sweep, "jobs=1", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    after = times(tmp_path / "out")
    assert finished.items() <= after.items()
    assert len(after) == 6
    assert not list((tmp_path / "out").rglob(".*")), "no half-made file is left"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_unwritable_results_folder_is_named_before_training(open_to_all: Path):
    out = open_to_all / "out"
    prepare_results(out)
    assert not list(out.rglob("*.*")), "trying leaves nothing"
    (out / "records").chmod(0o555)

    def outcome() -> str:
        try:
            prepare_results(out)
        except UserError as error:
            return str(error)
        return "written"

    told = as_nobody(outcome)
    names(told, "out/records", "Permission denied")


def _turns(folder: Path, name: str, turns: int) -> None:
    for _ in range(turns):
        with running(folder, name), (folder / "turns.txt").open("a", buffering=1) as log:
            log.write("begin\n")
            time.sleep(0.001)
            log.write("end\n")


def test_one_run_is_made_by_one_process(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    processes = [SERVER.Process(target=_turns, args=(tmp_path, "last-seed1", 50)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    assert (tmp_path / "turns.txt").read_text() == "begin\nend\n" * 200
    assert not list((tmp_path / "logs").iterdir())


@pytest.mark.slow
def test_two_sweeps_started_together_train_each_run_once(inputs: list[str], tmp_path: Path):
    sweep = ["-m", "layers=last", "seed=1,2", "results_dir=out", "jobs=1", *inputs, "probe.max_epochs=3"]
    processes = [start(*sweep, cwd=tmp_path) for _ in range(2)]
    told = [finish(process) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    trained = [line for out, _ in told for line in out.splitlines() if re.search(r" · dev F1 .* · \d+ s$", line)]
    assert sorted(re.findall("seed .", " ".join(trained))) == ["seed 1", "seed 2"]


@pytest.mark.usefixtures("short_epochs")
def test_runs_of_another_command_are_told_before_training(
    inputs: list[str], typed: Callable, monkeypatch: pytest.MonkeyPatch
):
    sweep = ["-m", "layers=last", "seed=1", "results_dir=out", "jobs=1", *inputs]
    monkeypatch.setattr("probe.runs.sweep.running_here", lambda folder: 37)
    names(typed(*sweep).stdout, "37 runs")


@pytest.mark.parametrize("other", ["makes it", "leaves it"])
def test_a_run_of_another_process_is_waited_for_last(inputs: list[str], tmp_path: Path, typed: Callable, other: str):
    out = tmp_path / "out"
    assert typed("layers=majority_tag", "results_dir=out", *inputs).returncode == 0
    (memory,) = (out / "records").iterdir()
    key, content = load_record(memory).key, memory.read_bytes()
    memory.unlink()
    with running(out, key):
        process = start("-m", "layers=majority_tag,last", "results_dir=out", "jobs=1", *inputs, cwd=tmp_path)
        wait_for(lambda: any((out / "records").glob("last-*.json")), DEADLINE_S, "the other run", process)
        if other == "makes it":
            memory.write_bytes(content)
    told, errors = finish(process)
    assert process.returncode == 0, errors
    made = [line.split(" · ")[1] for line in told.splitlines() if line.startswith("run ")]
    assert made == ["last seed 1", *["majority_tag seed 0"] * (other == "leaves it")]
    assert memory.exists()


@pytest.mark.usefixtures("short_epochs")
def test_a_run_fails_that_killed_two_processes_of_a_launch_or_failed_in_it(
    inputs: list[str], tmp_path: Path, typed: Callable, monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out"
    sweep = ["-m", "layers=majority_tag,last", f"results_dir={out}", "jobs=1", *inputs]
    (first, _) = [plan(cfg).identity.key for cfg in configs_of(sweep)[0]]
    prepare_results(out)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "7")
    write_attempts(out, first, [Attempt("7", "node1", "1", "begun"), Attempt("7", "node2", "2", "begun")])
    for _ in range(2):  # a late process of the array does not try it again
        failed = typed(*sweep)
        assert failed.returncode == 1
        names(failed.stderr, "majority_tag seed 0", "died 2 times", "node1, node2")
        assert len(times(out)) == 1
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "8")
    assert typed(*sweep).returncode == 0
    assert len(times(out)) == 2
    assert not list((out / "logs").iterdir())


def test_a_run_that_did_not_converge_says_so_on_its_line(tmp_path: Path):
    line = "dev F1 80.00 · test F1 70.00 · best epoch 1 of 2"
    assert scores_line(make_record(tmp_path, "last", 1, 0.8, 0.7)) == line
    for outcome, typed in (("hit_epoch_limit", "probe.max_epochs=auto"), ("never_learned", "probe.learning_rate")):
        told = scores_line(make_record(tmp_path, "last", 1, 0.8, 0.7, outcome=outcome)).removeprefix(line)
        names(told, "not converged", typed)


@pytest.mark.usefixtures("short_epochs")
def test_one_run_for_two_folders_is_made_in_both(inputs: list[str], tmp_path: Path, typed: Callable):
    done = typed("-m", "layers=majority_tag", "results_dir=a,b", "jobs=1", "margin=3", *inputs)
    assert done.returncode == 0, done.stderr
    assert "2 runs, 0 done already." in done.stdout
    (one, other) = (results(tmp_path / name) for name in "ab")
    assert one == other != {}
    for name in "ab":
        asked = read_asked(tmp_path / name)
        assert (asked.margin, [" margin=3 " in run.command for run in asked.runs]) == (3, [True])
        assert json.loads((tmp_path / name / "table.json").read_text())[0]["margin"] == 3
    again = typed("-m", "layers=majority_tag", "results_dir=a", "jobs=1", "margin=2", *inputs)
    assert "--margin" in again.stdout
    assert json.loads((tmp_path / "a" / "table.json").read_text())[0]["margin"] == 3, "no result decides it"


@pytest.mark.usefixtures("short_epochs")
@pytest.mark.parametrize("sweep", [["seed=1"], ["-m", "seed=1,2", "jobs=1"]])
def test_slow_bfloat16_is_said_in_one_line(
    inputs: list[str], typed: Callable, monkeypatch: pytest.MonkeyPatch, sweep: list[str]
):
    monkeypatch.setattr(bfloat16, "_product_works", lambda: False)
    command = [*sweep, "layers=embeddings", "probe=linear", "probe.max_epochs=1", "results_dir=out", *inputs]
    done = typed(*command, "probe.precision=bfloat16")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "oneDNN" in line]
    names(line, "bfloat16", "CPU")


def test_logs_and_checkpoints_that_killed_processes_left_are_removed_and_the_users_own_files_stay(tmp_path: Path):
    for name in ("records", "logs", "figures"):
        (tmp_path / name).mkdir()
    (tmp_path / "records/last-seed1-abc.json").touch()
    left = ("logs/last-seed1-abc.unfinished.pt", "logs/vm-1.log")
    kept = ("logs/last-seed2-abd.unfinished.pt", ".table.md.swp", "figures/mine.png", "logs/vm-2.log", "logs/mine.log")
    for name in (*left, *kept):
        (tmp_path / name).write_text("x" * (name == "logs/vm-2.log"))
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "logs/vm-3.log").touch()  # of a process that runs
    remove_leftovers(tmp_path)
    assert not any((tmp_path / name).exists() for name in left)
    assert all((tmp_path / name).exists() for name in (*kept, "logs/vm-3.log"))


def looked_at(folder: Path, number: int) -> list[int]:
    """Calls of a first look at a queue of so many runs, all but one done; of a second; of where the sweep stands."""
    record = make_record(folder, "last", 0, 0.8, 0.7)
    identity, asked = record.identity, expect(record)
    plans: list[Any] = []
    for seed in range(1, number + 1):
        own = replace(identity, seed=seed)
        path = record_path(folder, "last", own)
        if seed > 1:
            path.write_text("no record")
        expected = replace(asked, key=own.key, identity=own)
        parts = {"is_done": seed > 1, "cfg": SimpleNamespace(jobs=1), "expected": expected}
        plans.append(SimpleNamespace(results_dir=folder, identity=own, record_path=path, **parts))
    (folder / "logs").mkdir(exist_ok=True)
    crew: Any = SimpleNamespace(gpus=[], launch="7")
    queue = _Queue(plans, crew)
    looks = [num_calls(lambda: queue.left(plans)) for _ in range(2)]
    assert queue.left(plans) == plans[:1]
    keys = [one.identity.key for one in plans]
    assert len(SweepStatus(folder, keys).done) == number - 1
    return [*looks, num_calls(lambda: SweepStatus(folder, keys))]


def test_twice_the_runs_cost_a_look_at_the_queue_twice_as_much_and_no_record_is_read(tmp_path: Path):
    for few, many in zip(looked_at(tmp_path / "few", 150), looked_at(tmp_path / "many", 300), strict=True):
        assert many < 2.3 * few


def test_a_row_of_many_layers_has_a_file_name_of_a_hundred_characters_and_some(tmp_path: Path):
    deep = RecordedEncoder("some/encoder", "folder x", {}, True, 110, 16)
    row = "mix_" + "_".join(map(str, range(100)))
    record = make_record(tmp_path, row, 2**63 - 1, 0.8, 0.7, tuple(range(100)), encoder=deep)
    (file,) = (tmp_path / "records").iterdir()
    assert len(file.name) < 150
    assert load_record(file).row == row
    assert record_path(tmp_path, row, record.identity) == file
    older = file.rename(file.with_name(f"mix_all-seed{record.seed}-{record.key[:10]}.json"))
    assert record_path(tmp_path, row, record.identity) == older
