"""How far two machines' clocks are apart, by asking back and forth (Cristian 1989)."""

import math
import time

from mdgan import messages
from mdgan.messages import Message
from mdgan.transport.link import Link, LinkBroken
from mdgan.transport.until import Until

_ROUNDS = 5
CLOCK_BYTES = 256
"""The most bytes of the body of a CLOCK message."""


def tell_clock(link: Link, until: Until) -> None:
    """The server's side: answers each question with its time.

    Raises:
        RuntimeError: the host is gone or does not ask in time.
    """
    for _ in range(_ROUNDS):
        link.receive(until)
        link.send(messages.clock(time.monotonic()))


def ask_clock(link: Link, until: Until) -> float:
    """The host's side.

    Returns:
        Seconds to add to this machine's monotonic clock to get the server's: from the quickest
        question, whose answer is taken to be from its middle. It is off by half of that round trip
        at most.

    Raises:
        RuntimeError: the server is gone, or does not answer in time or with its time.
        Interrupted: asked to stop.
    """
    answers: list[tuple[float, float]] = []
    for _ in range(_ROUNDS):
        asked = time.monotonic()
        link.send(messages.clock(asked))
        told = _told(link.receive(until)[0])
        answered = time.monotonic()
        answers.append((answered - asked, told - (asked + answered) / 2))
    return min(answers)[1]


def _told(message: Message) -> float:
    now = message.fields.get("now")
    if not isinstance(now, float) or not math.isfinite(now):
        raise LinkBroken("it does not tell its time")
    return now
