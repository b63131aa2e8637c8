"""A process that has imported all of mdgan, and whose forks run its commands.

Importing torch takes seconds of a core; a fork of a process that has done so takes milliseconds. So
tests start their commands as forks of one such process, which all test processes of a session
share. From its fork on, a command is what a user's command is: a process in
its own session, with its own folder, environment and output.

This side of a connection asks with a line of JSON and two pipes for the output. The other side
answers with two lines: the command's process, and when it is over its exit status and its most
memory.
"""

import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import io
import json
import logging
import os
import pkgutil
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

MDGAN = [sys.executable, "-m", "mdgan"]
_REPOSITORY = Path(__file__).resolve().parent.parent
_LOOK_SECONDS = 1.0
_MOST_BYTES = 1 << 20
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MOST_FILES = 4096
_EVENTS = 3  # the pipe for events, where a command has one
_NETWORK_NAMESPACE = 0x40000000  # CLONE_NEWNET
_MOUNT_NAMESPACE, _BIND, _PRIVATE = 0x20000, 0x1000, 0x4000 | 1 << 18
_IMPORTED_LATE = (
    *("torch._dynamo", "safetensors.torch", "sklearn.datasets", "torch.utils.flop_counter"),
    *("torchmetrics.image.fid", "torchmetrics.image.kid"),
    *("scipy.optimize", "scipy.special", "scipy.stats", "sklearn.metrics", "sklearn.linear_model"),
)
"""What mdgan imports only where it is needed, and what takes a large part of a short run."""
SESSION = "MDGAN_TESTS_SESSION"
"""Tells a command's own processes which session of tests it belongs to."""


class ForkedCommand:
    """An mdgan command under way; serves as a `subprocess.Popen` does.

    Args:
        arguments: of `mdgan`.
        cwd: the folder in which it runs.
        variables: its whole environment.
        network: the network namespace in which it runs; none for that of the tests.
        merged: whether its errors appear among what it prints.
        given: the pipe that it reads as its input; it has none by default.
        events: the pipe into which the child process of a Python program sends them; then that is
            what runs, and not the command line.

    Attributes:
        pid: its process, which leads a session.
        returncode: its exit status; negative for a signal, None while it is not known to be over.
        stdout: what it prints.
        stderr: what it prints as errors.
        peak_mb: the most memory that it had beyond what it shares, when it is over.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        variables: Mapping[str, str],
        *,
        network: str = "",
        merged: bool = False,
        stdin_pipe: int | None = None,
        events: int | None = None,
    ) -> None:
        self.returncode: int | None = None
        self.peak_mb = 0
        request = {
            "arguments": list(arguments),
            "cwd": str(cwd),
            "variables": dict(variables),
            "network": network,
            "sends_events": events is not None,
        }
        output, stdout = os.pipe()
        errors, stderr = (os.dup(output), os.dup(stdout)) if merged else os.pipe()
        with contextlib.closing(_connect(variables)) as connection:
            content = json.dumps(request).encode() + b"\n"
            pipes = [stdout, stderr, *(pipe for pipe in (stdin_pipe, events) if pipe is not None)]
            socket.send_fds(connection, [content], pipes)
            self._told = connection.makefile()
        os.close(stdout)
        os.close(stderr)
        self.stdout: IO[str] = os.fdopen(output)
        self.stderr: IO[str] = os.fdopen(errors)
        if merged:
            self.stderr.close()
        self.pid = int(self._told.readline())

    def poll(self) -> int | None:
        """The exit status, if it is over."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._take_status()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it is over."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Waits until it is over; its exit status."""
        if self.returncode is None:
            self._take_status()
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Waits until the command is over and none of its processes can print any more.

        Raises:
            subprocess.TimeoutExpired: the time is up; may be called again.
        """
        if not hasattr(self, "_printed"):
            self._printed = ["", ""]
            self._readers = [
                threading.Thread(target=self._read, args=(place,), daemon=True) for place in (0, 1)
            ]
            for reader in self._readers:
                reader.start()
        deadline = time.monotonic() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired("mdgan", timeout or 0.0)
        self.wait()
        return self._printed[0], self._printed[1]

    def _read(self, place: int) -> None:
        with (self.stdout, self.stderr)[place] as stream:
            self._printed[place] = stream.read()

    def _take_status(self) -> None:
        with self._told:
            self.returncode, self.peak_mb = map(int, self._told.readline().split())


def serve() -> NoReturn:
    """Is the `mdgan` of a shell: a fork that has this process's folder, environment and output."""
    command = ForkedCommand(sys.argv[1:], Path.cwd(), os.environ)
    output, errors = command.communicate()
    sys.stdout.write(output)
    sys.stderr.write(errors)
    status = command.wait()
    sys.exit(status if status >= 0 else 128 - status)


def _connect(variables: Mapping[str, str]) -> socket.socket:
    """A connection to the session's forking process, which is started if there is none."""
    path = Path(tempfile.gettempdir()) / f"mdgan-tests-{session()}"
    connection = socket.socket(socket.AF_UNIX)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            connection.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            _start(path, variables)
            connection.connect(str(path))
    return connection


def session() -> int:
    """The pytest that a user has started; processes of pytest-xdist are its children."""
    if SESSION in os.environ:
        return int(os.environ[SESSION])
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _start(path: Path, variables: Mapping[str, str]) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        os.set_inheritable(listener.fileno(), True)
        program = "import sys; from tests.forks import main; main(*sys.argv[1:])"
        command = [sys.executable, "-c", program, str(path), str(session())]
        common = {
            "PYTHONPATH": os.pathsep.join([str(_REPOSITORY), variables.get("PYTHONPATH", "")])
        }
        os.posix_spawn(
            sys.executable,
            [*command, str(listener.fileno())],
            {**variables, **common},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)
            ],
        )


def main(path: str, session: str, listener: str) -> None:
    """Serves until the pytest of the session is over."""
    with contextlib.suppress(OSError):
        os.setsid()
    import_all()
    os.fsync = reach_no_disk
    measure_shortly()
    read_digits_once()
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every shared page that it touches
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps those who mind commands
    with socket.socket(fileno=int(listener)) as listening:
        while _is_alive(int(session)):
            if not select.select([listening], [], [], _LOOK_SECONDS)[0]:
                continue
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _mind(connection)
            connection.close()
    for suffix in ("", ".lock"):
        Path(path + suffix).unlink(missing_ok=True)


def reach_no_disk(fd: object) -> None:
    """Stands for `os.fsync` in tests, which cut no power."""


def measure_shortly() -> None:
    """What tests plan is played for so long as tells something, and not as tells how long."""
    from mdgan.plan import measurement

    measurement._LEAST = (6, 0.3)


@functools.cache
def read_digits_once() -> None:
    """Runs on digits share what scikit-learn has read of them."""
    from sklearn import datasets

    datasets.load_digits = functools.cache(datasets.load_digits)
    datasets.load_digits()


def import_all() -> None:
    """Imports all modules that a command may need, but for gRPC, which does not survive forks."""
    from mdgan.cli.options import prepare_environment

    prepare_environment(many_processes=True)
    import mdgan

    modules = [module.name for module in pkgutil.walk_packages(mdgan.__path__, "mdgan.")]
    without_grpc = dict.fromkeys(("grpc", "grpc_health"))
    sys.modules.update(without_grpc)  # type: ignore[arg-type] # None says that there is no module
    for name in [*modules, *_IMPORTED_LATE]:
        if not name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # what is not installed is not needed
                importlib.import_module(name)
    from mdgan.errors import BadInput
    from mdgan.privacy import accountant

    with contextlib.suppress(BadInput):
        accountant.check_installed("")
    for name in without_grpc:
        del sys.modules[name]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def _mind(connection: socket.socket) -> NoReturn:
    """Forks a command, and sends its process number and exit status."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request, pipes = _receive(connection)
        child = os.fork()
        if child == 0:
            connection.close()
            _become(request, pipes)
        for pipe in pipes:
            os.close(pipe)
        connection.sendall(b"%d\n" % child)
        _, ended, used = os.wait4(child, 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        status_and_peak = os.waitstatus_to_exitcode(ended), (used.ru_maxrss - before) >> 10
        with contextlib.suppress(OSError):  # the test may be over
            connection.sendall(b"%d %d\n" % status_and_peak)
        status = 0
    finally:
        os._exit(status)


def _receive(connection: socket.socket) -> tuple[bytes, list[int]]:
    request, pipes, _, _ = socket.recv_fds(connection, _MOST_BYTES, 4)
    while not request.endswith(b"\n"):
        request += connection.recv(_MOST_BYTES)
    return request, pipes


def _become(request: bytes, pipes: list[int]) -> NoReturn:
    """Is the command from here on."""
    os.setsid()
    order = json.loads(request)
    # Of those with low numbers none may take the place of another that is still to come.
    pipes = [fcntl.fcntl(pipe, fcntl.F_DUPFD, _EVENTS + 1) for pipe in pipes]
    for number, pipe in zip((1, 2, 0, _EVENTS), pipes, strict=False):
        os.dup2(pipe, number)
    if order["network"]:
        _enter(Path("/var/run/netns") / order["network"])
    os.chdir(order["cwd"])
    _run(order["arguments"], order["variables"], sends_events=order["sends_events"])


def _enter(namespace: Path) -> None:
    """As `ip netns exec` does."""
    with namespace.open() as file:
        if ctypes.CDLL(None).setns(file.fileno(), _NETWORK_NAMESPACE) != 0:
            raise OSError(f"cannot enter {namespace}")
    hosts = Path("/etc/netns") / namespace.name / "hosts"
    if hosts.exists():
        this_process = ctypes.CDLL(None)
        made = this_process.unshare(_MOUNT_NAMESPACE) == 0
        made &= this_process.mount(b"none", b"/", None, _PRIVATE, None) == 0
        if not made or this_process.mount(bytes(hosts), b"/etc/hosts", None, _BIND, None) != 0:
            raise OSError(f"cannot bind {hosts}")


def _run(
    arguments: Sequence[str], variables: Mapping[str, str], *, sends_events: bool = False
) -> NoReturn:
    """Runs a command where all but memory is as in a new process."""
    from mdgan import cli
    from mdgan.cli import serve

    os.closerange(_EVENTS + sends_events, _MOST_FILES)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    # A thread of the process that was forked may have held the locks of the old ones.
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None  # TMPDIR may have changed
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # as importing mdgan.transport does
    logging.getLogger("mdgan").handlers.clear()  # they may write where another pipe is now
    sys.path[0] = str(Path.cwd())
    sys.argv = [*MDGAN[:1], *arguments]
    # For commands that start others.
    subprocess.Popen = _ForkingPopen  # type: ignore[assignment, misc] # only what mdgan needs
    cli._STARTED = time.monotonic()
    if sends_events:
        serve.main(_EVENTS, *map(int, arguments[1:]))
    cli.run()


class _ForkingPopen(subprocess.Popen[Any]):
    """Where mdgan starts mdgan: a fork that does not go on to import everything anew."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        if list(command[: len(MDGAN)]) != MDGAN:
            super().__init__(command, **options)
            return
        variables = options.get("env") or dict(os.environ)
        options["preexec_fn"] = functools.partial(_run, command[len(MDGAN) :], variables)
        # Python loses a Ctrl-C whose handler runs in a hook of this fork; `_run` unblocks both.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            super().__init__(command, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
