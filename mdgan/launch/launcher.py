"""Starts this machine's ranks: in one process, as forks, as a task of a launcher, or by Ray.

Forks are of one process that has imported torch and read the data. Where no forks are safe, each
process imports torch and reads the data anew, which costs seconds and hundreds of megabytes; a fork
costs milliseconds and shares the memory.
"""

import contextlib
import gc
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from mdgan.engine.host.loop import HostFailed, ServerLost
from mdgan.engine.server.engine import AllWorkersLost
from mdgan.errors import BadInput, Interrupted, NotSaved, cannot_write, cause_of, is_of_disk
from mdgan.launch.addresses import Sockets
from mdgan.launch.checked import Checked
from mdgan.launch.claim import Claim, claim, resumed_or_started
from mdgan.launch.forks import STOP_SIGNALS, start
from mdgan.launch.links import place_for_others, server_places
from mdgan.launch.machine import check_open_files, resolve_device
from mdgan.launch.minder import end_with_input
from mdgan.launch.processes import NONE_LEFT, TOGETHER_SECONDS, run_everything, run_host, run_server
from mdgan.launch.ranks import ends_of
from mdgan.launch.task import LaunchedTask
from mdgan.spelling import count, flag
from mdgan.storage.fence import Fenced
from mdgan.storage.private_folders import make_private_folder
from mdgan.storage.whole_file import exit_between_files
from mdgan.system import HOLDS_PROCESSES, may_fork

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 4.0
_SERVER_FIRST_SECONDS = 2.5
_MOST_OF_A_CAUSE = 500
SERVER_NAME = "rank 0"

FENCED = 3  # exit status of a server that another one has replaced

STOPPED = 130  # exit status of a process that was asked to stop; shells give the same after Ctrl-C


def run_guarded(
    work: Callable[[], None], *, tells: bool = True, failed: Callable[[str], None] = _log.error
) -> int:
    """Runs a role; turns each way in which it may end into a line and an exit status.

    Args:
        tells: whether it says that the server stopped or is gone, as one rank on a machine does.
        failed: called with the line that says why, where something raised an error of its own.
    """
    try:
        work()
    except BadInput as error:
        _log.error("%s", error)
        return 2
    except Interrupted as error:
        if tells and str(error):
            _log.warning("stopped: %s", error)
        return STOPPED
    except HostFailed as error:
        failed(str(error))
        return 1
    except (NotSaved, ServerLost, AllWorkersLost) as error:
        if tells or isinstance(error, NotSaved):
            _log.error("%s", error)
        return 1
    except Fenced as error:
        _log.error("%s; this server ends", error)
        return FENCED
    except Exception as error:  # the user's own code may raise anything
        if isinstance(error, OSError) and is_of_disk(error):
            _log.error("%s", cannot_write(error.filename, error))
        else:
            _log.exception("this process failed")
            failed(cause_of(error))
        return 1
    return 0


@dataclass
class _Role:
    """The process of one role, from its own side; every start gives it these."""

    name: str
    role: Callable[[], None]
    tells: bool  # see `run_guarded`
    waits: bool  # whether a server of this machine comes first when the launcher is gone
    lifeline: Connection
    failing: Connection

    def run(self) -> int:
        """Runs the role; returns the exit status of this process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher passes it on
        signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))  # until the role is ready
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        threading.Thread(target=self._end_with_launcher, daemon=True).start()
        return run_guarded(self.role, tells=self.tells, failed=self._tell_cause)

    def _tell_cause(self, why: str) -> None:
        """Says why the role fails; the launcher repeats that last, if the run ends of it."""
        _log.error("%s", why)
        self.failing.send_bytes(f"{self.name}: {why}".encode()[:_MOST_OF_A_CAUSE])

    def _end_with_launcher(self) -> None:
        self.lifeline.poll(None)  # returns when the launcher is gone
        if self.waits:  # this is a host: the server saves the run and tells it
            time.sleep(_SERVER_FIRST_SECONDS)
        for _ in range(2):  # the second time a server does not finish its iteration first
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_GRACE_SECONDS / 2)
        exit_between_files(1, 1.0)


class ChildProcesses:
    """The processes of this machine's ranks. None outlives the launcher, however that ends.

    Args:
        has_standbys: hosts look for another server when this one dies.
        are_all: no host of another machine is expected.
    """

    def __init__(self, *, has_standbys: bool, are_all: bool = False) -> None:
        self._has_standbys, self._are_all = has_standbys, are_all
        self._names: dict[BaseProcess, str] = {}
        # Nothing happens in a handler: a signal may come between the end of a child and the note
        # of it. The interpreter writes each as a byte into this pipe.
        self._signals, self._signalled = Pipe(duplex=False)
        os.set_blocking(self._signalled.fileno(), False)
        # Only the launcher holds this end open: when it ends, for any reason, the children notice.
        self._lifeline, self._launcher_alive = Pipe(duplex=False)
        self._causes, self._failing = Pipe(duplex=False)
        self._own_ends = self._launcher_alive, self._signals, self._signalled

    def run(self, work: Sequence[tuple[str, Callable[[], None]]]) -> int:
        """Starts a child for each role, by its name; ends the rest when the server ends.

        Returns:
            The exit status of the server, or the worst of the hosts' where it runs elsewhere.
        """
        for number in (*STOP_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()  # a collection in a child would copy every shared page it touches
        try:
            for name, role in work:
                self._start(name, role, tells=name == work[0][0])
            end_with_input()
            serves, status = bool(self._server()), self._wait()
        finally:
            self._end_all()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in self._own_ends:
                end.close()
        if status == 1 and serves:
            self._show_cause()
        return status

    def _show_cause(self) -> None:
        cause = b""
        while self._causes.poll():
            cause = self._causes.recv_bytes()
        if cause:
            _log.error("failed: %s", cause.decode(errors="replace"))

    def _start(self, name: str, role: Callable[[], None], *, tells: bool) -> None:
        waits = bool(self._server())
        child = _Role(name, role, tells, waits, self._lifeline, self._failing)
        # Until the child has handlers of its own, its signals would be noted as the launcher's.
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOP_SIGNALS, NONE_LEFT))
        self._names[start(child.run, closes=self._own_ends)] = name
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOP_SIGNALS, NONE_LEFT))

    def _server(self) -> list[BaseProcess]:
        """The server's process, if it is a living child."""
        return [child for child, name in self._names.items() if name == SERVER_NAME]

    def _wait(self) -> int:
        worst, serves = 0, bool(self._server())
        while self._names:
            (number,) = os.read(self._signals.fileno(), 1)  # waits, for example for a child's end
            if number in STOP_SIGNALS:
                self._stop_server()
                return 128 + number
            for name, status in self._reap():
                replaced = self._has_standbys and (status < 0 or status == FENCED)
                if status < 0:
                    _log.error("%s was killed by signal %d", name, -status)
                    status = 128 - status
                if name == SERVER_NAME and replaced and self._names:
                    serves = False  # the hosts look for the server that replaces it
                elif name == SERVER_NAME:  # hosts leave by themselves when the server says stop
                    self._reap_until(time.monotonic() + _GRACE_SECONDS)
                    return status
                elif not serves:
                    worst = max(worst, status)
                elif status == 1 and self._are_all and list(self._names.values()) == [SERVER_NAME]:
                    self._signal(self._server(), NONE_LEFT)
                elif status == 2:  # it could not join; without it training will not begin
                    return status
        return worst

    def _stop_server(self) -> None:
        """Waits until the server has saved the run, or until the user asks again to stop."""
        if not self._server():
            return
        self._signal(self._server())
        while self._server():
            if os.read(self._signals.fileno(), 1)[0] in STOP_SIGNALS:
                return
            self._reap()
        self._reap_until(time.monotonic() + _GRACE_SECONDS)

    def _reap(self) -> list[tuple[str, int]]:
        """Names and exit statuses of the children that have ended since, the server last."""
        statuses = [(child, child.exitcode) for child in reversed(self._names)]
        return [(self._names.pop(child), n) for child, n in statuses if n is not None]

    def _end_all(self) -> None:
        """The server first, so that it can save the run and tell the hosts; then the others."""
        begin = time.monotonic()
        if self._server():
            self._signal(self._server())
            self._reap_until(begin + 2 * TOGETHER_SECONDS)  # a signal that follows sooner is lost
            self._signal(self._server())
            self._reap_until(begin + _SERVER_FIRST_SECONDS)
        self._signal(self._names)
        self._reap_until(begin + _GRACE_SECONDS)
        self._signal(self._names, signal.SIGKILL)
        self._reap_until(inf)

    def _signal(self, children: Iterable[BaseProcess], number: int = signal.SIGTERM) -> None:
        for child in children:
            if child.exitcode is None and child.pid:  # not yet reaped, so the number is its own
                os.kill(child.pid, number)

    def _reap_until(self, deadline: float) -> None:
        while self._names and time.monotonic() < deadline:
            if not self._reap():
                time.sleep(0.01)


def launch(checked: Checked, takes_over_at: str | None = None) -> int:
    """Runs this machine's ranks to the end.

    Args:
        takes_over_at: the address where workers will look for a server that replaces a dead one.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad input, 128 + n ended by signal n.
    """
    check_open_files()
    if checked.resumes_or_starts:
        going = resumed_or_started(checked)
        if going is None:
            return 0
        checked = going
    if checked.is_one_process:
        end_with_input()
        claimed = claim(checked)
        with claimed.noting_end() as ended:
            return ended(run_guarded(partial(run_everything, checked, claimed)))
    if checked.ray is not None:
        from mdgan.launch.ray import launch_by_ray

        return launch_by_ray(checked, checked.ray)
    if checked.task is not None:
        return _run_task(checked, checked.task)
    return _start_all(checked, takes_over_at)


def _run_task(checked: Checked, task: LaunchedTask) -> int:
    """Runs the one role of a process that another program has started."""
    if not checked.ranks.serves:
        (workers,) = checked.ranks.hosts
        return run_guarded(partial(run_host, checked, workers, None, task.process_here))
    place = place_for_others(checked)
    assert place is not None
    claimed = claim(checked, place)
    started = f"{count(task.num_processes, 'process', 'processes')} by {task.launcher}"
    _log.info("starting %s for %s, others may join at %s", started, claimed.run.path, place)
    with claimed.noting_end() as ended:
        return ended(run_guarded(partial(run_server, checked, claimed, [place])))


def _serve(
    checked: Checked, claimed: Claim, places: Sequence[str], memory: object, folder: Path
) -> None:
    try:
        run_server(checked, claimed, places, memory)
    finally:  # the sockets go with it, as the launcher may have been killed by then
        shutil.rmtree(folder, ignore_errors=True)


def _start_all(checked: Checked, takes_over_at: str | None) -> int:
    # The first optimizer step would import it in every process, over a second each.
    import torch._dynamo  # noqa: F401

    with contextlib.ExitStack() as resources:
        sockets, run, memory = checked.sockets, None, None
        ended: Callable[[int], int] = int
        carried = ", ".join(map(str, checked.ranks.workers()))
        work: list[tuple[str, Callable[[], None]]] = []
        if checked.ranks.serves:
            other = place_for_others(checked, takes_over_at)
            folder = Path(resources.enter_context(make_private_folder(for_sockets=True)))
            # A request to stop waits from here on until the roles run, and the folder says so.
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            resources.callback(signal.pthread_sigmask, signal.SIG_UNBLOCK, STOP_SIGNALS)
            sockets = Sockets(folder, alone=other is None)
            claimed = claim(
                checked, other or "", sockets.server, taking_over=takes_over_at is not None
            )
            ended = resources.enter_context(claimed.noting_end())
            run = claimed.run.path
            processes = count(checked.ranks.num_processes, "process", "processes")
            joining = "on this machine" if other is None else f"at {other}"
            _log.info("starting %s for %s, others may join %s", processes, run, joining)
            num_workers, num_hosts = len(checked.ranks.workers()), len(checked.ranks.hosts)
            if checked.launch.workers_per_host is None and num_hosts < num_workers:
                _log.info(
                    "%d workers share %d process(es), which is faster with such models; %s gives "
                    "each its own",
                    num_workers,
                    num_hosts,
                    flag("workers_per_host", 1),
                )
            places = [sockets.server, *([other] if other is not None else ())]
            memory = _common_memory(checked)
            role = partial(_serve, checked, claimed, places, memory, folder)
            work.append((SERVER_NAME, role))
        else:
            places = [str(sockets.folder)] if sockets else server_places(checked.launch.links)
            server = " or ".join(places)
            _log.info("starting rank %s; waiting for the server at %s", carried, server)
        for index, workers in enumerate(checked.ranks.hosts):
            process_here = index + checked.ranks.serves
            role = partial(run_host, checked, workers, sockets, process_here, run, memory)
            work.append((f"rank {ends_of(workers)}", role))
        has_standbys = len(checked.launch.links.addresses()) > 1
        are_all = checked.ranks.complete and not has_standbys
        status = ended(ChildProcesses(has_standbys=has_standbys, are_all=are_all).run(work))
        if not checked.ranks.serves:
            how = "was stopped" if status == STOPPED else f"ended with status {status}"
            _log.info("rank %s %s", carried, how, extra={"shown": "result"})
        return status


def _common_memory(checked: Checked) -> object:
    """What all ranks share that are forks, if their algorithm has use for it."""
    on_cpus = resolve_device(checked.launch.device, 0).type == "cpu"
    if not (checked.ranks.complete and on_cpus and may_fork() and HOLDS_PROCESSES):
        return None
    hosts = {workers[0]: workers for workers in checked.ranks.hosts}
    try:
        return checked.builder.common_memory(checked.settings, checked.models, hosts)
    except OSError as error:
        _log.warning("processes cannot share memory here (%s); they send messages", error)
        return None
