"""Draws from one seed, before anything starts, which faults strike which process and when."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from mdgan.errors import BadInput
from mdgan.launch.faults import LIES, SERVER, Fault

KINDS = ("kill", "stop", "leave", "join", "server")
"""What can happen.

`kill`: a worker's process dies. `stop`: it halts for a while, as on a machine out of memory or
behind a pulled cable. `leave`: a worker is asked to leave. `join`: one more worker joins. `server`:
the server dies, or halts for so long that a standby replaces it.
"""

HOSTILE = "hostile"
"""The kind of an event in which a host lies."""

_HELLO = "HELLO"
_LIES_IN_WORDS = {
    "change": "replaces a part of its {}",
    "always": "replaces a part of its {}, from then on",
    "again": "says its {} again",
    "shift": "says its {} as of another iteration",
    "as": "says its {} as another kind of message, too",
}
_MOST_NUMBER = 1000
_FIRST_PART, _LAST_PART = 0.05, 0.9
_LEAST_STOP_SECONDS = 0.2
_LONGEST_STOP = 1.5
_SERVER_HALTS = 0.25
_TAKE_OVER_SECONDS = 4.0


@dataclass(frozen=True)
class Event:
    """One thing that will happen.

    Attributes:
        kind: one of `KINDS`, or `HOSTILE`.
        iteration: the first in which it may happen.
        fault: how a process strikes itself; None for a worker that joins.
        halt_seconds: for how long a process halts; 0 if it does not.
    """

    kind: str
    iteration: int
    fault: Fault | None = None
    halt_seconds: float = 0.0

    def of(self, role: str) -> "Event":
        """The same for another process, if one is given."""
        if self.fault is None or not role:
            return self
        return replace(self, fault=replace(self.fault, role=role))

    def __str__(self) -> str:
        """For people: what happens to which process, in which phase."""
        if self.fault is None:
            return "one more worker comes"
        role = self.fault.role.replace("host-", "host ").replace(SERVER, "the server")
        if self.fault.phase == _HELLO:
            return f"{role} brings another host"
        if self.kind == HOSTILE:
            return f"{role} {_LIES_IN_WORDS[self.fault.action].format(self.fault.phase)}"
        what = {"kill": "is killed", "leave": "is asked to leave"}.get(self.fault.action)
        return f"{role} {what or f'halts for {self.halt_seconds:g} s'} at {self.fault.phase}"


@dataclass(frozen=True)
class Setting:
    """The properties of a run that decide which faults can strike it.

    Attributes:
        iterations: I.
        hosts: the numbers of those that may be struck.
        liveness_seconds: halts are drawn on both sides of it.
        server_phases: the phases that the server enters again and again.
        host_phases: the phases that every host enters again and again.
        said: the kinds of message that hosts say again and again.
    """

    iterations: int
    hosts: Sequence[int]
    liveness_seconds: float
    server_phases: Sequence[str]
    host_phases: Sequence[str]
    said: Sequence[str] = ()


def draw_schedule(
    seed: int, num_faults: int, kinds: Sequence[str], setting: Setting
) -> list[Event]:
    """Draws what happens; a pure function of its arguments.

    Args:
        seed: of everything that is drawn.
        num_faults: how many events.
        kinds: some of `KINDS`; all happen about equally often.
        setting: of the run.

    Returns:
        The events by iteration, no two in the same. None is in the first or the last iterations, so
        that the consequences of every fault can be seen.

    Raises:
        BadInput: there are fewer iterations than faults.
    """
    random = Random(f"mdgan chaos {seed}")
    at = _draw_iterations(random, "--faults", num_faults, setting)
    # Whole rounds of all kinds: chance alone would leave some out.
    rounds = -(-num_faults // len(kinds))
    drawn = [kind for _ in range(rounds) for kind in random.sample(list(kinds), len(kinds))]
    return [
        _draw(random, kind, iteration, setting)
        for kind, iteration in zip(drawn[:num_faults], at, strict=True)
    ]


def draw_lies(seed: int, num_lies: int, setting: Setting) -> list[Event]:
    """Draws which hosts lie when and how; a pure function of its arguments.

    Args:
        seed: of everything that is drawn.
        num_lies: how many events.
        setting: of the run.

    Returns:
        The events by iteration, no two in the same. Only half of the hosts ever lie. All ways to
        lie happen about equally often.

    Raises:
        BadInput: there are fewer iterations than lies.
    """
    random = Random(f"mdgan chaos {seed} hostile")
    at = _draw_iterations(random, "--hostile", num_lies, setting)
    liars = random.sample(list(setting.hosts), -(-len(setting.hosts) // 2))
    ways = [
        way for _ in range(0, num_lies, len(LIES)) for way in random.sample(list(LIES), len(LIES))
    ]
    events = []
    for way, iteration in zip(ways, at, strict=False):  # of the last round, some may be left
        kinds = {"change": [*setting.said, _HELLO], "claim": [_HELLO]}.get(way, setting.said)
        numbers = tuple(random.randrange(_MOST_NUMBER) for _ in range(LIES[way]))
        role = f"host-{random.choice(liars)}"
        fault = Fault(role, way, random.choice(kinds), iteration, numbers)
        events.append(Event(HOSTILE, iteration, fault))
    return events


def _draw_iterations(random: Random, flag: str, number: int, setting: Setting) -> list[int]:
    first = max(2, round(_FIRST_PART * setting.iterations))
    room = range(first, round(_LAST_PART * setting.iterations))
    if len(room) < number:
        raise BadInput(
            f"{flag} {number}: too many for {setting.iterations} iterations; give at most "
            f"{len(room)}, or more --iterations"
        )
    return sorted(random.sample(room, number))


def _draw(random: Random, kind: str, iteration: int, setting: Setting) -> Event:
    longest = _LONGEST_STOP * setting.liveness_seconds
    if kind == "join":
        return Event(kind, iteration)
    if kind == "server":
        halts, phase = random.random() < _SERVER_HALTS, random.choice(setting.server_phases)
        fault = Fault(SERVER, "stop" if halts else "kill", phase, iteration)
        return Event(kind, iteration, fault, (longest + _TAKE_OVER_SECONDS) * halts)
    fault = Fault(
        f"host-{random.choice(setting.hosts)}",
        kind,
        random.choice(setting.host_phases),
        iteration,
    )
    # Evenly on a logarithmic scale: a stumble is as likely as a long silence.
    spread: float = _LEAST_STOP_SECONDS * (longest / _LEAST_STOP_SECONDS) ** random.random()
    return Event(kind, iteration, fault, round(spread, 1) if kind == "stop" else 0.0)
