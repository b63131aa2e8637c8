"""Messages between a program and its child process arrive whole, from several threads at once."""

import logging
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import IO

import pytest

from mdgan.cli.serve import EventSender
from mdgan.errors import BadInput
from mdgan.interface.messages import (
    ChildEvent,
    InputRefused,
    LineLogged,
    receive_events,
    send_event,
)
from mdgan.observe.events import (
    GeneratorScored,
    IterationLogged,
    TrainingBegun,
    tell_program,
    tell_program_of_row,
)
from mdgan.records.rows import Losses, RecordedRow, ScoresRow
from mdgan.spelling import command, flag


class Pipe:
    """A pipe whose messages are read in a thread."""

    def __init__(self) -> None:
        read, self.write = multiprocessing.Pipe(duplex=False)
        with read:
            stream = os.fdopen(os.dup(read.fileno()), "rb")
        self._events: list[ChildEvent] = []
        self._thread = threading.Thread(target=self._read, args=(stream,))
        self._thread.start()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            self._events += receive_events(stream)

    def close(self) -> list[ChildEvent]:
        """All that has come."""
        self.write.close()
        self._thread.join()
        return self._events


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, Pipe]]:
    """A logger of mdgan all of whose records are sent."""
    pipe, logger = Pipe(), logging.getLogger("mdgan")
    sender = EventSender(pipe.write, "data=…")
    others = logger.handlers
    logger.handlers = [sender]
    logger.setLevel(logging.DEBUG)
    yield logging.getLogger("mdgan.tests"), pipe
    logger.handlers = others
    logger.setLevel(logging.INFO)


def test_long_messages_of_several_processes_stay_apart() -> None:
    pipe = Pipe()
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            for length in range(1, 20_000, 500):
                send_event(pipe.write.fileno(), LineLogged(str(number) * length))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    texts = [event.text for event in pipe.close() if isinstance(event, LineLogged)]
    assert Counter(len(set(text)) for text in texts) == {1: 160}
    assert sorted({len(text) for text in texts}) == list(range(1, 20_000, 500))


def test_what_a_killed_process_has_begun_to_send_is_left_out() -> None:
    pipe = Pipe()
    os.write(pipe.write.fileno(), b"\x00\x00\x00\x07\x00\x02\x00ab")  # a piece, of more to come
    send_event(pipe.write.fileno(), LineLogged("of another"))
    os.write(pipe.write.fileno(), b"\x00\x00")
    assert pipe.close() == [LineLogged("of another")]


def test_what_is_logged_becomes_events(log: tuple[logging.Logger, Pipe]) -> None:
    logger, pipe = log
    logger.info("reading …", extra={"shown": "doing"})
    logger.debug("nothing of this")
    logger.info("%s: it is %d %%", command("resume", "a", iterations=9), 7)
    logger.info(f"see {command('sample', 'a')}", extra={"shown": "result"})
    logger.warning("warning: %s", f"{flag('threads', 3)} is faster")
    logger.warning("not audited: %s", BadInput(flag("held_out"), "is missing"))
    logger.warning("%s has changed", "a\x1b[2J\x02b")
    tell_program(TrainingBegun("a", 0, 9))
    for row in (
        Losses(iteration=3, generator_loss=0.5),
        ScoresRow(iteration=3, scores={"fid": 1.5, "kid": None}),
        RecordedRow(iteration=3),
    ):
        tell_program_of_row(row)
    try:
        raise ValueError("7 is no rank")
    except ValueError:
        logger.exception("rank 0 failed")
    *events, last = pipe.close()
    assert events == [
        LineLogged('mdgan.Run.open("a", data=…).resume(iterations=9): it is 7 %'),
        LineLogged('see mdgan.Run.open("a", data=…).sample()', shown="result"),
        LineLogged("warning: threads=3 is faster", is_warning=True),
        LineLogged("not audited: held_out: is missing", is_warning=True),
        LineLogged("a?[2J?b has changed", is_warning=True),
        TrainingBegun("a", 0, 9),
        IterationLogged(3, {"generator": 0.5, "discriminator": None}),
        GeneratorScored(3, {"fid": 1.5, "kid": None}),
    ]
    assert isinstance(last, LineLogged)
    assert last.text.startswith("rank 0 failed\nTraceback")


@pytest.mark.parametrize("case", [flag("batch_size", 0), "own.json"])
def test_a_refusal_arrives_in_the_words_of_python(
    log: tuple[logging.Logger, Pipe], case: str
) -> None:
    logger, pipe = log
    way_out = f"give {flag('iterations', 9)}, or {command('resume', 'a')}"
    refused = BadInput(case, f"is not for {flag('wire')}", way_out)
    logger.error("%s", refused)
    (event,) = pipe.close()
    assert isinstance(event, InputRefused)
    error = event.as_error()
    assert (error.setting, error.value) == (refused.setting, refused.value)
    begin = "batch_size=0" if refused.setting else "own.json"
    message = 'is not for wire; give iterations=9, or mdgan.Run.open("a", data=…).resume()'
    assert str(error) == f"{begin}: {message}"


def test_a_program_that_is_gone_stops_nothing(log: tuple[logging.Logger, Pipe]) -> None:
    logger, pipe = log
    read, write = multiprocessing.Pipe(duplex=False)
    read.close()
    EventSender(write, "").handle(
        logger.makeRecord("mdgan", logging.INFO, "", 0, "heard", (), None)
    )
    write.close()
    assert pipe.close() == []
