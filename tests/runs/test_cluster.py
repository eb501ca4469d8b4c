"""SLURM's answers, played by scripts: what is sent and waited for, why a job ended. tests/slurm has a real SLURM."""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.facts import names
from support.inputs import data_config, encoder_config, features_config, run_config

from probe.cli import dispatch
from probe.config import LayersConfig, ProbeConfig, UserError
from probe.runs import cluster, sweep
from probe.runs import plan as runs_plan
from probe.runs.cluster import RequeueableJob, TimeLimitReached, run_array
from probe.runs.plan import plan, prepare_results
from probe.runs.progress import lines, status_of
from probe.runs.sweep import Job, run_job
from probe.system.files import short


@dataclass
class Sent:
    """A job that is over once its file is there."""

    key: str
    done: Path

    def is_over(self) -> bool:
        return self.done.exists()


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a file named as a command of SLURM is what it answers; without one it fails."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()
    for name in ("squeue", "scontrol", "sacct"):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\ncat "{tmp_path}/{name}" 2>/dev/null || {{ echo no answer >&2; exit 1; }}\n')
        script.chmod(0o755)
    naps = itertools.count()

    def nap(_: float) -> None:
        threading.Event().wait(0.01)
        assert next(naps) < 3000, "nothing ends this wait"

    monkeypatch.setattr(cluster.time, "sleep", nap)
    return tmp_path


run_at_once = functools.partial(run_array, ask_every_s=(0, 0), quiet_s=0)
SETTINGS = {"timeout_min": 60, "mem_gb": 16}


def settings(folder: Path) -> dict:
    (folder / "slurm").mkdir(exist_ok=True)
    return {**SETTINGS, "submitit_folder": f"{folder}/slurm/%j"}


ENDINGS = {
    "JobState=FAILED Reason=NonZeroExitCode ExitCode=137:0": ["killed", "signal 9, Killed"],
    "JobState=FAILED Reason=RaisedSignal ExitCode=0:15": ["killed", "signal 15, Terminated"],
    "JobState=CANCELLED Reason=None ExitCode=0:0": ["cancelled", "scancel"],
    "JobState=PREEMPTED Reason=None ExitCode=0:0": ["killed", "another job"],
    "JobState=NODE_FAIL Reason=None ExitCode=0:0": ["killed", "node", "NODE_FAIL"],
    "JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15": ["out of time", "hydra.launcher.timeout_min=60"],
    "JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125": ["out of memory", "hydra.launcher.mem_gb=16"],
    "JobState=COMPLETED Reason=None ExitCode=0:0": ["ended", "COMPLETED, exit code 0"],
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_scontrol_or_sacct_says_why_a_job_ended(queue: Path, ending: str):
    state, _, code = (part.partition("=")[2] for part in ending.split())
    (queue / "scontrol").write_text(f"JobId=9 ArrayJobId=7 ArrayTaskId=1 {ending} RunTime=1\n")
    told = [cluster._why("7_1", "", settings(queue))]
    (queue / "scontrol").unlink()
    (queue / "sacct").write_text(f"{state} by 0|{code}\n")
    told.append(cluster._why("7_1", "", settings(queue)))
    (queue / "sacct").unlink()
    for text in told:
        first, *facts = ENDINGS[ending]
        line = text.splitlines()[0]
        assert line.startswith(first)
        names(line, *facts)
        assert f"SLURM job 7_1: {state}" in text
    never = cluster._why("7_1", "", settings(queue))
    assert never.startswith("cancelled ")
    names(never, "scancel", "SLURM job 7_1: unknown")
    assert "_log" not in never, "there is none"


def test_a_jobs_reason_is_its_own_last_line_not_sruns(queue: Path):
    (queue / "scontrol").write_text("JobState=FAILED Reason=NonZeroExitCode ExitCode=1:0\n")
    now = settings(queue)
    log = queue / "slurm/7_1/7_1_0_log.err"
    log.parent.mkdir()
    log.write_text("ImportError: no torch here\nsrun: error: vm: task 0: Exited with exit code 1\n")
    told = cluster._why("7_1", "FAILED", now)
    assert told.startswith("ended ")
    names(told.splitlines()[0], log)
    assert told.splitlines()[0].endswith(": ImportError: no torch here")
    assert "srun: error: vm" in told, "below the line stands all"
    log.write_text("srun: error: no step\n")
    assert cluster._why("7_1", "FAILED", now).splitlines()[0].endswith(": srun: error: no step")


def test_without_cgroups_the_log_shows_a_kill_for_memory(queue: Path):
    (queue / "scontrol").write_text("JobState=FAILED Reason=NonZeroExitCode ExitCode=137:0\n")
    now = settings(queue)
    (queue / "slurm/7_1").mkdir()
    (queue / "slurm/7_1/7_1_0_log.err").write_text("slurmstepd: error: StepId=4.0 exceeded memory limit (3 > 2)\n")
    assert cluster._why("7_1", "FAILED", now).startswith("out of memory: ")


def test_all_jobs_are_waited_for_and_a_death_is_reported(queue: Path, monkeypatch: pytest.MonkeyPatch):
    jobs = [Sent(key, queue / f"{key}.done") for key in ("a", "b", "c")]
    monkeypatch.setattr(cluster, "_submit", lambda work, jobs, settings: ["7_0", "7_1", "7_2"])
    (queue / "scontrol").write_text("JobState=FAILED Reason=NonZeroExitCode ExitCode=137:0\n")
    (queue / "squeue").write_text("7_0|PENDING|Resources\n7_1|PENDING|Resources\n7_2|PENDING|Priority\n")
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if "Priority" in line:  # now a runs, b is killed, and c is finished
            (queue / "c.done").touch()
            (queue / "squeue").write_text("7_0|RUNNING|None\n7_1|FAILED|NonZeroExitCode\n")

    died: dict[str, str] = {}

    def dies(job: Sent, why: str) -> None:
        died[job.key] = why
        (queue / "a.done").touch()  # told at once, not when all have ended

    run_at_once(print, jobs, settings(queue), tell, dies)
    assert jobs[0].is_over(), "killed is one, waited for are all"
    assert list(died) == ["b"]
    assert died["b"].startswith("killed (signal 9")
    sent, waiting = told
    names(sent, "3 runs", "SLURM job 7", "scancel 7")
    names(waiting, "Resources, Priority")


def nobody(job: Sent, why: str) -> None:
    raise AssertionError(f"{job.key}: {why}")


def test_a_squeue_that_does_not_answer_kills_nobody(queue: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "_submit", lambda work, jobs, settings: ["7"])
    threading.Timer(0.5, (queue / "a.done").touch).start()
    run_at_once(print, [Sent("a", queue / "a.done")], settings(queue), lambda _: None, nobody)


def keep(folder: Path, array: str, keys: dict[str, str]) -> None:
    """As a command does that has sent these."""
    (folder / f"slurm/{array}.json").write_text(json.dumps({"jobs": keys, "settings": settings(folder)}))


def test_jobs_that_died_unseen_are_found_later(queue: Path):
    settings(queue)
    keep(queue, "5", {"5_0": "a", "5_1": "b", "5_2": "c"})
    keep(queue, "6", {"6": "c"})
    (queue / "slurm/odd.json").write_text("[]")
    assert cluster.ended_jobs(queue / "slurm", "abc") == {}, "a SLURM that is silent has killed nobody"
    (queue / "squeue").write_text("5_0|TIMEOUT|TimeLimit\n5_1|RUNNING|None\n5_2|FAILED|None\n6|PENDING|Priority\n")
    (queue / "scontrol").write_text("JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15\n")
    died = cluster.ended_jobs(queue / "slurm", "abc")
    assert list(died) == ["a"], "c was sent again"
    names(died["a"].reason, "out of time", "hydra.launcher.timeout_min=60")
    assert not cluster.ended_jobs(queue / "slurm", "b")
    assert len(list((queue / "slurm").glob("*.json"))) == 3


def test_the_status_of_a_sweep_tells_of_jobs_that_died_unseen(job: Job, queue: Path):
    logs = job.results_dir / "logs"
    prepare_results(job.results_dir)
    sweep.write_expected(job.results_dir, [job.expected])
    settings(logs)
    keep(logs, "5", {"5_0": job.key})
    assert "0 failed, 1 waiting" in next(lines(status_of(job.results_dir)))
    (queue / "squeue").write_text("5_0|FAILED|None\n")
    (queue / "scontrol").write_text("JobState=OUT_OF_MEMORY Reason=OutOfMemory ExitCode=0:125\n")
    first, second = lines(status_of(job.results_dir))
    assert "1 failed, 0 waiting" in first
    assert second.startswith("failed ")
    names(second, "embeddings seed 1", "out of memory", "hydra.launcher.mem_gb=16")


def test_a_table_names_a_job_that_died_unseen(job: Job, queue: Path, capsys: pytest.CaptureFixture[str]):
    folder = job.results_dir
    logs = folder / "logs"
    prepare_results(folder)
    sweep.write_expected(folder, [job.expected])
    calls = queue / "calls"
    for name in ("squeue", "scontrol", "sacct"):
        script = queue / "bin" / name
        script.write_text(script.read_text().replace("\n", f'\necho {name} >>"{calls}"\n', 1))

    def shown() -> tuple[dict, str]:
        assert dispatch(["table", str(folder), "--format", "json"]) == 0
        said = capsys.readouterr()
        (row,) = json.loads(said.out)
        return row, said.err

    row, said = shown()
    assert (row["missing"], row["failed"], said, calls.exists()) == (1, 0, "", False), "no job was sent"
    settings(logs)
    keep(logs, "5", {"5_0": job.key})
    assert shown()[1] == "", "a SLURM that is silent has killed nobody"
    (queue / "squeue").write_text("5_0|FAILED|None\n")
    calls.unlink()
    row, said = shown()
    assert (row["missing"], row["failed"]) == (1, 1)
    names(said, "embeddings seed 1", "5_0", f"sweep-status {folder}")
    assert calls.read_text().split() == ["squeue"]


def test_a_queued_job_is_not_sent_twice(queue: Path, monkeypatch: pytest.MonkeyPatch):
    now = settings(queue)
    keep(queue, "5", {"5_0": "a", "5_1": "b"})
    keep(queue, "6", {"6": "c"})
    (queue / "squeue").write_text("5_0|RUNNING|None\n5_1|COMPLETED|None\n")
    sent: list[str] = []

    def submit(work, jobs, settings) -> list[str]:
        sent.extend(job.key for job in jobs)
        for job in "abc":
            (queue / f"{job}.done").touch()
        return ["7_0", "7_1"]

    monkeypatch.setattr(cluster, "_submit", submit)
    told: list[str] = []
    run_at_once(print, [Sent(key, queue / f"{key}.done") for key in "abc"], now, told.append, nobody)
    assert sent == ["b", "c"]
    names(told[0], "1 of them", "job 5", "scancel 5")
    assert sorted(path.name for path in (queue / "slurm").glob("*.json")) == ["5.json", "7.json"]
    assert json.loads((queue / "slurm/7.json").read_text()) == {"jobs": {"7_0": "b", "7_1": "c"}, "settings": now}


def test_with_a_silent_queue_nothing_is_sent_again(queue: Path, monkeypatch: pytest.MonkeyPatch):
    now = settings(queue)
    keep(queue, "5", {"5_0": "a"})
    monkeypatch.setattr(cluster, "_submit", lambda work, jobs, settings: pytest.fail("sent"))
    with pytest.raises(UserError, match=r"job 5\b.*\n.*\brm .*5\.json"):
        run_at_once(print, [Sent("a", queue / "a.done")], now, lambda _: None, nobody)
    monkeypatch.setattr(cluster, "_submit", lambda work, jobs, settings: ["7"])
    threading.Timer(0.5, (queue / "b.done").touch).start()
    run_at_once(print, [Sent("b", queue / "b.done")], now, lambda _: None, nobody)


def test_a_node_that_cannot_write_says_so(
    job: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(folder: Path) -> None:
        raise UserError(f"{folder}: Read-only file system.")

    monkeypatch.setattr(sweep, "prepare_results", refuse)
    run_job(replace(job, waits=True))
    assert capsys.readouterr().err == f"probe: on {os.uname().nodename}: {job.results_dir}: Read-only file system.\n"


def test_a_machine_without_slurm_is_told_of_as_such(queue: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(queue / "empty"))
    now = settings(queue)
    with pytest.raises(UserError, match="srun.*sbatch"):
        cluster._submit(cluster.requeueable(print, now), [Sent("a", queue / "a.done")], now)


def test_a_command_that_is_stopped_says_how_to_end_its_jobs(queue: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster, "_submit", lambda work, jobs, settings: ["7_0", "7_1"])
    told: list[str] = []

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster.time, "sleep", stop)
    with pytest.raises(KeyboardInterrupt):
        run_at_once(print, [Sent(key, queue / key) for key in "ab"], settings(queue), told.append, nobody)
    assert told[-1].endswith(": scancel 7")


def test_preempted_jobs_requeue_and_timed_out_ones_as_often_as_asked(
    monkeypatch: pytest.MonkeyPatch,
):
    pytest.importorskip("submitit")
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(cluster.time, "monotonic", lambda: clock.now)
    done: list[str] = []
    again = RequeueableJob(done.append, limit_min=10, notice_s=30, times_left=1)
    again("job")
    assert done == ["job"]
    clock.now += 300
    assert again.checkpoint("job").function.times_left == 1, "preempted"
    clock.now += 270
    once_more = again.checkpoint("job").function
    assert once_more.times_left == 0
    once_more.began = again.began
    with pytest.raises(TimeLimitReached, match=r"hydra\.launcher\.timeout_min=10\b"):
        once_more.checkpoint("job")


@pytest.fixture
def job(tiny_data: Path, tiny_bert: Path, tmp_path: Path) -> Job:
    probe = ProbeConfig(0, 0, 0.0, 0.05, 1, 8, 1, 1, 1.0, "float32")
    features, layers = features_config(tmp_path / "cache"), LayersConfig([0], "concat", "embeddings")
    corpus, out = data_config(tiny_data), str(tmp_path / "out")
    encoder = encoder_config(tiny_bert)
    cfg = run_config(data=corpus, encoder=encoder, features=features, layers=layers, probe=probe, results_dir=out)
    return Job(
        cfg, plan(cfg).expected, (plan(cfg).identity.key,), 1, (), "probe", {}, dev_only=False, waits=True, label="last"
    )


def failure(job: Job) -> str:
    (file,) = (job.results_dir / "logs").glob(f"*{short(job.key)}.failed.txt")
    return file.read_text().splitlines()[0]


def forget_texts() -> None:
    """What another machine has not read."""
    for kept in (runs_plan._text, runs_plan._derived, runs_plan._features):
        kept.cache_clear()


def test_missing_or_other_data_on_a_node_fails_the_run(job: Job, tiny_data: Path):
    changed = tiny_data / "dev.conll"
    changed.write_text(changed.read_text() + "more O\n")
    forget_texts()
    run_job(job)
    names(failure(job), f"on {os.uname().nodename}", f"not {short(job.key)}")
    assert job.is_over()
    next((job.results_dir / "logs").glob("*.failed.txt")).unlink()
    changed.unlink()
    forget_texts()
    run_job(job)
    assert failure(job).startswith(f"on {os.uname().nodename}: ")
    assert "dev.conll" in failure(job)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeLimitReached("out of time: hydra.launcher.timeout_min=1"), "out of time: hydra.launcher.timeout_min=1"),
        (MemoryError("no room"), "MemoryError: no room"),
    ],
)
def test_a_job_that_ends_while_planning_fails_the_run(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: BaseException, told: str
):
    def plans(_: object) -> None:
        raise error

    monkeypatch.setattr(sweep, "plan", plans)
    run_job(job)
    assert failure(job).startswith(told)
    assert job.is_over()


def test_a_dead_jobs_reason_is_written_if_it_left_nothing(job: Job, tmp_path: Path):
    other = replace(job, cfg=replace(job.cfg, results_dir=str(tmp_path / "other")))
    for one in (job, other):
        prepare_results(one.results_dir)
    sweep._on_failure(other, "killed (signal 9, Killed)\n\nSLURM job 7")
    sweep._on_failure(other, "ended without a result")
    assert failure(other) == "killed (signal 9, Killed)"
    assert not job.is_over()


def test_a_run_reports_extraction_and_being_cut_off(job: Job, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    def run(*_: object) -> None:
        (file,) = (job.results_dir / "logs").glob("*.running.txt")
        seen.append(file.read_text())
        raise TimeLimitReached("out of time: hydra.launcher.timeout_min=1")

    monkeypatch.setattr(sweep, "run", run)
    run_job(job)
    assert seen == ["extracting features"]
    assert failure(job) == "out of time: hydra.launcher.timeout_min=1"
    sweep.write_expected(job.results_dir, [job.expected])
    assert any("out of time" in line for line in lines(status_of(job.results_dir)))
    run_job(replace(job, command="once more"))
    assert len(seen) == 1, "a failure ends a run until the next command"
