"""A worker that dies is noticed, whatever it was doing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.dying import Unsendable, dies_at_once, killed_in_its_answer, raises, raises_what_cannot_be_sent

from probe.runs.launch import launch
from probe.system import workers
from probe.system.workers import ProcessDied, run_in_subprocesses


@pytest.fixture(autouse=True)
def _ended():
    yield
    while workers._IDLE:
        workers._IDLE.pop().end()


def pids(folder: Path, number: int) -> list[str]:
    return (folder / f"{number}.txt").read_text().split()


def test_a_worker_killed_while_answering_is_noticed(tmp_path: Path):
    # With joblib and with concurrent.futures.ProcessPoolExecutor this waits forever.
    jobs = [(tmp_path, 1, 1), (tmp_path, 2, 0), (tmp_path, 3, 0)]
    found = {job[1]: error for job, error in run_in_subprocesses(killed_in_its_answer, jobs, 2)}
    assert found.keys() == {1, 2, 3}
    assert isinstance(found[1], ProcessDied)
    assert "signal 9" in str(found[1])
    assert found[2] is found[3] is None
    assert pids(tmp_path, 2) == pids(tmp_path, 3), "a dead process is not replaced while another works"


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_run_whose_worker_died_runs_once_more_alone(tmp_path: Path, deaths: int):
    jobs = [(tmp_path, 1, deaths), (tmp_path, 2, 0), (tmp_path, 3, 0)]
    failed: dict[int, str] = {}
    log: list[str] = []
    launch(killed_in_its_answer, jobs, 2, log.append, lambda job, why: failed.update({job[1]: why}))
    assert [len(pids(tmp_path, number)) for number in (1, 2, 3)] == [2, 1, 1]
    assert len(log) == 1
    assert failed.keys() == ({1} if deaths == 2 else set())
    assert all(why.startswith("killed by signal 9") and "memory" in why for why in failed.values())


def test_workers_stay_and_a_dead_one_is_replaced(tmp_path: Path):
    for number in (1, 2):
        assert list(run_in_subprocesses(killed_in_its_answer, [(tmp_path, number, 0)], 1, keep=True)) != []
    assert pids(tmp_path, 1) == pids(tmp_path, 2) != [str(os.getpid())]
    workers._IDLE[0].process.kill()
    workers._IDLE[0].process.join()
    ((_, error),) = run_in_subprocesses(killed_in_its_answer, [(tmp_path, 3, 0)], 1, keep=True)
    assert error is None
    assert pids(tmp_path, 3) != pids(tmp_path, 2)


def test_what_a_job_raises_arrives_with_its_traceback():
    ((_, error),) = run_in_subprocesses(raises, ["paper"], 1)
    assert isinstance(error, ValueError)
    assert str(error) == "no paper"
    assert "in raises" in error.__notes__[0]
    ((_, error),) = run_in_subprocesses(raises_what_cannot_be_sent, ["long"], 1)
    assert isinstance(error, RuntimeError)
    assert f"{Unsendable.__name__}: too long" in str(error)


def test_if_every_worker_dies_each_job_is_still_tried():
    found = list(run_in_subprocesses(dies_at_once, [3, 4, 5], 2))
    assert sorted(job for job, _ in found) == [3, 4, 5]
    assert all(isinstance(error, ProcessDied) and str(job) in str(error) for job, error in found)
