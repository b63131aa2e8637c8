"""A channel of messages in this process, which delivers them out of order."""

import queue
import random
import threading
from collections.abc import Callable

from mdgan.nvflare.tunnel import Relay


class FakeCells:
    """Delivers messages between named relays; `change` alters one on its way."""

    def __init__(self, change: Callable[[bytes], bytes] = bytes) -> None:
        self.relays: dict[str, Relay] = {}
        self.carried: list[bytes] = []
        self._change = change
        self._queue: queue.SimpleQueue[tuple[str, str, bytes]] = queue.SimpleQueue()
        threading.Thread(target=self._deliver, daemon=True).start()

    def relay(self, name: str, connects_to: tuple[str, int] | None = None) -> Relay:
        def send(peer: str, message: bytes) -> bool:
            self.carried.append(message)
            self._queue.put((name, peer, message))
            return peer in self.relays

        self.relays[name] = Relay(send, connects_to)
        return self.relays[name]

    def _deliver(self) -> None:
        order = random.Random(5)
        while True:
            waiting = [self._queue.get()]
            while not self._queue.empty():
                waiting.append(self._queue.get())
            order.shuffle(waiting)
            for origin, peer, message in waiting:
                if peer in self.relays:
                    self.relays[peer].take(origin, self._change(message))
