"""Planned faults: a process strikes itself when it enters a phase of an iteration.

This is only for trying out what training survives: what a run computes does not depend on it.
`MDGAN_FAULTS=host-2:kill@swap:12;server:stop@wait:30` kills the process of worker 2 when it is told
to swap at iteration 12 or later, and halts the server at iteration 30. Each fault strikes a process
once.

The phases are those of the algorithms, by the names of their spans, and three that are no spans.
In `write`, a background thread is about to write copied states. In `report` and `manifest` they are
written, but the server has not been told, or has not written the manifest.

`mdgan chaos --hostile` also plans lies, which change what a host says: `mdgan.launch.lies` has
them. `host-3:change-4-17@FEEDBACK:120` replaces a part of the first FEEDBACK from iteration 120 on.
A lie is refused where `mdgan chaos` does not say when it may be told, so that no process ever lies
without it.
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

FAULTS = "MDGAN_FAULTS"
"""The variable that holds the faults."""
FOLDER = "MDGAN_FAULTS_FOLDER"
"""The variable that names a `FaultFolder`, in which `mdgan chaos` says when each may strike."""

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "leave": signal.SIGTERM}
LIES = {"change": 2, "always": 2, "again": 1, "shift": 1, "as": 1, "claim": 1}
"""How a host can lie, each with how many numbers say what exactly; see `mdgan.launch.lies`."""
SERVER = "server"
_FORM = re.compile(
    r"(server|host-[1-9][0-9]{0,8}):([a-z]+)((?:-[0-9]{1,3})*)@([a-z-]+|[A-Z]{1,16}):([0-9]{1,9})"
)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        role: `server`, or `host-N` with the number of a host's first worker.
        action: one of `SIGNALS`, or of `LIES`.
        phase: it strikes at the beginning of this phase; of a lie the kind of message.
        iteration: it strikes in this iteration or later.
        numbers: of a lie, which one.
    """

    role: str
    action: str
    phase: str
    iteration: int
    numbers: tuple[int, ...] = ()

    @property
    def lies(self) -> bool:
        """Whether it changes what a host says."""
        return self.action in LIES

    def __str__(self) -> str:
        """The fault as `MDGAN_FAULTS` has it."""
        action = "-".join(map(str, (self.action, *self.numbers)))
        return f"{self.role}:{action}@{self.phase}:{self.iteration}"


class Strike(Struct, frozen=True):
    """A fault that has struck.

    Attributes:
        number: of the fault in `MDGAN_FAULTS`, from 0.
        process: that it struck.
        iteration: in which it struck.
        time: in seconds since 1970.
        moment: the same by the machine's monotonic clock, which is never set.
        did: of a lie, what was said.
        role: that the process carried out; empty if it is the one that the fault names.
    """

    number: int
    process: int
    iteration: int
    time: float
    moment: float = 0.0
    did: str = ""
    role: str = ""


@dataclass(frozen=True)
class Here:
    """A process that carries out a role, or did.

    Attributes:
        process: its number.
        session: the process that leads its session.
        role: `server`, or `host-N`.
    """

    process: int
    session: int
    role: str


@dataclass(frozen=True)
class Planned:
    """What the environment says.

    Attributes:
        faults: in order.
        folder: says when they may strike; None for at once.
    """

    faults: tuple[Fault, ...] = ()
    folder: "FaultFolder | None" = None

    def on_phase(self, role: str) -> OnPhase | None:
        """What a role's tracer calls in every phase; None if no fault is meant for the role.

        Args:
            role: of this process, which is about to begin.
        """
        mine = self._of(role, lies=False)
        if self.folder is not None:
            self.folder.tell_here(role)
        return _Striker(mine, role, self.folder) if mine else None

    def lies(self, role: str) -> dict[int, Fault]:
        """The lies that are or may be meant for a role, by their place among the faults."""
        return self._of(role, lies=True)

    def _of(self, role: str, *, lies: bool) -> dict[int, Fault]:
        """Those for a role; and of other hosts, as `mdgan chaos` may have another one struck."""
        others = self.folder is not None and role != SERVER
        return {
            n: fault
            for n, fault in enumerate(self.faults)
            if fault.lies == lies and (fault.role == role or (others and fault.role != SERVER))
        }


def read_planned(environment: Mapping[str, str] = os.environ) -> Planned:
    """Reads both variables.

    Raises:
        BadInput: a fault is malformed, or a lie that `mdgan chaos` has not planned.
    """
    folder = environment.get(FOLDER)
    faults = tuple(map(_parse, filter(None, environment.get(FAULTS, "").split(";"))))
    for fault in faults:
        if fault.lies and not folder:
            raise BadInput(f"{FAULTS} '{fault}': only mdgan chaos --hostile makes hosts lie")
    return Planned(faults, FaultFolder(Path(folder)) if folder else None)


def as_variables(faults: Sequence[Fault], folder: Path) -> dict[str, str]:
    """The opposite of `read_planned`."""
    return {FAULTS: ";".join(map(str, faults)), FOLDER: str(folder)}


def _parse(text: str) -> Fault:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise BadInput(
            f"{FAULTS} {text!r:.99}: must be ROLE:ACTION@PHASE:ITERATION such as "
            "host-2:kill@swap:12; unset it to train without faults"
        )
    role, action, given, phase, iteration = match.groups()
    numbers = tuple(map(int, given.split("-")[1:]))
    if phase.isupper() and role != SERVER and LIES.get(action) == len(numbers):
        return Fault(role, action, phase, int(iteration), numbers)
    phases = registry.all_phases()[role != SERVER]
    for name, known in ((action + given, tuple(SIGNALS)), (phase, phases)):
        if name not in known:
            raise BadInput(f"{FAULTS} {text!r:.99}: {name} is none of {', '.join(known)}")
    return Fault(role, action, phase, int(iteration))


@dataclass(frozen=True)
class FaultFolder:
    """Where `mdgan chaos` and the processes agree on faults; a file is there as a whole or not.

    Attributes:
        path: the folder, which `mdgan chaos` has made.
    """

    path: Path

    def allow(self, number: int) -> None:
        """From now on a fault may strike once."""
        (self.path / f"may-{number}").touch()

    def redirect(self, number: int, before: str | None, role: str) -> None:
        """A fault that may strike strikes another role, if it has not struck yet.

        Args:
            number: of the fault.
            before: the role that it was redirected to before; None if it was not.
            role: the new one.
        """
        names = [self._may(number, before), self._may(number, role)]
        with contextlib.suppress(OSError):
            names[0].rename(names[1])

    def claim(self, number: int, fault: Fault, role: str) -> bool:
        """Whether a fault may strike a role now; true for the first process that asks."""
        own = [None] if role == fault.role else []
        for aim in (*own, role):
            with contextlib.suppress(OSError):
                self._may(number, aim).unlink()
                return True
        return False

    def _may(self, number: int, role: str | None) -> Path:
        return self.path / (f"may-{number}" if role is None else f"may-{number}-{role}")

    def tell_here(self, role: str) -> None:
        """Tells that this process begins to carry out a role."""
        with contextlib.suppress(OSError):
            (self.path / f"here-{os.getpid()}-{os.getsid(0)}-{role}").touch()

    def here(self) -> list[Here]:
        """All processes that ever began."""
        names = [path.name.split("-", 3)[1:] for path in self.path.glob("here-*")]
        return [Here(int(process), int(session), role) for process, session, role in names]

    def tell_struck(self, strike: Strike) -> None:
        """A fault is about to strike this process."""
        temporary = self.path / f"temporary-{strike.number}"
        temporary.write_bytes(msgspec.json.encode(strike))
        temporary.replace(self.path / f"struck-{strike.number}")

    def struck(self) -> dict[int, Strike]:
        """All that have struck, by number."""
        texts = [path.read_bytes() for path in self.path.glob("struck-*")]
        found = [msgspec.json.decode(text, type=Strike) for text in texts]
        return {strike.number: strike for strike in found}


class _Striker:
    """Strikes this process when a fault is due."""

    def __init__(self, faults: Mapping[int, Fault], role: str, folder: FaultFolder | None) -> None:
        self._faults = dict(faults)
        self._role = role
        self._folder = folder

    def __call__(self, phase: str, iteration: int) -> None:
        phase = phase.replace(" ", "-")
        for number, fault in list(self._faults.items()):
            if fault.phase == phase and iteration >= fault.iteration:
                self._strike(number, fault, iteration)

    def _strike(self, number: int, fault: Fault, iteration: int) -> None:
        if self._folder is not None:
            if not self._folder.claim(number, fault, self._role):
                return
            now = time.time(), time.monotonic()
            strike = Strike(number, os.getpid(), iteration, *now, role=self._role)
            self._folder.tell_struck(strike)
        self._faults.pop(number, None)
        os.kill(os.getpid(), SIGNALS[fault.action])
