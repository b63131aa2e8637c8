"""A Slurm cluster of several nodes on this machine: a real slurmctld, a slurmd a node, munge."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.processes import environment, free_port, kill_at_one_blow, wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol", "squeue", "scancel")
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"

_CONF = """
ClusterName=mdgan
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
ReturnToService=2
SlurmdTimeout=6
KillWait=10
JobRequeue=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why no Slurm can be started here; None if one can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not found; install slurm-wlm and munge"
    return None


class SlurmCluster:
    """Nodes n1, n2, ... with an address of their own each, and a core for every task of theirs.

    Args:
        num_nodes: how many.

    Attributes:
        folder: of its configuration, its logs and what its jobs print.
    """

    def __init__(self, num_nodes: int) -> None:
        # A socket's path must be short, which those of pytest are not everywhere.
        self.folder = Path(tempfile.mkdtemp(prefix="mdgan-slurm-"))
        self._conf = self.folder / "slurm.conf"
        self._daemons: list[str] = []
        nodes = [f"n{number}" for number in range(1, num_nodes + 1)]
        lines = [
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.{number} Port={free_port()} "
            f"CPUs={os.cpu_count()} State=UNKNOWN"
            for number, node in enumerate(nodes, 1)
        ]
        user = pwd.getpwuid(os.getuid()).pw_name
        text = _CONF.format(port=free_port(), user=user, folder=self.folder)
        self._conf.write_text("\n".join([text, *lines]) + "\n")
        for name in ("state", *(f"spool-{node}" for node in nodes)):
            (self.folder / name).mkdir()
        self._start_munge()
        self._start("slurmctld", "slurmctld", "-f", str(self._conf), "-c")
        for node in nodes:
            self.start_node(node)
        until(lambda: self.states() == dict.fromkeys(nodes, "idle"), 60, self)

    def start_node(self, node: str) -> None:
        """Starts the daemon of a node."""
        self._start(f"slurmd-{node}", "slurmd", "-N", node, "-f", str(self._conf))

    def run(
        self, *command: str, cwd: Path, timeout: float = 300
    ) -> "subprocess.CompletedProcess[str]":
        """Runs one of Slurm's commands."""
        return subprocess.run(
            command,
            cwd=cwd,
            env=environment(PATH=_PATH, SLURM_CONF=str(self._conf)),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints; it must succeed."""
        done = self.run(*command, cwd=self.folder)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def states(self) -> dict[str, str]:
        """The state of each node, as far as the controller can be asked."""
        done = self.run("sinfo", "--noheader", "--Node", "--format", "%N %T", cwd=self.folder)
        return dict(line.split() for line in done.stdout.splitlines())

    def job(self, number: str) -> tuple[str, str]:
        """The state and the nodes of a job."""
        fields = self.ask("scontrol", "--oneliner", "show", "job", number).split()
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        return values["JobState"], values.get("NodeList", "")

    def kill_node(self, node: str) -> None:
        """Ends everything that runs on a node at one blow, as a cut of its power does."""
        doomed = [*self._process(f"slurmd-{node}"), *self._on(node)]
        kill_at_one_blow(doomed)

    def stop(self) -> None:
        """Ends every job and every daemon, and removes the folder."""
        self.run("scancel", "--user", str(os.getuid()), "--signal", "KILL", cwd=self.folder)
        for node in self.states():
            self.kill_node(node)
        for name in ("slurmctld", "munged"):
            for process in self._process(name):
                process.kill()
        for process in psutil.process_iter():  # those whose tasks have ended
            with contextlib.suppress(psutil.Error):
                is_minder = process.name().startswith("slurmstepd")
                if is_minder and process.cwd() == str(self.folder):
                    process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self) -> str:
        """What its daemons and its jobs have written, for a test that fails."""
        files = [self.folder / "slurmctld.log", *self.folder.glob("job*.log")]
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in files)

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        places = {name: self.folder / f"munge{name}" for name in (".sock", ".seed")}
        self._start(
            "munged",
            *("munged", "--force", "--key-file", str(key), "--socket", str(places[".sock"])),
            *("--log-file", str(self.folder / "munged.log"), "--seed-file", str(places[".seed"])),
            *("--pid-file", str(self.folder / "munged.pid")),
        )

    def _start(self, name: str, *command: str) -> None:
        (self.folder / f"{name}.pid").unlink(missing_ok=True)
        done = self.run(*command, cwd=self.folder)
        assert done.returncode == 0, done
        until((self.folder / f"{name}.pid").exists, 30, self)

    def _process(self, name: str) -> list[psutil.Process]:
        """A daemon, if it still runs."""
        with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
            process = psutil.Process(int((self.folder / f"{name}.pid").read_text()))
            if str(self.folder) in " ".join(process.cmdline()):
                return [process]
        return []

    def _on(self, node: str) -> list[psutil.Process]:
        """The tasks and scripts of a node, and the daemons that mind them."""
        owned: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                variables = process.environ()
                ours = variables.get("SLURM_CONF") == str(self._conf)
                if ours and variables.get("SLURMD_NODENAME") == node:
                    for ancestor in (process, *process.parents()):
                        if ancestor is process or ancestor.name().startswith("slurmstepd"):
                            owned[ancestor.pid] = ancestor
        daemons = [p for p in owned.values() if p.name().startswith("slurmstepd")]
        return [*daemons, *(process for process in owned.values() if process not in daemons)]


def until(holds: Callable[[], bool], seconds: float, cluster: SlurmCluster) -> None:
    """Waits until something holds; fails with the cluster's logs if that takes too long."""
    wait_until(holds, cluster.logs, seconds)
