"""Ranks as actors of a Ray cluster: Ray places them, and places them anew when a node dies.

Each actor minds one `mdgan train --ranks ...`, as a user would start it on several machines. Links
stay mdgan's own. This process tells each actor what to start, and shows what the server's prints. A
host that was placed anew comes back under its ranks as a newcomer; a server goes on from the newest
checkpoint in the run's folder, which all nodes must share for that.
"""

import contextlib
import json
import logging
import os
import re
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from mdgan.errors import BadInput
from mdgan.launch.children import STOPPED
from mdgan.launch.minder import Minder, News
from mdgan.launch.prepare import Prepared
from mdgan.launch.ranks import local_ranks
from mdgan.launch.task import RayCluster

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.3
_AGAIN_SECONDS = 1.0
_GRACE_SECONDS = 4.0
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
_WARNING = "mdgan: "
_OPTIONS = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
_LINES_OF_FAILED = 20
_REFUSED = 2
_REACH_SECONDS = 10.0
_RETURN_SECONDS = 3.0


@dataclass
class _Rank:
    """A process of the run."""

    name: str
    ranks: str
    actor: Any
    placed: bool = False
    since: float = field(default_factory=time.monotonic)
    restarts: int = 0
    said: "deque[str]" = field(default_factory=lambda: deque(maxlen=_LINES_OF_FAILED))


def launch_by_ray(prepared: Prepared, cluster: RayCluster) -> int:
    """Runs a whole run as actors of a Ray cluster; returns the server's exit status."""
    ray = _connect(cluster.address)
    stopping: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    # Ray prints what its daemons say, at length, to the standard output.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        run = _RayRun(ray, prepared, cluster.resources)
        try:
            status = run.mind(stopping)
        except ConnectionError as error:
            _log.error("Ray's cluster does not answer any more (%.200s)", error)
            status = 1
        finally:
            run.end()
            ray.shutdown()
    for line in run.results:
        _log.info("%s", line, extra={"shown": "result"})
    return status


def _connect(address: str | None) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise BadInput(
            "--launcher ray: Ray is not installed here; pip install 'mdgan[ray]'"
        ) from error
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        try:  # Ray itself would try for two minutes
            socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise _no_cluster(address, error) from error
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from error
    return ray


def _no_cluster(address: str | None, error: Exception) -> BadInput:
    shown = "" if address is None else f" --ray-address {' '.join(address.split()):.99}"
    reason = " ".join(str(error).split())
    return BadInput(
        f"--launcher ray{shown}: no cluster answers ({reason:.200}); `ray start --head` starts one"
    )


class _RayRun:
    """The actors of a run, and what they are told."""

    def __init__(self, ray: Any, prepared: Prepared, resources: Mapping[str, float]) -> None:
        self._ray, self._prepared, self._resources = ray, prepared, resources
        launch = prepared.launch
        own: dict[str, Any] = dict.fromkeys(("log_file", "ranks", "master_addr", "master_port"))
        if launch.threads == "auto":
            own["threads"] = max(1, int(resources.get("CPU", 1)))
        kept = {**prepared.config, **own}
        self.results: list[str] = []
        self._stopping = False
        self._settings = json.dumps({n: value for n, value in kept.items() if value is not None})
        name = f"{prepared.dataset.name}-{datetime.now():%Y%m%d-%H%M%S}"
        given = prepared.continues or launch.out or f"runs/{name}"
        self._folder = str(Path(given).absolute())
        self._where: tuple[str, int] | None = None
        self._pending: dict[Any, tuple[_Rank, Callable[[_Rank, Any], int | None]]] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        everything = local_ranks(prepared.settings, launch, None)
        self._server = _Rank("rank 0", "0", self._new_actor())
        self._hosts = [
            _Rank(f"rank {_ends(host, '-')}", _ends(host, ".."), self._new_actor())
            for host in everything.hosts
        ]
        count = len(self._hosts) + 1
        _log.info("starting %d processes by Ray for %s", count, self._folder)

    def mind(self, stopping: Sequence[int]) -> int:
        """Places and starts the processes, and waits until the server's has ended."""
        self._place_server()
        for host in self._hosts:
            self._expect(host, host.actor.poll.remote(), self._hear_host)
        while True:
            if stopping and not self._stopping:
                self._stopping = True
                self._server.actor.stop.remote(wait=False)
            if len(stopping) > 1 or (stopping and self._where is None):
                return 128 + stopping[0]
            self._do_what_is_due()
            for reference in self._answers():
                status = self._take(reference)
                if status is not None:
                    return 128 + stopping[0] if self._stopping else status
            self._check_placed()

    def end(self) -> None:
        """Ends every actor, and with it its process, once the hosts have had time to leave."""
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline and self._pending:
            for reference in self._answers():
                rank, _ = self._pending.pop(reference)
                with contextlib.suppress(Exception):  # its node may go at this moment
                    if (news := self._ray.get(reference)) and news[1] is None:
                        self._expect(rank, rank.actor.poll.remote(), self._hear_host)
        for rank in (self._server, *self._hosts):
            with contextlib.suppress(Exception):
                self._ray.kill(rank.actor, no_restart=True)

    def _new_actor(self) -> Any:
        amounts = dict(self._resources)
        own = {option: amounts.pop(name) for name, option in _OPTIONS.items() if name in amounts}
        return self._ray.remote(
            **{"num_cpus": 0, **own},
            resources=amounts,
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )(Minder).remote()

    # What this process waits for, and what it does then.

    def _expect(
        self, rank: _Rank, reference: Any, then: Callable[[_Rank, Any], int | None]
    ) -> None:
        self._pending[reference] = rank, then

    def _answers(self) -> Sequence[Any]:
        if not self._pending:
            time.sleep(_LOOK_SECONDS)
            return ()
        ready: Sequence[Any] = self._ray.wait(
            list(self._pending), num_returns=1, timeout=_LOOK_SECONDS
        )[0]
        return ready

    def _take(self, reference: Any) -> int | None:
        """Hands an answer to what waits for it; returns the run's exit status if that ends it."""
        rank, then = self._pending.pop(reference)
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(reference)
        except errors.ActorUnavailableError:
            if self._stopping and rank is self._server:
                return STOPPED
            if rank.placed:
                _log.warning("%s: its node is gone; Ray places it anew", rank.name)
                rank.placed, rank.since = False, time.monotonic()
                rank.restarts += 1
            again = self._place_server if rank is self._server else partial(self._poll_host, rank)
            self._later.append((time.monotonic() + _AGAIN_SECONDS, again))
            return None
        except errors.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise BadInput(
                f"--launcher ray: {rank.name} cannot run on its node ({lines[-1]:.200}); every "
                "node needs the same mdgan"
            ) from error
        rank.placed = True
        return then(rank, answer)

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        due = [act for at, act in self._later if at <= now]
        self._later = [(at, act) for at, act in self._later if at > now]
        for act in due:
            act()

    def _check_placed(self) -> None:
        """Gives up if Ray finds no place for a process."""
        limit = self._prepared.launch.links.connect_timeout
        late = time.monotonic() - limit
        everyone = (self._server, *self._hosts)
        waiting = [rank for rank in everyone if not rank.placed and rank.since < late]
        # Training goes on without a host that was placed before, as long as there is a server.
        if not any(rank is self._server or not rank.restarts for rank in waiting):
            return
        has = self._ray.cluster_resources()
        wanted = ", ".join(f'"{name}": {amount:g}' for name, amount in self._resources.items())
        said = ", ".join(f"{name} {has.get(name, 0):g}" for name in self._resources)
        raise BadInput(
            f"--host-resources {{{wanted}}}: Ray has had no place for "
            f"{len(waiting)} of {len(everyone)} processes for {limit:g} s (--connect-timeout); the "
            f"cluster has {said}: ask for less, or add nodes"
        )

    # The server.

    def _place_server(self) -> None:
        wanted = self._where[1] if self._where else self._prepared.launch.links.master_port or 0
        self._expect(self._server, self._server.actor.where.remote(wanted), self._server_is_at)

    def _server_is_at(self, server: _Rank, found: tuple[str, int, bool]) -> None:
        address, port, runs = found
        if not runs:
            before, self._where = self._where, (self._reached_at(address), port)
            self._start(server, *self._run_flags(again=before is not None))
            if before != self._where:
                for host in self._hosts:
                    if host.placed:
                        self._start(host, "--out", self._folder)
        self._expect(server, server.actor.poll.remote(), self._hear_server)

    def _reached_at(self, address: str) -> str:
        """The server's address; this machine's own where no other takes part and nothing guards."""
        launch = self._prepared.launch
        nodes = {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
        guarded = launch.links.is_guarded or launch.links.insecure
        return address if guarded or nodes != {address} else "127.0.0.1"

    def _run_flags(self, *, again: bool) -> tuple[str, str]:
        if again or self._prepared.resumes_or_starts:
            return "--resume-or-start", self._folder
        return "--out" if self._prepared.continues is None else "--resume", self._folder

    def _hear_server(self, server: _Rank, news: News | None) -> int | None:
        if news is None:
            self._place_server()
            return None
        lines, status = news
        self.results += [line for stream, line in lines if stream == "out"]
        for line in (line for stream, line in lines if stream == "err"):
            _show(line)
        if status is None:
            self._expect(server, server.actor.poll.remote(), self._hear_server)
            return None
        return status if status >= 0 else 128 - status

    # The hosts.

    def _poll_host(self, host: _Rank) -> None:
        self._expect(host, host.actor.poll.remote(), self._hear_host)

    def _start_host(self, host: _Rank) -> None:
        self._start(host, "--out", self._folder)
        self._poll_host(host)

    def _hear_host(self, host: _Rank, news: News | None) -> int | None:
        if news is None:  # it is placed, for the first time or anew
            if self._where is not None:
                self._start(host, "--out", self._folder)
            self._later.append((time.monotonic() + _AGAIN_SECONDS, partial(self._poll_host, host)))
            return None
        lines, status = news
        host.said.extend(line for _, line in lines)
        if status is None:
            self._poll_host(host)
        elif status == _REFUSED and host.restarts:
            # The server may not have noticed yet that this host was lost.
            self._later.append(
                (time.monotonic() + _RETURN_SECONDS, partial(self._start_host, host))
            )
        elif status not in (0, STOPPED):
            for line in host.said:
                text = _STAMP.sub("", line)
                if text.startswith(_WARNING):
                    _log.warning("%s: %s", host.name, text.removeprefix(_WARNING))
            if status == _REFUSED:  # without it training will not begin
                return status
        return None

    def _start(self, rank: _Rank, *flags: str) -> None:
        assert self._where is not None
        address, port = self._where
        rank.said.clear()
        rank.actor.start.remote(
            [
                *("--launcher", "processes", "--ranks", rank.ranks, *flags),
                *("--master-addr", address, "--master-port", str(port)),
            ],
            str(Path.cwd()),
            self._settings,
        )


def _ends(workers: Sequence[int], between: str) -> str:
    """The first and the last of consecutive ranks; one number if they are the same."""
    return between.join(map(str, sorted({workers[0], workers[-1]})))


def _show(line: str) -> None:
    """Logs a line of the server's as if it ran in this process."""
    text = _STAMP.sub("", line)
    if text.startswith(_WARNING):
        _log.warning("%s", text.removeprefix(_WARNING))
    else:
        shown = "live" if text.startswith("iteration ") else "note"
        _log.info("%s", text, extra={"shown": shown, "pieces": [(0, text)]})
