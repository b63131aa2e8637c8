"""Bytes that one end of a transport has moved, by kind of message."""

from collections import Counter


class Traffic:
    """Counters of one end; only the role's own thread touches them.

    What sets a link up and what takes it down again (clocks, farewells, the store) is not counted.

    Attributes:
        sent: bytes sent so far, by the name of the kind.
        received: bytes received so far, by the name of the kind.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def count_sent(self, kind: str, num_bytes: int) -> int:
        """Counts a message that leaves; returns its bytes."""
        self.sent[str(kind)] += num_bytes
        return num_bytes

    def count_received(self, kind: str, num_bytes: int) -> int:
        """Counts a message that was taken in; returns its bytes."""
        self.received[str(kind)] += num_bytes
        return num_bytes
