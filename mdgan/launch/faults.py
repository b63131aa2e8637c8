"""Planned faults, with which `mdgan chaos` tries out what training survives.

A process sends itself a signal when it enters a phase of an iteration. The environment names the
faults: `MDGAN_FAULTS=host-2:kill@swap:12;server:stop@wait:30` kills the process of worker 2 when it
begins a swap at iteration 12 or later, and halts the server at iteration 30. Each strikes once.

The phases are the spans of the algorithm, and three more. In `write`, a background thread is about
to write copied states. In `report` they are written, but the host has not reported them to the
server. In `manifest` the server knows of them, but has not written the manifest.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from mdgan.errors import BadInput
from mdgan.families import registry
from mdgan.observe.tracer import OnPhase

FAULTS = "MDGAN_FAULTS"  # the variable that holds the faults
FOLDER = "MDGAN_FAULTS_FOLDER"
"""The variable that names a `FaultFolder`, in which `mdgan chaos` allows each fault to strike."""

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "leave": signal.SIGTERM}
SERVER = "server"
_FORM = re.compile(r"(server|host-[1-9][0-9]{0,8}):([a-z]+)@([a-z-]+):([0-9]{1,9})")


@dataclass(frozen=True)
class Fault:
    """A fault that strikes when a role first enters a phase at an iteration or later.

    The role is `server`, or `host-N` with the number of a host's first worker.
    """

    role: str
    action: str
    phase: str
    iteration: int

    def __str__(self) -> str:
        """The fault as `MDGAN_FAULTS` has it."""
        return f"{self.role}:{self.action}@{self.phase}:{self.iteration}"


class Strike(Struct, frozen=True):
    """A fault that has struck."""

    number: int  # its place in `MDGAN_FAULTS`, from 0
    process: int
    iteration: int
    time: float  # in seconds since 1970
    moment: float  # in seconds of the machine's monotonic clock, which no user can set


@dataclass(frozen=True)
class RoleProcess:
    """A process that carries out a role, or did, and the leader of its session."""

    process: int
    session: int
    role: str


@dataclass(frozen=True)
class Planned:
    """The faults that the environment names. Without a folder they may strike at once."""

    faults: tuple[Fault, ...] = ()
    folder: "FaultFolder | None" = None

    def on_phase(self, role: str) -> OnPhase | None:
        """Makes the function that a role's tracer calls in every phase; None without a fault."""
        pending, folder = {n: f for n, f in enumerate(self.faults) if f.role == role}, self.folder
        if folder is not None:
            folder.announce(role)

        def strike(phase: str, iteration: int) -> None:
            for number, fault in list(pending.items()):
                if fault.phase != phase.replace(" ", "-") or iteration < fault.iteration:
                    continue
                if folder is not None:
                    if not folder.claim(number):
                        continue
                    now = time.time(), time.monotonic()
                    folder.record(Strike(number, os.getpid(), iteration, *now))
                pending.pop(number, None)
                os.kill(os.getpid(), SIGNALS[fault.action])

        return strike if pending else None


def read_planned(environment: Mapping[str, str] = os.environ) -> Planned:
    """Reads the planned faults from the environment; BadInput if one is mistyped."""
    folder = environment.get(FOLDER)
    faults = tuple(map(_parse, filter(None, environment.get(FAULTS, "").split(";"))))
    return Planned(faults, FaultFolder(Path(folder)) if folder else None)


def as_variables(faults: Sequence[Fault], folder: Path) -> dict[str, str]:
    """Writes planned faults as variables of the environment; `read_planned` is the inverse."""
    return {FAULTS: ";".join(map(str, faults)), FOLDER: str(folder)}


def _parse(text: str) -> Fault:
    match, what = _FORM.fullmatch(text.strip()), f"{FAULTS} {text!r:.99}"
    if match is None:
        why = "must be ROLE:ACTION@PHASE:ITERATION such as host-2:kill@swap:12"
        raise BadInput(what, why, "unset it to train without faults")
    role, action, phase, iteration = match.groups()
    phases = registry.all_phases()[role != SERVER]
    for name, known in ((action, tuple(SIGNALS)), (phase, phases)):
        if name not in known:
            raise BadInput(what, f"{name} is none of {', '.join(known)}")
    return Fault(role, action, phase, int(iteration))


@dataclass(frozen=True)
class FaultFolder:
    """The folder through which `mdgan chaos` and the processes of a run agree on faults."""

    path: Path

    def allow(self, number: int) -> None:
        """Lets a fault strike once from now on."""
        (self.path / f"may-{number}").touch()

    def claim(self, number: int) -> bool:
        """Whether a fault may strike now; true only for the first process that calls this."""
        with contextlib.suppress(OSError):
            (self.path / f"may-{number}").unlink()
            return True
        return False

    def announce(self, role: str) -> None:
        """Records that this process begins to carry out a role."""
        with contextlib.suppress(OSError):
            (self.path / f"role-{os.getpid()}-{os.getsid(0)}-{role}").touch()

    def processes(self) -> list[RoleProcess]:
        """All processes that have announced a role so far."""
        names = [path.name.split("-", 3)[1:] for path in self.path.glob("role-*")]
        return [RoleProcess(int(process), int(session), role) for process, session, role in names]

    def record(self, strike: Strike) -> None:
        """Records that a fault is about to strike this process."""
        temporary = self.path / f"temporary-{strike.number}"
        temporary.write_bytes(msgspec.json.encode(strike))
        temporary.replace(self.path / f"struck-{strike.number}")

    def struck(self) -> dict[int, Strike]:
        """All faults that have struck, by number."""
        texts = [path.read_bytes() for path in self.path.glob("struck-*")]
        strikes = [msgspec.json.decode(text, type=Strike) for text in texts]
        return {strike.number: strike for strike in strikes}
