"""Trains the digits with forty hosts, of which twenty are hostile, each in another way.

    python -m benchmarks.hostile_hosts [--iterations I] [--rules krum:18] [--seeds S] [--check]

Every host is a process with its own certificate, and the server listens on a port. Each rule and
seed has two runs. In one the twenty hostile hosts leave after 20 iterations, so that the honest
twenty train alone with the same shards. In the other they do the acts of `acts.py` and `raids.py`
from then on. Hostile processes have the lowest priority (`nice`), since really they would not share
the server's machine. Prints for each run how many honest hosts took part in its last iteration, FID
as `mdgan evaluate` computes it, seconds, and the largest memory of the server's process (RSS). With
`--check` every act is tried alone, against three honest hosts.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from unittest.mock import patch

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch is imported
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import click
import psutil

from benchmarks.hostile_hosts.acts import Act, Place, meddle
from benchmarks.hostile_hosts.raids import ACTS
from mdgan.cli import main as mdgan
from mdgan.errors import BadInput
from mdgan.launch import links, processes
from mdgan.launch.checked import Checked
from mdgan.transport.host_end import HostTransport
from tests.forks import import_all
from tests.processes import read_events, read_metrics, read_status, wait_until

START_SECONDS = 300.0
BATCH_SIZE = 10
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_FLAGS = ["--dataset", "digits", "--threads", "1", "--sample-interval", "0", "--eval-interval", "0"]


class Leaves(Act):
    """Leaves when the others would begin, as a host does whose user stops it."""

    def begins(self, _place: Place) -> None:
        """Sends itself the signal to stop."""
        os.kill(os.getpid(), signal.SIGTERM)


class Figures(NamedTuple):
    """The figures of one run.

    Attributes:
        honest: hosts that ended well and answered in the last iteration.
        answered: the fewest answers of an honest host.
        fid: of the averaged generator.
        seconds: from the first to the last iteration.
        memory: the most that the server had, in bytes.
        out: ranks that were lost or shut out, each with the last reason.
    """

    honest: int
    answered: int
    fid: float
    seconds: float
    memory: int
    out: Mapping[int, str]


def hostile_connector(
    act: Act,
    honest: Sequence[int],
    true: Callable[..., Any],
    prepared: Checked,
    *rest: Any,
    **how: Any,
) -> Any:
    """Stands in for `links.connector`: the act changes what passes over the host's links."""
    connect, begun, places = true(prepared, *rest, **how), threading.Event(), list[Place]()

    def meddled(hello: Mapping[str, Any], timeout_seconds: float) -> HostTransport:
        while True:
            try:
                link: HostTransport = connect(hello, timeout_seconds)
                break
            except BadInput:  # shut out: its raid goes on, and it tries to join again
                if not begun.is_set():
                    raise
                time.sleep(1.0)
        if places:
            places[0].link = link
        else:
            server = links.server_places(prepared.links)[0]
            assert prepared.credentials is not None
            knowledge = link.host, honest, server, prepared.credentials, dict(hello), link
            places.append(Place(*knowledge, hosts={}))
        meddle(link, act, places[0], begun)
        return link

    return meddled


def be_host(act: Act | None, honest: Sequence[int], command: list[str], *, relayed: bool) -> None:
    """Runs `mdgan` in this process, hostile if there is an act."""
    if act is None:
        mdgan(command)
        return
    if not isinstance(act, Leaves):
        os.nice(19)
    true = links.connector
    with contextlib.ExitStack() as patches:
        hostile = partial(hostile_connector, act, honest, true)
        patches.enter_context(patch.object(processes, "connector", hostile))
        if relayed:
            patches.enter_context(patch.object(links, "_place_of_parcels", lambda *_: None))
        mdgan(command)


def fork(work: Callable[[], None], log: Path) -> int:
    """Forks a process that leads its own session and does some work; returns its number."""
    parent, child = os.getpid(), os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        _work(work, log)
    return child


def _work(work: Callable[[], None], log: Path) -> NoReturn:
    status = 1
    try:
        os.setsid()
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        work()
    except SystemExit as ended:
        status = int(str(ended.code or 0))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@contextlib.contextmanager
def sampled(run: Path) -> Iterator[list[int]]:
    """Measures the memory of the server's process during the block; yields the most so far."""
    most, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            with contextlib.suppress(psutil.Error, OSError, KeyError, ValueError):
                rss = psutil.Process(read_status(run)["process"]).memory_info().rss
                most[0] = max(most[0], rss)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield most
    finally:
        over.set()
        watching.join()


def train(
    folder: Path,
    acts: Mapping[int, tuple[str, Act]],
    num_hosts: int,
    flags: Sequence[str],
) -> tuple[dict[int, int], int]:
    """Runs a server and hosts; returns the exit statuses of honest ones and the server's memory."""
    honest = [rank for rank in range(1, num_hosts + 1) if rank not in acts]
    command = ["train", "--world-size", str(num_hosts + 1), *_FLAGS, *flags]
    listen = [*command, "--ranks", "0", "--listen", "127.0.0.1:0", "--out", "run"]
    started: dict[int, int] = {}
    certificate = "--credentials"
    try:
        arguments = [*listen, certificate, "authority/server.cred"]
        started[0] = fork(partial(mdgan, arguments), folder / "server.log")
        wait_until((folder / "run/run.json").exists, "the server is there", START_SECONDS)
        port = str(read_status(folder / "run")["listens"]).rpartition(":")[2]
        for rank in range(1, num_hosts + 1):
            name, act = acts.get(rank, ("", None))
            arguments = [*command, "--ranks", str(rank), "--master-port", port]
            arguments += [certificate, f"authority/host-{rank}.cred"]
            relayed = name.startswith("parcels for")
            be = partial(be_host, act, honest, arguments, relayed=relayed)
            started[rank] = fork(be, folder / f"host-{rank}.log")
        with sampled(folder / "run") as memory:
            ends = [0, *honest]
            status = {rank: os.waitpid(started.pop(rank), 0)[1] for rank in ends}
    finally:
        for process in started.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
    return status, memory[0]


def figures(folder: Path, status: Mapping[int, int], memory: int, *, scored: bool) -> Figures:
    """Reads a run's figures from its folder."""
    run = folder / "run"
    if status[0]:
        raise SystemExit(f"the server failed:\n{(folder / 'server.log').read_text()[-3000:]}")
    (attendance,) = read_events(run, "attendance")
    out: dict[int, str] = {}
    for name in ("lost", "shut out"):
        for event in read_events(run, name):
            out |= dict.fromkeys(event["workers"], f"{name}: {event['reason']}")
    first, *_, last = read_metrics(run)
    answered = {rank: attendance["workers"][str(rank)]["answered"] for rank in status if rank}
    present = [rank for rank in answered if status[rank] == 0 and rank not in out]
    return Figures(
        len(present),
        min(answered.values()) if answered else 0,
        _fid(folder) if scored else float("nan"),
        last["seconds"] - first["seconds"],
        memory,
        out,
    )


def _fid(folder: Path) -> float:
    command = [sys.executable, "-m", "mdgan", "evaluate", "run", "--json"]
    ended = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return float(json.loads(ended.stdout)["scores"]["fid"])


def certify(folder: Path, num_hosts: int) -> None:
    """Issues a certificate for each process."""
    from datetime import timedelta

    from mdgan.credentials.files import issue, make_folder_of_authority

    day, authority = timedelta(days=1), folder / "authority"
    make_folder_of_authority(authority, day)
    issue(authority, "server", "server", (), day)
    for rank in range(1, num_hosts + 1):
        issue(authority, f"host-{rank}", "worker", (rank,), day)


def one_run(acts: Mapping[int, tuple[str, Act]], num_hosts: int, flags: Sequence[str]) -> Figures:
    """Trains in a new temporary folder."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name)
        certify(folder, num_hosts)
        status, memory = train(folder, acts, num_hosts, flags)
        folder_of_copies = os.environ.get("KEEP_RUNS")
        if folder_of_copies:
            shutil.copytree(folder, Path(folder_of_copies) / f"{time.time():.0f}")
        return figures(folder, status, memory, scored=num_hosts > len(ACTS))


def in_words(name: str, numbers: Figures, num_honest: int) -> str:
    """One line of the output."""
    return (
        f"{name:28} {numbers.honest:2} of {num_honest} honest hosts there, each answered "
        f"{numbers.answered} times; FID {numbers.fid:.2f}, {numbers.seconds:.0f} s, server at most "
        f"{numbers.memory / 1e6:.0f} MB"
    )


@click.command()
@click.option("--iterations", default=2000, show_default=True)
@click.option("--rules", default="krum:18", show_default=True, help="Values of --aggregation.")
@click.option("--deadline", default="3x", show_default=True)
@click.option("--first-seed", default=0, show_default=True)
@click.option("--seeds", default=1, show_default=True)
@click.option("--only-alone", is_flag=True, help="Only the runs without hostile hosts.")
@click.option("--only-hostile", is_flag=True, help="Only the runs with hostile hosts.")
@click.option("--check", is_flag=True, help="Try each act alone.")
@click.option("--only", default="", help="With --check: acts whose names contain this.")
def main(
    iterations: int,
    rules: str,
    deadline: str,
    first_seed: int,
    seeds: int,
    only_alone: bool,
    only_hostile: bool,
    check: bool,
    only: str,
) -> None:
    """Trains without and with hostile hosts."""
    import_all()  # so that forks need not, but for gRPC, which each must import itself
    common = ["--iterations", str(iterations), "--batch-size", str(BATCH_SIZE)]
    common += ["--deadline", deadline, "--swap-interval", "20"]
    if check:
        for name, act in [("leaves", Leaves()), *ACTS.items()]:
            if only in name:
                numbers = one_run({4: (name, act)}, 4, common)
                print(in_words(name, numbers, 3), dict(numbers.out), flush=True)
        return
    hostile = list(ACTS.items())
    num_hosts = 2 * len(hostile)
    print(f"digits, {num_hosts} hosts, b = {BATCH_SIZE}, {iterations} iterations", flush=True)
    for rule in rules.split(","):
        for seed in range(first_seed, first_seed + seeds):
            flags = [*common, "--aggregation", rule, "--seed", str(seed)]
            turned = dict(enumerate(hostile, len(hostile) + 1))
            leaves: tuple[str, Act] = ("leaves", Leaves())
            alone = dict.fromkeys(turned, leaves)
            runs = {"alone": alone} if not only_hostile else {}
            runs |= {"with the hostile": turned} if not only_alone else {}
            for name, acts in runs.items():
                numbers = one_run(acts, num_hosts, flags)
                words = in_words(f"{rule}, seed {seed}, {name}", numbers, len(hostile))
                print(words, flush=True)
            for rank, (name, _) in turned.items() if not only_alone else ():
                print(f"  {name:30} {numbers.out.get(rank, 'took part to the end')}", flush=True)


if __name__ == "__main__":
    main()
