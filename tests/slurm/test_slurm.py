"""Sweeps on a real SLURM: what comes out, and what a user is told when something goes wrong there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import interpreter, probe, start
from support.facts import names
from support.records import results
from support.slurm import Slurm, running_slurm, wait_until

pytestmark = pytest.mark.slurm

HERE = ["hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1", "hydra.launcher.mem_gb=2"]
LIMIT = "hydra.launcher.timeout_min=30"
FOR_EVER = ["probe.patience=1000000"]  # with as many epochs a run ends only when something ends it
EPOCHS = 1000000


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with running_slurm() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def idle(slurm: Slurm) -> Iterator[None]:
    """Leaves no job behind."""
    yield
    slurm.call("scontrol", "update", f"NodeName={slurm.node}", "State=RESUME")
    slurm.call("scancel", "--signal=KILL", "--full", "--state=RUNNING")
    slurm.call("scancel", "--state=PENDING,RUNNING")
    wait_until(lambda: not slurm.call("squeue", "-h"), "an empty queue")


@pytest.fixture
def few(inputs: list[str]) -> list[str]:
    """Overrides for the tiny inputs that leave the number of epochs open."""
    return [part for part in inputs if not part.startswith("probe.max_epochs")]


def hold(slurm: Slurm) -> None:
    """No job starts before `release`."""
    slurm.call("scontrol", "update", f"NodeName={slurm.node}", "State=DRAIN", "Reason=test")


def release(slurm: Slurm) -> None:
    slurm.call("scontrol", "update", f"NodeName={slurm.node}", "State=RESUME")


def is_training(out: Path, runs: int = 1) -> bool:
    """Whether so many runs have told of an epoch."""
    told = []
    for file in (out / "logs").glob("*.running.txt"):
        try:
            told.append("epoch" in file.read_text())
        except FileNotFoundError:
            continue
    return sum(told) >= runs


def numbers(slurm: Slurm) -> list[str]:
    """Of the jobs in the queue, task by task."""
    return sorted(slurm.call("squeue", "--noheader", "--array", "--format=%i").split())


def first_lines(out: Path) -> list[str]:
    return [path.read_text().splitlines()[0] for path in sorted((out / "logs").glob("*.failed.txt"))]


def status(out: Path) -> str:
    return probe("sweep-status", str(out), cwd=out.parent).stdout


def test_a_preempted_array_gives_the_bits_of_a_sweep(slurm: Slurm, few: list[str], tmp_path: Path):
    sweep = ["-m", "layers=last,concat_last_four", "seed=1", "results_dir=out", *few]
    sweep += ["probe.max_epochs=60", "probe.lr_decay=1", "probe.patience=60"]
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    done = probe(*sweep, "jobs=2", cwd=here)  # a thread each: two threads wait for each other where others compute
    assert done.returncode == 0, done.stderr
    process = start(*sweep, *HERE, LIMIT, cwd=there, **slurm.env)
    wait_until(lambda: is_training(there / "out", 2), "both train", 180)
    slurm.call(
        "sbatch", "--partition=urgent", "--mem=5000", "--cpus-per-task=1", "--output=/dev/null", "--wrap=sleep 2"
    )
    out, errors = process.communicate(timeout=1200)
    assert process.returncode == 0, out + errors
    assert errors == "", "nothing of SLURM or submitit reaches the terminal"
    assert "2 runs submitted as SLURM job" in out
    logs = "".join(path.read_text() for path in (there / "out/logs/slurm").glob("*/*_log.*"))
    assert logs.count("Starting with") > 2, "one was begun again"
    assert results(there / "out") == results(here / "out")


def test_a_file_missing_on_a_node_is_reported_everywhere(
    slurm: Slurm, inputs: list[str], tiny_data: Path, tmp_path: Path
):
    sweep = ["-m", "layers=last", "seed=1,2", "results_dir=out", *inputs, *HERE, LIMIT]
    hold(slurm)
    process = interpreter(*sweep, cwd=tmp_path, **slurm.env)
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if "runs yet" in line:
            break
    assert "Nodes" in told.splitlines()[-1], "SLURM's own reason"
    assert "0 failed, 2 waiting" in status(tmp_path / "out")
    tiny_data.rename(tmp_path / "away")
    release(slurm)
    _, errors = process.communicate(timeout=1200)
    assert process.returncode == 1
    for seed in (1, 2):
        assert f"failed: last seed {seed}: on {slurm.node}: " in errors
    assert "train.conll" in errors
    assert "2 failed, 0 waiting" in status(tmp_path / "out")
    assert all(line.startswith(f"on {slurm.node}: ") for line in first_lines(tmp_path / "out"))
    (tmp_path / "away").rename(tiny_data)
    again = probe(*sweep, cwd=tmp_path, **slurm.env)
    assert again.returncode == 0, again.stderr
    assert "2 done, 0 running, 0 failed, 0 waiting" in status(tmp_path / "out")


def test_killed_and_cancelled_runs_are_named_and_others_finish(slurm: Slurm, few: list[str], tmp_path: Path):
    sweep = ["-m", "layers=last", "seed=1", f"probe.max_epochs={EPOCHS},{EPOCHS + 1},2", "results_dir=out"]
    sweep += [*few, *FOR_EVER, *HERE, LIMIT]
    process = start(*sweep, cwd=tmp_path, **slurm.env)
    out = tmp_path / "out"
    wait_until(lambda: is_training(out, 2), "two train", 180)
    first, second, _ = numbers(slurm)
    slurm.call("scancel", "--signal=ABRT", first)
    slurm.call("scancel", second)
    told, errors = process.communicate(timeout=1200)
    assert process.returncode == 1, told
    aborted, cancelled = sorted(first_lines(out))
    names(aborted, "killed", "signal 6, Aborted")
    names(cancelled, "killed", "cancelled", "scancel")
    assert errors.count("failed: last seed 1: killed") == 2
    assert len(errors.splitlines()) == 2
    assert "1 done, 0 running, 2 failed, 0 waiting" in status(out)


def test_too_little_memory_or_time_names_the_setting(slurm: Slurm, few: list[str], tmp_path: Path):
    sweep = ["-m", "layers=last", "seed=1", f"probe.max_epochs={EPOCHS}", *few, *FOR_EVER, *HERE]
    memory = [*sweep, "results_dir=memory", LIMIT, "+hydra.launcher.additional_parameters.mem=150M"]
    process = start(*sweep, "results_dir=time", "hydra.launcher.timeout_min=1", cwd=tmp_path, **slurm.env)
    done = probe(*memory, cwd=tmp_path, **slurm.env)
    assert done.returncode == 1
    names(done.stderr, "last seed 1", "out of memory", "hydra.launcher.mem_gb=2")
    assert "1 failed, 0 waiting" in status(tmp_path / "memory")
    _, errors = process.communicate(timeout=1200)
    assert process.returncode == 1
    names(errors, "last seed 1", "out of time", "hydra.launcher.timeout_min=1")
    assert "1 failed, 0 waiting" in status(tmp_path / "time")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("hydra.launcher.partition=nope", "nope"),
        ("hydra.launcher.mem_gb=999", "Memory specification"),
        ("hydra.launcher.timeout_min=9999", "time limit"),
        ("+hydra.launcher.partion=short", "partion"),
    ],
)
def test_a_refused_submission_gives_slurms_reason(
    slurm: Slurm, inputs: list[str], tmp_path: Path, setting: str, reason: str
):
    sweep = ["-m", "layers=last", "seed=1", "results_dir=out", *inputs, *HERE, setting]
    done = probe(*sweep, cwd=tmp_path, **slurm.env)
    assert done.returncode == 2
    assert done.stderr.startswith("probe: ")
    names(done.stderr, "SLURM", reason)
    assert len(done.stderr.splitlines()) == 2
    assert not numbers(slurm)


def test_a_stopped_command_names_its_array_for_the_next(slurm: Slurm, few: list[str], tmp_path: Path):
    sweep = ["-m", "layers=last", "seed=1,2", "results_dir=out", *few, "probe.max_epochs=2", *HERE, LIMIT]
    hold(slurm)
    process = start(*sweep, cwd=tmp_path, **slurm.env)
    wait_until(lambda: len(numbers(slurm)) == 2, "two in the queue", 180)
    array = numbers(slurm)[0].split("_")[0]
    wait_until(lambda: list((tmp_path / "out/logs/slurm").glob("*.json")), "known by the command")
    os.kill(process.pid, signal.SIGTERM)  # as Ctrl-C, which is ignored behind a shell's &
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    names(out, f"SLURM job {array}")
    assert out.count(f"scancel {array}") == 2, "once it was sent, and when the command was stopped"
    again = start(*[part.replace("seed=1,2", "seed=1,2,3") for part in sweep], cwd=tmp_path, **slurm.env)
    wait_until(lambda: len(numbers(slurm)) == 3, "the third sent too", 180)
    release(slurm)
    out, errors = again.communicate(timeout=1200)
    assert again.returncode == 0, out + errors
    names(out, "2 of them", f"job {array}", f"scancel {array}", "1 runs")
    keys = [json.loads(path.read_text())["key"] for path in (tmp_path / "out/records").glob("*.json")]
    assert len(keys) == 3


def test_sweep_status_says_what_ended_unwatched_jobs(slurm: Slurm, few: list[str], tmp_path: Path):
    sweep = ["-m", "layers=last", "seed=1", f"probe.max_epochs={EPOCHS},{EPOCHS + 1},{EPOCHS + 2}", "results_dir=out"]
    process = start(*sweep, *few, *FOR_EVER, *HERE, LIMIT, cwd=tmp_path, **slurm.env)
    out = tmp_path / "out"
    wait_until(lambda: is_training(out, 2), "two train", 180)
    first, second, third = numbers(slurm)
    wait_until(lambda: list((out / "logs/slurm").glob("*.json")), "known by the command")
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=300)
    slurm.call("scancel", third)
    slurm.call("scancel", "--signal=ABRT", first)
    wait_until(lambda: numbers(slurm) == [second], "two are over", 120)
    told = probe("sweep-status", "out", cwd=tmp_path, **slurm.env).stdout
    assert "0 done, 1 running, 2 failed, 0 waiting" in told
    names(told, "killed", "signal 6, Aborted", "cancelled", "scancel")
