"""Starts this machine's ranks as forks of one process that has imported torch, and minds them.

Spawning N interpreters that each import torch costs seconds and hundreds of megabytes a process; a
fork of one that did, and that has read the data, costs milliseconds and shares the memory.
"""

import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import FrameType
from typing import NoReturn

from mdgan.engine.host.loop import HostFailed, ServerLost
from mdgan.engine.server.loop import AllWorkersLost
from mdgan.errors import BadInput, Interrupted
from mdgan.launch.claim import claim
from mdgan.launch.links import DEFAULT_PORT, own_addresses, server_addresses
from mdgan.launch.prepare import Prepared
from mdgan.launch.processes import run_everything, run_host, run_server
from mdgan.launch.settings import check_exposed
from mdgan.storage.fence import Fenced
from mdgan.storage.whole_file import exit_between_files
from mdgan.transport.rendezvous import listen

_log = logging.getLogger(__name__)

_GRACE_SECONDS = 4.0
_SERVER_FIRST_SECONDS = 2.5
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SERVER_NAME = "rank 0"

FENCED = 3
"""Exit status of a server that another one has replaced."""

STOPPED = 130
"""Exit status of a process that was asked to stop; shells give the same after Ctrl-C."""


def launch(prepared: Prepared) -> int:
    """Runs this machine's ranks to the end.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad input, 128 + n ended by signal n.

    Raises:
        BadInput: an address, port or output folder cannot be used; nothing was started.
    """
    if prepared.launch.transport == "memory" or not prepared.algorithm.has_hosts:
        return run_guarded(partial(run_everything, prepared, claim(prepared)))
    if prepared.torchrun is not None:
        return _one_of_torchrun(prepared)
    return _fork_all(prepared, prepared.launch.addresses()[0])


def take_over(prepared: Prepared, address: str) -> int:
    """Runs the server of a run whose server has died.

    Args:
        prepared: a run that goes on; rank 0 is all that runs here.
        address: of this machine, where the workers will look.

    Returns:
        The exit status, as `launch`.
    """
    return _fork_all(prepared, address, taking_over=True)


def run_guarded(work: Callable[[], None], *, tells: bool = True) -> int:
    """Runs a role; turns each way in which it may end into a line and an exit status.

    Args:
        work: runs the role.
        tells: whether to say that the server stopped or is gone; one rank on a machine does.
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
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        _log.error("cannot write %s: %s", error.filename, error.strerror)
        return 1
    except HostFailed as error:
        _log.error("%s", error)
        return 1
    except (ServerLost, AllWorkersLost) as error:
        if tells:
            _log.error("%s", error)
        return 1
    except Fenced as error:
        _log.error("%s; this server ends", error)
        return FENCED
    return 0


def _preload() -> None:
    """Imports what the first optimizer step would import in every process (over a second each)."""
    import torch._dynamo  # noqa: F401


def _one_of_torchrun(prepared: Prepared) -> int:
    torchrun = prepared.torchrun
    assert torchrun is not None
    if not prepared.ranks.serves:
        (workers,) = prepared.ranks.hosts
        return run_guarded(partial(run_host, prepared, workers, None, torchrun.process_here))
    listener = None
    if not torchrun.store_is_up:
        listener = listen(torchrun.master_addr, torchrun.master_port)
    return run_guarded(partial(run_server, prepared, claim(prepared), listener))


def _fork_all(prepared: Prepared, address: str, *, taking_over: bool = False) -> int:
    with contextlib.ExitStack() as resources:
        listener: socket.socket | None = None
        port, run = prepared.launch.master_port, None
        work: list[tuple[str, Callable[[], None]]] = []
        if prepared.ranks.serves:
            if port is None:
                port = 0 if prepared.ranks.complete else DEFAULT_PORT
            listener = resources.enter_context(listen(address, port))
            own, port = listener.getsockname()[:2]
            check_exposed([own], prepared.launch)
            claimed = claim(prepared, listens=f"{own}:{port}", taking_over=taking_over)
            run = claimed.run.path
            count = prepared.ranks.num_processes
            processes = "1 process" if count == 1 else f"{count} processes"
            where = f"{processes} for {run}, others may join at {own}:{port}"
            _log.info("starting %s", where)
            work.append((SERVER_NAME, partial(run_server, prepared, claimed, listener)))
        else:
            places = server_addresses(prepared.launch, port)
            check_exposed(own_addresses(places, prepared.launch), prepared.launch)
        for index, workers in enumerate(prepared.ranks.hosts):
            name = "rank " + "-".join(map(str, sorted({workers[0], workers[-1]})))
            process_here = index + prepared.ranks.serves
            work.append((name, partial(run_host, prepared, workers, port, process_here, run)))
        _preload()
        return Family(listener, has_standbys=len(prepared.launch.addresses()) > 1).run(work)


class _StopSignal(Exception):
    """Ctrl-C or SIGTERM reached the launcher."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Family:
    """The launcher's children. None outlives it, however it ends.

    Args:
        listener: the server's socket, which its process alone may keep.
        has_standbys: whether hosts look for another server when this one dies.
    """

    def __init__(self, listener: socket.socket | None, *, has_standbys: bool) -> None:
        self._has_standbys = has_standbys
        self._names: dict[int, str] = {}
        self._listener = listener
        self._stopping = False
        # Only the launcher holds this end open: when it ends, for any reason, the children notice.
        self._lifeline, self._launcher_alive = os.pipe()

    def run(self, work: Sequence[tuple[str, Callable[[], None]]]) -> int:
        """Forks a child for each role and waits for them; ends the rest when the server ends.

        Args:
            work: names and roles; the first role says it if the server stops or is gone.

        Returns:
            The exit status of the server, or the worst of the hosts' where it runs elsewhere.
        """
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()  # a collection in a child would copy every shared page it touches
        try:
            for name, role in work:
                self._fork(name, partial(run_guarded, role, tells=name == work[0][0]))
            if self._listener is not None:
                self._listener.close()
            return self._mind()
        except _StopSignal as signalled:
            return 128 + signalled.number
        finally:
            self._stopping = True
            self._end_all()

    def _fork(self, name: str, role: Callable[[], int]) -> None:
        # A signal between the fork and the child's own handlers would raise the launcher's in it.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        child = os.fork()
        if child == 0:
            self._be_child(name, role)
        self._names[child] = name
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

    def _be_child(self, name: str, role: Callable[[], int]) -> NoReturn:
        status = 1
        try:
            os.close(self._launcher_alive)
            if self._listener is not None and name != SERVER_NAME:
                self._listener.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher passes it on
            signal.signal(signal.SIGTERM, lambda *_: os._exit(STOPPED))  # until the role is ready
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
            threading.Thread(target=self._watch_launcher, daemon=True).start()
            status = role()
        except BaseException:
            _log.exception("%s failed", name)
        finally:
            with contextlib.suppress(OSError):  # the reader of a pipe may be gone
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)  # the parent's own clean-up is not the child's to run

    def _mind(self) -> int:
        worst = 0
        serves = SERVER_NAME in self._names.values()
        while self._names:
            name, status = self._wait()
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
            elif status == 2:  # it could not join; without it training will not begin
                return status
        return worst

    def _wait(self) -> tuple[str, int]:
        child, status = os.wait()
        return self._names.pop(child), os.waitstatus_to_exitcode(status)

    def _end_all(self) -> None:
        """The server first, so that it can save the run and tell the hosts; then the others."""
        begin = time.monotonic()
        servers = [child for child, name in self._names.items() if name == SERVER_NAME]
        self._signal(servers, signal.SIGTERM)
        if servers:
            self._reap_until(begin + _SERVER_FIRST_SECONDS)
        self._signal(list(self._names), signal.SIGTERM)
        self._reap_until(begin + _GRACE_SECONDS)
        self._signal(list(self._names), signal.SIGKILL)
        while self._names:
            self._wait()

    def _signal(self, children: list[int], number: signal.Signals) -> None:
        for child in children:
            os.kill(child, number)  # not yet reaped, so the number is still its own

    def _reap_until(self, deadline: float) -> None:
        while self._names and time.monotonic() < deadline:
            child, _ = os.waitpid(-1, os.WNOHANG)
            if child:
                self._names.pop(child)
            else:
                time.sleep(0.01)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self._stopping:
            self._stopping = True
            raise _StopSignal(number)

    def _watch_launcher(self) -> None:
        os.read(self._lifeline, 1)  # returns when the launcher is gone
        if SERVER_NAME in self._names.values():  # a host: the server saves the run and tells it
            time.sleep(_SERVER_FIRST_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        exit_between_files(1, 1.0)
