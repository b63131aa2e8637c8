"""Draws from one seed, before anything starts, which faults strike which process and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from mdgan.errors import BadInput
from mdgan.launch.faults import SERVER, Fault
from mdgan.spelling import flag

KINDS = ("kill", "stop", "leave", "join", "server")
"""Kinds of faults.

`kill`: a worker's process dies. `stop`: it halts for a while, as on a machine out of memory or
behind a pulled cable. `leave`: a worker leaves when asked to. `join`: one more worker joins.
`server`: the server dies, or halts for so long that a standby replaces it.
"""

_FIRST_PART, _LAST_PART = 0.05, 0.9
_LEAST_STOP_SECONDS = 0.2
_LONGEST_STOP = 1.5
_SERVER_HALTS = 0.25
_TAKE_OVER_SECONDS = 4.0


@dataclass(frozen=True)
class ChaosEvent:
    """One planned fault, or a worker that joins."""

    kind: str
    iteration: int  # the first iteration in which it may happen
    fault: Fault | None = None  # how a process strikes itself; None for a worker that joins
    halt_seconds: float = 0.0  # how long a process halts; 0 if it does not

    def __str__(self) -> str:
        """The event in words: what happens to which process, in which phase."""
        if self.fault is None:
            return "one more worker comes"
        role = self.fault.role.replace("host-", "host ").replace(SERVER, "the server")
        what = {"kill": "is killed", "leave": "is asked to leave"}.get(self.fault.action)
        return f"{role} {what or f'halts for {self.halt_seconds:g} s'} at {self.fault.phase}"


@dataclass(frozen=True)
class ChaosSetting:
    """The properties of a run that decide which faults can strike it."""

    iterations: int
    hosts: Sequence[int]
    liveness_seconds: float  # halts are drawn on both sides of it
    server_phases: Sequence[str]  # the phases that the server enters again and again
    host_phases: Sequence[str]  # the phases that every host enters again and again


def draw_schedule(
    seed: int, num_faults: int, kinds: Sequence[str], setting: ChaosSetting
) -> list[ChaosEvent]:
    """Draws the events of a run; a pure function of its arguments.

    Args:
        kinds: some of `KINDS`; all occur about equally often.

    Returns:
        The events by iteration, no two in the same. The first and last iterations have none, so
        that the run shows the consequences of every fault.
    """
    first, last = (round(part * setting.iterations) for part in (_FIRST_PART, _LAST_PART))
    room = range(max(2, first), last)
    if len(room) < num_faults:
        why = f"too many for {setting.iterations} iterations"
        way_out = f"give at most {len(room)}, or more {flag('iterations')}"
        raise BadInput(flag("faults", num_faults), why, way_out)
    random = Random(f"mdgan chaos {seed}")
    at = sorted(random.sample(room, num_faults))
    # Whole rounds of all kinds: chance alone would leave some out.
    rounds = -(-num_faults // len(kinds))
    drawn = [kind for _ in range(rounds) for kind in random.sample(list(kinds), len(kinds))]
    return [
        _draw(random, kind, iteration, setting=setting)
        for kind, iteration in zip(drawn[:num_faults], at, strict=True)
    ]


def _draw(random: Random, kind: str, iteration: int, setting: ChaosSetting) -> ChaosEvent:
    longest = _LONGEST_STOP * setting.liveness_seconds
    if kind == "join":
        return ChaosEvent(kind, iteration)
    if kind == "server":
        halts = random.random() < _SERVER_HALTS
        phase = random.choice(setting.server_phases)
        fault = Fault(SERVER, "stop" if halts else "kill", phase, iteration=iteration)
        halt_seconds = (longest + _TAKE_OVER_SECONDS) * halts
        return ChaosEvent(kind, iteration, fault, halt_seconds=halt_seconds)
    role = f"host-{random.choice(setting.hosts)}"
    phase = random.choice(setting.host_phases)
    # Evenly on a logarithmic scale: a stumble is as likely as a long silence.
    spread: float = _LEAST_STOP_SECONDS * (longest / _LEAST_STOP_SECONDS) ** random.random()
    halt_seconds = round(spread, 1) if kind == "stop" else 0.0
    fault = Fault(role, kind, phase, iteration=iteration)
    return ChaosEvent(kind, iteration, fault, halt_seconds=halt_seconds)
