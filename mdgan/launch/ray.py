"""Runs ranks as actors of a Ray cluster. Ray places them, and again when their node dies.

Each actor minds one `mdgan train --ranks ...`, as a user would start it on several machines, and
mdgan links them as usual. This process starts them through their actors, and shows what the server
prints. A host on a new node joins the run again under its ranks. A server on a new node goes on
from the newest checkpoint in the run's folder, which all nodes must share for that.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any

from mdgan.errors import BadInput
from mdgan.launch.checked import Checked
from mdgan.launch.launcher import STOPPED
from mdgan.launch.minder import Minder, News
from mdgan.launch.ranks import ends_of, local_ranks
from mdgan.launch.task import RayCluster
from mdgan.spelling import Mention, flag, key

_log = logging.getLogger(__name__)

_BY_RAY = flag("launcher", "ray")
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
_ROUNDING = 1e-6


@dataclass
class _Rank:
    """One process of the run and its actor."""

    name: str
    ranks: str
    actor: Any
    news: Any = None  # Ray's reference to the actor's next news; None until `due`
    due: float = 0.0
    placed: bool = False
    since: float = field(default_factory=time.monotonic)  # when Ray began to look for a node
    restarts: int = 0
    # The last lines that a host has printed.
    last_lines: "deque[str]" = field(default_factory=lambda: deque(maxlen=_LINES_OF_FAILED))


def launch_by_ray(checked: Checked, cluster: RayCluster) -> int:
    """Runs a whole run as actors of a Ray cluster; returns the server's exit status."""
    ray = _connect(cluster.address)
    stopping: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: stopping.append(number))
    # Ray prints long messages of its daemons to the standard output.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        run = _RayRun(ray, checked, cluster, stopping)
        try:
            status = run.mind()
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
    """Imports Ray and connects it to a cluster; BadInput if either fails."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        install = "pip install 'mdgan[ray]'"
        raise BadInput(_BY_RAY, "Ray is not installed here", install) from error
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        try:  # without this test, Ray would try for two minutes
            socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise _no_cluster(address, error) from error
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (OSError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from error
    return ray


def _no_cluster(address: str | None, error: Exception) -> BadInput:
    what = f"{_BY_RAY}"
    if address is not None:
        what += f" {flag('ray_address', ' '.join(address.split())[:99])}"
    why = f"no cluster answers ({' '.join(str(error).split()):.200})"
    return BadInput(what, why, "`ray start --head` starts one")


class _RayRun:
    """The actors of a run; `results` are the lines that the server wrote to standard output."""

    def __init__(
        self, ray: Any, checked: Checked, cluster: RayCluster, stopping: Sequence[int]
    ) -> None:
        self._ray, self._prepared, self._resources = ray, checked, cluster.resources
        self._stopping = stopping
        launch = checked.launch
        replaced: dict[str, Any] = dict.fromkeys(
            ("log_file", "ranks", "master_addr", "master_port")
        )
        if launch.threads == "auto":
            replaced["threads"] = max(1, int(cluster.resources.get("CPU", 1)))
        config = {**checked.config, **replaced}
        self._settings = json.dumps({n: value for n, value in config.items() if value is not None})
        hosts = local_ranks(checked.settings, launch, None).hosts
        if why := no_room(ray.nodes(), cluster.resources, 1 + len(hosts)):
            if cluster.address is None and len(ray.nodes()) == 1:
                raise BadInput(f"{why}, or {flag('ray_address')} names a larger cluster")
            limit = launch.links.connect_timeout
            _log.warning("warning: %s; waiting %g s for others to come", why, limit)
        name = f"{checked.dataset.name}-{datetime.now():%Y%m%d-%H%M%S}"
        self._folder = str(Path(checked.continues or launch.out or f"runs/{name}").absolute())
        self._place: tuple[str, int] | None = None
        self.results: list[str] = []
        self._server = _Rank("rank 0", "0", self._new_actor())
        self._hosts = [
            _Rank(f"rank {ends_of(host)}", ends_of(host, ".."), self._new_actor()) for host in hosts
        ]
        self._ranks = [self._server, *self._hosts]
        _log.info("starting %d processes by Ray for %s", len(self._ranks), self._folder)

    def _new_actor(self) -> Any:
        amounts = dict(self._resources)
        options = {o: amounts.pop(name) for name, o in _OPTIONS.items() if name in amounts}
        return self._ray.remote(
            **{"num_cpus": 0, **options},
            resources=amounts,
            max_restarts=-1,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
        )(Minder).remote()

    def mind(self) -> int:
        """Starts each process once it is placed; returns the server's status when it has ended."""
        is_stopping = False
        while True:
            if self._stopping and not is_stopping:
                is_stopping = True
                self._server.actor.stop.remote(wait=False)
            if len(self._stopping) > 1 or (self._stopping and self._place is None):
                return 128 + self._stopping[0]
            for rank in self._answering():
                status = self._take(rank)
                if status is not None:
                    return 128 + self._stopping[0] if is_stopping else status
            self._check_placed()

    def end(self) -> None:
        """Gives the hosts time to leave, then ends every actor and with it its process."""
        with contextlib.suppress(Exception):  # a node may die at this moment
            leaving = [host.actor.leave.remote(_GRACE_SECONDS) for host in self._hosts]
            self._ray.wait(leaving, num_returns=len(leaving), timeout=_GRACE_SECONDS)
        for rank in self._ranks:
            with contextlib.suppress(Exception):
                self._ray.kill(rank.actor, no_restart=True)

    def _answering(self) -> list[_Rank]:
        """Polls every actor that is due; returns the ranks whose news arrive within a moment."""
        for rank in self._ranks:
            if rank.news is None and rank.due <= time.monotonic():
                rank.news = rank.actor.poll.remote()
        asked = {rank.news: rank for rank in self._ranks if rank.news is not None}
        if not asked:
            time.sleep(_LOOK_SECONDS)
            return []
        ready, _ = self._ray.wait(list(asked), num_returns=1, timeout=_LOOK_SECONDS)
        return [asked[reference] for reference in ready]

    def _take(self, rank: _Rank) -> int | None:
        """Handles the news of a process; returns the run's exit status if they end the run."""
        reference, rank.news = rank.news, None
        errors = self._ray.exceptions
        try:
            news: News | None = self._ray.get(reference)
            rank.placed = True
            if news is None:  # Ray has placed the actor, for the first time or on a new node
                self._start(rank)
                return None
        except errors.ActorUnavailableError:
            if self._stopping and rank is self._server:
                return STOPPED
            if rank.placed:
                _log.warning("%s: its node is gone; Ray places it anew", rank.name)
                rank.placed, rank.since = False, time.monotonic()
                rank.restarts += 1
            rank.due = time.monotonic() + _AGAIN_SECONDS
            return None
        except errors.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            why = f"{rank.name} cannot run on its node ({lines[-1]:.200})"
            raise BadInput(_BY_RAY, why, "every node needs the same mdgan") from error
        if rank is not self._server:
            return self._hear_host(rank, *news)
        printed, status = news
        for stream, line in printed:
            if stream == "out":
                self.results.append(line)
            else:
                _show(line)
        return 128 - status if status is not None and status < 0 else status

    def _check_placed(self) -> None:
        """Raises BadInput if Ray has found no node for a process in time."""
        limit = self._prepared.launch.links.connect_timeout
        late = time.monotonic() - limit
        waiting = [rank for rank in self._ranks if not rank.placed and rank.since < late]
        # Training goes on without a host that has run before, as long as the server runs.
        if not any(rank is self._server or not rank.restarts for rank in waiting):
            return
        total = self._ray.cluster_resources()
        amounts = ", ".join(f"{name} {total.get(name, 0):g}" for name in self._resources)
        why = f"Ray has had no place for {len(waiting)} of {len(self._ranks)} processes for "
        why += f"{limit:g} s ({key('connect_timeout', 'SECONDS')})"
        way_out = f"the cluster has {amounts}: ask for less, or add nodes"
        raise BadInput(_shown(self._resources), why, way_out)

    def _hear_host(
        self, host: _Rank, lines: list[tuple[str, str]], status: int | None
    ) -> int | None:
        """Handles the news of a host; returns the run's exit status if they end the run."""
        host.last_lines.extend(line for _, line in lines)
        if status is None:
            return None
        host.due = inf
        if status == _REFUSED and host.restarts:
            # The server may not have noticed yet that this host was lost.
            host.due = time.monotonic() + _RETURN_SECONDS
        elif status not in (0, STOPPED):
            for line in host.last_lines:
                text = _STAMP.sub("", line)
                if text.startswith(_WARNING):
                    _log.warning("%s: %s", host.name, text.removeprefix(_WARNING))
            if status == _REFUSED:  # without this host training cannot begin
                return status
        return None

    def _start(self, rank: _Rank) -> None:
        """Starts the process of a rank; restarts the hosts if the server has a new address."""
        before, again = self._place, self._place is not None
        if rank is self._server:
            wanted = before[1] if before else self._prepared.launch.links.master_port or 0
            address, port = self._ray.get(rank.actor.where.remote(wanted))
            # Without credentials, mdgan may listen only on the loopback address.
            links = self._prepared.launch.links
            nodes = {node["NodeManagerAddress"] for node in self._ray.nodes() if node["Alive"]}
            is_local = nodes == {address} and not (links.is_guarded or links.insecure)
            self._place = "127.0.0.1" if is_local else address, port
        option = "--out"
        if rank is self._server and (again or self._prepared.resumes_or_starts):
            option = "--resume-or-start"
        elif rank is self._server and self._prepared.continues is not None:
            option = "--resume"
        self._tell_to_start(rank, option)
        if before != self._place:
            for host in self._hosts:
                if host.placed:
                    self._tell_to_start(host, "--out")

    def _tell_to_start(self, rank: _Rank, option: str) -> None:
        rank.due = time.monotonic() + _AGAIN_SECONDS
        if self._place is None:
            return
        address, port = self._place
        rank.last_lines.clear()
        rank.actor.start.remote(
            [
                *("--launcher", "processes", "--ranks", rank.ranks, option, self._folder),
                *("--master-addr", address, "--master-port", str(port)),
            ],
            str(Path.cwd()),
            self._settings,
        )


def no_room(nodes: Sequence[Mapping[str, Any]], resources: Mapping[str, float], number: int) -> str:
    """Says that `number` processes with such resources do not fit on nodes; empty if they do."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    shares = ([node.get(name, 0) / amount for name, amount in resources.items()] for node in alive)
    room = sum(int(min(each, default=number) + _ROUNDING) for each in shares)
    if room >= number:
        return ""
    return (
        f"{_shown(resources)}: Ray's {len(alive)} node(s) have room for {room} of "
        f"{number} processes; ask for less, add nodes"
    )


def _shown(resources: Mapping[str, float]) -> Mention:
    amounts = {name: float(f"{amount:g}") for name, amount in resources.items()}
    return flag("host_resources", json.dumps(amounts))


def _show(line: str) -> None:
    """Logs a line that the server printed, as if the server ran in this process."""
    text = _STAMP.sub("", line)
    if text.startswith(_WARNING):
        _log.warning("%s", text.removeprefix(_WARNING))
    else:
        shown = "live" if text.startswith("iteration ") else "note"
        _log.info("%s", text, extra={"shown": shown, "pieces": [(0, text)]})
