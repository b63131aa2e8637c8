"""How far two machines' clocks are apart, by asking back and forth (Cristian 1989)."""

import time
from datetime import timedelta

from mdgan import messages
from mdgan.transport.link import Link

_ROUNDS = 5


def tell_clock(link: Link, timeout: timedelta) -> None:
    """The server's side: answers each question with its time.

    Raises:
        RuntimeError: the host is gone or does not ask in time.
    """
    for _ in range(_ROUNDS):
        link.receive(timeout)
        link.send(messages.clock(time.monotonic()))


def ask_clock(link: Link, timeout: timedelta) -> float:
    """The host's side.

    Returns:
        Seconds to add to this machine's monotonic clock to get the server's: from the quickest
        question, whose answer is taken to be from its middle. It is off by half of that round trip
        at most.

    Raises:
        RuntimeError: the server is gone or does not answer in time.
    """
    answers: list[tuple[float, float]] = []
    for _ in range(_ROUNDS):
        asked = time.monotonic()
        link.send(messages.clock(asked))
        told = float(link.receive(timeout)[0].fields["now"])
        answered = time.monotonic()
        answers.append((answered - asked, told - (asked + answered) / 2))
    return min(answers)[1]
