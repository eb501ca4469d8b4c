"""A real SLURM on this machine alone: munged, slurmctld and slurmd of the tests' own, in a folder of their own.

No systemd, no accounting, no cgroups. One node that says it has two cores, so that two jobs run at once and a third
waits.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
SLURM_CONF = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/slurmd.pid
SlurmdLogFile={folder}/slurmd.log
SlurmdSpoolDir={folder}/spool
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
KillWait=5
CompleteWait=0
InactiveLimit=0
MinJobAge=300
ReturnToService=2
SlurmctldTimeout=60
SlurmdTimeout=60
DebugFlags=NO_CONF_HASH
SlurmdParameters=config_overrides
SlurmdPort={ports[1]}
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=6000
PartitionName=short Nodes={host} Default=YES MaxTime=600 State=UP PriorityTier=1
PartitionName=urgent Nodes={host} Default=NO MaxTime=600 State=UP PriorityTier=9
"""


@dataclass(frozen=True)
class Slurm:
    """A running cluster of one node. env: what its commands, and those that call them, need."""

    folder: Path
    env: dict[str, str]
    node: str

    def call(self, *command: str) -> str:
        done = subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in sorted(self.folder.glob("*.log"))
        )


def wait_until(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)


def _find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin:/sbin")


def _without_cgroups() -> str:
    """cgroup.conf for a SLURM that tracks no job by cgroups; before 23.02 a plugin has to be named all the same."""
    path = _find("slurmd")
    assert path is not None
    told = subprocess.run([path, "-V"], capture_output=True, text=True, timeout=60).stdout
    year = re.search(r"(\d+)\.\d+", told)
    return f"CgroupPlugin={'disabled' if year and int(year[1]) >= 23 else 'cgroup/v1'}\n"


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def running_slurm() -> Iterator[Slurm]:
    """A cluster with the partitions `short` and `urgent`, which preempts. Skips the test where there is no SLURM."""
    lacking = [name for name in (*DAEMONS, *CLIENTS) if _find(name) is None]
    if lacking or importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None:
        pytest.skip(f"needs SLURM and submitit; not there: {', '.join(lacking) or 'submitit'}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)))
        folder.chmod(0o755)  # munge's socket is for all
        for name in ("state", "spool"):
            (folder / name).mkdir()
        host = socket.gethostname().split(".")[0]
        conf = SLURM_CONF.format(folder=folder, ports=_free_ports(2), host=host, user=getpass.getuser())
        (folder / "slurm.conf").write_text(conf)
        (folder / "cgroup.conf").write_text(_without_cgroups())
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        cluster = Slurm(folder, {"SLURM_CONF": str(folder / "slurm.conf")}, host)
        ends = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        files = [f"--{flag}={folder}/munge.{end}" for flag, end in ends.items()]
        _start(stack, cluster, "munged", "--foreground", "--force", f"--key-file={key}", *files)
        try:
            wait_until(lambda: (folder / "munge.socket").exists(), "munged")
            _start(stack, cluster, "slurmctld", "-D")
            _start(stack, cluster, "slurmd", "-D")
            wait_until(
                lambda: cluster.call("sinfo", "-h", "-p", "short", "-o", "%D %t").split() == ["1", "idle"], "its node"
            )
        except AssertionError:
            pytest.skip(f"SLURM does not start here:\n{cluster.call('sinfo')}\n{cluster.logs()}")
        yield cluster
        cluster.call("scancel", f"--user={getpass.getuser()}")


def _start(stack: contextlib.ExitStack, cluster: Slurm, program: str, *arguments: str) -> None:
    """Starts a daemon that ends with the stack."""
    path = _find(program)
    assert path is not None
    with (cluster.folder / f"{program}.out.log").open("ab") as log:
        process = subprocess.Popen(
            [path, *arguments], env={**os.environ, **cluster.env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def stop() -> None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(stop)
