"""Makes the server's list of hosts, without a server."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from mdgan.engine.hello import make_hello
from mdgan.engine.server.admission import Admission
from mdgan.engine.server.peers import Peers
from mdgan.engine.settings import RunSettings
from mdgan.observe.run_observer import RunObserver
from mdgan.observe.tracer import Tracer
from mdgan.transport.server_end import ServerTransport

IDENTITY: dict[str, Any] = {"version": "1.2", "batch_size": 10, "kappa": "auto", "swap": None}
WELCOME: dict[str, Any] = {"generation": 3, "run": "digits-1"}
HOUR = 3600.0


class Notes:
    """Keeps what would be recorded, and what the user would be told."""

    def __init__(self) -> None:
        self.tracer = Tracer()
        self.lines: list[str] = []
        self.recorded: list[dict[str, Any]] = []
        self.audited: list[tuple[str, str, int, list[int]]] = []
        self.known: Any = None

    def note(self, text: str) -> None:
        self.lines.append(text)

    def event(self, name: str, iteration: int, **details: Any) -> None:
        self.recorded.append({"event": name, "iteration": iteration, **details})

    def audit(self, action: str, outcome: str, iteration: int, ranks: Sequence[int]) -> None:
        self.audited.append((action, outcome, iteration, list(ranks)))

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.recorded if event["event"] == name]


def make_peers(
    num_workers: int = 4,
    *,
    return_seconds: float = HOUR,
    notes: Notes | None = None,
    observer: RunObserver | None = None,
    strikes: int = 3,
    **how: Any,
) -> Peers:
    """Peers that wait for these workers; `how` is for `Admission`."""
    admission = Admission(range(1, num_workers + 1), IDENTITY, WELCOME, return_seconds, **how)
    observer = observer or cast(RunObserver, notes or Notes())
    settings = RunSettings(strikes=strikes)
    return Peers(admission, ServerTransport(admission.admit, 60.0), observer, settings)


def hello(*workers: int, samples: int = 100, **differences: Any) -> dict[str, Any]:
    """What arrives, after a journey as JSON, from a host that carries some workers."""
    counts = {worker: [samples - 1, 1] for worker in workers}
    fields = make_hello(workers[0], counts, {**IDENTITY, **differences})
    content: dict[str, Any] = json.loads(json.dumps(fields))
    return content


def welcomed(answer: Mapping[str, Any] | str) -> Mapping[str, Any]:
    assert isinstance(answer, Mapping), answer
    return answer


def refused(answer: Mapping[str, Any] | str) -> str:
    assert isinstance(answer, str), answer
    assert len(answer.splitlines()) == 1
    return answer


def join(peers: Peers, *workers: int, ready: bool = True, **how: Any) -> dict[str, Any]:
    """A host joins, and takes part if it is ready; returns its hello."""
    fields = hello(*workers, **how)
    welcomed(peers.admission.admit(fields))
    peers.joined(workers[0], fields)
    if ready:
        peers.arrived(workers[0])
    return fields


def joined(num_workers: int = 4, *present: int, **how: Any) -> tuple[Peers, dict[int, Any]]:
    """Peers of a run that has begun, with hosts of one worker each; and these hosts' hellos."""
    peers = make_peers(num_workers, **how)
    hellos = {worker: join(peers, worker) for worker in present}
    peers.begin()
    return peers, hellos
