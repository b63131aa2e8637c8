"""The messages between a Python program and the child process that trains for it.

The program writes its request into the child's standard input, and then the objects that
`mdgan.data.handed` reads. The processes of the run send events back through a second pipe. They all
write into it, so each splits its messages into pieces that the system writes whole.
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
_MOST_PIECE_BYTES = 512 - _HEADER.size  # POSIX writes 512 bytes in one piece

PlainSettings = dict[str, str | bool | int | float | None]
"""Settings by name, as files for `--config` have them."""


class TrainingRequest(Struct, frozen=True, tag=True):
    """Asks the child to train a new run, or to resume one."""

    settings: PlainSettings
    faults: str = ""  # as in MDGAN_FAULTS; they strike a new run
    resumes: str | None = None  # the folder of the run to resume
    open_arguments: str = ""  # what `mdgan.Run.open` needs in another program; see `spelled`


class ComparisonRequest(Struct, frozen=True, tag=True):
    """Asks the child to train several configurations and compare them."""

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
    # How to show it, as for `mdgan.cli.logs.TerminalHandler`.
    shown: str = "note"


class InputRefused(Struct, frozen=True, tag=True):
    """A `BadInput` of the child; if it names a setting, `what` has the parts of a `Mention`."""

    what: str | tuple[str, str, str, str | None]
    why: str
    way_out: str

    @classmethod
    def from_error(cls, error: BadInput, open_arguments: str) -> "InputRefused":
        """Makes the message; its texts already name settings as keywords, as Python writes them."""
        parts = (
            without_controls(spelled(f"{part}", in_python=True, objects=open_arguments))
            for part in (error.what, error.why, error.way_out)
        )
        refused = cls(*parts)
        if isinstance(error.what, Mention):
            return replace(refused, what=error.what.__getnewargs__())
        return refused

    def as_error(self) -> BadInput:
        """Makes the refusal that the program raises."""
        what = self.what if isinstance(self.what, str) else Mention(*self.what)
        error = BadInput(what, self.why, self.way_out)
        error.is_for_python = True
        return error


ChildEvent = ProgressEvent | LineLogged | InputRefused


def send_event(descriptor: int, event: ChildEvent) -> None:
    """Writes an event into a pipe.

    Other processes may write at the same time, but no other thread of this process.

    Raises:
        OSError: the program has ended.
    """
    content = msgpack.encode(event)
    for begin in range(0, len(content), _MOST_PIECE_BYTES):
        piece = content[begin : begin + _MOST_PIECE_BYTES]
        is_last = begin + len(piece) == len(content)
        os.write(descriptor, _HEADER.pack(os.getpid(), len(piece), is_last) + piece)


def receive_events(stream: IO[bytes]) -> Iterator[ChildEvent]:
    """Yields events until every process of the run has closed its end of the pipe."""
    begun: dict[int, bytes] = defaultdict(bytes)  # the pieces so far, by process
    while len(header := stream.read(_HEADER.size)) == _HEADER.size:
        process, size, is_last = _HEADER.unpack(header)
        begun[process] += stream.read(size)
        if is_last:
            yield msgpack.decode(begun.pop(process), type=ChildEvent)
