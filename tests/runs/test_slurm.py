"""Sweeps as jobs of an array on a real SLURM: munged, slurmctld and slurmd of the test's own, one node of two cores."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import TINY

from probe.runs.progress import status_of

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel")
CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
CompleteWait=0
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=6000
PartitionName=short Nodes={host} Default=YES MaxTime=600 State=UP
"""


def find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.3)


def told(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Skips the test where SLURM is missing, or does not start."""
    if None in map(find, PROGRAMS):
        pytest.skip("needs SLURM (Debian: slurm-wlm munge)")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)
        ports = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in ports:
            one.bind(("127.0.0.1", 0))
        host = socket.gethostname().split(".")[0]
        numbers = [one.getsockname()[1] for one in ports]
        for one in ports:
            one.close()
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, ports=numbers, host=host, user=getpass.getuser()))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o400)
        monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        files = [f"--{flag}={folder}/munge.{flag}" for flag in ("socket", "pid-file", "log-file", "seed-file")]
        for program, *arguments in (
            ("munged", "--foreground", "--force", f"--key-file={folder}/munge.key", *files),
            ("slurmctld", "-D"),
            ("slurmd", "-D"),
        ):
            log = stack.enter_context((folder / f"{program}.log").open("ab"))
            daemon = subprocess.Popen([str(find(program)), *arguments], stdout=log, stderr=log)
            stack.callback(daemon.wait)
            stack.callback(daemon.kill)
        try:
            wait_until(lambda: told("sinfo", "-h", "-o", "%t").strip() == "idle", "the node", 60)
        except AssertionError:
            pytest.skip("SLURM does not start here")
        yield
        told("scancel", f"--user={getpass.getuser()}")


def submitted(settings: list[str], *options: str) -> str:
    """Submits a sweep as conf/README says, and returns the number of the job."""
    worker = shlex.join([sys.executable, "-m", "probe", "-m", *settings])
    return told("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", f"exec {worker}").strip()


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_workers_of_an_array_share_a_sweep_and_one_that_is_killed_is_replaced(
    tmp_path: Path, inputs: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    out = tmp_path / "out"
    sweep = [*inputs, *TINY, "layers=last,embeddings", "seed=1,2", f"results_dir={out}"]
    job = submitted(sweep, "--array=0-1", "--time=5", "--mem=1G", "--cpus-per-task=1")
    wait_until(lambda: "R" in told("squeue", "-h", "-j", f"{job}_0", "-o", "%t"), "a worker")
    told("scancel", "--signal=KILL", f"{job}_0")
    wait_until(lambda: not told("squeue", "-h", "-j", job, "-o", "%i"), "the end of the array", 300)
    assert len(list((out / "records").iterdir())) == 4, "by the other worker"
    assert (out / "table.json").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_a_worker_frees_its_run_before_its_time_is_over(
    tmp_path: Path, inputs: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    logs, long = tmp_path / "out/logs", ["probe=linear", "probe.max_epochs=100000", "probe.patience=100000"]
    sweep = [*inputs, *long, "layers=last", "seed=1,2", "jobs=2", f"results_dir={tmp_path / 'out'}"]
    job = submitted(sweep, "--array=0-0", "--time=2", "--signal=B:USR2@60")
    wait_until(lambda: len(list(logs.glob("*.attempts.txt"))) == 2, "both runs")
    wait_until(lambda: not told("squeue", "-h", "-j", job, "-o", "%i"), "the end of its time", 240)
    assert not list(logs.glob("*.attempts.txt"))
    now = status_of(tmp_path / "out")
    assert (len(now.waiting), len(now.died), len(now.failed), len(now.running)) == (2, 0, 0, 0)
