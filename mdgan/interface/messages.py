"""What a Python program and the child process that trains for it tell each other.

The request comes first in the child's input; what it hands over follows, see `mdgan.data.handed`.
Events come over a pipe of their own. All processes of the run write into it, each a message in
pieces that the system writes whole.
"""

import os
import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import IO

from msgspec import Struct, msgpack
from msgspec.structs import replace

from mdgan.errors import BadInput
from mdgan.observe.events import ProgressEvent
from mdgan.spelling import Mention, spelled, without_controls

_HEADER = struct.Struct(">IH?")  # the process, the size of a piece, and whether it is the last
_MOST_OF_A_PIECE = 512 - _HEADER.size  # every system writes so many bytes in one go

PlainSettings = dict[str, str | bool | int | float | None]
"""Settings by name, as files for `--config` have them."""


class TrainingRequest(Struct, frozen=True, tag=True):
    """Train a new run, or go on with one."""

    settings: PlainSettings
    faults: str = ""  # that strike a new run, as in MDGAN_FAULTS
    resumes: str | None = None  # the folder of the run to go on with
    objects: str = ""  # for `spelled`: what only the program has


class ComparisonRequest(Struct, frozen=True, tag=True):
    """Train several configurations, and compare them."""

    configurations: dict[str, PlainSettings]
    seeds: list[int]
    out: str
    jobs: int
    resume: bool


ChildRequest = TrainingRequest | ComparisonRequest


class LineLogged(Struct, frozen=True, tag=True):
    """A note or a warning for the user."""

    text: str
    is_warning: bool = False
    # How it is shown; see `mdgan.cli.logs.TerminalHandler`.
    shown: str = "note"


class InputRefused(Struct, frozen=True, tag=True):
    """A `BadInput`; a setting that it names comes as the parts of a `Mention`."""

    what: str | tuple[str, str, str, str | None]
    why: str
    way_out: str

    @classmethod
    def of(cls, error: BadInput, objects: str) -> "InputRefused":
        """Takes a refusal apart; all but its setting is in the words of Python already."""
        parts = (
            without_controls(spelled(f"{part}", in_python=True, objects=objects))
            for part in (error.what, error.why, error.way_out)
        )
        refused = cls(*parts)
        if isinstance(error.what, Mention):
            return replace(refused, what=error.what.__getnewargs__())
        return refused

    def as_error(self) -> BadInput:
        """The refusal, for a program."""
        what = self.what if isinstance(self.what, str) else Mention(*self.what)
        error = BadInput(what, self.why, self.way_out)
        error.is_for_python = True
        return error


ChildEvent = ProgressEvent | LineLogged | InputRefused


def send_event(descriptor: int, event: ChildEvent) -> None:
    """Writes an event. Other processes may write at the same time, other threads of this may not.

    Raises:
        OSError: the program is gone.
    """
    content = msgpack.encode(event)
    for begin in range(0, len(content), _MOST_OF_A_PIECE):
        piece = content[begin : begin + _MOST_OF_A_PIECE]
        is_last = begin + len(piece) == len(content)
        os.write(descriptor, _HEADER.pack(os.getpid(), len(piece), is_last) + piece)


def receive_events(stream: IO[bytes]) -> Iterator[ChildEvent]:
    """All events, until no process can send one any more."""
    begun: dict[int, bytes] = defaultdict(bytes)
    while len(header := stream.read(_HEADER.size)) == _HEADER.size:
        process, size, is_last = _HEADER.unpack(header)
        begun[process] += stream.read(size)
        if is_last:
            yield msgpack.decode(begun.pop(process), type=ChildEvent)
